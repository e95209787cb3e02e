"""Time and energy of a trial for the work that is counted: a run, an epoch, a full training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import hypot
from typing import Final

from joulewise.data.devices import Source
from joulewise.data.energy import Energy
from joulewise.data.sweeps import Trial, Work
from joulewise.errors import UsageError
from joulewise.metrics.view import Training, View

_BATCH: Final = ("batch_size", "batch-size", "batchsize", "batch", "bs")


@dataclass(frozen=True)
class Amount:
    """Of one trial; ``energy`` has ``gpu`` and ``rest``, each only where it is known."""

    time_s: float
    energy: Mapping[str, Energy]


@dataclass(frozen=True)
class SampleCount:
    """How many samples were trained on; ``uncertainty`` by how many that may be too many.

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
    """Of all epochs; None where nothing tells it."""
    number = _samples(trial, 1)
    if not number:
        return None
    steps, epochs = trial.spans.get("step"), trial.spans.get("epoch")
    if steps is None:
        return SampleCount(number)
    return SampleCount(number, (epochs.count if epochs else 1) * number / steps.count)


def amount(trial: Trial, view: View) -> Amount | None:
    """None where the trial has no time, or what is counted was not marked in it."""
    if trial.time_s is None:
        return None
    run = Amount(trial.time_s, trial.energy)
    if view.training is not None:
        return _training(run, trial, view.training)
    if view.per == "run":
        return run
    if view.per == "sample":
        return _sample(run, trial)
    work = trial.spans.get(view.per)
    return _times(_of(work), 1 / work.count) if work else None


def not_marked(view: View) -> UsageError:
    """For when no trial at all has what is to be counted."""
    if view.training is not None:
        about = "samples of an epoch" if view.training.samples else "epochs of a run"
        return UsageError(
            f"how many {about} these runs had is not known, so nothing can be extrapolated",
            "say it: --look-samples N" if view.training.samples else "say it: --look-epochs N",
        )
    if view.per == "sample":
        return UsageError(
            "samples are known only where steps are marked and the batch size is a setting, or a "
            "table has a column samples",
            "name it batch_size: --set batch_size=32,64; or count per run",
        )
    return UsageError(
        f"no {view.per} is marked in the runs of this sweep",
        "count per run, or have the command mark its work: joulewise.span('epoch')",
    )


def _training(run: Amount, trial: Trial, training: Training) -> Amount | None:
    """What is not in epochs, such as the start, happens once; the rest grows with the work."""
    epochs = trial.spans.get("epoch")
    looked = epochs.count if epochs else training.look_epochs
    if not looked:
        return None
    scale = 1.0
    if training.samples is not None:
        seen = training.look_samples or _samples(trial, looked)
        if not seen:
            return None
        scale = training.samples / seen
    more = training.epochs * scale / looked
    if epochs is None:
        return _times(run, more)
    return _plus(run, _times(_of(epochs), more - 1))


def _sample(run: Amount, trial: Trial) -> Amount | None:
    samples = _samples(trial, 1)
    if not samples:
        return None
    within = next(
        (trial.spans[name] for name in ("epoch", "training") if name in trial.spans), None
    )
    return _times(_of(within) if within else run, 1 / samples)


def _samples(trial: Trial, epochs: float) -> float | None:
    told = trial.spans.get("sample")
    if told:
        return told.count / epochs
    steps = trial.spans.get("step")
    words = {name.lower(): value for name, value in trial.setting.values}
    batch = next((words[name] for name in _BATCH if name in words), None)
    try:
        return steps.count * float(batch) / epochs if steps and batch is not None else None
    except ValueError:
        return None


def _of(work: Work) -> Amount:
    return Amount(work.time_s, work.energy)


def times(energy: Energy, factor: float) -> Energy:
    return replace(
        energy,
        value=energy.value * factor,
        error_sampling=energy.error_sampling * abs(factor),
        error_gain=energy.error_gain * abs(factor),
    )


def _times(amount: Amount, factor: float) -> Amount:
    energy = {part: times(it, factor) for part, it in amount.energy.items()}
    return Amount(amount.time_s * factor, energy)


def _plus(one: Amount, other: Amount) -> Amount:
    """On the same devices, whose gain is off by the same in both; only what both know."""
    both = one.energy.keys() & other.energy.keys()
    return Amount(
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
