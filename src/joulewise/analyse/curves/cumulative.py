"""How a run's energy grew, with what it may be off by: the joules are those of the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.curves.passing import even_edges
from joulewise.analyse.energy import energy_of, window_energy
from joulewise.analyse.lanes import OpenLane
from joulewise.analyse.stretch import Stretch
from joulewise.analyse.unread import across_faults
from joulewise.data import Energy, RunResult, total
from joulewise.record.layout import Lane
from joulewise.record.manifest import RecordedDevice
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PIECES: Final = 200
_SHORTEST_S: Final = 0.1


@dataclass(frozen=True)
class Growth:
    """Joules from the run's start up to each moment ``t_s``; NaN where they are not known.

    ``error_j`` is a 95 % half-width. ``mean_w`` is the mean power from the moment before, so that
    the first is NaN.
    """

    t_s: NDArray[np.float64]
    energy_j: NDArray[np.float64]
    error_j: NDArray[np.float64]
    mean_w: NDArray[np.float64]


def growth_edges(run: Stretch) -> NDArray[np.int64]:
    """The moments at which the energy so far is told: few, and none closer than a sensor tells."""
    return even_edges(run, int(np.clip(run.time_s / _SHORTEST_S, 1, _PIECES)))


def growth_of(
    lanes: OpenLane, device: RecordedDevice, edges_ns: NDArray[np.int64], *, faulty: bool
) -> tuple[Growth, list[Energy | None]]:
    """One device's, and its energy up to each edge in full; the first edge is the run's start.

    ``faulty``: it is known that the device did not answer for a while. Where nobody knows of such
    a time and the readings show none, none is looked for: that would take another pass or two.
    """
    fast, buffer = (lanes(device.info.key, lane) for lane in (Lane.FAST, Lane.BUFFER))
    since_start_ns = np.column_stack([np.full(len(edges_ns) - 1, edges_ns[0]), edges_ns[1:]])
    pieces_ns = np.column_stack([edges_ns[:-1], edges_ns[1:]])
    windows_ns = np.concatenate([since_start_ns, pieces_ns])
    told = window_energy(device, fast, buffer, windows_ns)
    if faulty or told.counter_broken.any() or np.any((told.gap_s > 0) | (told.still_s > 0)):
        told, _ = across_faults(told, fast, np.maximum(windows_ns, device.awake_ns or 0))
    pieces = len(pieces_ns)
    zero = Energy(0.0, 0.0, 0.0, next(iter(device.sources.values())))
    energies = [zero, *(energy_of(told, i, device) for i in range(pieces))]
    return _growth(edges_ns, energies, np.append(np.nan, told.mean_w[pieces:])), energies


def whole_growth(
    result: RunResult,
    edges_ns: NDArray[np.int64],
    devices: Sequence[tuple[Growth, Sequence[Energy | None]]],
) -> Growth | None:
    """That of all devices that count, in their order; it ends at the run's own energy and error.

    None where the run has no energy: a sum with a device left out would pass for the whole.
    """
    if result.run.total is None or not devices:
        return None
    sums = [
        total(known) if len(known := [e for e in at if e is not None]) == len(at) else None
        for at in zip(*(energies for _, energies in devices), strict=True)
    ]
    # The same windows give the same joules but for the last bit: one figure, told once.
    sums[-1] = result.run.total
    mean_w = np.sum([growth.mean_w for growth, _ in devices], axis=0)
    return _growth(edges_ns, sums, mean_w)


def _growth(
    edges_ns: NDArray[np.int64], energies: Sequence[Energy | None], mean_w: NDArray[np.float64]
) -> Growth:
    t_s = (edges_ns - edges_ns[0]) / NS_PER_S
    energy_j = np.array([np.nan if one is None else one.value for one in energies])
    error_j = np.array([np.nan if one is None else one.error for one in energies])
    return Growth(np.asarray(t_s), energy_j, error_j, mean_w)
