"""What a choice comes to beyond the sweep: in the next run, in the full training, in a year.

A full training is a view like any other: with ``View(training=Training(90))`` all that
:func:`joulewise.metrics.evaluate.evaluate` tells is of 90 epochs instead of the runs' few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from joulewise.analyse.arrays import Floats
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
    """One run, or one full training, with a given setting: where 95 of 100 such would lie."""

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
    """From the spread of the runs seen, with the gain of the boards in the energy's interval."""
    table = tabulate(sweep, view)
    row = table.settings.index(setting)
    energy_j = table.energy_j[view.boundary][row]
    gain_j = means(table.gain_j[view.boundary][[row]]).mean[0]
    return NextRun(_next(table.time_s[row], 0.0), _next(energy_j, float(gain_j)))


def year(
    result: SweepResult,
    metric: str,
    runs: float,
    *,
    price_per_kwh: float | None = None,
    gco2_per_kwh: float | None = None,
) -> Year:
    """Of so many runs, or trainings where the result is of such, at the result's boundary."""
    if not runs > 0:
        raise UsageError(f"{runs:g} runs a year save nothing", "say how many there are")
    choice, reference = result.best[metric], result.reference
    kwh = _times(choice.saved_j, runs / _KWH_J)
    hours = None
    if choice.time and reference.time_s:
        hours = _times(choice.time, runs * reference.time_s.mean / _HOUR_S, less=1.0)
    return Year(
        runs,
        kwh,
        hours,
        None if price_per_kwh is None else _times(kwh, price_per_kwh),
        None if gco2_per_kwh is None else _times(kwh, gco2_per_kwh / 1000),
    )


def _next(values: Floats, gain: float) -> Interval | None:
    found = means(values[None])
    mean, n = found.mean[0], found.n[0]
    # The mean is off by s/√n, and one more run is off from the truth by s.
    half = np.hypot(found.half[0] * np.sqrt(n + 1.0), gain)
    return interval(mean, mean - half, mean + half)


def _times(found: Interval | None, factor: float, less: float = 0.0) -> Interval | None:
    def scaled(value: float) -> float:
        return (value - less) * factor

    if found is None or found.low is None or found.high is None:
        return found and Interval(scaled(found.mean))
    return Interval(scaled(found.mean), scaled(found.low), scaled(found.high))
