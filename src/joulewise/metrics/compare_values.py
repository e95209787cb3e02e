"""What a run has to be compared: its energies, its time, and what they are for a piece of work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import hypot
from pathlib import Path
from typing import Final

from joulewise.analyse.group import Member
from joulewise.data import Energy, Kind, RunResult
from joulewise.metrics.amounts import SampleCount
from joulewise.metrics.compare import Sample
from joulewise.record.manifest import Manifest

ENERGY, TIME, POWER, EDP = "energy", "time", "power", "edp"
WORKS: Final = ("epoch", "step", "sample")
UNITS: Final = {ENERGY: "J", TIME: "s", POWER: "W", EDP: "J·s"}
PER_WORK: Final = tuple(f"{what}/{work}" for work in WORKS for what in (ENERGY, TIME))
_WITHIN: Final = ("epoch", "training")


@dataclass(frozen=True)
class Run:
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
    def of(cls, manifest: Manifest, result: RunResult, path: Path | None = None) -> Run:
        paths = () if path is None else (path,)
        return cls(manifest.id, (manifest,), result, _boards(manifest), paths)

    @classmethod
    def of_group(
        cls, members: Sequence[Member], result: RunResult, paths: tuple[Path, ...] = ()
    ) -> Run:
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


def values(run: Run) -> dict[str, Sample]:
    """By quantity; what was not read or not marked is not in it."""
    return dict(_values(run))


def unit_of(quantity: str) -> str:
    """Devices are told in joules, like all that is not another quantity."""
    return UNITS.get(quantity.partition("/")[0], "J")


def _values(run: Run) -> Iterator[tuple[str, Sample]]:
    result = run.result
    time_s = result.time_s
    yield TIME, Sample(time_s)
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
            yield f"{TIME}/{work}", add_count_error(Sample(mean_s), samples)
            if whole is not None and energy_j:
                per_work = _per_work(run, whole, work, energy_j)
                yield f"{ENERGY}/{work}", add_count_error(per_work, samples)


def _sample(run: Run, energy: Energy | None, keys: tuple[str, ...]) -> Sample | None:
    if energy is None or energy.at_least:  # a lower bound is no value to compare with
        return None
    gains: dict[str, float] = {}
    for key in keys:
        drawn = run.result.run.devices[key].energy
        if drawn is not None:
            board = run.boards.get(key, f"{run.id}/{key}")
            gains[board] = gains.get(board, 0.0) + drawn.error_gain
    return Sample(energy.value, energy.error_sampling, gains)


def add_count_error(sample: Sample, count: SampleCount | None, power: int = 1) -> Sample:
    """The error of a figure per sample, where the number of samples is not sure.

    ``power`` is how often the figure was divided by that number.

    Runs with the same number of steps and batch size have the same factor wrong, so that it cancels
    between them, and no repetition makes it smaller.
    """
    if count is None or not count.uncertainty:
        return sample
    cause = f"samples {count.number:g} - {count.uncertainty:g}"
    gains = {**sample.gains, cause: power * sample.value * count.relative_error}
    return Sample(sample.value, sample.sampling, gains)


def _times(sample: Sample, factor: float) -> Sample:
    gains = {board: gain * factor for board, gain in sample.gains.items()}
    return Sample(sample.value * factor, sample.sampling * factor, gains)


def _per_work(run: Run, whole: Sample, work: str, energy_j: float) -> Sample:
    """The boards' gains are the run's; so is the sampling error, unless spans tell their own."""
    scaled = _times(whole, energy_j / whole.value if whole.value else 0.0)
    name = work if work != "sample" else "step"
    spans = [it for it in run.result.spans if it.span.name == name and it.span.closed]
    errors = [span.total.error_sampling for span in spans if span.total is not None]
    if work == "sample" or not errors or len(errors) != run.count_of(name):
        return Sample(energy_j, scaled.sampling, scaled.gains)
    return Sample(energy_j, hypot(*errors) / len(errors), scaled.gains)


def _mean(run: Run, work: str) -> tuple[float, float | None] | None:
    told = run.result.details.get("spans", {}).get(work)
    if not told or not told["count"] or told["time_s"]["mean"] is None:
        return None
    return told["time_s"]["mean"], told["energy_j"]["mean"]


def sample_count(run: Run) -> SampleCount | None:
    """Known where they are marked as such, or steps are and somebody told the batch size."""
    number = run.count_of("sample")
    if number is not None:
        return SampleCount(number)
    batch, steps = simulated_batch_size(run), run.count_of("step")
    if batch is None or not steps:
        return None
    return SampleCount(steps * batch, (run.count_of("epoch") or 1) * batch)


def _samples_of(run: Run) -> tuple[float, float | None] | None:
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


def simulated_batch_size(run: Run) -> int | None:
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
