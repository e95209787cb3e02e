"""What a board's power sensor does, from polls taken while a load went on and off.

The load is switched at irregular times, so that the sensor's ticks meet its edges at every phase
and nothing beats with anything: see ``sensor_ticks`` for when, ``sensor_window`` for over what.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.sensor_ticks import find_ticks
from joulewise.analyse.sensor_window import fit_response
from joulewise.data import Quantity, Unavailable
from joulewise.record.cards import Figure, SensorTiming

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_LEAST_SWING_W: Final = 3.0
_LONG_AVERAGE_S: Final = 0.5


@dataclass(frozen=True)
class SensorPolls:
    """Polls of one device, and when its load went on and off, on one clock.

    ``columns`` is by quantity, NaN where there was no answer. ``faults`` says what makes the
    recording worthless: others on the GPU, heat.
    """

    t_s: Array
    columns: dict[Quantity, Array]
    on_s: Array
    off_s: Array
    faults: tuple[str, ...] = ()

    def under_load(self) -> SensorPolls:
        """From the first edge on: an idle board may update at a pace of its own."""
        keep = self.t_s >= self.on_s[0]
        columns = {quantity: column[keep] for quantity, column in self.columns.items()}
        return replace(self, t_s=self.t_s[keep], columns=columns)


def fit_sensor(recording: SensorPolls, quantity: Quantity) -> SensorTiming | Unavailable:
    """Every figure with its error, or why the recording does not tell."""
    if recording.faults:
        return Unavailable("; ".join(recording.faults))
    loaded = recording.under_load()
    value = loaded.columns.get(quantity)
    if value is None or not np.isfinite(value).any():
        return Unavailable(f"the board told no {quantity.value}")
    low_w, high_w = np.nanquantile(value, [0.02, 0.98])
    if high_w - low_w < _LEAST_SWING_W:
        return Unavailable(f"the load moved its readings by {high_w - low_w:.1f} W, too little")
    ticks = find_ticks(loaded.t_s, value)
    if isinstance(ticks, Unavailable):
        return ticks
    period = ticks.period_s
    found = fit_response(ticks.t_s, ticks.value, loaded.on_s, loaded.off_s, period.value)
    if isinstance(found, Unavailable):
        return found
    window = found.window_s
    seen = window.value / period.value
    relative = np.hypot(window.error / window.value, period.error / period.value)
    # When in the time of a call the driver looked cannot be known.
    poll_s = float(np.median(np.diff(loaded.t_s)))
    return SensorTiming(
        update_period_s=period,
        window_s=window,
        lag_s=Figure(found.lag_s.value, float(np.hypot(found.lag_s.error, poll_s / 2))),
        unseen_share=Figure(float(max(0.0, 1 - seen)), float(min(1.0, seen * relative))),
        rate_busy_hz=_rate(recording, quantity, recording.on_s[0], recording.off_s[-1]),
        rate_idle_hz=_rate(recording, quantity, recording.t_s[0], recording.on_s[0]),
    )


def counter_period(recording: SensorPolls) -> Figure | Unavailable:
    """How often the energy counter moves."""
    column = recording.columns.get(Quantity.ENERGY)
    if column is None:
        return Unavailable("the board has no energy counter")
    ticks = find_ticks(recording.t_s, column)
    return ticks if isinstance(ticks, Unavailable) else ticks.period_s


def is_long_average(timing: SensorTiming) -> bool:
    """Whether such a reading is a mean over about a second, as the plain call's from Ampere on."""
    return timing.window_s is not None and timing.window_s.value > _LONG_AVERAGE_S


def _rate(
    recording: SensorPolls, quantity: Quantity, start_s: float, end_s: float
) -> Figure | None:
    """New values a second; one more or less may lie beyond the ends."""
    within = (recording.t_s >= start_s) & (recording.t_s < end_s)
    value = recording.columns[quantity][within]
    value = value[np.isfinite(value)]
    if value.size < 2:
        return None
    time_s = float(end_s - start_s)
    return Figure(int(np.count_nonzero(np.diff(value))) / time_s, 1 / time_s)
