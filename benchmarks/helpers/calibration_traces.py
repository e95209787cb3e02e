"""The same physics on curves of other workloads: fitted on four limits, judged on the others.

Which four is drawn for each curve, among all choices that reach to within one limit of both ends:
so the lowest limit, where the RTX 6000 falls off a cliff, is held out of many curves. What is
common to a board, and what its loads have in common, is fitted on the shown limits alone.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from helpers.verdict import Verdicts
from joulewise.simulate.boards import load_board
from joulewise.simulate.model import Board, Load
from joulewise.simulate.physics import steady_state
from joulewise.simulate.workloads import Profile, step_phases
from tools.fit_workloads.solve import Curves, WorkloadFit, fit, pooled_prior, start_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

BOARDS = {"v100": ("v100-pcie", (20.0, 45.0)), "rtx6000": ("rtx6000", (25.0, 75.0))}
"""The board of each file, and the range of its idle with clocks up: on those machines, loads that
hardly compute draw 36 to 39 W and 55 to 69 W."""
SHOWN = 4
DRAWS = 3
ROUNDS = 2
NOISE = 0.02
"""What repeated measurements in these traces scatter by, or more."""
START = (0.45, 0.75)


class Traces(NamedTuple):
    """Rows are curves, columns limits; not a number where nothing was measured."""

    limits_w: Array
    time_s: Array
    energy_j: Array


def judge_traces(folder: Path, verdicts: Verdicts) -> None:
    print(f"\nTraces: {SHOWN} limits of each curve shown, the others predicted:")
    missed: dict[str, list[float]] = defaultdict(list)
    for file in BOARDS:
        path = folder / f"summary_power_{file}.csv"
        if not path.is_file():
            print(f"{path.name} is not in that folder: these curves are not judged")
            verdicts.at_least(f"traces of {file} found", 0, 1)
            continue
        traces = read(path)
        print(f"{file}: {np.isfinite(traces.time_s).sum()} points of {len(traces.time_s)} curves")
        for draw in range(DRAWS):
            shown = draw_shown(traces.time_s, np.random.default_rng(draw))
            for what, errors in predicted(file, traces, shown).items():
                hidden = np.isfinite(errors)
                missed[f"{file}, {what}"] += list(errors[hidden])
                lowest = errors[hidden[:, 0], 0]
                print(
                    f"  draw {draw}, {what:6}: median {np.median(errors[hidden]):6.2%}, "
                    f"nine in ten {np.quantile(errors[hidden], 0.9):6.2%}; "
                    f"at {traces.limits_w[0]:.0f} W ({len(lowest)} curves) "
                    f"{np.median(lowest):6.2%}, {np.quantile(lowest, 0.9):6.2%}"
                )
    for what, figures in missed.items():
        verdicts.at_most(f"traces, {what}: median error", np.median(figures), 0.03)
        verdicts.at_most(f"traces, {what}: nine in ten within", np.quantile(figures, 0.9), 0.08)


def predicted(file: str, traces: Traces, shown: NDArray[np.bool_]) -> dict[str, Array]:
    """How far off time, energy and power are where nothing was shown."""
    _, time_s, energy_j = traces
    found = fitted(file, traces, shown)
    time, energy = found.time_s / time_s, found.energy_j / energy_j
    ratios = {"time": time, "energy": energy, "power": energy / time}
    return {what: np.where(shown, np.nan, np.abs(it - 1)) for what, it in ratios.items()}


def read(path: Path) -> Traces:
    curves: dict[tuple[str, ...], dict[float, tuple[float, float]]] = defaultdict(dict)
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            load = row["dataset"], row["network"], row["batch_size"], row["optimizer"]
            curves[load][float(row["power_limit"])] = (
                float(row["time_per_epoch"]),
                float(row["average_power"]),
            )
    limits_w = sorted({limit for curve in curves.values() for limit in curve})
    unknown = (np.nan, np.nan)
    figures = np.array(
        [
            [curve.get(limit, unknown) for limit in limits_w]
            for _, curve in sorted(curves.items())
            if len(curve) > SHOWN
        ]
    )
    time_s, power_w = figures[..., 0], figures[..., 1]
    return Traces(np.array(limits_w), time_s, time_s * power_w)


def draw_shown(time_s: Array, rng: np.random.Generator) -> NDArray[np.bool_]:
    shown = np.zeros(time_s.shape, bool)
    for curve, known in zip(shown, np.isfinite(time_s), strict=True):
        there = np.flatnonzero(known)
        choices = [
            choice
            for choice in combinations(there, SHOWN)
            if choice[0] <= there[1] and choice[-1] >= there[-2]
        ]
        curve[list(choices[rng.integers(len(choices))])] = True
    return shown


def fitted(file: str, traces: Traces, shown: NDArray[np.bool_]) -> WorkloadFit:
    def predict(board: Board, profile: Profile) -> tuple[Array, Array]:
        return steady_state.steady(board, Load(step_phases(profile)), traces.limits_w)[:2]

    key, clocks_up_w = BOARDS[file]
    time_s, energy_j = (np.where(shown, it, np.nan) for it in traces[1:])
    curves = Curves(load_board(key), time_s, energy_j, NOISE, clocks_up_w, predict)
    own, prior = start_at(curves)
    found = fit(curves, own, prior, *START)
    for _ in range(ROUNDS):
        prior = pooled_prior(found, prior)
        found = fit(curves, found.own, prior, *START)
    return found
