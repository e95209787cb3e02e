"""The energy of any windows of time on one device, with the sampling error.

From the energy counter where there is one, divided between its ticks as the power readings are; the
integral of those readings stands beside it, or alone. docs/explanation/error.md has the reasons.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from joulewise.analyse.chunks import Bools, ChunkReader, Floats, Ints, bounds_ns, typical_step_ns
from joulewise.analyse.energy.counter import CounterEnergy, near_readings
from joulewise.analyse.energy.counter_readings import CounterReadings, read_counter
from joulewise.analyse.energy.gaps import add_unread_start
from joulewise.analyse.energy.power_integral import (
    CumulativePower,
    PowerIntegral,
    accumulate_power,
    assume_constant_power,
)
from joulewise.analyse.energy.sensor_timing import ReadingTiming, timing_of
from joulewise.data import Energy, Source
from joulewise.store.manifest import RecordedDevice
from joulewise.units import NS_PER_S, Z95

# Where no lower reading was seen, what a device draws at least, as a share of the most (chosen;
# doubled, gaps state slightly less error).
_LOWEST_SHARE: Final = 0.1
# A governor lets short peaks pass its limit, and gains are off by some percent (chosen).
_HIGHEST_FACTOR: Final = 1.1
# Samples of less than this share of the polled time were cut off by a fault (chosen).
_COVERED_SHARE: Final = 0.8
# From so many periods on, the error is that of the model alone. In a shorter window a share of all
# that the device can draw is added, from nothing up to everything (chosen).
_RESOLVED_PERIODS: Final = 1.75
# An assumed power is as constant unseen as it is seen, and off by its gain alone: what is left of
# the sampling error is a rounding to millijoules.
_ROUNDED_J: Final = 0.001


@dataclass(frozen=True)
class WindowEnergy:
    """What each window drew, in the order of the windows; NaN is what is not known.

    All joules and watts have the profile's gain divided out.

    - ``energy_j``, and ``error_sampling_j``, a 95 % half-width
    - ``counter_j``, ``integral_j``: the energy by the counter and by the power readings alone
    - ``aliasing_j``: by how much the integral may be off if the load is in step with the sensor
    - ``gap_s``: time without a reading of power; ``stuck_s``: time in which it did not change for
      longer than such a sensor repeats a value; ``stuck``: all of the window was such time
    - ``too_short``: shorter than the sensor can resolve
    - ``disagree``: counter and integral differ by more than both may be off; the error spans them
    - ``counter_broken``: the counter went back, jumped or stood still
    """

    energy_j: Floats
    error_sampling_j: Floats
    mean_w: Floats
    peak_w: Floats
    gap_s: Floats
    stuck_s: Floats
    counter_j: Floats
    integral_j: Floats
    aliasing_j: Floats
    too_short: Bools
    disagree: Bools
    counter_broken: Bools
    stuck: Bools


def energy_of(windows: WindowEnergy, i: int, device: RecordedDevice) -> Energy | None:
    """The joules of window ``i`` with both parts of their error; None where not known."""
    value = float(windows.energy_j[i])
    if not math.isfinite(value):
        return None
    return Energy(
        value,
        float(windows.error_sampling_j[i]),
        gain_error(device) * abs(value),
        source_of(device, counted=math.isfinite(windows.counter_j[i])),
    )


def gain_error(device: RecordedDevice) -> float:
    """The calibration error as a share of the energy, a 95 % half-width: 1.96 sigma of the gain."""
    return Z95 * device.card.gain_sigma


def source_of(device: RecordedDevice, *, counted: bool) -> Source:
    """Where joules come from: the counter, or the readings of power where it was not used."""
    return device.sources.get("energy_j" if counted else "power_w", Source.MEASURED)


def window_energy(
    device: RecordedDevice,
    fast: ChunkReader | None,
    buffer: ChunkReader | None,
    windows_ns: Ints,
    marks_ns: Ints | None = None,
) -> WindowEnergy:
    """What ``device`` drew in each window, a row ``(start, end)`` of ``windows_ns``.

    ``fast`` is the polled stream, ``buffer`` that of the driver's own samples; None where there is
    none. At ``marks_ns`` the program may have changed its load: the edges of its spans, or, without
    them, of the windows.
    """
    windows_ns = np.asarray(windows_ns, np.int64).reshape(-1, 2)
    marks_ns = np.unique(windows_ns if marks_ns is None else marks_ns)
    if device.awake_ns is None:
        return _energy_while_read(device, fast, buffer, windows_ns, marks_ns)
    read_ns = np.maximum(windows_ns, device.awake_ns)
    energy = _energy_while_read(device, fast, buffer, read_ns, marks_ns)
    return add_unread_start(energy, windows_ns, device)


def _energy_while_read(
    device: RecordedDevice,
    fast: ChunkReader | None,
    buffer: ChunkReader | None,
    windows_ns: Ints,
    marks_ns: Ints,
) -> WindowEnergy:
    edges_ns = np.unique(windows_ns)
    if not len(edges_ns):
        return _unknown(windows_ns)
    counts = fast is not None and "energy_j" in fast.columns
    if fast is not None and not counts and not _covers(buffer, fast):
        buffer = None
    timing = timing_of(device.card, fast, buffer)
    readings = None
    if fast is not None and counts:
        readings = read_counter(
            fast, edges_ns, max_w=device.maximum_w, period_ns=timing.counter_s * NS_PER_S
        )
    power = buffer if buffer is not None else fast
    near = None if readings is None else near_readings(power, readings, edges_ns, timing)
    sums = _accumulate(near or power, edges_ns, timing)
    if sums is None and readings is None:
        return _unknown(windows_ns)
    is_read = sums is not None
    sums = sums or assume_constant_power(edges_ns, _mean_w(readings))
    integral = PowerIntegral(edges_ns, sums, timing, _range_w(device, sums))
    counter = None
    if readings is not None:
        counter = CounterEnergy(readings, near, timing, marks_ns, integral.range_w)
    energy = _combine(integral, counter, windows_ns, device.card.gain, is_read=is_read)
    if Source.ASSUMED in device.sources.values():
        return replace(energy, error_sampling_j=np.minimum(energy.error_sampling_j, _ROUNDED_J))
    return energy


def _covers(buffer: ChunkReader | None, fast: ChunkReader) -> bool:
    """Whether the driver's samples are there about as long as the polls, not cut off by a fault."""
    if buffer is None:
        return False
    first_ns, last_ns = bounds_ns(fast)
    return buffer.rows * typical_step_ns(buffer) > _COVERED_SHARE * (last_ns - first_ns)


def _accumulate(
    stream: ChunkReader | None, times_ns: Ints, timing: ReadingTiming
) -> CumulativePower | None:
    if stream is None or "power_w" not in stream.columns:
        return None
    return accumulate_power(
        stream,
        times_ns + round(timing.shift_s * NS_PER_S),
        step_ns=timing.step_s * NS_PER_S,
        period_ns=timing.period_s * NS_PER_S,
    )


def _combine(
    integral: PowerIntegral,
    counter: CounterEnergy | None,
    windows_ns: Ints,
    gain: float,
    *,
    is_read: bool,
) -> WindowEnergy:
    """Put together counter and integral; the counter counts where there is one."""
    start, end = integral.index(windows_ns).T
    time_s = integral.time_s(start, end)
    none, no = np.full(len(start), np.nan), np.zeros(len(start), bool)
    integral_j, integral_error_j = none, none
    if is_read:
        integral_j, integral_error_j = integral.energy_j(start, end), integral.error_j(start, end)
    aliasing_j = integral.aliasing_j(start, end) if is_read else none
    energy_j, error_j, counter_j, disagree, broken = integral_j, integral_error_j, none, no, no
    if counter is not None:
        counted = counter.energies(windows_ns)
        energy_j = counter_j = counted.energy_j
        error_j = np.hypot(Z95 * counted.sigma_j, integral.unchecked_j(start, end))
        apart_j = np.abs(counter_j - integral_j)
        disagree = apart_j > error_j + integral_error_j + aliasing_j
        error_j = np.where(disagree, np.maximum(error_j, apart_j), error_j)
        broken = counted.is_broken
    timing = integral.timing
    error_j = np.maximum(error_j, _unresolved_j(integral, time_s, energy_j)) * (time_s > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_w = np.where(time_s > 0, energy_j / time_s, np.nan)
    peak_w = integral.peak_w(start, end) if is_read else none
    return WindowEnergy(
        energy_j=energy_j / gain,
        error_sampling_j=error_j / gain,
        mean_w=mean_w / gain,
        # What was highest lay between two readings, where the mean is higher than any of them.
        peak_w=np.where(mean_w > peak_w, mean_w, peak_w) / gain,
        gap_s=integral.gap_s(start, end) if is_read else none,
        stuck_s=integral.stuck_s(start, end) if is_read else none,
        counter_j=counter_j / gain,
        integral_j=integral_j / gain,
        aliasing_j=aliasing_j / gain,
        too_short=time_s < 2 * timing.shortest_s,
        disagree=disagree,
        counter_broken=broken,
        stuck=integral.is_stuck(start, end) if is_read else no,
    )


def _unresolved_j(integral: PowerIntegral, time_s: Floats, energy_j: Floats) -> Floats:
    """The least error of a window that is too short for the sensor.

    In less than three quarters of a period power can have been anything: all of it is uncertain,
    and less and less of it up to ``_RESOLVED_PERIODS``.
    """
    period_s = integral.timing.shortest_s
    share = np.clip(_RESOLVED_PERIODS - time_s / period_s, 0.0, 1.0)
    low_w, high_w = integral.range_w
    deviation_j = np.maximum(high_w * time_s - energy_j, energy_j - low_w * time_s)
    return np.asarray(share * np.clip(deviation_j, 0.0, energy_j))


def _range_w(device: RecordedDevice, sums: CumulativePower) -> tuple[float, float]:
    """The least and the most that the device may draw."""
    max_w = _HIGHEST_FACTOR * max(device.maximum_w or 0.0, sums.highest_w)
    return min(sums.lowest_w, _LOWEST_SHARE * max_w), max_w


def _mean_w(counter: CounterReadings | None) -> float:
    if counter is None or len(counter.t_ns) < 2:
        return 0.0
    steps_j, steps_s = np.diff(counter.count_j), np.diff(counter.t_ns) / NS_PER_S
    sound = ~counter.broken[1:]
    return float(steps_j[sound].sum() / max(steps_s[sound].sum(), 1e-9))


def _unknown(windows_ns: Ints) -> WindowEnergy:
    none, no = np.full(len(windows_ns), np.nan), np.zeros(len(windows_ns), bool)
    return WindowEnergy(*(none,) * 9, *(no,) * 4)
