"""The trainings that a simulated GPU can run, read from ``workloads/``.

A network on a board is five figures (:class:`Profile`). Where nobody measured that board, they
are transferred from one that was: times by the ratio of peak arithmetic and of memory bandwidth,
power by the ratio of what the boards may draw; :attr:`Workload.source` says so.

:func:`iterate_epochs` says what a training does, in order; virtual and real time both play it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, Final, Literal

from joulewise.errors import UsageError, did_you_mean
from joulewise.simulate.boards import load_board
from joulewise.simulate.model import Board, Load, Phase, Workload
from joulewise.units import B_PER_MIB

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

WORKLOADS: Final = (
    "alexnet",
    "vgg19",
    "inception3",
    "inception4",
    "resnet50",
    "resnet152",
    "mnist-small",
    "mnist-big",
    "ecg",
)
NETWORKS: Final = WORKLOADS[:6]
"""Those of the published table."""

# Standard deviation of a run's time and power, relative, where a network has none of its own.
# Chosen: repeated trainings differ by some tenths of a percent. Doubled, a sweep needs four times
# as many runs to tell two settings apart.
RUN_NOISE: Final = 0.003
# Chosen: the first steps of a training take longer (memory is allocated, kernels are selected),
# each twice as long as others. With twice as many, a run takes five steps more.
WARMUP_STEPS: Final = 5
WARMUP_FACTOR: Final = 2.0
EPOCH_END_S: Final = 0.1  # chosen: a checkpoint or a log line, where a network has none of its own
BANDWIDTH_GB_S: Final = {
    "v100": 900,
    "v100-pcie": 900,
    "rtx6000": 672,
    "a100": 1555,
    "laptop": 192,
    "gh200": 4000,
}
"""Memory bandwidth, from NVIDIA's data sheets."""

# The boards whose figures serve each board, in order of preference.
_DONORS: Final = {
    "v100": ("v100",),
    "rtx6000": ("rtx6000", "v100"),
    "v100-pcie": ("v100",),
    "a100": ("v100",),
    "laptop": ("rtx6000", "v100"),
    "gh200": ("v100",),
}
# What a process uses of a GPU's memory besides its network. Chosen: what a CUDA context takes.
_CONTEXT_MIB: Final = 400


@dataclass(frozen=True)
class Profile:
    """The five figures of a network on a board at its highest clock.

    A step takes ``step_s``, of which the share ``stall`` waits for the host. The share ``compute``
    of the rest scales with the clock. ``core_w`` and ``fixed_w`` are those of the forward and
    backward phases (see :class:`Phase`).
    """

    step_s: float
    stall: float
    compute: float
    core_w: float
    fixed_w: float


def load_workload(name: str, board: Board, batch_size: int | None = None) -> Workload:
    """The training of network ``name`` on ``board``; its own batch size unless one is given."""
    if name not in WORKLOADS:
        raise UsageError(
            f"no such workload: {name!r}",
            f"{did_you_mean(name, WORKLOADS)}choose one of {', '.join(WORKLOADS)}",
        )
    if batch_size is not None and batch_size < 1:
        raise UsageError(
            f"the batch size must be at least 1, not {batch_size}", "pass a larger --batch-size"
        )
    donor, profile, source = _find_profile(name, board)
    return build_workload(name, board, profile, samples_of=donor, batch=batch_size, source=source)


def build_workload(
    name: str,
    board: Board,
    profile: Profile,
    *,
    samples_of: str,
    batch: int | None = None,
    source: str = "",
) -> Workload:
    """The training of network ``name`` with the figures of ``profile``.

    ``samples_of`` is the board on which its number of samples was published; ``batch`` is None for
    the network's own batch size. Memory grows with the batch, up to 95 % of the board's.
    """
    network = _read_toml("networks.toml")[name]
    own_size: int = network["batch_size"]
    size = own_size if batch is None else batch
    memory_mib = _CONTEXT_MIB + (network["memory_mib"] - _CONTEXT_MIB) * size // own_size
    memory_b = min(memory_mib * B_PER_MIB, board.memory_b * 95 // 100)
    phases = step_phases(profile, size / own_size)
    validation_samples = network.get("validation_samples", 0)
    return Workload(
        name=name,
        board=board.key,
        batch_size=size,
        samples=network["samples"][samples_of],
        epochs=network.get("epochs", 1),
        step=Load(phases, memory_b),
        validation=Load(phases[:2], memory_b),
        validation_steps=math.ceil(validation_samples / size),
        warmup_steps=WARMUP_STEPS,
        warmup_factor=WARMUP_FACTOR,
        epoch_end_s=network.get("epoch_end_s", EPOCH_END_S),
        run_noise=network.get("run_noise", RUN_NOISE),
        source=source,
    )


def step_phases(profile: Profile, batch_ratio: float = 1.0) -> tuple[Phase, ...]:
    """The phases of a step: input, forward, backward (twice the work of forward), update.

    ``update`` stands for all that is bound by memory (normalisation, activations, optimiser): it
    draws less in the cores and more beside them, so that under a low cap it draws most. The wait
    for the input does not depend on the batch. The shares of time and power are chosen; the fit to
    the published table absorbs them, so that other shares give other profiles and the same curves.
    """
    busy_s = profile.step_s * (1 - profile.stall) * batch_ratio
    compute, core_w, fixed_w = profile.compute, profile.core_w, profile.fixed_w
    moved_w = fixed_w + 0.05 * core_w
    return (
        Phase("input", profile.step_s * profile.stall, 0.0, 0.0, 0.0, busy=False),
        Phase("forward", 0.23 * busy_s, compute, core_w, fixed_w, memory=0.5),
        Phase("backward", 0.47 * busy_s, compute, core_w, fixed_w, memory=0.6),
        Phase("update", 0.30 * busy_s, 0.3 * compute, 0.7 * core_w, moved_w, memory=0.9),
    )


def transfer(profile: Profile, source: Board, target: Board) -> Profile:
    """The profile that the network would have on another board."""
    arithmetic = _peak(source) / _peak(target)
    bandwidth = BANDWIDTH_GB_S[source.key] / BANDWIDTH_GB_S[target.key]
    power = _load_w(target) / _load_w(source)
    stall_s, busy_s = profile.step_s * profile.stall, profile.step_s * (1 - profile.stall)
    compute_s = busy_s * profile.compute * arithmetic
    memory_s = busy_s * (1 - profile.compute) * bandwidth
    step_s = stall_s + compute_s + memory_s
    return Profile(
        step_s=step_s,
        stall=stall_s / step_s,
        compute=compute_s / (compute_s + memory_s),
        core_w=profile.core_w * power,
        fixed_w=profile.fixed_w * power,
    )


def profile_of(name: str, board: Board) -> Profile:
    """The figures of network ``name`` on ``board``."""
    return _find_profile(name, board)[1]


def _find_profile(name: str, board: Board) -> tuple[str, Profile, str]:
    """The board that the figures come from, the figures for ``board``, and their source."""
    for donor in _DONORS[board.key]:
        for file, source in (
            ("fitted.toml", "fitted to published measurements"),
            ("described.toml", "chosen to meet a published description"),
        ):
            figures = _read_toml(file).get(donor, {}).get(name)
            if figures is None:
                continue
            profile = Profile(**figures)
            if donor == board.key:
                return donor, profile, source
            moved = transfer(profile, load_board(donor), board)
            return donor, moved, f"transferred from {donor}, where it is {source}"
    raise LookupError(f"no figures of {name} for {board.key}")


def _peak(board: Board) -> float:
    return board.cores * board.clocks.sm_max_mhz


def _load_w(board: Board) -> float:
    return board.limits.default_w - board.idle.clocks_up_w


@cache
def _read_toml(file: str) -> dict[str, Any]:
    text = (resources.files(__package__) / "workloads" / file).read_text("utf-8")
    return tomllib.loads(text)


@dataclass(frozen=True)
class StepSequence:
    """A number of steps of one load."""

    name: Literal["step", "validation", "end"]
    load: Load
    steps: int


def iterate_epochs(workload: Workload) -> Iterator[tuple[StepSequence, ...]]:
    """The parts of each epoch of one training."""
    step = workload.step
    steps = math.ceil(workload.samples / workload.batch_size)
    step_s = step.time_s
    slow = replace(step, phases=(*step.phases, _wait((workload.warmup_factor - 1.0) * step_s)))
    end = Load((_wait(workload.epoch_end_s),), step.memory_b)
    for epoch in range(workload.epochs):
        warming = min(workload.warmup_steps, steps) if epoch == 0 else 0
        parts = (
            StepSequence("step", slow, warming),
            StepSequence("step", step, steps - warming),
            StepSequence("validation", workload.validation, workload.validation_steps),
            StepSequence("end", end, 1 if workload.epoch_end_s else 0),
        )
        yield tuple(part for part in parts if part.steps)


def repeat_training(workload: Workload) -> Iterator[StepSequence]:
    """The parts of one training after another, without end."""
    while True:
        for parts in iterate_epochs(workload):
            yield from parts


def _wait(time_s: float) -> Phase:
    """A wait for the host, with clocks up."""
    return Phase("wait", time_s, compute=0.0, core_w=0.0, fixed_w=0.0, busy=False)
