"""How a run's energy grew, with what it may be off by: the joules are those of the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.curves.average import Curve
from joulewise.analyse.curves.passing import even_edges
from joulewise.analyse.damage import SoundLanes
from joulewise.analyse.energy import energy_of, window_energy
from joulewise.analyse.lanes import OpenLane
from joulewise.analyse.load_marks import load_marks_of_result
from joulewise.analyse.stretch import Stretch
from joulewise.analyse.unread import across_faults
from joulewise.data import Caution, Energy, Kind, RunResult, total
from joulewise.record.layout import Lane
from joulewise.record.manifest import RecordedDevice, read_manifest
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

FAULTS: Final = {
    Caution.GAP,
    Caution.STUCK,
    Caution.COUNTER_RESET,
    Caution.UNAVAILABLE,
    Caution.DAMAGED,
    Caution.IMPLAUSIBLE,
}
"""Warnings by which it is known that a device did not answer for a while."""

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
    lanes: OpenLane,
    device: RecordedDevice,
    edges_ns: NDArray[np.int64],
    *,
    faulty: bool,
    end: Energy | None = None,
    marks_ns: NDArray[np.int64] | None = None,
) -> tuple[Growth, list[Energy | None]]:
    """One device's, and its energy up to each edge in full; the first edge is the run's start.

    ``end`` is the energy of the whole run in its result, at which the course ends, and ``marks_ns``
    are the run's (load_marks.py), else its start and end.
    ``faulty``: it is known that the device did not answer for a while. Where nobody knows of such
    a time and the readings show none, none is looked for: that would take another pass or two.
    """
    fast, buffer = (lanes(device.info.key, lane) for lane in (Lane.FAST, Lane.BUFFER))
    since_start_ns = np.column_stack([np.full(len(edges_ns) - 1, edges_ns[0]), edges_ns[1:]])
    pieces_ns = np.column_stack([edges_ns[:-1], edges_ns[1:]])
    windows_ns = np.concatenate([since_start_ns, pieces_ns])
    marks_ns = edges_ns[[0, -1]] if marks_ns is None else marks_ns
    told = window_energy(device, fast, buffer, windows_ns, marks_ns)
    if faulty or told.counter_broken.any() or np.any((told.gap_s > 0) | (told.still_s > 0)):
        told, _ = across_faults(told, fast, np.maximum(windows_ns, device.awake_ns or 0))
    pieces = len(pieces_ns)
    zero = Energy(0.0, 0.0, 0.0, next(iter(device.sources.values())))
    energies = [zero, *(energy_of(told, i, device) for i in range(pieces))]
    energies = _ending_at(end, energies)
    return _growth(edges_ns, energies, np.append(np.nan, told.mean_w[pieces:])), energies


def gpu_growth(run: Path, result: RunResult) -> Curve | None:
    """Energy so far of all GPUs that count in a stored run, joules over seconds since its start.

    It ends at their energy in the result. None where there is no GPU, or one was not read in all
    of the run.
    """
    manifest = read_manifest(run)
    gpus = [
        device
        for device in manifest.devices
        if device.info.kind is Kind.GPU and device.info.key in result.counted
    ]
    ends = [result.run.devices[device.info.key].energy for device in gpus]
    known_j = [energy.value for energy in ends if energy is not None and not energy.at_least]
    stretch = Stretch(result.run.span.start_ns, result.run.span.end_ns)
    if not gpus or len(known_j) < len(gpus) or stretch.time_ns <= 0:
        return None
    edges_ns = growth_edges(stretch)
    faulty = {one.device for one in result.warnings if one.code in FAULTS}
    energy_j, marks_ns = np.zeros(len(edges_ns)), load_marks_of_result(result)
    lanes = SoundLanes(run, manifest)
    for device, end in zip(gpus, ends, strict=True):
        is_faulty = device.info.key in faulty
        growth, _ = growth_of(lanes, device, edges_ns, faulty=is_faulty, end=end, marks_ns=marks_ns)
        energy_j += growth.energy_j
    return Curve(np.asarray((edges_ns - edges_ns[0]) / NS_PER_S), energy_j)


def _ending_at(end: Energy | None, energies: list[Energy | None]) -> list[Energy | None]:
    """The result may know more spans, which move its last digits: one run, one energy."""
    last = energies[-1]
    if end is None or last is None or not last.value:
        return energies
    scale = end.value / last.value
    moved = [None if one is None else replace(one, value=one.value * scale) for one in energies]
    return [*moved[:-1], end]


def whole_growth(
    result: RunResult,
    edges_ns: NDArray[np.int64],
    devices: Sequence[tuple[Growth, Sequence[Energy | None]]],
) -> Growth | None:
    """That of all devices that count, in their order; it ends at the run's own energy and error.

    None where the run has no energy, or only a lower bound: a sum with a device left out would
    pass for the whole.
    """
    if result.run.total is None or result.run.total.at_least or not devices:
        return None
    sums = [
        total(known) if len(known := [e for e in at if e is not None]) == len(at) else None
        for at in zip(*(energies for _, energies in devices), strict=True)
    ]
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
