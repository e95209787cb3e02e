"""What a GPU drew before it could be read: asleep, where reading would wake it, or lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.data import Caution, RunWarning
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from joulewise.analyse.energy import WindowEnergy
    from joulewise.analyse.stretch import Stretch
    from joulewise.record.manifest import RecordedDevice

# Without its supply a board draws nothing, and some watts where its memory is kept alive.
MOST_W: Final = 5.0
_UNSEEN: Final = 0.5


def with_silence(
    found: WindowEnergy, windows_ns: NDArray[np.int64], device: RecordedDevice
) -> WindowEnergy:
    """``found`` is of the windows as far as the device was read in them.

    While the kernel had it suspended it drew next to nothing; else it may have drawn anything, and
    what was unseen for the most part has no energy.
    """
    time_s = (windows_ns[:, 1] - windows_ns[:, 0]) / NS_PER_S
    silent_s, asleep_s = (_before(windows_ns, t_ns) for t_ns in _ends_ns(device))
    unseen_s = silent_s - asleep_s
    most_w = np.nan if device.maximum_w is None else device.maximum_w
    unseen_j = np.where(unseen_s > 0, most_w / 2 * unseen_s, 0.0)
    likely_j = MOST_W / 2 * asleep_s + np.where(unseen_s > _UNSEEN * time_s, np.nan, unseen_j)
    energy_j = found.energy_j + likely_j
    never_read = (silent_s > 0) & (silent_s == time_s)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_w = np.where(silent_s > 0, energy_j / time_s, found.mean_w)
    return replace(
        found,
        energy_j=energy_j,
        error_sampling_j=np.hypot(found.error_sampling_j, likely_j),
        mean_w=mean_w,
        peak_w=np.where(never_read, np.nan, found.peak_w),
        counter_j=found.counter_j + likely_j,
        integral_j=found.integral_j + likely_j,
        too_short=found.too_short & ~never_read,
    )


def silent_at_first(
    device: RecordedDevice, run: Stretch, *, is_bound: bool = False
) -> Iterator[RunWarning]:
    """``is_bound``: its energy is a lower bound, and that it was not read is said with that."""
    window_ns = np.array([[run.start_ns, run.end_ns]])
    silent_s, asleep_s = (float(_before(window_ns, t_ns)[0]) for t_ns in _ends_ns(device))
    if asleep_s > 0:
        yield RunWarning(
            Caution.GAP,
            f"it slept for the first {asleep_s:.1f} s, for which 0 to {MOST_W:g} W are assumed",
            "nobody reads a GPU that sleeps, since that would wake it",
            device.info.key,
        )
    if silent_s > asleep_s and not is_bound:
        after = "then" if asleep_s else "at first"
        why = f" ({device.unavailable.reason})" if device.unavailable and not asleep_s else ""
        most = "" if device.maximum_w is None else f", for which 0 to {device.maximum_w:g} W stand"
        yield RunWarning(
            Caution.GAP,
            f"it was not read for {silent_s - asleep_s:.1f} s {after}{why}{most}",
            "measure again: the error is as wide as what it may have drawn unseen",
            device.info.key,
        )


def _ends_ns(device: RecordedDevice) -> tuple[int, int]:
    """Up to when it was not read, and up to when it slept."""
    return device.awake_ns or 0, device.asleep_ns or 0


def _before(windows_ns: NDArray[np.int64], t_ns: int) -> NDArray[np.float64]:
    """Seconds of each window before a moment."""
    return np.asarray(np.diff(np.minimum(windows_ns, t_ns), axis=1)[:, 0] / NS_PER_S)
