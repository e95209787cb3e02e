"""How much of the CPUs' work was the command's. Their energy is that of the whole machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from joulewise.analyse.measured import MeasuredDevice
from joulewise.analyse.stretch import Stretch
from joulewise.data import Kind, Quantity, Source
from joulewise.devices.cpu_model import BUSY, IDLE
from joulewise.record.manifest import Manifest


@dataclass(frozen=True)
class CpuShare:
    """CPU time of the command (with children, also short-lived ones), of us, and of all.

    ``command_share_j`` is of what load adds to the modelled energy, as much as the command has of
    the busy time. None is what nobody knows.
    """

    command_s: float | None
    recorder_s: float | None
    busy_s: float | None = None
    command_share_j: float | None = None


def cpu_share(counted: Sequence[MeasuredDevice], manifest: Manifest, run: Stretch) -> CpuShare:
    known = [command.cpu_s for command in manifest.commands]
    told = [cpu_s for cpu_s in known if cpu_s is not None]
    command_s = sum(told) if told and len(told) == len(known) else None
    recorder_s = manifest.recorder.cpu_s if manifest.recorder else None
    loads = list(_loads(counted, run))
    cpus = manifest.host.get("cpus", "")
    if not loads or not cpus:
        return CpuShare(command_s, recorder_s)
    mean = sum(load for _, load in loads) / len(loads)
    busy_s = mean * int(cpus) * run.time_s
    by_load_j = sum(_by_load_j(measured, load) for measured, load in loads)
    share_j = None
    if command_s is not None and busy_s > 0 and by_load_j > 0:
        share_j = by_load_j * min(command_s / busy_s, 1.0)
    return CpuShare(command_s, recorder_s, busy_s, share_j)


def _loads(
    counted: Sequence[MeasuredDevice], run: Stretch
) -> Iterator[tuple[MeasuredDevice, float]]:
    """Of each CPU the mean load, from 0 to 1."""
    for measured in counted:
        if measured.device.info.kind is Kind.CPU and Quantity.LOAD.value in measured.slow:
            load = measured.slow[Quantity.LOAD.value][run.holds(measured.slow["t_ns"])]
            if np.isfinite(load).any():
                yield measured, float(np.nanmean(load)) / 100


def _by_load_j(measured: MeasuredDevice, load: float) -> float:
    """What of a modelled energy is the load's; of a measured one nobody knows."""
    energy = measured.uses[0].energy
    if energy is None or energy.source is not Source.MODELLED:
        return 0.0
    return energy.value * BUSY * load / (IDLE + BUSY * load)
