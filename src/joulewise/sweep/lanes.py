"""Which GPUs a run of a sweep has for itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from joulewise.errors import UsageError
from joulewise.sweep.asked import Asked
from joulewise.sweep.boards import Board
from joulewise.sweep.space import Space


@dataclass(frozen=True)
class Lane:
    """The GPUs of one run at a time: their numbers, and what shows only them to the command."""

    gpus: tuple[int, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)


def lanes(asked: Asked, space: Space) -> list[Lane]:
    """One for all GPUs together, or one for each."""
    if not asked.each_gpu:
        return [Lane(asked.gpus)]
    if not space.gpus:
        raise UsageError("--each-gpu, and there is no GPU", "see what `joulewise doctor` says")
    return [_alone(gpu) for gpu in space.gpus]


def _alone(gpu: Board) -> Lane:
    # NVIDIA's and AMD's runtimes take a GPU's own name; each passes over the other's variable.
    shown = {"CUDA_VISIBLE_DEVICES": gpu.uid, "ROCR_VISIBLE_DEVICES": gpu.uid}
    return Lane((int(gpu.key.removeprefix("gpu")),), shown)
