"""Where runs happen: here, in virtual time, or on a cluster.

Which GPUs a run of a sweep has for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from joulewise.data.sweeps import Planned, Trial
from joulewise.errors import UsageError
from joulewise.sweep.boards import TargetBoard
from joulewise.sweep.space import Space
from joulewise.sweep.spec import SweepSpec

# Told (time so far in s, joules so far by boundary); True where the run may be ended.
Hopeless = Callable[[float, dict[str, float]], bool]


class Runner(Protocol):
    """Makes runs, one at a time in each lane; called from a thread of each lane."""

    @property
    def lanes(self) -> int: ...

    def run(self, planned: Planned, hopeless: Hopeless | None = None) -> Trial:
        """One run to its end, whatever end; a fault of the run is a failed trial, no exception."""
        ...

    def adopt(self, planned: Planned) -> Trial | None:
        """A run that an earlier process had made to its end for this plan, and never told of.

        None where there is none, or where to make it again takes no longer than to look for it.
        """
        ...

    def stop(self) -> None:
        """End what is under way, knobs put back, and start no more.

        What ``run`` returns then is not kept.
        """
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class GpuSlot:
    """The GPUs of one run at a time: their numbers, and what shows only them to the command."""

    gpus: tuple[int, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)


def lanes(asked: SweepSpec, space: Space) -> list[GpuSlot]:
    """One for all GPUs together, or one for each."""
    if not asked.each_gpu:
        return [GpuSlot(asked.gpus)]
    if not space.gpus:
        raise UsageError("--each-gpu, and there is no GPU", "see what `joulewise doctor` says")
    return [_alone(gpu) for gpu in space.gpus]


def _alone(gpu: TargetBoard) -> GpuSlot:
    # NVIDIA's and AMD's runtimes take a GPU's own name; each passes over the other's variable.
    shown = {"CUDA_VISIBLE_DEVICES": gpu.uid, "ROCR_VISIBLE_DEVICES": gpu.uid}
    return GpuSlot((int(gpu.key.removeprefix("gpu")),), shown)
