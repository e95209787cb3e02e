"""What a training does, in order: the one description that virtual and real time play."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from joulewise.simulate.model import Load, Phase, Workload


@dataclass(frozen=True)
class Part:
    """So many steps of one load."""

    name: Literal["step", "validation", "end"]
    load: Load
    steps: int


def epochs(workload: Workload) -> Iterator[tuple[Part, ...]]:
    """The parts of each epoch of one training."""
    step = workload.step
    steps = math.ceil(workload.samples / workload.batch_size)
    step_s = sum(phase.time_s for phase in step.phases)
    slow = replace(step, phases=(*step.phases, _wait((workload.warmup_factor - 1.0) * step_s)))
    end = Load((_wait(workload.epoch_end_s),), step.memory_b)
    for epoch in range(workload.epochs):
        warming = min(workload.warmup_steps, steps) if epoch == 0 else 0
        parts = (
            Part("step", slow, warming),
            Part("step", step, steps - warming),
            Part("validation", workload.validation, workload.validation_steps),
            Part("end", end, 1 if workload.epoch_end_s else 0),
        )
        yield tuple(part for part in parts if part.steps)


def over_and_over(workload: Workload) -> Iterator[Part]:
    """The parts of one training after another, without end."""
    while True:
        for parts in epochs(workload):
            yield from parts


def _wait(time_s: float) -> Phase:
    """For the host, with clocks up."""
    return Phase("wait", time_s, compute=0.0, core_w=0.0, fixed_w=0.0, busy=False)
