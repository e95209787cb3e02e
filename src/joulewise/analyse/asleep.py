"""What a GPU drew before it was woken. Nobody reads it then: reading would wake it."""

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
    from joulewise.analyse.measured import Measured
    from joulewise.analyse.stretch import Stretch

# Without its supply a board draws nothing, and some watts where its memory is kept alive.
MOST_W: Final = 5.0


def with_sleep(found: WindowEnergy, windows_ns: NDArray[np.int64], awake_ns: int) -> WindowEnergy:
    """``found`` is of the windows as far as the device was awake in them."""
    time_s = (windows_ns[:, 1] - windows_ns[:, 0]) / NS_PER_S
    asleep_s = np.diff(np.minimum(windows_ns, awake_ns), axis=1)[:, 0] / NS_PER_S
    likely_j = MOST_W / 2 * asleep_s
    energy_j = found.energy_j + likely_j
    never_awake = (asleep_s > 0) & (asleep_s == time_s)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_w = np.where(asleep_s > 0, energy_j / time_s, found.mean_w)
    return replace(
        found,
        energy_j=energy_j,
        error_sampling_j=np.hypot(found.error_sampling_j, likely_j),
        mean_w=mean_w,
        peak_w=np.where(never_awake, np.nan, found.peak_w),
        counter_j=found.counter_j + likely_j,
        integral_j=found.integral_j + likely_j,
        too_short=found.too_short & ~never_awake,
    )


def asleep(measured: Measured, run: Stretch) -> Iterator[RunWarning]:
    awake_ns, key = measured.device.awake_ns, measured.device.info.key
    if awake_ns is not None and awake_ns > run.start_ns:
        slept_s = (min(awake_ns, run.end_ns) - run.start_ns) / NS_PER_S
        yield RunWarning(
            Caution.GAP,
            f"it slept for the first {slept_s:.1f} s, for which 0 to {MOST_W:g} W are assumed",
            "nobody reads a GPU that sleeps, since that would wake it",
            key,
        )
