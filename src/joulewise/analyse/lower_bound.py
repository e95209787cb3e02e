"""Energy of windows in part of which a device was not read: a lower bound, up to where it was.

A GPU that fell off the bus, or whose recorder was killed, may have drawn anything afterwards. What
it drew before is known as well as ever, so that is what counts, marked as the least it can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.course import typical_step_ns
from joulewise.analyse.energy import WindowEnergy, window_energy
from joulewise.analyse.unread import LONG_S, across_faults
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from joulewise.analyse.lanes import Rows
    from joulewise.record.manifest import RecordedDevice

# Polls in a row that may fail before the device counts as gone. A poll or two come late on a busy
# machine; twice as many would have a GPU that was lost 2 s before the end pass for whole.
_POLLS_MISSED: Final = 3


def bounded_energy(
    device: RecordedDevice,
    fast: Rows | None,
    buffer: Rows | None,
    windows_ns: NDArray[np.int64],
    marks_ns: NDArray[np.int64] | None = None,
) -> tuple[WindowEnergy, NDArray[np.float64], NDArray[np.bool_]]:
    """What each window drew, its seconds without a poll, and which energies are lower bounds.

    A window that reaches beyond the last reading, of which nothing bridges the rest, has the
    energy up to that reading. So has one whose beginning was not read for the most part. A window
    of which nothing was read, or that has no length, has none (NaN). ``marks_ns`` as of
    :func:`window_energy`.
    """
    energy, unread_s = _energy(device, fast, buffer, windows_ns, marks_ns)
    read_ns = read_parts(device, fast, windows_ns)
    is_cut = (read_ns != windows_ns).any(axis=1)
    is_lost = is_cut & ((windows_ns[:, 1] > read_ns[:, 1]) | np.isnan(energy.energy_j))
    if fast is None or not is_lost.any():
        return energy, unread_s, np.zeros(len(windows_ns), bool)
    part, _ = _energy(replace(device, awake_ns=None), fast, buffer, read_ns, marks_ns)
    is_empty = read_ns[:, 1] <= read_ns[:, 0]

    def bound(of_part: NDArray[np.float64], of_whole: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(is_lost, np.where(is_empty, np.nan, of_part), of_whole)

    bounded = replace(
        energy,
        energy_j=bound(part.energy_j, energy.energy_j),
        error_sampling_j=bound(part.error_sampling_j, energy.error_sampling_j),
        mean_w=bound(part.mean_w, energy.mean_w),
        peak_w=bound(part.peak_w, energy.peak_w),
        counter_j=bound(part.counter_j, energy.counter_j),
        integral_j=bound(part.integral_j, energy.integral_j),
    )
    return bounded, unread_s, is_lost & np.isfinite(bounded.energy_j)


def read_parts(
    device: RecordedDevice, fast: Rows | None, windows_ns: NDArray[np.int64]
) -> NDArray[np.int64]:
    """From when to when the device was read in each window: from its first reading to its last."""
    end_ns = last_reading_ns(fast, int(windows_ns.max(initial=0)))
    return np.maximum(np.minimum(windows_ns, end_ns), device.awake_ns or 0)


def last_reading_ns(
    fast: Rows | None, end_ns: int, quantities: Sequence[str] = ("power_w", "energy_j")
) -> int:
    """When the device was last read, where it never was again before ``end_ns``; else that."""
    names = [] if fast is None else [name for name in quantities if name in fast.columns]
    if fast is None or not fast.rows or not names:
        return end_ns
    last_ns = None
    for chunk in fast.chunks(("t_ns", *names)):
        is_read = np.any([np.isfinite(chunk[name]) for name in names], axis=0)
        if is_read.any():
            last_ns = int(chunk["t_ns"][is_read][-1])
    if last_ns is None:
        return end_ns
    patience_ns = max(LONG_S * NS_PER_S, _POLLS_MISSED * typical_step_ns(fast))
    return last_ns if end_ns - last_ns > patience_ns else end_ns


def _energy(
    device: RecordedDevice,
    fast: Rows | None,
    buffer: Rows | None,
    windows_ns: NDArray[np.int64],
    marks_ns: NDArray[np.int64] | None,
) -> tuple[WindowEnergy, NDArray[np.float64]]:
    energy = window_energy(device, fast, buffer, windows_ns, marks_ns)
    is_empty = windows_ns[:, 1] <= windows_ns[:, 0]
    if is_empty.any():
        energy = _without(energy, is_empty)
    return across_faults(energy, fast, np.maximum(windows_ns, device.awake_ns or 0))


def _without(energy: WindowEnergy, is_empty: NDArray[np.bool_]) -> WindowEnergy:
    """No energy where no time passed: that is no measurement, and 0 J with no error looks like one.

    A mark of a span's beginning may be the last thing that a program leaves.
    """

    def none(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(is_empty, np.nan, values)

    return replace(
        energy,
        energy_j=none(energy.energy_j),
        error_sampling_j=none(energy.error_sampling_j),
        mean_w=none(energy.mean_w),
        peak_w=none(energy.peak_w),
        counter_j=none(energy.counter_j),
        integral_j=none(energy.integral_j),
    )
