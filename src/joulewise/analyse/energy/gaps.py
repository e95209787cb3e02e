"""Time in which a device did not answer, and how much less firm its joules are across it.

The counter and the driver's own samples bridge such a time. What was read across a fault is a
little less sure than what was read in peace: a driver that was reset may have lost
joules unnoticed.

A counter that stands still: a live GPU draws power, so its sensors have stopped.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.chunks import ChunkReader, Columns, readable
from joulewise.analyse.energy.power_integral import Silences, Standstills, typical_step_ns
from joulewise.analyse.time_intervals import Stretch
from joulewise.data import Kind, Quantity
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from joulewise.analyse.energy.windows import WindowEnergy

LONG_S: Final = 0.3
_MISSED: Final = 3
# Of what was drawn while nothing checked the counter or the readings (chosen).
_UNCHECKED: Final = 0.01
_UNSEEN: Final = 0.5
_DOUBT: Final = 0.5


def across_faults(
    told: WindowEnergy, fast: ChunkReader | None, windows_ns: NDArray[np.int64]
) -> tuple[WindowEnergy, NDArray[np.float64]]:
    """The energies with errors as wide as their faults ask for, and seconds not polled in each.

    What was hardly seen, with nothing that bridges it, has no energy.
    """
    if fast is None or not fast.rows:
        return told, np.zeros(len(windows_ns))
    step_ns = typical_step_ns(fast)
    unread_s = _unread_s(fast, windows_ns, _MISSED * step_ns)
    bridged_s = np.fmax(unread_s, told.gap_s) + np.fmax(told.still_s, 0.0)
    bridged_s = np.maximum(bridged_s, told.counter_broken * step_ns / NS_PER_S)
    error_j = told.error_sampling_j
    bridged = bridged_s > 0
    if bridged.any():
        unchecked_j = _UNCHECKED * np.abs(told.mean_w) * bridged_s
        error_j = np.where(bridged, np.hypot(error_j, unchecked_j), error_j)
    time_s = (windows_ns[:, 1] - windows_ns[:, 0]) / NS_PER_S
    unseen_s = np.where(np.isnan(told.gap_s), unread_s, told.gap_s)
    unseen = unseen_s > np.maximum(_UNSEEN * time_s, LONG_S)
    unseen &= error_j > _DOUBT * np.abs(told.energy_j)
    energy_j = np.where(unseen, np.nan, told.energy_j)
    return replace(told, energy_j=energy_j, error_sampling_j=error_j), unread_s


def _unread_s(
    fast: ChunkReader, windows_ns: NDArray[np.int64], long_ns: float
) -> NDArray[np.float64]:
    """Seconds of each window in which some quantity was not read."""
    first_ns, end_ns = int(windows_ns.min(initial=0)), int(windows_ns.max(initial=0))
    names = [name for name in ("power_w", "energy_j") if name in fast.columns]
    unread = [_Unread(name, first_ns, long_ns) for name in names]
    for chunk in fast.chunks(("t_ns", *names)):
        for one in unread:
            one.take(chunk)
    found_s = np.array([one.within_s(windows_ns, end_ns) for one in unread])
    return np.asarray(found_s.max(axis=0, initial=0.0))


class _Unread:
    """Sees a lane chunk by chunk: when one column could not be read for long."""

    def __init__(self, column: str, first_ns: int, long_ns: float) -> None:
        self._column = column
        self._long_ns = long_ns
        self._silences = Silences()
        self._last_ns = first_ns
        self._is_read = False

    def take(self, chunk: Columns) -> None:
        [chunk] = readable([chunk], self._column)
        t_ns = chunk["t_ns"]
        if len(t_ns):
            self._add(np.array([min(self._last_ns, t_ns[0]), t_ns[0]]))
            self._add(t_ns)
            self._last_ns, self._is_read = int(t_ns[-1]), True

    def within_s(self, windows_ns: NDArray[np.int64], end_ns: int) -> NDArray[np.float64]:
        """Seconds of each window; none where it was never read."""
        if not self._is_read:
            return np.zeros(len(windows_ns))
        self._add(np.array([self._last_ns, max(self._last_ns, end_ns)]))
        up_to_s, _ = self._silences.up_to(windows_ns.reshape(-1))
        return up_to_s[1::2] - up_to_s[::2]

    def _add(self, t_ns: NDArray[np.int64]) -> None:
        long = np.flatnonzero(np.diff(t_ns) > self._long_ns)
        self._silences.add(t_ns[long], t_ns[long + 1], np.zeros(len(long)))


if TYPE_CHECKING:
    from joulewise.analyse.chunks import ChunkReader
    from joulewise.store.manifest import RecordedDevice

_PERIODS: Final = 10
_SHORTEST_S: Final = 2.0
_COUNT: Final = Quantity.ENERGY.value


def frozen(device: RecordedDevice, fast: ChunkReader | None, run: Stretch) -> Stretch | None:
    """The longest time in which a GPU's counter showed the same, if that cannot be."""
    source = device.sources.get(_COUNT)
    is_counted = source is not None and source.is_sensor
    if fast is None or device.info.kind is not Kind.GPU or not is_counted:
        return None
    least_s = max(_PERIODS * (device.card.counter_period_s or 0.0), _SHORTEST_S)
    still: Standstills | None = None
    last_ns, last_j = 0, 0.0
    for chunk in readable(fast.chunks(("t_ns", _COUNT)), _COUNT):
        within = slice(*np.searchsorted(chunk["t_ns"], (run.start_ns, run.end_ns + 1)))
        t_ns, count_j = chunk["t_ns"][within], chunk[_COUNT][within]
        if not len(t_ns):
            continue
        if still is None:
            still = Standstills(least_s * NS_PER_S, int(t_ns[0]))
        else:
            still.look(np.array([last_ns, t_ns[0]]), np.array([last_j]), count_j[:1] != last_j)
        still.look(t_ns, count_j, count_j[1:] != count_j[:-1])
        last_ns, last_j = int(t_ns[-1]), float(count_j[-1])
    if still is None:
        return None
    still.end(last_ns, last_j)
    return still.longest
