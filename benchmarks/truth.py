"""Joules with their error against the truth, on simulated sensors that are not as the tables say.

    python benchmarks/truth.py [--spans 800] [--shapes 200] [--windows 120] [--seed N] [--real 40]

**Programs** train and rest as programs do: spans of 0.2 to 3 s that begin and end with a load,
spans anywhere, and whole runs of 0.3 to 60 s. **Windows** of 1 to 30 s lie anywhere in loads of
other shapes: ramps, bursts, waves in step with the sensor. Each has a fresh board: gain from
N(0, 2.5 %), period, window and lag each up to 20 % off the tables, lag and phase of the counter
and the jitter of all ticks drawn. The analysis gets what the recorder would have written, and the
product's own tables. ``sensed`` is judged by the sampling error alone, ``energy`` by the whole
error, ratios of two caps on one board without the gain part.

An error is right if it is neither too small nor too wide: as controls, a meter that always says
5 % and one that says ten times as much as ours must fail. **Other shapes** (bursts, brief spans,
boards without samples, hours of training) are shown beside, and are no part of the verdict; with
``--only-shapes`` nothing else is. ``--real`` records so many of each
family on each board in real time, through NVML.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from helpers.truth_programs import BOARDS as PROGRAM_BOARDS
from helpers.truth_programs import FAMILIES as STORIES
from helpers.truth_programs import MODULES, Judged, constant_load, judge_programs
from helpers.truth_shapes import judge_shapes
from helpers.truth_windows import (
    BOARDS,
    BY_DEFAULT,
    FAMILIES,
    Setup,
    Window,
    fresh_unit,
    make_window,
)
from helpers.verdict import Verdicts

from joulewise.analyse.energy.windows import energy_of, window_energy

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The model's figures were set on seeds 1 to 9; these have been looked at for judging only.
SEED: Final = 2_718_281
ALL: Final = 0.93
EACH: Final = 0.92
WIDTH: Final = 1.5
AT_10_S: Final = 0.01
# Of the spans and runs of each board and family.
INSIDE: Final = (0.93, 0.99)
BIAS: Final = 0.005
LONG_S: Final = 0.5
TYPICAL: Final = 0.1
AT_2_S: Final = 0.02
# Fewer than 33 of 40 inside come once in a thousand times where 95 % are right.
REAL_INSIDE: Final = 33 / 40


@dataclass(frozen=True)
class Results:
    """Windows in the order in which they were made, a row each."""

    board: NDArray[np.str_]
    family: NDArray[np.str_]
    value: NDArray[np.float64]
    sampling: NDArray[np.float64]
    whole: NDArray[np.float64]
    blind: NDArray[np.float64]
    sensed: NDArray[np.float64]
    energy: NDArray[np.float64]

    def only(self, where: NDArray[np.bool_]) -> Results:
        return Results(*(getattr(self, name)[where] for name in self.__dataclass_fields__))

    @property
    def off(self) -> NDArray[np.float64]:
        return np.abs(self.value - self.sensed)

    @property
    def width(self) -> float:
        """The median stated error, beside the 95th percentile of the actual one."""
        return float(np.median(self.sampling) / np.quantile(self.off, 0.95))

    @property
    def sensed_covered(self) -> float:
        return float(np.mean(self.off <= self.sampling))

    @property
    def energy_covered(self) -> float:
        return float(np.mean(np.abs(self.value - self.energy) <= self.whole))


def measure(windows: list[tuple[str, Window]]) -> Results:
    rows = []
    for board, window in windows:
        found = window_energy(window.device, window.fast, window.buffer, np.array([window.span_ns]))
        result = energy_of(found, 0, window.device)
        assert result is not None
        blind = float(found.aliasing_j[0])
        rows.append(
            (
                *(board, window.family, result.value, result.error_sampling, result.error, blind),
                *(window.sensed_j, window.energy_j),
            )
        )
    return Results(*(np.array(column) for column in zip(*rows, strict=True)))


def many(
    seed: int,
    each: int,
    setup: Setup = BY_DEFAULT,
    *,
    time_s: float | None = None,
) -> Results:
    draw = np.random.default_rng(seed)
    return measure(
        [
            (board, make_window(draw, fresh_unit(draw, board), family, setup, time_s=time_s))
            for board in BOARDS
            for family in FAMILIES
            for _ in range(each)
        ]
    )


def main(options: argparse.Namespace) -> int:
    verdicts = Verdicts()
    seed, each = options.seed, options.windows
    if options.only_shapes:
        show_shapes(seed, options.shapes)
        return 0
    judge_families(seed, options.spans, verdicts)
    judge_modules(seed, options.spans, verdicts)
    show_shapes(seed, options.shapes)
    print(
        f"\nseed {seed}, {each} windows for each of {len(BOARDS)} boards and {len(FAMILIES)} loads"
    )
    found = many(seed, each)
    judge_counter(found, verdicts)
    judge_ten_seconds(many(seed + 1, max(each // 4, 10), time_s=10.0), verdicts)
    judge_ratios(seed + 2, each, verdicts)
    judge_control(found, verdicts)
    show("\nThe same, polled at 100 Hz", fast := many(seed + 3, each // 2, Setup(100.0)))
    verdicts.at_least("100 Hz: sensed_j inside", fast.sensed_covered, ALL)
    judge_integral(many(seed + 4, each // 2, Setup(counter=False)), verdicts)
    if options.real:
        from helpers.truth_real import real_results

        judge_real(real_results(options.real, seed), verdicts)
    verdicts.show()
    return 0 if verdicts.all_met else 1


def judge_families(seed: int, least: int, verdicts: Verdicts) -> None:
    print(f"seed {seed}, at least {least} spans or runs of each family on each board")
    show_head()
    for board in PROGRAM_BOARDS:
        for family, story in STORIES.items():
            found = judge_programs(seed, board, family, least, story)
            show_judged(found)
            what, inside, bias = f"{board}, {family}", _inside(found), abs(_bias(found))
            verdicts.at_least(f"{what}: inside", inside, INSIDE[0])
            verdicts.at_most(f"{what}: inside", inside, INSIDE[1])
            verdicts.at_most(f"{what}: mean relative bias", bias, BIAS)
            if family == "run":
                verdicts.at_least(f"{what}: median error / stated", _typical(found), TYPICAL)
                wide = replace(found, sampling=10 * found.sampling)
                fails = _typical(wide) < TYPICAL and _inside(wide) > INSIDE[1]
                verdicts.at_least(f"control, {what}: ten times too wide fails", float(fails), 1)
        steady = judge_programs(seed, board, "steady", max(least // 4, 10), constant_load)
        show_judged(steady)
        stated = float(np.median(steady.sampling / steady.value))
        verdicts.at_most(f"{board}: median stated error of 2 s of training", stated, AT_2_S)


def judge_modules(seed: int, least: int, verdicts: Verdicts) -> None:
    """Superchips, whose power and counter are polled, and whose ticks nobody knows."""
    for board in MODULES:
        for family, story in STORIES.items():
            found = judge_programs(seed, board, family, least, story)
            show_judged(found)
            verdicts.at_least(f"{board}, {family}: inside", _inside(found), INSIDE[0])
            if family != "run":  # whose errors are known to be too wide
                verdicts.at_most(f"{board}, {family}: inside", _inside(found), INSIDE[1])


def show_shapes(seed: int, least: int) -> None:
    print(f"\nOther shapes, at least {least} windows of each on each board (not judged)")
    show_head()
    for board in PROGRAM_BOARDS:
        for found in judge_shapes(seed, board, least):
            show_judged(found, shortest_s=0.0)


def _inside(found: Judged) -> float:
    return float(np.mean(np.abs(found.value - found.sensed) <= found.sampling))


def _bias(found: Judged, shortest_s: float = LONG_S) -> float:
    """The mean relative error of spans that are not shorter than this."""
    long = found.time_s >= shortest_s
    return float(np.mean((found.value / found.sensed - 1)[long])) if long.any() else 0.0


def _typical(found: Judged) -> float:
    """0.34 where the errors are normal and rightly stated."""
    return float(np.median(np.abs(found.value - found.sensed) / found.sampling))


def show_head() -> None:
    print(
        f"{'board':9}{'family':22}{'n':>5}{'inside':>8}{'bias':>9}{'error/stated':>14}{'stated':>9}"
    )


def show_judged(found: Judged, shortest_s: float = LONG_S) -> None:
    stated = np.median(found.sampling / found.sensed)
    print(
        f"{found.board:9}{found.family:22}{len(found.value):5}{_inside(found):8.1%}"
        f"{_bias(found, shortest_s):+9.2%}{_typical(found):14.2f}{stated:9.2%}",
        flush=True,
    )


def judge_counter(found: Results, verdicts: Verdicts) -> None:
    show("As recorded by default: counter and samples, polls at 2.5 Hz", found)
    verdicts.at_least(f"sensed_j inside, of {len(found.value)}", found.sensed_covered, ALL)
    verdicts.at_least("energy_j inside the whole error", found.energy_covered, ALL)
    for family in FAMILIES:
        part = found.only(found.family == family)
        verdicts.at_least(f"{family}: sensed_j inside", part.sensed_covered, EACH)
        verdicts.at_least(f"{family}: energy_j inside the whole error", part.energy_covered, EACH)
    verdicts.at_most("median stated / 95th percentile actual", found.width, WIDTH, percent=False)
    relative = np.median(found.sampling / found.sensed) / np.quantile(
        found.off / found.sensed, 0.95
    )
    verdicts.at_most("the same, relative to the energy", relative, WIDTH, percent=False)


def judge_ten_seconds(found: Results, verdicts: Verdicts) -> None:
    for board in ("v100", "rtx6000"):
        part = found.only(found.board == board)
        stated = float(np.median(part.sampling / part.value))
        verdicts.at_most(f"{board}: median stated error at 10 s", stated, AT_10_S)


def judge_ratios(seed: int, each: int, verdicts: Verdicts) -> None:
    """The same board under two caps: its gain is in both, and says nothing of their ratio."""
    draw = np.random.default_rng(seed)
    pairs = []
    for board in BOARDS:
        for _ in range(each):
            unit = fresh_unit(draw, board)
            limits = unit.board.limits
            caps_w = draw.uniform(limits.minimum_w, limits.maximum_w, 2)
            pairs += [(board, make_window(draw, unit, "training", cap_w=cap)) for cap in caps_w]
    found = measure(pairs)
    result, truth = (one[::2] / one[1::2] for one in (found.value, found.energy))
    relative = found.sampling / found.value
    error = result * np.hypot(relative[::2], relative[1::2])
    covered = float(np.mean(np.abs(result - truth) <= error))
    print(f"\nRatios of two caps on one board: median error {np.median(error / result):.3%}")
    verdicts.at_least(f"ratios inside without the gain part, of {len(result)}", covered, ALL)


def judge_control(found: Results, verdicts: Verdicts) -> None:
    always = 0.05 * found.value
    width = float(np.median(always) / np.quantile(found.off, 0.95))
    print(f"\nA meter that always says 5 %: covers {np.mean(found.off <= always):.1%}", end="")
    print(f", {width:.1f} times as wide as it should be")
    failed = width > WIDTH or np.mean(found.off <= always) < ALL
    verdicts.at_least("control: the meter that always says 5 % fails", float(failed), 1)


def judge_integral(found: Results, verdicts: Verdicts) -> None:
    show("\nA board without a counter: the integral of the driver's samples", found)
    locked = found.only(found.family == "locked")
    rest = found.only(found.family != "locked")
    bound = locked.sampling + locked.blind
    print(
        "A wave in step with the sensor is invisible to it: "
        f"{locked.sensed_covered:.0%} inside, off by {np.median(locked.off / locked.sensed):.0%} "
        "in the median. What it cannot exclude (aliasing_j) covers "
        f"{np.mean(locked.off <= bound):.0%}, at {np.median(bound / locked.value):.0%} of it."
    )
    verdicts.at_least("no counter, loads not in step: sensed_j inside", rest.sensed_covered, ALL)
    covered = float(np.mean(locked.off <= bound))
    verdicts.at_least("no counter, in step: inside error and aliasing_j", covered, ALL)


def judge_real(parts: list[Judged], verdicts: Verdicts) -> None:
    print("\nIn real time, through NVML")
    show_head()
    for board in PROGRAM_BOARDS:
        for family in STORIES:
            mine = [part for part in parts if (part.board, part.family) == (board, family)]
            columns = (
                np.concatenate([getattr(part, name) for part in mine])
                for name in ("value", "sampling", "sensed", "time_s")
            )
            found = Judged(board, family, *columns)
            show_judged(found)
            verdicts.at_least(f"real time, {board}, {family}: inside", _inside(found), REAL_INSIDE)


def show(title: str, found: Results) -> None:
    print(f"\n{title}" if not title.startswith("\n") else title)
    print(
        f"{'board':9}{'load':10}{'n':>5}{'sensed':>8}{'energy':>8}{'off, p95':>11}"
        f"{'stated':>10}{'stated/p95':>12}{'stated %':>10}"
    )
    for board in (*BOARDS, "all"):
        for family in (*FAMILIES, "all"):
            where = np.isin(found.board, BOARDS if board == "all" else board)
            part = found.only(
                where & np.isin(found.family, [*FAMILIES] if family == "all" else family)
            )
            if len(part.value):
                print(
                    f"{board:9}{family:10}{len(part.value):5}{part.sensed_covered:8.1%}"
                    f"{part.energy_covered:8.1%}{np.quantile(part.off, 0.95):9.3f} J"
                    f"{np.median(part.sampling):8.3f} J{part.width:12.2f}"
                    f"{np.median(part.sampling / part.value):10.3%}"
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spans", type=int, default=800)
    parser.add_argument("--shapes", type=int, default=200, metavar="N")
    parser.add_argument("--only-shapes", action="store_true")
    parser.add_argument("--windows", type=int, default=120)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--real", type=int, default=0, metavar="N")
    start = time.perf_counter()
    status = main(parser.parse_args())
    print(f"{time.perf_counter() - start:.0f} s")
    sys.exit(status)
