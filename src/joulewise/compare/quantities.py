"""What a run has to be compared: its energies, its time, and what they are for a piece of work.

Whether two sides did the same work, and what a comparison of them is per.

The same samples are the same work, and so are the same epochs where samples are not known: how
many steps they took only says how large the batches were. A step is work of another size where
the batch is, so that steps are compared only where nothing says that their batches differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import hypot
from pathlib import Path
from typing import Final

from joulewise.analyse.damage import tells_of_marks
from joulewise.analyse.group import GroupRun
from joulewise.analyse.validation import ValidationPlace, place_validations
from joulewise.compare.judgement import RunValue
from joulewise.data import Caution, Energy, Kind, RunResult
from joulewise.data.sweeps import Trial
from joulewise.metrics.boundary import SampleCount, count_samples
from joulewise.store.manifest import Manifest

ENERGY, TIME, POWER, EDP = "energy", "time", "power", "edp"
WORKS: Final = ("epoch", "step", "sample")
UNITS: Final = {ENERGY: "J", TIME: "s", POWER: "W", EDP: "J·s"}
PER_WORK: Final = tuple(f"{what}/{work}" for work in WORKS for what in (ENERGY, TIME))
_WITHIN: Final = ("epoch", "training")


@dataclass(frozen=True)
class ComparedRun:
    """A run, or the runs of a group as one: how it was made, and what it came to.

    ``boards`` says of each device which in the world it is, so that gains that are the same on
    both sides cancel; ``paths`` are the directories that it lies in.
    """

    id: str
    manifests: tuple[Manifest, ...]
    result: RunResult
    boards: Mapping[str, str] = field(default_factory=dict)
    paths: tuple[Path, ...] = ()

    @classmethod
    def of(cls, manifest: Manifest, result: RunResult, path: Path | None = None) -> ComparedRun:
        paths = () if path is None else (path,)
        return cls(manifest.id, (manifest,), result, _boards(manifest), paths)

    @classmethod
    def of_group(
        cls, members: Sequence[GroupRun], result: RunResult, paths: tuple[Path, ...] = ()
    ) -> ComparedRun:
        boards = {
            f"{member.node}/{key}": board
            for member in members
            for key, board in _boards(member.manifest).items()
        }
        manifests = tuple(member.manifest for member in members)
        return cls(result.id, manifests, result, boards, paths)

    @property
    def counted(self) -> dict[str, tuple[int, str]]:
        """By kind of device: how many are in the total, and where their joules come from."""
        found: dict[str, tuple[int, str]] = {}
        for key in self.result.counted:
            energy = self.result.run.devices[key].energy
            kind = key.rpartition("/")[2].rstrip("0123456789")
            source = "not read" if energy is None else energy.source.value
            number, known = found.get(kind, (0, source))
            found[kind] = number + 1, source if source == known else "mixed"
        return found

    def count_of(self, work: str) -> int | None:
        """How many of them were marked, None where none was."""
        told = self.result.details.get("spans", {}).get(work)
        return told["count"] or None if told else None

    @property
    def unfinished_epochs(self) -> int:
        """Epochs that were broken off, and are none."""
        told = self.result.details.get("spans", {}).get("epoch") or {}
        return int(told.get("unfinished", 0))


def values(run: ComparedRun) -> dict[str, RunValue]:
    """By quantity; what was not read or not marked is not in it."""
    return dict(_values(run))


def unit_of(quantity: str) -> str:
    """Devices are told in joules, like all that is not another quantity."""
    return UNITS.get(quantity.partition("/")[0], "J")


def _values(run: ComparedRun) -> Iterator[tuple[str, RunValue]]:
    result = run.result
    time_s = result.time_s
    yield TIME, RunValue(time_s)
    whole = _sample(run, result.run.total, result.counted)
    if whole is not None:
        measured_s = result.details.get("measured_s", time_s)
        yield ENERGY, whole
        if measured_s > 0:
            yield POWER, _times(whole, 1 / measured_s)
        yield EDP, _times(whole, time_s)
    for key, use in result.run.devices.items():
        device = _sample(run, use.energy, (key,))
        if device is not None:
            yield key, device
    for work in WORKS:
        found = _samples_of(run) if work == "sample" else _mean(run, work)
        if found is not None:
            mean_s, energy_j = found
            samples = sample_count(run) if work == "sample" else None
            yield f"{TIME}/{work}", add_count_error(RunValue(mean_s), samples)
            if whole is not None and energy_j:
                per_work = _per_work(run, whole, work, energy_j)
                yield f"{ENERGY}/{work}", add_count_error(per_work, samples)


def _sample(run: ComparedRun, energy: Energy | None, keys: tuple[str, ...]) -> RunValue | None:
    if energy is None or energy.at_least:  # a lower bound is no value to compare with
        return None
    gains: dict[str, float] = {}
    for key in keys:
        drawn = run.result.run.devices[key].energy
        if drawn is not None:
            board = run.boards.get(key, f"{run.id}/{key}")
            gains[board] = gains.get(board, 0.0) + drawn.error_gain
    return RunValue(energy.value, energy.error_sampling, gains)


def add_count_error(sample: RunValue, count: SampleCount | None, power: int = 1) -> RunValue:
    """The error of a figure per sample, where the number of samples is not sure.

    ``power`` is how often the figure was divided by that number.

    Runs with the same number of steps and batch size have the same factor wrong, so that it cancels
    between them, and no repetition makes it smaller.
    """
    if count is None or not count.uncertainty:
        return sample
    cause = f"samples {count.number:g} - {count.uncertainty:g}"
    gains = {**sample.gains, cause: power * sample.value * count.relative_error}
    return RunValue(sample.value, sample.sampling, gains)


def _times(sample: RunValue, factor: float) -> RunValue:
    gains = {board: gain * factor for board, gain in sample.gains.items()}
    return RunValue(sample.value * factor, sample.sampling * factor, gains)


def _per_work(run: ComparedRun, whole: RunValue, work: str, energy_j: float) -> RunValue:
    """The boards' gains are the run's; so is the sampling error, unless spans tell their own."""
    scaled = _times(whole, energy_j / whole.value if whole.value else 0.0)
    name = work if work != "sample" else "step"
    spans = [it for it in run.result.spans if it.span.name == name and it.span.closed]
    errors = [span.total.error_sampling for span in spans if span.total is not None]
    if work == "sample" or not errors or len(errors) != run.count_of(name):
        return RunValue(energy_j, scaled.sampling, scaled.gains)
    return RunValue(energy_j, hypot(*errors) / len(errors), scaled.gains)


def _mean(run: ComparedRun, work: str) -> tuple[float, float | None] | None:
    told = run.result.details.get("spans", {}).get(work)
    if not told or not told["count"] or told["time_s"]["mean"] is None:
        return None
    return told["time_s"]["mean"], told["energy_j"]["mean"]


def sample_count(run: ComparedRun) -> SampleCount | None:
    """Known where they are marked as such, or steps are and somebody told the batch size."""
    number = run.count_of("sample")
    if number is not None:
        return SampleCount(number)
    batch, steps = simulated_batch_size(run), run.count_of("step")
    if batch is None or not steps:
        return None
    return SampleCount(steps * batch, (run.count_of("epoch") or 1) * batch)


def _samples_of(run: ComparedRun) -> tuple[float, float | None] | None:
    samples = sample_count(run)
    within = next((work for work in _WITHIN if run.count_of(work)), None)
    if samples is None or within is None:
        return None
    found = _mean(run, within)
    if found is None:
        return None
    mean_s, energy_j = found
    share = (run.count_of(within) or 0) / samples.number
    return mean_s * share, None if energy_j is None else energy_j * share


def simulated_batch_size(run: ComparedRun) -> int | None:
    """As the simulation was told; None of a program that was run."""
    told = run.manifests[0].options.get("simulated")
    batch = told.get("batch_size") if isinstance(told, Mapping) else None
    return batch if isinstance(batch, int) and batch > 0 else None


def _boards(manifest: Manifest) -> dict[str, str]:
    """A GPU's uid is the only one in the world; any machine has a cpu0."""
    host = manifest.host.get("name", "")
    return {
        device.info.key: device.info.uid
        if device.info.kind is Kind.GPU
        else f"{host}/{device.info.uid}"
        for device in manifest.devices
    }


RUN, EPOCH, STEP, SAMPLE = "run", "epoch", "step", "sample"
_MARK_EPOCHS: Final = "mark the epochs, joulewise.span('epoch'), and it is compared per epoch"
# How programs name the size of a batch on their command lines: argparse of the PyTorch examples,
# the Hugging Face Trainer, and Hydra's `name=value`. Another name is only missed, not misread.
_BATCH_OPTIONS: Final = (
    "batch_size",
    "batchsize",
    "batch",
    "bs",
    "train_batch_size",
    "per_device_train_batch_size",
)
# Parts of the names of options, such as those of Hydra's groups: `eval.batch_size=512`.
_TRAINING_WORDS: Final = {"train", "training"}
_EVALUATION_WORDS: Final = {"eval", "evaluation", "val", "valid", "validation", "test"}


@dataclass(frozen=True)
class WorkCompared:
    """``per`` is what the finding is per: a run, where both did the same or nothing tells.

    ``is_same`` is None where nothing tells; ``unknown`` then says why, with ``remedy``, and is
    empty where neither side marked anything. ``unit`` is what was counted (empty of nothing), with
    the counts of each side. ``unlike_steps``, ``unlike_epochs`` (by their validations) and
    ``unlike_data`` (epochs, by their steps) say why a step or an epoch of A is none of B, empty
    where no reason is known.
    """

    per: str = RUN
    is_same: bool | None = None
    unit: str = ""
    a: tuple[int, ...] = ()
    b: tuple[int, ...] = ()
    unlike_steps: str = ""
    unlike_epochs: str = ""
    unlike_data: str = ""
    unknown: str = ""
    remedy: str = ""

    @property
    def unlike(self) -> bool:
        """Whether the totals of the runs are of different amounts of work."""
        return self.is_same is False


def compare_work(a: Sequence[ComparedRun], b: Sequence[ComparedRun]) -> WorkCompared:
    """By samples where all runs tell them, else by epochs, else by steps.

    Steps of one batch size come before epochs where an epoch has another number of them: then the
    epochs are of different amounts of data.
    """
    return replace(_count_work(a, b), unlike_epochs=_unlike_epochs(a, b))


def _count_work(a: Sequence[ComparedRun], b: Sequence[ComparedRun]) -> WorkCompared:
    unlike_data = _unlike_data(a, b)
    unlike_steps = "" if unlike_data else _unlike_steps(a, b)
    damaged = [name for side, name in ((a, "A"), (b, "B")) if any(map(_has_lost_marks, side))]
    if damaged:
        return WorkCompared(
            unlike_steps=unlike_steps,
            unlike_data=unlike_data,
            unknown=f"marks of {' and '.join(damaged)} are damaged or were lost",
            remedy="put the files of marks back from a copy, or run it again",
        )
    samples_a, samples_b = [sample_count(run) for run in a], [sample_count(run) for run in b]
    known = [it for it in (*samples_a, *samples_b) if it is not None]
    if known and len(known) == len(a) + len(b):
        is_same = have_common_number(known)
        return WorkCompared(
            RUN if is_same else SAMPLE,
            is_same,
            SAMPLE,
            _numbers(samples_a),
            _numbers(samples_b),
            unlike_steps,
        )
    for unit in (STEP,) if unlike_data else (EPOCH, STEP):
        of_a, of_b = ([run.count_of(unit) for run in side] for side in (a, b))
        if None in of_a or None in of_b:
            continue
        counts_a, counts_b = _distinct(of_a), _distinct(of_b)
        is_same = counts_a == counts_b and len(counts_a) == 1
        if unit == STEP and unlike_steps:
            return WorkCompared(
                RUN,
                None,
                STEP,
                counts_a,
                counts_b,
                unlike_steps,
                unknown=f"A has {_listed(of_a)} steps, B {_listed(of_b)}, and {unlike_steps}",
                remedy=_MARK_EPOCHS,
            )
        per = RUN if is_same else unit
        return WorkCompared(
            per, is_same, unit, counts_a, counts_b, unlike_steps, unlike_data=unlike_data
        )
    return WorkCompared(unlike_steps=unlike_steps, unknown=_unmarked(a, b), remedy=_MARK_EPOCHS)


def _unmarked(a: Sequence[ComparedRun], b: Sequence[ComparedRun]) -> str:
    """What some runs have marked and others have not; empty where none has marked anything."""
    for unit in (EPOCH, STEP):
        of_a, of_b = ([run.count_of(unit) for run in side] for side in (a, b))
        if _distinct([*of_a, *of_b]):
            return f"A has {_listed(of_a)} {unit}s, B {_listed(of_b)}"
    return ""


def _listed(counts: Sequence[int | None]) -> str:
    """Distinct numbers in words: ``2 or 3``, ``2 or none``."""
    return " or ".join([*map(str, _distinct(counts)), *(["none"] if None in counts else [])])


def _has_lost_marks(run: ComparedRun) -> bool:
    return any(
        warning.code is Caution.SPANS_LOST
        or (warning.code is Caution.DAMAGED and tells_of_marks(warning))
        for warning in run.result.warnings
    )


def compare_trials(a: Sequence[Trial], b: Sequence[Trial]) -> WorkCompared:
    """The same of the trials of two sweeps."""
    samples_a, samples_b = [count_samples(it) for it in a], [count_samples(it) for it in b]
    known = [it for it in (*samples_a, *samples_b) if it is not None]
    if known and len(known) == len(a) + len(b):
        is_same = have_common_number(known)
        per = RUN if is_same else SAMPLE
        return WorkCompared(per, is_same, SAMPLE, _numbers(samples_a), _numbers(samples_b))
    epochs = [[it.spans[EPOCH].count for it in side if EPOCH in it.spans] for side in (a, b)]
    if not a or not b or len(epochs[0]) < len(a) or len(epochs[1]) < len(b):
        return WorkCompared()
    is_same = len({*epochs[0], *epochs[1]}) == 1
    per = RUN if is_same else EPOCH
    return WorkCompared(per, is_same, EPOCH, _distinct(epochs[0]), _distinct(epochs[1]))


def have_common_number(counts: Sequence[SampleCount]) -> bool:
    """Whether one number of samples is within the uncertainty of all counts.

    A count may be too many and never too few: it stands for the interval that ends at it.
    """
    return max(it.number - it.uncertainty for it in counts) <= min(it.number for it in counts)


def _numbers(counts: Sequence[SampleCount | None]) -> tuple[int, ...]:
    return _distinct([None if it is None else round(it.number) for it in counts])


def _distinct(counts: Sequence[int | None]) -> tuple[int, ...]:
    return tuple(sorted({it for it in counts if it is not None}))


def _unlike_epochs(a: Sequence[ComparedRun], b: Sequence[ComparedRun]) -> str:
    """Where both sides validate, and not in the same place."""
    of_a, of_b = ({place_validations(run.result) for run in side} for side in (a, b))
    if of_a == of_b or ValidationPlace.NONE in of_a | of_b:
        return ""
    words = (" or ".join(sorted(it.value for it in places)) for places in (of_a, of_b))
    return "the validations lie {} in A, {} in B".format(*words)


def _unlike_data(a: Sequence[ComparedRun], b: Sequence[ComparedRun]) -> str:
    """Epochs of another number of steps, where all command lines have the same batch size.

    Steps with the same option are of another size on another number of GPUs, where it may be the
    batch of each, and with gradients that are accumulated: then it says nothing.
    """
    every = (*a, *b)
    sizes = {_batch_size(run) for run in every}
    gpus = {run.counted.get(Kind.GPU.value, (0, ""))[0] for run in every}
    if None in sizes or len(sizes) > 1 or len(gpus) > 1 or any(map(_accumulates, every)):
        return ""
    of_a, of_b = ({_steps_per_epoch(run) for run in side} for side in (a, b))
    if None in of_a | of_b or len(of_a | of_b) == 1:
        return ""
    return f"an epoch has {_listed([*of_a])} steps in A, {_listed([*of_b])} in B, of one batch size"


def _accumulates(run: ComparedRun) -> bool:
    words = run.manifests[0].commands[0].arguments if run.manifests[0].commands else ()
    return any("accum" in word.partition("=")[0].lower() for word in words)


def _unlike_steps(a: Sequence[ComparedRun], b: Sequence[ComparedRun]) -> str:
    """Epochs of another number of steps, or command lines with another batch size."""
    for words, count in (
        ("an epoch has {} steps in A, {} in B", _steps_per_epoch),
        ("a batch has {} samples in A, {} in B", _batch_size),
    ):
        of_a, of_b = ({count(run) for run in side} for side in (a, b))
        if None not in of_a | of_b and len(of_a | of_b) > 1:
            return words.format(*(" or ".join(map(str, sorted(it))) for it in (of_a, of_b)))  # type: ignore[type-var]
    return ""


def _steps_per_epoch(run: ComparedRun) -> int | None:
    """Of the longest epoch, since one that was cut off has fewer; None where no epoch is whole."""
    if not run.count_of(EPOCH):
        return None
    told = run.result.details.get("steps")
    if told is not None:
        return max((it["count"] for it in told if it["epoch"] is not None), default=None)
    steps = [it.span for it in run.result.spans if it.span.name == STEP and it.span.closed]
    epochs = [it.span for it in run.result.spans if it.span.name == EPOCH and it.span.closed]
    counts = [
        sum(epoch.start_ns <= (it.start_ns + it.end_ns) // 2 <= epoch.end_ns for it in steps)
        for epoch in epochs
    ]
    return max(counts, default=0) or None


def _batch_size(run: ComparedRun) -> int | None:
    """As the simulation or the command line has it; None where neither has it as a number.

    Of several options that of the training holds; None where none is named so and they differ.
    """
    simulated = simulated_batch_size(run)
    if simulated is not None:
        return simulated
    sizes = _batch_options(run.manifests[0])
    of_training = {name: size for name, size in sizes.items() if _TRAINING_WORDS & _words(name)}
    distinct = set((of_training or sizes).values())
    return distinct.pop() if len(distinct) == 1 else None


def _batch_options(manifest: Manifest) -> dict[str, int]:
    """The batch sizes of a command line by the option's name, without those of an evaluation."""
    words = list(manifest.commands[0].arguments) if manifest.commands else []
    sizes: dict[str, int] = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, is_pair, value = word.partition("=")
        if not is_pair:
            value = following
        is_option = name.startswith("-") or bool(is_pair)
        plain = name.lstrip("-").rpartition(".")[2].replace("-", "_").lower()
        is_short = name == "-b"  # as in the ImageNet example of PyTorch
        is_evaluation = bool(_EVALUATION_WORDS & _words(name))
        if not is_option or is_evaluation or not value.isdecimal():
            continue
        if plain in _BATCH_OPTIONS or is_short:
            sizes[name] = int(value)  # of an option that is given twice, the last holds
    return sizes


def _words(name: str) -> set[str]:
    """The words of an option's name: ``--train.batch_size`` has train, batch and size."""
    return set(re.split(r"[^a-z0-9]+", name.lower()))
