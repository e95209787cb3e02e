"""What is counted: the boundary around the hardware, and how much work.

- `View`: the choice of both. A boundary is the GPUs, the node that they are in, or all up to the
  wall; work is a run, an epoch, a step, a sample, or a full training
- `amount`: time and energy of a trial for that work
- `SystemBoundary`: how the energies within each boundary are put together
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot
from typing import Final

from joulewise.data.devices import Source
from joulewise.data.energy import Energy, total
from joulewise.data.sweeps import Sweep, Trial, Work
from joulewise.errors import UsageError

GPU: Final = "gpu"
NODE: Final = "node"
WALL: Final = "wall"
BOUNDARIES: Final = (GPU, NODE, WALL)
PER: Final = ("run", "epoch", "step", "sample")

ASSUMED_REST_W: Final = 112.0
"""What a node with one GPU draws besides it, where neither measured nor given: the node of
docs/explanation/choosing.md. Doubled, a slower setting saves less at the node and the wall."""

ASSUMED_PUE: Final = 1.58
"""Watts of a data centre for each watt of its machines (PUE), where not given: the average that
Strubell et al. used (ACL 2019). It scales energies at the wall."""


@dataclass(frozen=True)
class Training:
    """A full training: so many epochs of so many samples each.

    ``look_epochs`` and ``look_samples`` (in an epoch) are what the runs did, where neither their
    spans nor their settings tell it.
    """

    epochs: float
    samples: float | None = None
    look_epochs: float | None = None
    look_samples: float | None = None


@dataclass(frozen=True)
class View:
    """What is counted. ``per`` is the unit of work; a ``training`` is extrapolated from the runs.

    ``overhead_w`` is what the node draws besides the GPUs, ``pue`` what the wall adds.
    """

    boundary: str = GPU
    per: str = "run"
    overhead_w: float | None = None
    pue: float | None = None
    training: Training | None = None

    def __post_init__(self) -> None:
        if self.boundary not in BOUNDARIES:
            raise UsageError(
                f"{self.boundary!r} is no boundary", f"choose one of: {', '.join(BOUNDARIES)}"
            )
        if self.per not in PER:
            raise UsageError(f"cannot count per {self.per!r}", f"choose one of: {', '.join(PER)}")
        if self.overhead_w is not None and not self.overhead_w >= 0:
            raise UsageError(
                "the power of a node besides its GPUs must be at least 0 W",
                "for example: --overhead-w 112",
            )
        if self.pue is not None and not self.pue >= 1:
            raise UsageError("the PUE must be at least 1", "for example: --pue 1.3")


_BATCH: Final = ("batch_size", "batch-size", "batchsize", "batch", "bs")


@dataclass(frozen=True)
class TrialAmount:
    """Time and energy of one trial; ``energy`` has ``gpu`` and ``rest``, each only where known."""

    time_s: float
    energy: Mapping[str, Energy]


@dataclass(frozen=True)
class SampleCount:
    """The number of samples trained on; ``uncertainty`` is by how many it may be too high.

    The last batch of an epoch is counted as a full one where only batches were counted.
    """

    number: float
    uncertainty: float = 0.0

    @property
    def relative_error(self) -> float:
        """The width of the interval from the least to the most samples, over its middle.

        It is a half-width of what is divided by ``number``, which is the most: of 1,024 samples
        that may be 514 it is 0.66, and a figure per sample may be twice as much, exp(0.69).
        """
        return self.uncertainty / (self.number - self.uncertainty / 2)


def count_samples(trial: Trial) -> SampleCount | None:
    """The samples of all epochs; None where not known."""
    number = _samples(trial, 1)
    if not number:
        return None
    steps, epochs = trial.spans.get("step"), trial.spans.get("epoch")
    if steps is None:
        return SampleCount(number)
    return SampleCount(number, (epochs.count if epochs else 1) * number / steps.count)


def amount(trial: Trial, view: View) -> TrialAmount | None:
    """Time and energy of the work that ``view`` counts; None where it was not marked."""
    if trial.time_s is None:
        return None
    run = TrialAmount(trial.time_s, trial.energy)
    if view.training is not None:
        return _training(run, trial, view.training)
    if view.per == "run":
        return run
    if view.per == "sample":
        return _sample(run, trial)
    work = trial.spans.get(view.per)
    return _times(_of(work), 1 / work.count) if work else None


def not_marked_error(view: View) -> UsageError:
    """The error where no trial at all has what is to be counted."""
    if view.training is not None:
        about = "samples of an epoch" if view.training.samples else "epochs of a run"
        return UsageError(
            f"how many {about} these runs had is not known, so nothing can be extrapolated",
            "give it: --look-samples N" if view.training.samples else "give it: --look-epochs N",
        )
    if view.per == "sample":
        return UsageError(
            "samples are known only where steps are marked and the batch size is a setting, or a "
            "table has a column samples",
            "use the name batch_size: --set batch_size=32,64; or count per run",
        )
    return UsageError(
        f"no {view.per} is marked in the runs of this sweep",
        "count per run, or have the command mark its work: joulewise.span('epoch')",
    )


def _training(run: TrialAmount, trial: Trial, training: Training) -> TrialAmount | None:
    """Extrapolate: what is outside epochs, such as the start, is once; the rest grows with work."""
    epochs = trial.spans.get("epoch")
    ran = epochs.count if epochs else training.look_epochs
    if not ran:
        return None
    scale = 1.0
    if training.samples is not None:
        seen = training.look_samples or _samples(trial, ran)
        if not seen:
            return None
        scale = training.samples / seen
    more = training.epochs * scale / ran
    if epochs is None:
        return _times(run, more)
    return _plus(run, _times(_of(epochs), more - 1))


def _sample(run: TrialAmount, trial: Trial) -> TrialAmount | None:
    samples = _samples(trial, 1)
    if not samples:
        return None
    within = next(
        (trial.spans[name] for name in ("epoch", "training") if name in trial.spans), None
    )
    return _times(_of(within) if within else run, 1 / samples)


def _samples(trial: Trial, epochs: float) -> float | None:
    marked = trial.spans.get("sample")
    if marked:
        return marked.count / epochs
    steps = trial.spans.get("step")
    words = {name.lower(): value for name, value in trial.setting.values}
    batch = next((words[name] for name in _BATCH if name in words), None)
    try:
        return steps.count * float(batch) / epochs if steps and batch is not None else None
    except ValueError:
        return None


def _of(work: Work) -> TrialAmount:
    return TrialAmount(work.time_s, work.energy)


def times(energy: Energy, factor: float) -> Energy:
    return replace(
        energy,
        value=energy.value * factor,
        error_sampling=energy.error_sampling * abs(factor),
        error_gain=energy.error_gain * abs(factor),
    )


def _times(amount: TrialAmount, factor: float) -> TrialAmount:
    energy = {part: times(it, factor) for part, it in amount.energy.items()}
    return TrialAmount(amount.time_s * factor, energy)


def _plus(one: TrialAmount, other: TrialAmount) -> TrialAmount:
    """The sum on the same devices, whose gain is off by the same in both; only what both have."""
    both = one.energy.keys() & other.energy.keys()
    return TrialAmount(
        one.time_s + other.time_s,
        {part: _sum(one.energy[part], other.energy[part]) for part in both},
    )


def _sum(one: Energy, other: Energy) -> Energy:
    value = one.value + other.value
    gain = one.error_gain / one.value if one.value else 0.0
    return Energy(
        value,
        hypot(one.error_sampling, other.error_sampling),
        abs(gain * value),
        one.source if one.source == other.source else Source.MIXED,
    )


REST: Final = "rest"
"""The part of a trial's energy that is CPU and memory."""


@dataclass(frozen=True)
class SystemBoundary:
    """How the energies within each boundary come about, the same for every run of a sweep.

    ``simulated`` are the parts (``gpu``, ``rest``) of which some run has simulated joules.
    ``is_module``: the GPUs' energy is that of their modules, so that nothing is assumed of a CPU
    and its memory, which are inside.
    """

    has_gpu: bool
    overhead_w: float | None
    pue: float
    sources: Mapping[str, str]
    assumed: tuple[str, ...]
    simulated: tuple[str, ...] = ()
    is_module: bool = False

    @classmethod
    def from_trials(
        cls, counted: Sequence[tuple[Trial, TrialAmount]], view: View
    ) -> SystemBoundary:
        overhead_w, assumed_node = view.overhead_w, False
        amounts = [it for _, it in counted]
        has_gpu = any(trial.gpu or GPU in it.energy for trial, it in counted)
        is_module = bool(counted) and all(trial.is_module for trial, _ in counted)
        what = "GPU module (CPU and memory included)" if is_module else "GPU"
        is_read = any(GPU in trial.energy for trial, _ in counted)
        unknown = f"read, but not of every {view.per}" if is_read else "not read"
        gpus = f"{what} {_sources(amounts, GPU) or unknown}" if has_gpu else "no GPU in use"
        if view.overhead_w is not None:
            rest = f"{view.overhead_w:g} W given for the rest of the node"
        elif amounts and all(REST in it.energy for it in amounts):
            rest = f"CPU and memory {_sources(amounts, REST)}, nothing else"
            assumed_node = any(it.energy[REST].source is Source.ASSUMED for it in amounts)
        elif is_module and not any(REST in it.energy for it in amounts):
            rest = "nothing else"
        else:
            overhead_w, assumed_node = ASSUMED_REST_W, True
            rest = f"{ASSUMED_REST_W:g} W assumed for the rest of the node"
        pue = ASSUMED_PUE if view.pue is None else view.pue
        how = "an assumed" if view.pue is None else "the given"
        sources = {
            GPU: gpus,
            NODE: f"{gpus}, {rest}",
            WALL: f"{gpus}, {rest}, times {how} PUE of {pue:g}",
        }
        assumed = (*[NODE] * assumed_node, *[WALL] * (assumed_node or view.pue is None))
        return cls(has_gpu, overhead_w, pue, sources, assumed, _simulated(counted), is_module)

    def energies(self, trial_amount: TrialAmount) -> Iterator[tuple[str, Energy]]:
        gpu, rest = trial_amount.energy.get(GPU), trial_amount.energy.get(REST)
        if self.overhead_w is not None:
            rest = Energy(self.overhead_w * trial_amount.time_s, 0.0, 0.0, Source.ASSUMED)
        if gpu is not None:
            yield GPU, gpu
        node = total([part for part in (gpu, rest) if part is not None])
        is_whole = rest is not None or self.is_module
        if node is not None and is_whole and (gpu is not None or not self.has_gpu):
            yield NODE, node
            yield WALL, times(node, self.pue)


def resolve_boundary(asked: str, *sweeps: Sweep) -> str:
    """The boundary ``asked`` for; the node instead of the GPUs where no GPU was in use."""
    runs = [trial for sweep in sweeps for trial in sweep.trials if trial.energy]
    is_without = bool(runs) and not any(it.gpu or GPU in it.energy for it in runs)
    return NODE if asked == GPU and is_without else asked


def _simulated(counted: Sequence[tuple[Trial, TrialAmount]]) -> tuple[str, ...]:
    """The parts that are simulated in some run, by the energies of whole runs as well."""
    energies = [it for trial, amount_ in counted for it in (trial.energy, amount_.energy)]
    return tuple(
        part
        for part in (GPU, REST)
        if any(part in it and it[part].source is Source.SIMULATED for it in energies)
    )


def _sources(amounts: Sequence[TrialAmount], part: str) -> str:
    """The sources of the energies, named; empty where there are no energies.

    A sum over devices with different sources does not say which they are.
    """
    kinds = {it.energy[part].source for it in amounts if part in it.energy}
    if Source.MIXED in kinds:
        return "from several sources"
    return " and ".join(source.value for source in Source if source in kinds)
