"""Joules with their error against the truth, on simulated sensors that are not as the tables say.

    python benchmarks/truth.py [--windows 150] [--seed N] [--real]

Each window has a fresh board: gain from N(0, 2.5 %), period, window and lag each up to 20 % off
the tables, any phase. The analysis gets what the recorder would have written, and the product's
own tables. ``sensed`` is judged by the sampling error alone, ``energy`` by the whole error,
ratios of two caps on one board without the gain part. As a control, a meter that always says
5 % must fail. ``--real`` records 30 windows in real time, through NVML.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from truth_windows import BOARDS, BY_DEFAULT, FAMILIES, Setup, Window, fresh_unit, make_window
from verdict import Verdicts

from joulewise.analyse.energy import energy_of, window_energy

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The model's few figures were set on seeds 1 to 9; these have been looked at for judging only.
SEED: Final = 2_718_281
ALL: Final = 0.93
EACH: Final = 0.92
WIDTH: Final = 1.5
AT_10_S: Final = 0.01


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
        told = energy_of(found, 0, window.device)
        assert told is not None
        blind = float(found.blind_j[0])
        rows.append(
            (
                *(board, window.family, told.value, told.error_sampling, told.error, blind),
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
    print(f"seed {seed}, {each} windows for each of {len(BOARDS)} boards and {len(FAMILIES)} loads")
    found = many(seed, each)
    judge_counter(found, verdicts)
    judge_ten_seconds(many(seed + 1, max(each // 4, 10), time_s=10.0), verdicts)
    judge_ratios(seed + 2, each, verdicts)
    judge_control(found, verdicts)
    show("\nThe same, polled at 100 Hz", fast := many(seed + 3, each // 2, Setup(100.0)))
    verdicts.at_least("100 Hz: sensed_j inside", fast.sensed_covered, ALL)
    judge_integral(many(seed + 4, each // 2, Setup(counter=False)), verdicts)
    if options.real:
        from truth_real import real_windows

        judge_real(measure(real_windows()), verdicts)
    verdicts.show()
    return 0 if verdicts.all_met else 1


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
    told, truth = (one[::2] / one[1::2] for one in (found.value, found.energy))
    relative = found.sampling / found.value
    error = told * np.hypot(relative[::2], relative[1::2])
    covered = float(np.mean(np.abs(told - truth) <= error))
    print(f"\nRatios of two caps on one board: median error {np.median(error / told):.3%}")
    verdicts.at_least(f"ratios inside without the gain part, of {len(told)}", covered, ALL)


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
        "in the median. What it cannot exclude (blind_j) covers "
        f"{np.mean(locked.off <= bound):.0%}, at {np.median(bound / locked.value):.0%} of it."
    )
    verdicts.at_least("no counter, loads not in step: sensed_j inside", rest.sensed_covered, ALL)
    covered = float(np.mean(locked.off <= bound))
    verdicts.at_least("no counter, in step: inside error and blind_j", covered, ALL)


def judge_real(found: Results, verdicts: Verdicts) -> None:
    show("\nIn real time, through NVML", found)
    # 30 windows of 95 %: fewer than 26 inside come about once in a hundred times.
    inside = float(np.sum(found.off <= found.sampling))
    verdicts.at_least(f"real time: sensed_j inside, of {len(found.value)}", inside, 26)
    inside = float(np.sum(np.abs(found.value - found.energy) <= found.whole))
    verdicts.at_least(f"real time: energy_j inside, of {len(found.value)}", inside, 26)


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
    parser.add_argument("--windows", type=int, default=150)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--real", action="store_true")
    start = time.perf_counter()
    status = main(parser.parse_args())
    print(f"{time.perf_counter() - start:.0f} s")
    sys.exit(status)
