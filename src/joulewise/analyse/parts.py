"""The measured parts of a GPU's energy: its memory, and on a superchip's module the GPU itself.

They are inside what the device's counter tells, and are never added to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.lanes import OpenLane, Rows
from joulewise.analyse.stretch import Stretch
from joulewise.data import Energy, PowerScope, Quantity, Source
from joulewise.record.layout import Lane
from joulewise.record.manifest import RecordedDevice
from joulewise.units import NS_PER_S, Z95

if TYPE_CHECKING:
    from numpy.typing import NDArray

PARTS: Final = {
    Quantity.GPU_POWER: ("gpu", Lane.FAST),
    Quantity.MEMORY_POWER: ("memory", Lane.SLOW),
}
"""By what its power is read from: the name of the part, and where its readings lie."""

# NVML averages power over a second from Ampere on (generations.py): each reading stands for the
# second before it, and the middle of that is half as old.
_WINDOW_S: Final = 1.0
_FEWEST: Final = 2


def measure_parts(lanes: OpenLane, device: RecordedDevice, run: Stretch) -> dict[str, Energy]:
    """What each part drew in the run, by name; those that were read at least twice.

    The readings are joined by straight lines (the trapezoidal rule). What the first and the last of
    them do not show is taken to be within the range of all.
    """
    found = {
        name: _integrate(*_readings(rows, quantity.value), device, run)
        for quantity, (name, lane) in PARTS.items()
        if not _is_whole(quantity, device)
        and (rows := lanes(device.info.key, lane)) is not None
        and quantity.value in rows.columns
    }
    return {part: energy for part, energy in found.items() if energy is not None}


def _is_whole(quantity: Quantity, device: RecordedDevice) -> bool:
    """Whether it is no part but what the device counts: the GPU, where that is all it tells.

    Its readings are there where the device was taken for a module in its first second.
    """
    scope = device.info.power_scope
    return quantity is Quantity.GPU_POWER and scope is PowerScope.GPU


def _readings(rows: Rows, name: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    chunks = list(rows.chunks(["t_ns", name]))
    return (
        np.concatenate([chunk["t_ns"] for chunk in chunks]),
        np.concatenate([chunk[name] for chunk in chunks]).astype(np.float64),
    )


def _integrate(
    t_ns: NDArray[np.int64],
    power_w: NDArray[np.float64],
    device: RecordedDevice,
    run: Stretch,
) -> Energy | None:
    is_read = np.isfinite(power_w) & (t_ns >= run.start_ns)
    is_read &= t_ns <= run.end_ns + round(_WINDOW_S * NS_PER_S)
    if is_read.sum() < _FEWEST:
        return None
    middle_s = (t_ns[is_read] - run.start_ns) / NS_PER_S - _WINDOW_S / 2
    watts = power_w[is_read]
    end_s = (run.end_ns - run.start_ns) / NS_PER_S
    within = (middle_s > 0) & (middle_s < end_s)
    times_s = np.concatenate([[0.0], middle_s[within], [end_s]])
    levels_w = np.interp(times_s, middle_s, watts)
    energy_j = float(np.sum((levels_w[1:] + levels_w[:-1]) * np.diff(times_s)) / 2)
    unseen_s = float(np.median(np.diff(middle_s))) + _WINDOW_S
    sampling_j = float(np.ptp(watts)) * unseen_s / 2
    gain_j = Z95 * device.card.gain_sigma * energy_j
    source = Source.SIMULATED if device.is_simulated else Source.MEASURED
    return Energy(energy_j, sampling_j, gain_j, source)
