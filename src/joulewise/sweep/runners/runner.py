"""What a sweep asks of whatever makes its runs, and which GPUs each run has for itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from joulewise.data.sweeps import Planned, Trial
from joulewise.errors import UsageError
from joulewise.sweep.space import Space
from joulewise.sweep.spec import SweepSpec

# Called with the time so far in s and the joules so far by boundary; whether to end the run.
IsHopeless = Callable[[float, dict[str, float]], bool]


class Runner(Protocol):
    """Makes runs, one at a time in each GPU slot; called from one thread for each slot."""

    @property
    def slots(self) -> int:
        """How many runs can be made at the same time; ``Planned.lane`` counts below it."""
        ...

    def run(self, planned: Planned, is_hopeless: IsHopeless | None = None) -> Trial:
        """Make one run to its end. A fault of the run is a failed trial, not an exception."""
        ...

    def adopt(self, planned: Planned) -> Trial | None:
        """The complete run that an earlier process made for this plan and did not write down.

        None where there is none, or where making it again takes no longer than looking for it.
        """
        ...

    def stop(self) -> None:
        """End the runs in progress, restore their controls, and start no more.

        What ``run`` returns after that is discarded.
        """
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class GpuSlot:
    """The GPUs of one run: their numbers, and the environment that shows the command only them.

    No numbers mean all GPUs.
    """

    gpus: tuple[int, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)


def make_slots(spec: SweepSpec, space: Space) -> list[GpuSlot]:
    """One slot for all GPUs together, or with ``--each-gpu`` one for each."""
    if not spec.each_gpu:
        return [GpuSlot(spec.gpus)]
    if not space.gpus:
        raise UsageError("--each-gpu needs a GPU, and none was found", "run `joulewise doctor`")
    # NVIDIA's and AMD's runtimes both take a GPU's own id, and ignore the other's variable.
    return [
        GpuSlot(
            (int(gpu.key.removeprefix("gpu")),),
            {"CUDA_VISIBLE_DEVICES": gpu.uid, "ROCR_VISIBLE_DEVICES": gpu.uid},
        )
        for gpu in space.gpus
    ]
