"""The quantities that runs are compared by, and whether two sides did the same amount of work.

The same number of samples is the same work; so is the same number of epochs, where samples are not
known. The number of steps only says how large the batches were: steps are compared only where
nothing says that the sizes of their batches differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import hypot
from pathlib import Path
from typing import Final

from joulewise.analyse.damage import is_about_marks
from joulewise.analyse.group import GroupRun
from joulewise.analyse.validation import ValidationPlace, place_validations
from joulewise.compare.judgement import RunValue
from joulewise.data import Energy, Kind, RunResult, Source, WarningCode
from joulewise.data.sweeps import Trial
from joulewise.metrics.boundary import SampleCount, count_samples
from joulewise.store.manifest import Manifest

ENERGY, TIME, POWER, EDP = "energy", "time", "power", "edp"
WORKS: Final = ("epoch", "step", "sample")
UNITS: Final = {ENERGY: "J", TIME: "s", POWER: "W", EDP: "J·s"}
PER_WORK: Final = tuple(f"{what}/{work}" for work in WORKS for what in (ENERGY, TIME))
_WITHIN: Final = ("epoch", "training")  # spans in which samples are trained on
SOURCES_JOINED: Final = " and "  # between the sources of devices of one kind


@dataclass(frozen=True)
class ComparedRun:
    """A run, or the runs of a group as one, with manifests and result.

    ``boards`` gives each device a globally unique name, so that the gain of a board which is on
    both sides cancels; ``paths`` are the run directories.
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
        """By kind of device: how many are in the total, and the sources of their energies."""
        sources: dict[str, list[str]] = {}
        for key in self.result.counted:
            energy = self.result.run.devices[key].energy
            source = "not read" if energy is None else energy.source.value
            sources.setdefault(kind_of_device(key), []).append(source)
        return {
            kind: (len(each), SOURCES_JOINED.join(sorted(set(each))))
            for kind, each in sources.items()
        }

    def count_of(self, work: str) -> int | None:
        """How many spans of that name, such as ``epoch``, were marked; None where none was."""
        summary = self.result.details.get("spans", {}).get(work)
        return summary["count"] or None if summary else None

    @property
    def unfinished_epochs(self) -> int:
        """How many epochs were cut off; they are not in ``count_of("epoch")``."""
        summary = self.result.details.get("spans", {}).get("epoch") or {}
        return int(summary.get("unfinished", 0))


def values(run: ComparedRun) -> dict[str, RunValue]:
    """The value of each quantity that was read and, where it is per span, marked."""
    return dict(_values(run))


def unit_of(quantity: str) -> str:
    """The unit of a quantity; that of a device's name, which stands for its energy, is joules."""
    return UNITS.get(quantity.partition("/")[0], "J")


def _values(run: ComparedRun) -> Iterator[tuple[str, RunValue]]:
    result = run.result
    time_s = result.time_s
    yield TIME, RunValue(time_s)
    whole = _sample(run, result.run.total, result.counted)
    if whole is not None:
        # The mean power of a group is over the time in which its runs were measured.
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
        means = _mean_per_sample(run) if work == "sample" else _mean_of_spans(run, work)
        if means is not None:
            mean_s, energy_j = means
            samples = sample_count(run) if work == "sample" else None
            yield f"{TIME}/{work}", add_count_error(RunValue(mean_s), samples)
            if whole is not None and energy_j:
                per_work = _per_work(run, whole, work, energy_j)
                yield f"{ENERGY}/{work}", add_count_error(per_work, samples)


def _sample(run: ComparedRun, energy: Energy | None, keys: tuple[str, ...]) -> RunValue | None:
    """An energy with its errors; None where it was not read, or is only a lower bound."""
    if energy is None or energy.at_least:
        return None
    gains: dict[str, float] = {}
    is_read = False
    for key in keys:
        drawn = run.result.run.devices[key].energy
        if drawn is not None:
            is_read = is_read or drawn.source not in {Source.MODELLED, Source.ASSUMED}
            board = run.boards.get(key, f"{run.id}/{key}")
            # A board that several runs of a group read has the same error in all: they add up.
            gains[board] = gains.get(board, 0.0) + drawn.error_gain
    return RunValue(energy.value, energy.error_sampling, gains, is_read)


def add_count_error(sample: RunValue, count: SampleCount | None, power: int = 1) -> RunValue:
    """Add the error that comes from an uncertain number of samples.

    ``power`` is how often the value was divided by that number. Runs with the same number of steps
    and the same batch size share this factor: it cancels between them, and repetition does not
    reduce it. So it is treated like the gain of a board.
    """
    if count is None or not count.uncertainty:
        return sample
    # The name of the factor: the same count with the same uncertainty is the same error.
    cause = f"samples {count.number:g} - {count.uncertainty:g}"
    gains = {**sample.gains, cause: power * sample.value * count.relative_error}
    return replace(sample, gains=gains)


def _times(sample: RunValue, factor: float) -> RunValue:
    gains = {board: gain * factor for board, gain in sample.gains.items()}
    return replace(
        sample, value=sample.value * factor, sampling=sample.sampling * factor, gains=gains
    )


def _per_work(run: ComparedRun, whole: RunValue, work: str, energy_j: float) -> RunValue:
    """The errors of an energy per span: the run's, or the spans' own sampling errors if known."""
    scaled = _times(whole, energy_j / whole.value if whole.value else 0.0)
    name = work if work != "sample" else "step"
    spans = [it for it in run.result.spans if it.span.name == name and it.span.closed]
    errors = [span.total.error_sampling for span in spans if span.total is not None]
    # Errors of spans are independent: those of a mean add in quadrature. All must be known.
    if work == "sample" or not errors or len(errors) != run.count_of(name):
        return replace(scaled, value=energy_j)
    return replace(scaled, value=energy_j, sampling=hypot(*errors) / len(errors))


def _mean_of_spans(run: ComparedRun, work: str) -> tuple[float, float | None] | None:
    """Mean time (s) and energy (J, None where not read) of the spans of that name."""
    summary = run.result.details.get("spans", {}).get(work)
    if not summary or not summary["count"] or summary["time_s"]["mean"] is None:
        return None
    return summary["time_s"]["mean"], summary["energy_j"]["mean"]


def sample_count(run: ComparedRun) -> SampleCount | None:
    """Samples that a run trained on: as marked, or steps times a known batch size; else None."""
    number = run.count_of("sample")
    if number is not None:
        return SampleCount(number)
    batch, steps = simulated_batch_size(run), run.count_of("step")
    if batch is None or not steps:
        return None
    # The last batch of each epoch may be smaller, so the count may be too high by a batch an epoch.
    return SampleCount(steps * batch, (run.count_of("epoch") or 1) * batch)


def _mean_per_sample(run: ComparedRun) -> tuple[float, float | None] | None:
    samples = sample_count(run)
    within = next((work for work in _WITHIN if run.count_of(work)), None)
    means = _mean_of_spans(run, within) if samples and within else None
    if samples is None or within is None or means is None:
        return None
    mean_s, energy_j = means
    # Only the time and energy within epochs (or trainings) are divided, not those of set-up.
    share = (run.count_of(within) or 0) / samples.number
    return mean_s * share, None if energy_j is None else energy_j * share


def simulated_batch_size(run: ComparedRun) -> int | None:
    """The batch size of a simulated training; None of a program that was run."""
    options = run.manifests[0].options.get("simulated")
    batch = options.get("batch_size") if isinstance(options, Mapping) else None
    return batch if isinstance(batch, int) and batch > 0 else None


def kind_of_device(key: str) -> str:
    """``gpu`` of ``gpu0`` or ``node7/gpu0``."""
    return key.rpartition("/")[2].rstrip("0123456789")


def _boards(manifest: Manifest) -> dict[str, str]:
    """Globally unique names of the devices: the uid of a GPU, else the host's name with it."""
    host = manifest.host.get("name", "")
    return {
        device.info.key: device.info.uid
        if device.info.kind is Kind.GPU
        else f"{host}/{device.info.uid}"
        for device in manifest.devices
    }


RUN, EPOCH, STEP, SAMPLE = "run", "epoch", "step", "sample"
_MARK_EPOCHS: Final = "mark the epochs with joulewise.span('epoch') to compare per epoch"
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
    """Whether two sides did the same amount of work, and what their ratio is per.

    ``per`` is ``run`` where both did the same work or nothing is known of it. ``is_same`` is None
    where nothing is known; ``unknown`` then says why, with ``remedy``, and is empty where neither
    side marked anything. ``unit`` is what was counted (empty for nothing); ``a`` and ``b`` are the
    distinct counts of each side. ``unlike_steps``, ``unlike_epochs`` (by their validations) and
    ``unlike_data`` (by the steps of an epoch) say why a step or an epoch is not the same work on
    both sides; empty where no reason is known.
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
    """Compare the numbers of samples where all runs have one, else of epochs, else of steps.

    Steps of one batch size come before epochs where the epochs have different numbers of steps:
    such epochs are different amounts of data.
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
            unknown=f"marks of {' and '.join(damaged)} are damaged or lost",
            remedy="restore the files of marks from a copy, or run it again",
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
        each_a, each_b = ([run.count_of(unit) for run in side] for side in (a, b))
        if None in each_a or None in each_b:
            continue
        counts_a, counts_b = _distinct(each_a), _distinct(each_b)
        # Runs of one side with different counts are not the same work as the other side's either.
        is_same = counts_a == counts_b and len(counts_a) == 1
        if unit == STEP and unlike_steps:
            return WorkCompared(
                RUN,
                None,
                STEP,
                counts_a,
                counts_b,
                unlike_steps,
                unknown=f"A has {_listed(each_a)} steps, B {_listed(each_b)}, and {unlike_steps}",
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
        counts_a, counts_b = ([run.count_of(unit) for run in side] for side in (a, b))
        if _distinct([*counts_a, *counts_b]):
            return f"A has {_listed(counts_a)} {unit}s, B {_listed(counts_b)}"
    return ""


def _listed(counts: Sequence[int | None]) -> str:
    """Distinct numbers in words: ``2 or 3``, ``2 or none``."""
    return " or ".join([*map(str, _distinct(counts)), *(["none"] if None in counts else [])])


def _has_lost_marks(run: ComparedRun) -> bool:
    return any(
        warning.code is WarningCode.SPANS_LOST
        or (warning.code is WarningCode.DAMAGED and is_about_marks(warning))
        for warning in run.result.warnings
    )


def compare_trials(a: Sequence[Trial], b: Sequence[Trial]) -> WorkCompared:
    """Compare the work of the trials of two sweeps, by samples or else by epochs."""
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

    A count may be too high, never too low: it is the upper end of its interval.
    """
    return max(it.number - it.uncertainty for it in counts) <= min(it.number for it in counts)


def _numbers(counts: Sequence[SampleCount | None]) -> tuple[int, ...]:
    return _distinct([None if it is None else round(it.number) for it in counts])


def _distinct(counts: Sequence[int | None]) -> tuple[int, ...]:
    return tuple(sorted({it for it in counts if it is not None}))


def _unlike_epochs(a: Sequence[ComparedRun], b: Sequence[ComparedRun]) -> str:
    """Says so where both sides validate, and not in the same place; else empty."""
    places_a, places_b = ({place_validations(run.result) for run in side} for side in (a, b))
    if places_a == places_b or ValidationPlace.NONE in places_a | places_b:
        return ""
    words = (" or ".join(sorted(it.value for it in places)) for places in (places_a, places_b))
    return "the validations lie {} in A, {} in B".format(*words)


def _unlike_data(a: Sequence[ComparedRun], b: Sequence[ComparedRun]) -> str:
    """Says so where epochs have different numbers of steps at the same batch size; else empty.

    The batch size of a command line is not that of a step where the number of GPUs differs (it may
    be the batch of each) or gradients are accumulated: then nothing is concluded.
    """
    runs = (*a, *b)
    sizes = {_batch_size(run) for run in runs}
    gpus = {run.counted.get(Kind.GPU.value, (0, ""))[0] for run in runs}
    if None in sizes or len(sizes) > 1 or len(gpus) > 1 or any(map(_accumulates, runs)):
        return ""
    steps_a, steps_b = ({_steps_per_epoch(run) for run in side} for side in (a, b))
    if None in steps_a | steps_b or len(steps_a | steps_b) == 1:
        return ""
    steps = f"an epoch has {_listed([*steps_a])} steps in A, {_listed([*steps_b])} in B"
    return f"{steps}, at the same batch size"


def _accumulates(run: ComparedRun) -> bool:
    words = run.manifests[0].commands[0].arguments if run.manifests[0].commands else ()
    return any("accum" in word.partition("=")[0].lower() for word in words)


def _unlike_steps(a: Sequence[ComparedRun], b: Sequence[ComparedRun]) -> str:
    """Says so where epochs have different numbers of steps, or batches of samples; else empty."""
    for words, count in (
        ("an epoch has {} steps in A, {} in B", _steps_per_epoch),
        ("a batch has {} samples in A, {} in B", _batch_size),
    ):
        counts_a, counts_b = ({count(run) for run in side} for side in (a, b))
        if None not in counts_a | counts_b and len(counts_a | counts_b) > 1:
            return words.format(_listed([*counts_a]), _listed([*counts_b]))
    return ""


def _steps_per_epoch(run: ComparedRun) -> int | None:
    """Steps of the longest epoch, since others may be cut off; None without a whole epoch."""
    if not run.count_of(EPOCH):
        return None
    summary = run.result.details.get("steps")
    if summary is not None:
        return max((it["count"] for it in summary if it["epoch"] is not None), default=None)
    steps = [it.span for it in run.result.spans if it.span.name == STEP and it.span.closed]
    epochs = [it.span for it in run.result.spans if it.span.name == EPOCH and it.span.closed]
    counts = [
        sum(epoch.start_ns <= (it.start_ns + it.end_ns) // 2 <= epoch.end_ns for it in steps)
        for epoch in epochs
    ]
    return max(counts, default=0) or None


def _batch_size(run: ComparedRun) -> int | None:
    """The batch size of a simulation or on the command line; None where it is not known.

    Of several options the one for training is taken; None where they differ and none is for it.
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
        option = name.lstrip("-").rpartition(".")[2].replace("-", "_").lower()
        is_short = name == "-b"  # as in the ImageNet example of PyTorch
        is_evaluation = bool(_EVALUATION_WORDS & _words(name))
        if not is_option or is_evaluation or not value.isdecimal():
            continue
        if option in _BATCH_OPTIONS or is_short:
            sizes[name] = int(value)  # an option that is given twice has its last value
    return sizes


def _words(name: str) -> set[str]:
    """The words of an option's name: ``--train.batch_size`` has train, batch and size."""
    return set(re.split(r"[^a-z0-9]+", name.lower()))
