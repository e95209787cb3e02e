"""A sweep's runs as arrays: one row a setting, one column a block on a board.

`slices` are the rows along one axis, with all other settings held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import nan
from typing import Final

import numpy as np

from joulewise.analyse.chunks import Bools, Floats, Ints
from joulewise.data.sweeps import CONFIRMING, Setting, Sweep, Trial, TrialState
from joulewise.metrics.boundary import (
    BOUNDARIES,
    GPU,
    SystemBoundary,
    TrialAmount,
    View,
    amount,
    not_marked_error,
)


@dataclass(frozen=True)
class TrialTable:
    """Arrays are settings by columns, NaN where there is no run; energies are by boundary.

    ``reference`` is the row of the reference, ``boards`` the number of each column's board,
    ``fresh`` whether its runs only confirm what a search had decided.
    ``error_j`` is the sampling error of each run (95 %), ``gain_j`` that of the boards' gain.
    ``power_w`` is the mean power of one GPU over the whole run, whatever work is counted.
    """

    settings: tuple[Setting, ...]
    reference: int
    boards: Ints
    fresh: Bools
    time_s: Floats
    energy_j: Mapping[str, Floats]
    error_j: Mapping[str, Floats]
    gain_j: Mapping[str, Floats]
    power_w: Floats
    capped: Floats
    clock_mhz: Floats
    start_ns: Floats
    max_power_w: float | None
    sources: Mapping[str, str]
    assumed: tuple[str, ...]
    simulated: tuple[str, ...] = ()


def completed_trials(sweep: Sweep) -> list[Trial]:
    """The trials that are whole runs: no warm-up, no probe, none that failed or was stopped."""
    last = {
        (trial.setting, trial.block, trial.gpu): trial
        for trial in sweep.trials
        if trial.state is TrialState.DONE and trial.block >= 0 and trial.look_s is None
    }
    return list(last.values())


def tabulate(sweep: Sweep, view: View) -> TrialTable:
    """The table of a sweep. Raises UsageError where no run has what ``view`` counts."""
    trials = completed_trials(sweep)
    counted = [(trial, trial_amount) for trial in trials if (trial_amount := amount(trial, view))]
    if trials and not counted and (view.training is not None or view.per != "run"):
        raise not_marked_error(view)
    rows = _rows(sweep, trials)
    keys = dict.fromkeys(_column(trial) for trial, _ in counted)
    columns = {key: column for column, key in enumerate(keys)}
    boards = list(dict.fromkeys(board for _, board in columns))
    line = SystemBoundary.from_trials(counted, view)
    shape = (len(rows), len(columns))
    arrays: dict[str, Floats] = {name: np.full(shape, nan) for name in _PLAIN}
    by_boundary = {
        name: {part: np.full(shape, nan) for part in BOUNDARIES} for name in _BY_BOUNDARY
    }
    for trial, trial_amount in counted:
        at = rows[trial.setting], columns[_column(trial)]
        for name, value in zip(_PLAIN, _plain(trial, trial_amount), strict=True):
            arrays[name][at] = nan if value is None else value
        for part, energy in line.energies(trial_amount):
            for name in _BY_BOUNDARY:
                by_boundary[name][part][at] = getattr(energy, _BY_BOUNDARY[name])
    gpus = max((_gpus(trial) for trial in trials), default=1)
    return TrialTable(
        settings=tuple(rows),
        reference=rows[sweep.reference],
        boards=np.array([boards.index(board) for _, board in columns], dtype=np.int64),
        fresh=np.array([block >= CONFIRMING for block, _ in columns], dtype=bool),
        time_s=arrays["time_s"],
        energy_j=by_boundary["energy_j"],
        error_j=by_boundary["error_j"],
        gain_j=by_boundary["gain_j"],
        power_w=arrays["power_w"],
        capped=arrays["capped"],
        clock_mhz=arrays["clock_mhz"],
        start_ns=arrays["start_ns"],
        max_power_w=sweep.limits_w[2] * gpus if sweep.limits_w else None,
        sources=line.sources,
        assumed=line.assumed,
        simulated=line.simulated,
    )


_PLAIN: Final = ("time_s", "power_w", "capped", "clock_mhz", "start_ns")
_BY_BOUNDARY: Final = {"energy_j": "value", "error_j": "error_sampling", "gain_j": "error_gain"}


def _plain(trial: Trial, trial_amount: TrialAmount) -> tuple[float | None, ...]:
    drawn, power_w = trial.energy.get(GPU), None
    if drawn and trial.time_s:
        power_w = drawn.value / trial.time_s / _gpus(trial)
    return trial_amount.time_s, power_w, trial.capped, trial.clock_mhz, float(trial.start_wall_ns)


def _rows(sweep: Sweep, trials: Sequence[Trial]) -> dict[Setting, int]:
    first = () if sweep.reference in sweep.settings else (sweep.reference,)
    tried = (trial.setting for trial in trials)
    return {
        setting: row for row, setting in enumerate(dict.fromkeys((*first, *sweep.settings, *tried)))
    }


def _column(trial: Trial) -> tuple[int, str]:
    return trial.block, trial.gpu


def _gpus(trial: Trial) -> int:
    return trial.gpu.count(",") + 1


@dataclass(frozen=True)
class AxisSlice:
    """Rows with a number on the axis, in its order; ``where`` is what they have in common."""

    axis: str
    where: Setting
    rows: tuple[int, ...]
    values: tuple[float, ...]


@lru_cache(maxsize=64)
def slices(settings: tuple[Setting, ...], axis: str) -> tuple[AxisSlice, ...]:
    """The rows that differ in ``axis`` alone, for each combination of the other settings."""
    by_others: dict[Setting, list[tuple[float, int]]] = {}
    for row, setting in enumerate(settings):
        value = setting.get(axis)
        if isinstance(value, int | float):
            by_others.setdefault(_others(setting, axis), []).append((float(value), row))
    return tuple(
        AxisSlice(axis, where, tuple(row for _, row in at), tuple(value for value, _ in at))
        for where, at in ((where, sorted(at)) for where, at in by_others.items())
    )


def _others(setting: Setting, axis: str) -> Setting:
    return Setting(tuple(item for item in setting.values if item[0] != axis))
