"""Time in which a device did not answer, and how much less firm its joules are across it.

The counter and the driver's own samples bridge such a time. What was read across a fault is still
less sure than what was read in peace: a driver that was reset may have lost joules unnoticed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.course import typical_step_ns
from joulewise.analyse.silences import Silences
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from joulewise.analyse.energy import WindowEnergy
    from joulewise.analyse.lanes import Rows

LONG_S: Final = 0.3
_MISSED: Final = 3
_LEAST_DOUBT: Final = 0.05  # of the mean power
_UNSEEN: Final = 0.5
_DOUBT: Final = 0.5


def across_faults(
    told: WindowEnergy, fast: Rows | None, windows_ns: NDArray[np.int64]
) -> tuple[WindowEnergy, NDArray[np.float64]]:
    """The energies with errors as wide as their faults ask for, and seconds not polled in each.

    What was hardly seen, with nothing that bridges it, has no energy.
    """
    if fast is None or not fast.rows:
        return told, np.zeros(len(windows_ns))
    step_ns = typical_step_ns(fast)
    unread_s, spread_w = _not_polled(fast, windows_ns, _MISSED * step_ns)
    bridged_s = np.fmax(unread_s, told.gap_s) + np.nan_to_num(told.still_s)
    bridged_s = np.maximum(bridged_s, told.counter_broken * step_ns / NS_PER_S)
    doubt_w = np.fmax(spread_w, _LEAST_DOUBT * np.abs(told.mean_w))
    error_j = np.where(
        bridged_s > 0, np.hypot(told.error_sampling_j, bridged_s * doubt_w), told.error_sampling_j
    )
    time_s = (windows_ns[:, 1] - windows_ns[:, 0]) / NS_PER_S
    unseen_s = np.where(np.isnan(told.gap_s), unread_s, told.gap_s)
    unseen = unseen_s > np.maximum(_UNSEEN * time_s, LONG_S)
    unseen &= error_j > _DOUBT * np.abs(told.energy_j)
    energy_j = np.where(unseen, np.nan, told.energy_j)
    return replace(told, energy_j=energy_j, error_sampling_j=error_j), unread_s


def _not_polled(
    fast: Rows, windows_ns: NDArray[np.int64], long_ns: float
) -> tuple[NDArray[np.float64], float]:
    """Seconds of each window in which some quantity was not read; the spread of the readings."""
    ends_ns = int(windows_ns.min(initial=0)), int(windows_ns.max(initial=0))
    found_s, spread_w = np.zeros(len(windows_ns)), 0.0
    for name in {"power_w", "energy_j"} & set(fast.columns):
        silences, last_ns = Silences(), ends_ns[0]
        count, mean_w, squares = 0, 0.0, 0.0
        for chunk in fast.chunks(("t_ns", name)):
            there = np.isfinite(chunk[name])
            values, t_ns = chunk[name][there].astype(float), chunk["t_ns"][there]
            if not len(t_ns):
                continue
            _add(silences, np.append(min(last_ns, t_ns[0]), t_ns), long_ns)
            last_ns = int(t_ns[-1])
            apart, part = float(values.mean()) - mean_w, len(values)
            squares += float(values.var()) * part + apart**2 * count * part / (count + part)
            count += part
            mean_w += apart * part / count
        if count:
            _add(silences, np.array([last_ns, max(last_ns, ends_ns[1])]), long_ns)
            up_to_s, _ = silences.up_to(windows_ns.reshape(-1))
            found_s = np.maximum(found_s, np.diff(up_to_s.reshape(-1, 2))[:, 0])
        if count and name == "power_w":
            spread_w = math.sqrt(squares / count)
    return found_s, spread_w


def _add(silences: Silences, t_ns: NDArray[np.int64], long_ns: float) -> None:
    long = np.flatnonzero(np.diff(t_ns) > long_ns)
    silences.add(t_ns[long], t_ns[long + 1], np.zeros(len(long)))
