"""Joules of any stretches of time on one device, with what sampling may have missed of them.

From the counter where there is one, spread between its ticks as the power readings were; the
integral of those readings stands beside it, or alone. docs/explanation/error.md has the why.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.baseline import with_silence
from joulewise.analyse.chunks import ChunkReader
from joulewise.analyse.energy.counter import CounterEnergy, near_readings
from joulewise.analyse.energy.counter_readings import Points, points_around
from joulewise.analyse.energy.power_integral import (
    CumulativePower,
    Integral,
    bounds_ns,
    follow,
    typical_step_ns,
    without_readings,
)
from joulewise.analyse.energy.sensor_timing import ReadingTiming, timing_of
from joulewise.data import Energy, Source
from joulewise.store.manifest import RecordedDevice
from joulewise.units import NS_PER_S, Z95

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Where no lower reading was seen, what a device draws at least, as a share of the most.
_LEAST: Final = 0.1
# A governor lets short peaks pass its limit, and gains are off.
_OVER: Final = 1.1
# Samples of less than this share of the polled time were cut off (chosen).
_COVERED: Final = 0.8
# Windows of so many periods have their energy told by the model; less in shorter ones (chosen).
_TELLS: Final = 1.75
# Nothing is sampled of what is assumed: it is as constant unseen, and off by its gain alone.
_ROUNDED_J: Final = 0.001


@dataclass(frozen=True)
class WindowEnergy:
    """Of each window, in its order. NaN is what could not be had.

    ``energy_j`` has the card's gain divided out, as have the joules and watts beside it;
    ``error_sampling_j`` is a 95 % half-width. ``counter_j`` and ``integral_j`` are the two ways
    to it. ``gap_s`` is time without a reading of power, ``still_s`` time in which it stood still
    for longer than such a sensor does. ``blind_j`` is what the readings alone
    could not exclude, were the load in step with the sensor; only the integral suffers from it.

    ``too_short``: shorter than the sensor can tell. ``disagree``: the two ways differ by more
    than both may be off, and the error spans them. ``counter_broken``: the counter went back,
    jumped or stood still. ``stuck``: readings of power did not move in all of it.
    ``power_hz`` and ``counter_hz`` are new values a second, None without such a lane.
    """

    energy_j: NDArray[np.float64]
    error_sampling_j: NDArray[np.float64]
    mean_w: NDArray[np.float64]
    peak_w: NDArray[np.float64]
    gap_s: NDArray[np.float64]
    still_s: NDArray[np.float64]
    counter_j: NDArray[np.float64]
    integral_j: NDArray[np.float64]
    blind_j: NDArray[np.float64]
    too_short: NDArray[np.bool_]
    disagree: NDArray[np.bool_]
    counter_broken: NDArray[np.bool_]
    stuck: NDArray[np.bool_]
    power_hz: float | None = None
    counter_hz: float | None = None


def energy_of(found: WindowEnergy, i: int, device: RecordedDevice) -> Energy | None:
    """The joules of window ``i`` with both parts of their error; None where there are none."""
    value = float(found.energy_j[i])
    if not math.isfinite(value):
        return None
    return Energy(
        value,
        float(found.error_sampling_j[i]),
        gain_error(device) * abs(value),
        source_of(device, counted=math.isfinite(found.counter_j[i])),
    )


def gain_error(device: RecordedDevice) -> float:
    """A share of the energy, as a 95 % half-width."""
    return Z95 * device.card.gain_sigma


def source_of(device: RecordedDevice, *, counted: bool) -> Source:
    """Where joules come from: the counter, or readings of power where it did not tell."""
    return device.sources.get("energy_j" if counted else "power_w", Source.MEASURED)


def window_energy(
    device: RecordedDevice,
    fast: ChunkReader | None,
    buffer: ChunkReader | None,
    windows_ns: NDArray[np.int64],
    marks_ns: NDArray[np.int64] | None = None,
) -> WindowEnergy:
    """What ``device`` drew in each window ``(start, end)``, as its lanes tell.

    ``marks_ns`` are moments at which the program may have changed its load: the edges of its
    spans, and of the windows where nothing is said.
    """
    windows_ns = np.asarray(windows_ns, np.int64).reshape(-1, 2)
    marks_ns = np.unique(windows_ns if marks_ns is None else marks_ns)
    if device.awake_ns is None:
        return _awake(device, fast, buffer, windows_ns, marks_ns)
    found = _awake(device, fast, buffer, np.maximum(windows_ns, device.awake_ns), marks_ns)
    return with_silence(found, windows_ns, device)


def _awake(
    device: RecordedDevice,
    fast: ChunkReader | None,
    buffer: ChunkReader | None,
    windows_ns: NDArray[np.int64],
    marks_ns: NDArray[np.int64],
) -> WindowEnergy:
    edges_ns = np.unique(windows_ns)
    if not len(edges_ns):
        return _nothing(windows_ns)
    counts = fast is not None and "energy_j" in fast.columns
    if fast is not None and not counts and not _covers(buffer, fast):
        buffer = None
    timing = timing_of(device.card, fast, buffer)
    points = None
    if fast is not None and counts:
        points = points_around(
            fast,
            edges_ns,
            most_w=device.maximum_w,
            period_ns=timing.counter_s * NS_PER_S,
        )
    power = buffer if buffer is not None else fast
    near = None if points is None else near_readings(power, points, edges_ns, timing)
    course = _follow(near or power, edges_ns, timing)
    if course is None and points is None:
        return _nothing(windows_ns)
    is_read = course is not None
    course = course or without_readings(edges_ns, _mean_w(points))
    integral = Integral(edges_ns, course, timing, _range_w(device, course))
    counter = None
    if points is not None:
        counter = CounterEnergy(points, near, timing, marks_ns, integral.range_w)
    found = _reckon(integral, counter, windows_ns, device.card.gain, read=is_read)
    if Source.ASSUMED in device.sources.values():
        return replace(found, error_sampling_j=np.minimum(found.error_sampling_j, _ROUNDED_J))
    return found


def _covers(buffer: ChunkReader | None, fast: ChunkReader) -> bool:
    """Whether the driver's samples are there about as long as the polls, not cut off by a fault."""
    if buffer is None:
        return False
    first_ns, last_ns = bounds_ns(fast)
    return buffer.rows * typical_step_ns(buffer) > _COVERED * (last_ns - first_ns)


def _follow(
    lane: ChunkReader | None, times_ns: NDArray[np.int64], timing: ReadingTiming
) -> CumulativePower | None:
    if lane is None or "power_w" not in lane.columns:
        return None
    return follow(
        lane,
        times_ns + round(timing.shift_s * NS_PER_S),
        step_ns=timing.step_s * NS_PER_S,
        period_ns=timing.period_s * NS_PER_S,
    )


def _reckon(
    integral: Integral,
    counter: CounterEnergy | None,
    windows_ns: NDArray[np.int64],
    gain: float,
    *,
    read: bool,
) -> WindowEnergy:
    start, end = integral.place(windows_ns).T
    time_s = integral.time_s(start, end)
    none, no = np.full(len(start), np.nan), np.zeros(len(start), bool)
    integral_j, integral_error_j = none, none
    if read:
        integral_j, integral_error_j = integral.energy_j(start, end), integral.error_j(start, end)
    blind_j = integral.blind_j(start, end) if read else none
    energy_j, error_j, counter_j, disagree, broken = integral_j, integral_error_j, none, no, no
    if counter is not None:
        counted = counter.between(windows_ns)
        energy_j = counter_j = counted.energy_j
        error_j = np.hypot(Z95 * counted.sigma_j, integral.unchecked_j(start, end))
        apart_j = np.abs(counter_j - integral_j)
        disagree = apart_j > error_j + integral_error_j + blind_j
        error_j = np.where(disagree, np.maximum(error_j, apart_j), error_j)
        broken = counted.is_broken
    timing = integral.timing
    error_j = np.maximum(error_j, _short_j(integral, time_s, energy_j)) * (time_s > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_w = np.where(time_s > 0, energy_j / time_s, np.nan)
    peak_w = integral.peak_w(start, end) if read else none
    return WindowEnergy(
        energy_j=energy_j / gain,
        error_sampling_j=error_j / gain,
        mean_w=mean_w / gain,
        # What was highest lay between two readings, where the mean is higher than any of them.
        peak_w=np.where(mean_w > peak_w, mean_w, peak_w) / gain,
        gap_s=integral.gap_s(start, end) if read else none,
        still_s=integral.still_s(start, end) if read else none,
        counter_j=counter_j / gain,
        integral_j=integral_j / gain,
        blind_j=blind_j / gain,
        too_short=time_s < 2 * timing.shortest_s,
        disagree=disagree,
        counter_broken=broken,
        stuck=integral.stuck(start, end) if read else no,
        power_hz=integral.news_hz if read else None,
        counter_hz=counter.moves_hz if counter else None,
    )


def _short_j(
    integral: Integral, time_s: NDArray[np.float64], energy_j: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Within half a period power can have been anything: all is in doubt, less in a whole one."""
    period_s = integral.timing.shortest_s
    doubt = np.clip(_TELLS - time_s / period_s, 0.0, 1.0)
    low_w, high_w = integral.range_w
    room_j = np.maximum(high_w * time_s - energy_j, energy_j - low_w * time_s)
    return np.asarray(doubt * np.clip(room_j, 0.0, energy_j))


def _range_w(device: RecordedDevice, course: CumulativePower) -> tuple[float, float]:
    """The least and the most that the device may draw."""
    most_w = _OVER * max(device.maximum_w or 0.0, course.highest_w)
    return min(course.lowest_w, _LEAST * most_w), most_w


def _mean_w(points: Points | None) -> float:
    if points is None or len(points.t_ns) < 2:
        return 0.0
    steps_j, steps_s = np.diff(points.count_j), np.diff(points.t_ns) / NS_PER_S
    sound = ~points.broken[1:]
    return float(steps_j[sound].sum() / max(steps_s[sound].sum(), 1e-9))


def _nothing(windows_ns: NDArray[np.int64]) -> WindowEnergy:
    none, no = np.full(len(windows_ns), np.nan), np.zeros(len(windows_ns), bool)
    return WindowEnergy(*(none,) * 9, *(no,) * 4)
