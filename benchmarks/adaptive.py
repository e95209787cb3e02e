"""What the adaptive search finds with a tenth of the runs, against the truth and other ways.

On every curve, for every metric and seed, it looks for the best power limit, run by run, each run
off by a factor of its own in time and in power (1 %, then 3 %). ``within``: how often its choice
is at most 1 % (2 %) worse than the best by the noise-free curve. The curves are those of the
simulated boards, and with ``--traces`` those that others measured (a folder with their
``summary_power_*.csv``): made monotone, and as they are; those alone where a limit binds, and all.

    .venv/bin/python benchmarks/adaptive.py [--seeds 20] [--first-seed 100] [--traces FOLDER]
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from helpers.adaptive_cases import TRACES, Curve, measured, simulated
from helpers.adaptive_rivals import best_constant, full_grid, luck
from helpers.verdict import Verdicts
from numpy.typing import NDArray

from joulewise.data.devices import Source
from joulewise.data.energy import Energy
from joulewise.data.sweeps import POWER_LIMIT, Planned, Setting, Trial, TrialState
from joulewise.metrics.metric import parse
from joulewise.search.objective import Objective
from joulewise.search.one_axis.adaptive import OneAxisSearch

METRICS = ("energy", "edp", "eds:2.0", "eds:1.5")
WITHIN = {0.01: 0.01, 0.03: 0.02}
"""By the noise of a run, how much worse than the best a choice may be."""
_SHOWN = 8


@dataclass(frozen=True)
class Case:
    curve: Curve
    metric: str
    noise: float
    seed: int


@dataclass(frozen=True)
class Found:
    """What a way chose; ``off`` is the saving it stated less the true one, None where it did not.

    ``covered``: the interval around that saving held the true one. ``too_good``: what the score of
    the run that won had of luck.
    """

    on: str
    metric: str
    loss: float
    runs: int
    off: float | None = None
    sure: bool = False
    right: bool = False
    covered: bool | None = None
    too_good: float = 0.0
    ask_s: tuple[float, ...] = ()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=100, help="0 to 19 were tuned on")
    parser.add_argument("--traces", type=Path, help="folder of the measured curves")
    parser.add_argument("--measured-seeds", type=int, default=2, help="there are more such curves")
    parser.add_argument("--every", type=int, default=1, help="only every so manieth measured curve")
    parser.add_argument("--skip", type=int, default=0, help="so many measured curves before them")
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    kinds = {"simulated": list(simulated())}
    if asked.traces:
        missing = [name for name in TRACES if not _table(asked.traces, name).is_file()]
        if missing:
            parser.error(f"no {_table(asked.traces, missing[0]).name} in {asked.traces}")
        for how, monotone in {"monotone": True, "as they are": False}.items():
            every = list(measured(asked.traces, monotone=monotone))
            kinds[f"measured, {how}"] = [
                curve
                for binds in (True, False)
                for curve in [it for it in every if it.binds is binds][asked.skip :: asked.every]
            ]
    verdicts = Verdicts()
    with multiprocessing.Pool(asked.jobs) as pool:
        for (kind, curves), noise in itertools.product(kinds.items(), WITHIN):
            seeds = asked.seeds if kind == "simulated" else asked.measured_seeds
            chosen = range(asked.first_seed, asked.first_seed + seeds)
            cases = [Case(*it) for it in itertools.product(curves, METRICS, [noise], chosen)]
            found = pool.map(search, cases, chunksize=4)
            rivals = pool.map(rival, zip(cases, found, strict=True), chunksize=16)
            tried = list(zip(cases, found, rivals, strict=True))
            title = f"{kind}, noise {noise:.0%}"
            if all(curve.binds for curve in curves):
                show(title, tried, verdicts)
            else:
                bound = [it for it in tried if it[0].curve.binds]
                show(f"{title}, curves where a limit binds", bound, verdicts)
                show(f"{title}, all curves, never-binding ones included", tried, verdicts)
    verdicts.show()
    sys.exit(int(not verdicts.all_met))


def search(case: Case) -> Found:
    curve, metric = case.curve, parse(case.metric)
    settings = [Setting.of({POWER_LIMIT: float(limit_w)}) for limit_w in curve.limits_w]
    objective = Objective((metric,), seed=case.seed)
    strategy = OneAxisSearch(settings, settings[-1], objective)
    run = partial(_trial, case, settings)
    asking = []
    while True:
        start_s = time.process_time()
        planned = strategy.ask(())
        asking.append(time.process_time() - start_s)
        if planned is None:
            break
        strategy.tell(run(planned))
    said = strategy.sure["metrics"][metric.name]
    chosen = settings.index(Setting.of(said["settings"]))
    loss, saved = float(curve.losses(metric)[chosen]), _saved(curve, chosen)
    stated = said["saving"]
    return Found(
        curve.title,
        case.metric,
        loss,
        len(asking) - 1,
        stated and stated["mean"] - saved,
        said["sure"],
        loss <= said["tolerance"],
        stated and stated["low"] <= saved <= stated["high"],
        ask_s=tuple(asking),
    )


def rival(both: tuple[Case, Found]) -> tuple[Found, Found]:
    """What the full grid and luck choose."""
    case, found = both
    curve, metric = case.curve, parse(case.metric)
    grid, grid_saving = full_grid(curve, metric, case.noise, case.seed)
    lucky, lucky_saving, too_good = luck(curve, metric, case.noise, case.seed, found.runs)
    losses = curve.losses(metric)
    return (
        Found(
            curve.title,
            case.metric,
            float(losses[grid]),
            5 * len(losses),
            grid_saving - _saved(curve, grid),
        ),
        Found(
            curve.title,
            case.metric,
            float(losses[lucky]),
            found.runs,
            lucky_saving - _saved(curve, lucky),
            too_good=too_good,
        ),
    )


def show(
    title: str,
    tried: Sequence[tuple[Case, Found, tuple[Found, Found]]],
    verdicts: Verdicts,
) -> None:
    cases, found, rivals = zip(*tried, strict=True)
    tolerance = WITHIN[cases[0].noise]
    print(f"\n{title}: {len(cases)} searches")
    heads = "within", "error", "runs", "95 %", "sure", "right", "saving off"
    widths = 8, 7, 8, 6, 8, 8, 12
    heads_wide = (f"{head:>{width}}" for head, width in zip(heads, widths, strict=True))
    print(f"{'':34}" + "".join(heads_wide))
    for name in METRICS:
        _row(name, [it for it in found if it.metric == name], tolerance)
    _row("all", found, tolerance)
    grid, lucky = zip(*rivals, strict=True)
    _row("full grid, the least mean", grid, tolerance)
    _row("limits at random, as many runs", lucky, tolerance)
    _row("one limit a board, by hindsight", constants(cases, tolerance), tolerance)
    _misses(found, tolerance)
    runs = np.array([it.runs for it in found])
    sure = [it for it in found if it.sure]
    off = np.array([it.off for it in found if it.off is not None])
    verdicts.lines.append(f"\n{title}")
    verdicts.at_least("within", _within(found, tolerance), 0.95, percent=True)
    verdicts.at_most("runs, mean", runs.mean(), 16, percent=False)
    verdicts.at_most("runs, 95 % of searches", np.quantile(runs, 0.95), 24, percent=False)
    verdicts.at_least("right, when sure", np.mean([it.right for it in sure]), 0.95, percent=True)
    verdicts.at_most("saving off, mean", abs(off.mean()), 0.005)
    verdicts.at_most("the same in standard errors", abs(_errors_off(off)), 3, percent=False)
    covered = np.mean([it.covered for it in found if it.covered is not None])
    verdicts.at_least("true saving inside its interval", covered, 0.93, percent=True)
    won = np.array([it.too_good for it in lucky])
    verdicts.at_least("control: luck in the runs that won, standard errors", _errors_off(won), 3)
    verdicts.at_most("control: within, limits at random", _within(lucky, tolerance), 0.949)
    slow_s = np.quantile([ask_s for it in found for ask_s in it.ask_s], 0.95)
    verdicts.at_most("CPU time to ask, 95 % of asks, ms", 1e3 * slow_s, 50, percent=False)


def constants(cases: Sequence[Case], tolerance: float) -> list[Found]:
    curves = list(dict.fromkeys(case.curve for case in cases))
    found = []
    for name in METRICS:
        limits = best_constant(curves, parse(name), tolerance)
        for curve, at in zip(curves, limits, strict=True):
            found.append(Found(curve.title, name, float(curve.losses(parse(name))[at]), 0))
    return found


def _row(name: str, found: Sequence[Found], tolerance: float) -> None:
    runs = [it.runs for it in found]
    line = f"{name:34}{_within(found, tolerance):>8.1%}{_error(found, tolerance):>7.1%}"
    line += f"{np.mean(runs):>8.1f}"
    line += f"{np.quantile(runs, 0.95):>6.0f}"
    sure = [it.right for it in found if it.sure]
    line += f"{len(sure) / len(found):>8.1%}{np.mean(sure):>8.1%}" if sure else f"{'':16}"
    off = [it.off for it in found if it.off is not None]
    print(line + (f"{np.mean(off):>+12.2%}" if off else ""))


def _misses(found: Sequence[Found], tolerance: float) -> None:
    """On which curves and by which metrics the choices that were not within gather."""
    every = Counter((it.on, it.metric) for it in found)
    missed = Counter((it.on, it.metric) for it in found if it.loss > tolerance)
    for which, count in missed.most_common(_SHOWN):
        print(f"  not within: {count} of {every[which]}, {', '.join(which)}")


def _error(found: Sequence[Found], tolerance: float) -> float:
    """Standard error of the share; searches on one curve stand and fall together."""
    each = defaultdict(list)
    for it in found:
        each[it.on].append(it.loss <= tolerance)
    shares = [np.mean(its) for its in each.values()]
    return float(np.std(shares, ddof=1) / len(shares) ** 0.5)


def _errors_off(off: NDArray[np.float64]) -> float:
    return float(off.mean() / off.std(ddof=1) * len(off) ** 0.5)


def _within(found: Sequence[Found], tolerance: float) -> float:
    return float(np.mean([it.loss <= tolerance for it in found]))


def _saved(curve: Curve, at: int) -> float:
    return float(1 - curve.energy_j[at] / curve.energy_j[-1])


def _trial(case: Case, settings: Sequence[Setting], planned: Planned) -> Trial:
    at = settings.index(planned.setting)
    which = case.metric, case.seed, planned.block
    time_s, energy_j = case.curve.run(at, case.noise, *which)
    energy = {"gpu": Energy(energy_j, 0.0, 0.0, Source.MEASURED)}
    return Trial(
        planned.setting, planned.block, TrialState.DONE, gpu="0", time_s=time_s, energy=energy
    )


def _table(folder: Path, board: str) -> Path:
    return folder / f"summary_power_{board}.csv"


if __name__ == "__main__":
    main()
