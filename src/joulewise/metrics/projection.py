"""What a choice means beyond the sweep: in the next run, and in a year of runs.

A full training is a view like any other: with ``View(training=Training(90))`` the results of
:func:`joulewise.metrics.evaluate.evaluate` are of 90 epochs instead of the runs' few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from joulewise.analyse.chunks import Floats
from joulewise.data.sweeps import Setting, Sweep
from joulewise.errors import UsageError
from joulewise.metrics.boundary import View
from joulewise.metrics.intervals import interval, means
from joulewise.metrics.result import Interval, SweepResult
from joulewise.metrics.trial_table import tabulate

_KWH_J: Final = 3.6e6
_HOUR_S: Final = 3600.0


@dataclass(frozen=True)
class NextRun:
    """One more run, or one full training, with a given setting: 95 % prediction intervals."""

    time_s: Interval | None
    energy_j: Interval | None


@dataclass(frozen=True)
class Year:
    """What a choice saves in a year against the reference; less than 0 is what it costs.

    ``time_h`` is how much longer its runs take. Money is in the currency of the price.
    """

    runs: float
    energy_kwh: Interval | None
    time_h: Interval | None
    money: Interval | None = None
    co2_kg: Interval | None = None


def next_run(sweep: Sweep, setting: Setting, view: View) -> NextRun:
    """From the spread of the runs so far; the calibration error is in the energy's interval."""
    table = tabulate(sweep, view)
    row = table.settings.index(setting)
    energy_j = table.energy_j[view.boundary][row]
    gain_j = means(table.gain_j[view.boundary][[row]]).mean[0]
    return NextRun(_predict(table.time_s[row], 0.0), _predict(energy_j, float(gain_j)))


def year(
    result: SweepResult,
    metric: str,
    runs: float,
    *,
    price_per_kwh: float | None = None,
    gco2_per_kwh: float | None = None,
) -> Year:
    """The savings of so many runs (or trainings, if the result is of such) at its boundary."""
    if not runs > 0:
        raise UsageError(f"{runs:g} runs a year save nothing", "say how many there are")
    choice, reference = result.best[metric], result.reference
    kwh = _scale(choice.saved_j, runs / _KWH_J)
    hours = None
    if choice.time and reference.time_s:
        hours = _scale(choice.time, runs * reference.time_s.mean / _HOUR_S, less=1.0)
    return Year(
        runs,
        kwh,
        hours,
        None if price_per_kwh is None else _scale(kwh, price_per_kwh),
        None if gco2_per_kwh is None else _scale(kwh, gco2_per_kwh / 1000),
    )


def _predict(values: Floats, gain: float) -> Interval | None:
    runs = means(values[None])
    mean, n = runs.mean[0], runs.n[0]
    # A prediction interval: the mean is off by s/√n and one more run by s, so that the half-width
    # of the mean, t·s/√n, grows by √(n + 1).
    half = np.hypot(runs.half[0] * np.sqrt(n + 1.0), gain)
    return interval(mean, mean - half, mean + half)


def _scale(interval_: Interval | None, factor: float, less: float = 0.0) -> Interval | None:
    def scaled(value: float) -> float:
        return (value - less) * factor

    if interval_ is None or interval_.low is None or interval_.high is None:
        return interval_ and Interval(scaled(interval_.mean))
    return Interval(scaled(interval_.mean), scaled(interval_.low), scaled(interval_.high))
