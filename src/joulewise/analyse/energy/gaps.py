"""Time in which a sensor had nothing new, and what that does to the energy and its error.

Three things may be wrong: no reading at all (a *gap*), always the same reading (*stuck*), or a
device that could not be read yet when the run began, because it slept or was lost. The energy
counter and the driver's own samples bridge most of it. What was read across a fault is still a
little less certain than what was read without one: a driver that was reset may have lost joules
unnoticed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.chunks import (
    Array,
    Bools,
    ChunkReader,
    Columns,
    Floats,
    Ints,
    readable,
    typical_step_ns,
)
from joulewise.analyse.time_intervals import TimeInterval
from joulewise.data import Kind, Quantity
from joulewise.store.manifest import RecordedDevice
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from joulewise.analyse.energy.windows import WindowEnergy

# Chosen: a gap that is shorter changes no energy by more than its error, and is not warned of.
LONG_S: Final = 0.3
ASLEEP_MAX_W: Final = 5.0
"""Without its supply a board draws nothing, and some watts where its memory is kept alive."""

# A column was not read, and a device is gone, where so many polls in a row failed. One or two come
# late on a busy machine. Twice as many would overlook faults of half a second at 10 Hz, and have a
# GPU that was lost 2 s before the end pass for whole.
MISSED_POLLS: Final = 3
# What was drawn while nothing checked the counter or the readings may be off by this share (chosen:
# doubled, a run with a gap of a tenth of its time states 0.2 % more error).
UNCHECKED_SHARE: Final = 0.01
# A window has no energy if more than this share of it was not read and its error is more than that
# share of its energy: then more of it is assumed than measured.
_UNSEEN_SHARE: Final = 0.5
_MAX_ERROR_SHARE: Final = 0.5
# A sensor that has shown so many new values for each time that it stood still changes as a rule,
# and is stuck when it does not. Chosen; doubled, a sensor that sticks often passes for a slow one.
_MIN_CHANGES_PER_STOP: Final = 20
# A live GPU draws power, so its counter moves: one that shows the same for so many of its periods,
# and for so long, has stopped. Doubled, a stop of less than 4 s goes unnoticed (chosen).
_FROZEN_PERIODS: Final = 10
_MIN_FROZEN_S: Final = 2.0
_COUNTER: Final = Quantity.ENERGY.value


class UnreadIntervals:
    """Intervals without a new reading, each with the power that stands in for it."""

    def __init__(self) -> None:
        self._parts: list[Floats] = []

    def add(self, start_ns: Array, end_ns: Array, power_w: Array) -> None:
        """Append intervals, which follow those that are there."""
        if len(start_ns):
            self._parts.append(np.stack([start_ns, end_ns, power_w]))

    @property
    def number(self) -> int:
        return sum(part.shape[1] for part in self._parts)

    @property
    def bounds_ns(self) -> Floats:
        """One row ``(start, end)`` for each interval."""
        return np.asarray(np.concatenate([np.empty((3, 0)), *self._parts], axis=1)[:2].T)

    @property
    def longest(self) -> TimeInterval | None:
        if not self._parts:
            return None
        start_ns, end_ns, _ = np.concatenate(self._parts, axis=1)
        longest = np.argmax(end_ns - start_ns)
        return TimeInterval(int(start_ns[longest]), int(end_ns[longest]))

    def up_to(self, times_ns: Ints) -> tuple[Floats, Floats]:
        """Seconds within the intervals, and their joules, up to each of these times."""
        if not self._parts:
            return np.zeros(len(times_ns)), np.zeros(len(times_ns))
        start_ns, end_ns, power_w = np.concatenate(self._parts, axis=1)
        edges_ns = np.stack([start_ns, end_ns], axis=1).reshape(-1)
        time_s = (end_ns - start_ns) / NS_PER_S

        def interpolate(amounts: Floats) -> Floats:
            # The sum before and after each interval: a ramp within it, level outside.
            at_edges = np.repeat(np.append(0.0, np.cumsum(amounts)), 2)[1:-1]
            return np.asarray(np.interp(times_ns, edges_ns, at_edges))

        return interpolate(time_s), interpolate(time_s * power_w)


class StuckIntervals(UnreadIntervals):
    """Intervals longer than ``min_ns`` in which a reading did not change."""

    def __init__(self, min_ns: float, first_ns: int) -> None:
        super().__init__()
        self._min_ns = min_ns
        self._changed_ns = first_ns
        self._changes = 0

    def take(self, t_ns: Ints, values: Array, changed: Bools) -> None:
        """Look at rows in their order; ``changed`` says whether another value follows each."""
        changes = np.count_nonzero(changed)
        if not changes:
            return
        self._changes += changes
        # As a rule the value changes in every row, so only the rows around a stop are looked at.
        begin = np.flatnonzero(changed[1:] < changed[:-1]) + 1
        end = np.flatnonzero(changed[1:] > changed[:-1]) + 1
        end = np.append(0, end) if changed[0] else end
        since_ns = np.append(self._changed_ns, t_ns[begin])[: len(end)]
        long = np.flatnonzero(t_ns[end] - since_ns > self._min_ns)
        self.add(since_ns[long], t_ns[end[long]], values[end[long]])
        self._changed_ns = int(t_ns[len(changed) if changed[-1] else begin[-1]])

    def finish(self, last_ns: int, last_value: float) -> None:
        """Close an interval that lasts up to the last row."""
        if last_ns - self._changed_ns > self._min_ns:
            self.add(np.array([self._changed_ns]), np.array([last_ns]), np.array([last_value]))

    @property
    def is_unusual(self) -> bool:
        """Whether this sensor changes as a rule, so that it was stuck where it did not."""
        return self._changes >= _MIN_CHANGES_PER_STOP * max(self.number, 1)


def widen_across_faults(
    energy: WindowEnergy, fast: ChunkReader | None, windows_ns: Ints
) -> tuple[WindowEnergy, Floats]:
    """The energies with errors that allow for faults, and the seconds not polled in each window.

    The error becomes ``hypot(error, 0.01 · mean power · bridged time)``. A window that was hardly
    seen, with nothing that bridges it, has no energy (NaN).
    """
    if fast is None or not fast.rows:
        return energy, np.zeros(len(windows_ns))
    step_ns = typical_step_ns(fast)
    unread_s = _unread_s(fast, windows_ns, MISSED_POLLS * step_ns)
    bridged_s = np.fmax(unread_s, energy.gap_s) + np.fmax(energy.stuck_s, 0.0)
    bridged_s = np.maximum(bridged_s, energy.counter_broken * step_ns / NS_PER_S)
    error_j = energy.error_sampling_j
    bridged = bridged_s > 0
    if bridged.any():
        unchecked_j = UNCHECKED_SHARE * np.abs(energy.mean_w) * bridged_s
        error_j = np.where(bridged, np.hypot(error_j, unchecked_j), error_j)
    time_s = (windows_ns[:, 1] - windows_ns[:, 0]) / NS_PER_S
    unseen_s = np.where(np.isnan(energy.gap_s), unread_s, energy.gap_s)
    is_unknown = unseen_s > np.maximum(_UNSEEN_SHARE * time_s, LONG_S)
    is_unknown &= error_j > _MAX_ERROR_SHARE * np.abs(energy.energy_j)
    energy_j = np.where(is_unknown, np.nan, energy.energy_j)
    return replace(energy, energy_j=energy_j, error_sampling_j=error_j), unread_s


def _unread_s(fast: ChunkReader, windows_ns: Ints, min_ns: float) -> Floats:
    """Seconds of each window in which power or the counter was not read for ``min_ns`` or more."""
    first_ns, end_ns = int(windows_ns.min(initial=0)), int(windows_ns.max(initial=0))
    names = [name for name in ("power_w", "energy_j") if name in fast.columns]
    columns = [_UnreadColumn(name, first_ns, min_ns) for name in names]
    for chunk in fast.chunks(("t_ns", *names)):
        for column in columns:
            column.take(chunk)
    unread_s = np.array([column.within_s(windows_ns, end_ns) for column in columns])
    return np.asarray(unread_s.max(axis=0, initial=0.0))


class _UnreadColumn:
    """When one column of a stream could not be read for long; sees the stream chunk by chunk."""

    def __init__(self, name: str, first_ns: int, min_ns: float) -> None:
        self._name = name
        self._min_ns = min_ns
        self._intervals = UnreadIntervals()
        self._last_ns = first_ns
        self._is_read = False

    def take(self, chunk: Columns) -> None:
        [chunk] = readable([chunk], self._name)
        t_ns = chunk["t_ns"]
        if len(t_ns):
            self._add(np.append(min(self._last_ns, t_ns[0]), t_ns))
            self._last_ns, self._is_read = int(t_ns[-1]), True

    def within_s(self, windows_ns: Ints, end_ns: int) -> Floats:
        """Seconds of each window; 0 for a column that was never read."""
        if not self._is_read:
            return np.zeros(len(windows_ns))
        self._add(np.array([self._last_ns, max(self._last_ns, end_ns)]))
        up_to_s, _ = self._intervals.up_to(windows_ns.reshape(-1))
        return up_to_s[1::2] - up_to_s[::2]

    def _add(self, t_ns: Ints) -> None:
        long = np.flatnonzero(np.diff(t_ns) > self._min_ns)
        self._intervals.add(t_ns[long], t_ns[long + 1], np.zeros(len(long)))


def find_frozen_counter(
    device: RecordedDevice, fast: ChunkReader | None, run: TimeInterval
) -> TimeInterval | None:
    """The longest time in which a GPU's energy counter stood still; None where it did not."""
    source = device.sources.get(_COUNTER)
    is_counted = source is not None and source.is_sensor
    if fast is None or device.info.kind is not Kind.GPU or not is_counted:
        return None
    min_s = max(_FROZEN_PERIODS * (device.card.counter_period_s or 0.0), _MIN_FROZEN_S)
    frozen: StuckIntervals | None = None
    last_ns, last_j = 0, 0.0
    for chunk in readable(fast.chunks(("t_ns", _COUNTER)), _COUNTER):
        within = slice(*np.searchsorted(chunk["t_ns"], (run.start_ns, run.end_ns + 1)))
        t_ns, count_j = chunk["t_ns"][within], chunk[_COUNTER][within]
        if not len(t_ns):
            continue
        if frozen is None:
            frozen = StuckIntervals(min_s * NS_PER_S, int(t_ns[0]))
        else:
            frozen.take(np.array([last_ns, t_ns[0]]), np.array([last_j]), count_j[:1] != last_j)
        frozen.take(t_ns, count_j, count_j[1:] != count_j[:-1])
        last_ns, last_j = int(t_ns[-1]), float(count_j[-1])
    if frozen is None:
        return None
    frozen.finish(last_ns, last_j)
    return frozen.longest


def add_unread_start(
    energy: WindowEnergy, windows_ns: Ints, device: RecordedDevice
) -> WindowEnergy:
    """Add to the energies what the device drew before it could be read.

    ``energy`` is of the windows as far as the device was read in them. While the kernel had it
    suspended it drew 0 to ``ASLEEP_MAX_W``, otherwise 0 to its maximum: the middle of that range
    is added, and half of the range to the error. A window that was not read for the most part,
    although the device did not sleep, has no energy (NaN).
    """
    time_s = (windows_ns[:, 1] - windows_ns[:, 0]) / NS_PER_S
    silent_s, asleep_s = unread_start_s(windows_ns, device)
    lost_s = silent_s - asleep_s
    max_w = np.nan if device.maximum_w is None else device.maximum_w
    lost_j = np.where(lost_s > 0, max_w / 2 * lost_s, 0.0)
    likely_j = ASLEEP_MAX_W / 2 * asleep_s
    likely_j = likely_j + np.where(lost_s > _UNSEEN_SHARE * time_s, np.nan, lost_j)
    energy_j = energy.energy_j + likely_j
    never_read = (silent_s > 0) & (silent_s == time_s)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_w = np.where(silent_s > 0, energy_j / time_s, energy.mean_w)
    return replace(
        energy,
        energy_j=energy_j,
        error_sampling_j=np.hypot(energy.error_sampling_j, likely_j),
        mean_w=mean_w,
        peak_w=np.where(never_read, np.nan, energy.peak_w),
        counter_j=energy.counter_j + likely_j,
        integral_j=energy.integral_j + likely_j,
        too_short=energy.too_short & ~never_read,
    )


def unread_start_s(windows_ns: Ints, device: RecordedDevice) -> tuple[Floats, Floats]:
    """Seconds of each window before the device was first read, and those in which it slept."""
    ends_ns = (device.awake_ns or 0, device.asleep_ns or 0)
    silent_s, asleep_s = (
        np.asarray(np.diff(np.minimum(windows_ns, end_ns), axis=1)[:, 0] / NS_PER_S)
        for end_ns in ends_ns
    )
    return silent_s, asleep_s
