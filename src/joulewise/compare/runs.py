"""Two sides of runs: every quantity that both have, what differs, and what to beware of.

What is not the same on both sides: what was run, with which settings, where, on what.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from joulewise.analyse.validation import ValidationPlace, place_validations
from joulewise.compare.judgement import (
    ComparedQuantity,
    RunValue,
    VerdictBasis,
    compare,
    not_comparable,
)
from joulewise.compare.quantities import (
    EDP,
    ENERGY,
    EPOCH,
    POWER,
    STEP,
    TIME,
    WORKS,
    ComparedRun,
    WorkCompared,
    compare_work,
    unit_of,
    values,
)
from joulewise.data import Caution, Knob, RunWarning, Source
from joulewise.store.manifest import Manifest

_KNOBS: Final = {knob.value: knob for knob in Knob}
_HOST: Final = {"name": "host", "system": "system", "kernel": "kernel", "cpus": "CPUs"}
_GIT: Final = {"commit": "git commit", "branch": "git branch", "dirty": "uncommitted changes"}
# Of every run another, and no reason why one should take more than another.
_CHANCE: Final = ("SLURM_JOB_ID", "SLURM_STEP_ID", "PBS_JOBID", "LSB_JOBID", "MASTER_PORT")


@dataclass(frozen=True)
class Difference:
    """One fact with all that the runs of each side have of it; empty where none has any."""

    what: str
    a: tuple[str, ...]
    b: tuple[str, ...]


def differences(a: Sequence[ComparedRun], b: Sequence[ComparedRun]) -> tuple[Difference, ...]:
    """Facts of which the sides have not the same, the work first."""
    of_a, of_b = _together(a), _together(b)
    return tuple(
        Difference(what, of_a.get(what, ()), of_b.get(what, ()))
        for what in dict.fromkeys((*of_a, *of_b))
        if set(of_a.get(what, ())) != set(of_b.get(what, ()))
    )


def varied(runs: Sequence[ComparedRun]) -> tuple[str, ...]:
    """What differs within a side in the work itself, so that its spread is not only noise."""
    facts = _together(runs)
    work = [what for what in facts if what in _WORK or what.endswith(_SETTINGS)]
    return tuple(what for what in work if len(facts[what]) > 1)


_WORK: Final = ("command", "epochs", "devices that count", "git commit")
_SETTINGS: Final = tuple(knob.label for knob in Knob)


def _together(runs: Sequence[ComparedRun]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        for what, value in _facts(run):
            if value:
                found.setdefault(what, {})[value] = None
    return {what: tuple(values) for what, values in found.items()}


def _facts(run: ComparedRun) -> Iterator[tuple[str, str]]:
    first = run.manifests[0]
    yield "command", shlex.join(first.commands[0].arguments) if first.commands else ""
    for work in ("epoch", "step"):
        count = run.count_of(work)
        yield f"{work}s", "" if count is None else str(count)
    place = place_validations(run.result)
    yield "validations", "" if place is ValidationPlace.NONE else place.value
    yield "devices that count", counted_words(run.counted)
    for manifest in run.manifests:
        yield from _devices(manifest)
    for manifest in run.manifests:
        yield from _named(manifest.git, _GIT)
        yield "working directory", manifest.cwd
        yield from _named(manifest.host, _HOST)
        yield "Python", manifest.host.get("python", "")
        yield from manifest.versions.items()
        yield from ((n, value) for n, value in manifest.environ.items() if n not in _CHANCE)
    yield "sampling rate", f"{first.rate_hz:g} Hz"
    yield "nodes", str(len(run.manifests)) if len(run.manifests) > 1 else ""


def counted_words(counted: Mapping[str, tuple[int, str]]) -> str:
    """``1 gpu (measured), 1 cpu (modelled)``."""
    return ", ".join(f"{number} {kind} ({source})" for kind, (number, source) in counted.items())


def _devices(manifest: Manifest) -> Iterator[tuple[str, str]]:
    for device in manifest.devices:
        key = device.info.key
        yield f"{key} model", device.info.name
        yield f"{key} board", device.info.uid
        yield f"{key} driver", device.info.driver
        for name, value in device.settings.items():
            knob = _KNOBS.get(name)
            label, unit = (knob.label, knob.unit) if knob else (name, "")
            yield f"{key} {label}", f"{value:g} {unit}".strip()


def _named(told: Mapping[str, str], names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for key, name in names.items():
        yield name, told.get(key, "")


_TOTALS: Final = (ENERGY, POWER, EDP, *(f"{ENERGY}/{work}" for work in WORKS))
_COMPLETE: Final = "complete"


@dataclass(frozen=True)
class Side:
    """What stands on one side: ``name`` as it was asked for, and what was left out, with why."""

    name: str
    runs: tuple[ComparedRun, ...]
    left_out: tuple[tuple[str, str], ...] = ()


class CompareCaution(str, Enum):
    """What a reader of a comparison must know; the ``code`` in JSON."""

    SINGLE_RUNS = "single_runs"
    DIFFERENT_WORK = "different_work"
    WORK_NOT_KNOWN = "work_not_known"
    DIFFERENT_DEVICES = "different_devices"
    NOT_COMPARABLE = "not_comparable"
    NOT_MEASURED = "not_measured"
    SIMULATED = "simulated_with_real"
    LOWER_BOUND = "energy_at_least"
    MIXED_SIDE = "mixed_side"
    LEFT_OUT = "left_out"
    DID_NOT_END_WELL = "did_not_end_well"
    UNFINISHED = "unfinished_epochs"
    DIFFERENT_EPOCHS = "different_epochs"
    RUN_WARNING = "run_warning"


@dataclass(frozen=True)
class CompareWarning:
    """One caution: what is the case, and what to do."""

    code: CompareCaution
    message: str
    hint: str = ""


@dataclass(frozen=True)
class Comparison:
    a: Side
    b: Side
    quantities: tuple[ComparedQuantity, ...]
    differences: tuple[Difference, ...]
    cautions: tuple[CompareWarning, ...]
    work: WorkCompared = field(default_factory=WorkCompared)

    @property
    def bounded(self) -> str:
        """Of which side the energy is only a lower bound, in words; empty of neither."""
        return _bounded(self.a, self.b)

    @property
    def simulated(self) -> tuple[bool, bool]:
        """Of A and of B, whether any device that counts is simulated."""
        a, b = (any(run.result.simulated_counted for run in side.runs) for side in (self.a, self.b))
        return a, b

    def get(self, quantity: str) -> ComparedQuantity | None:
        return next((it for it in self.quantities if it.quantity == quantity), None)


def compare_runs(a: Side, b: Side) -> Comparison:
    of_a, of_b = ([values(run) for run in side.runs] for side in (a, b))
    odd = _odd_totals(a, b)
    bounded = _bounded(a, b)
    work = compare_work(a.runs, b.runs)
    found = []
    for quantity in _quantities(of_a, of_b):
        samples = _all(of_a, quantity), _all(of_b, quantity)
        unit = unit_of(quantity)
        if bounded and quantity in _TOTALS:
            found.append(not_comparable(quantity, unit, samples, bounded))
        elif odd and quantity in _TOTALS:
            found.append(not_comparable(quantity, unit, samples, odd))
        elif reason := _unlike(work, quantity):
            found.append(not_comparable(quantity, unit, samples, reason))
        elif len(samples[0]) < len(of_a) or len(samples[1]) < len(of_b):
            reason = "not known of every run"
            found.append(not_comparable(quantity, unit, samples, reason))
        else:
            found.append(compare(quantity, unit, *samples))
    told = tuple(found)
    cautions = (*_cautions(a, b, told, odd), *_of_work(work))
    return Comparison(a, b, told, differences(a.runs, b.runs), cautions, work)


def _unlike(work: WorkCompared, quantity: str) -> str:
    """Why a piece of work is not the same on both sides; empty where it is, or of the whole run."""
    reasons = {STEP: work.unlike_steps, EPOCH: work.unlike_epochs or work.unlike_data}
    return reasons.get(quantity.partition("/")[2], "")


def _quantities(
    of_a: Sequence[Mapping[str, RunValue]], of_b: Sequence[Mapping[str, RunValue]]
) -> list[str]:
    """What both have, the usual ones first, and those in any case: it is said if one is not."""
    in_a, in_b = ({name for each in side for name in each} for side in (of_a, of_b))
    work = [f"{what}/{work}" for work in WORKS for what in (ENERGY, TIME)]
    usual = [ENERGY, TIME, POWER, EDP]
    others = [name for each in (*of_a, *of_b) for name in each if name not in {*usual, *work}]
    both = in_a & in_b
    devices = [name for name in dict.fromkeys(others) if name in both]
    return [*usual, *devices, *(name for name in work if name in both)]


def _all(side: Sequence[Mapping[str, RunValue]], quantity: str) -> list[RunValue]:
    return [found[quantity] for found in side if quantity in found]


def _odd_totals(a: Side, b: Side) -> str:
    """Why the totals are not of the same kinds of device, read in the same way; else nothing."""
    shapes: dict[str, dict[str, str]] = {}
    for side, name in ((a, "A"), (b, "B")):
        for run in side.runs:
            kinds = {kind: _read_by(source) for kind, (_, source) in run.counted.items()}
            shapes.setdefault(str(sorted(kinds.items())), {})[name] = counted_words(run.counted)
    if len(shapes) < 2:
        return ""
    said = [f"{side} counts {words}" for it in shapes.values() for side, words in it.items()]
    return "; ".join(said)


def _read_by(source: str) -> str:
    """A simulated sensor is read as a real one is; that one side is simulated is said apart."""
    return Source.MEASURED.value if source == Source.SIMULATED.value else source


def _bounded(a: Side, b: Side) -> str:
    """Of which side a total is only a lower bound, which says nothing of more or less."""
    sides = [name for side, name in ((a, "A"), (b, "B")) if any(map(_is_bound, side.runs))]
    return f"the energy of {' and '.join(sides)} is a lower bound" if sides else ""


def _is_bound(run: ComparedRun) -> bool:
    total = run.result.run.total
    return total is not None and total.at_least


def _cautions(
    a: Side, b: Side, found: Sequence[ComparedQuantity], odd: str
) -> Iterator[CompareWarning]:
    if odd:
        yield CompareWarning(
            CompareCaution.NOT_COMPARABLE,
            f"the totals are of different things: {odd}",
            "compare a device that both have, or measure both in the same way",
        )
    for side, name in ((a, "A"), (b, "B")):
        yield from _of_side(side, name)
    yield from _of_devices(a, b)
    if any(it.basis is VerdictBasis.MEASUREMENT for it in found):
        yield CompareWarning(
            CompareCaution.SINGLE_RUNS,
            "single runs: verdicts rest on the error of the meter alone, and how much time and "
            "energy vary from run to run is not known",
            "repeat both under one name each: joulewise run --name NAME, three times or more",
        )


def _of_side(side: Side, name: str) -> Iterator[CompareWarning]:
    bounded = [run.id for run in side.runs if _is_bound(run)]
    if bounded:
        yield CompareWarning(
            CompareCaution.LOWER_BOUND,
            f"the energy of {name} is a lower bound: a device that counts was not read in all of "
            f"{', '.join(bounded)}",
            "it is not compared; look at a device that was read, or run it again",
        )
    yield from _of_results(side, name)
    if side.left_out:
        listed = "; ".join(f"{run}: {why}" for run, why in side.left_out)
        yield CompareWarning(
            CompareCaution.LEFT_OUT, f"left out of {name}: {listed}", "name it by its id to have it"
        )
    ends = [(run.id, _end(run)) for run in side.runs]
    unwell = "; ".join(f"{run} {end}" for run, end in ends if end)
    if unwell:
        yield CompareWarning(
            CompareCaution.DID_NOT_END_WELL,
            f"{name} did not end well: {unwell}",
            "look at the figures per epoch or per step, or run it again",
        )
    unfinished = [(run.id, n) for run in side.runs if (n := run.unfinished_epochs)]
    if unfinished:
        listed = ", ".join(f"{n} of {run}" for run, n in unfinished)
        yield CompareWarning(
            CompareCaution.UNFINISHED,
            f"{name} has epochs that were broken off: {listed}",
            "they are in the energy and time of the run, and in no figure per epoch",
        )
    mixed = varied(side.runs)
    if mixed:
        yield CompareWarning(
            CompareCaution.MIXED_SIDE,
            f"the runs of {name} differ in {', '.join(mixed)}: their spread is not only noise",
            "give one side only runs of the same work",
        )


def _of_results(side: Side, name: str) -> Iterator[CompareWarning]:
    """What the results of the runs say that puts their figures in doubt, once for each kind."""
    found: dict[Caution, list[tuple[ComparedRun, RunWarning]]] = {}
    for run in side.runs:
        for warning in run.result.warnings:
            if warning.is_doubtful:
                found.setdefault(warning.code, []).append((run, warning))
    for code, warnings in found.items():
        run, first = warnings[0]
        others = len(warnings) - 1
        more = f" (and {others} more such warning{'s' if others > 1 else ''})" if others else ""
        yield CompareWarning(
            CompareCaution.RUN_WARNING,
            f"figures of {name} may be wrong: {run.id}, {code.value}: {first.message}{more}",
            first.hint or f"see: joulewise show {run.id}",
        )


def _of_work(work: WorkCompared) -> Iterator[CompareWarning]:
    counts = [" or ".join(map(str, numbers)) for numbers in (work.a, work.b)]
    if work.unlike:
        yield CompareWarning(
            CompareCaution.DIFFERENT_WORK,
            f"not the same work: A has {counts[0]} {work.unit}s, B {counts[1]}",
            f"look at energy/{work.unit} and time/{work.unit}",
        )
    if work.unlike_epochs:
        yield CompareWarning(
            CompareCaution.DIFFERENT_EPOCHS,
            f"an epoch is not the same on both sides: {work.unlike_epochs}",
            "epochs are not compared; look at the energy and time of the runs, or mark both alike",
        )
    if work.is_same is None and work.unknown:
        yield CompareWarning(
            CompareCaution.WORK_NOT_KNOWN,
            f"whether both did the same work is not known: {work.unknown}",
            work.remedy,
        )


def _of_devices(a: Side, b: Side) -> Iterator[CompareWarning]:
    models_a, models_b = (_models(side) for side in (a, b))
    if models_a != models_b:
        yield CompareWarning(
            CompareCaution.DIFFERENT_DEVICES,
            f"different devices: {', '.join(models_a)} in A, {', '.join(models_b)} in B",
            "what differs is theirs, too, and the gain of each board is in the intervals",
        )
    yield from simulated_with_real(
        *(any(run.result.simulated_counted for run in s.runs) for s in (a, b))
    )
    unmeasured = {
        kind: source
        for side in (a, b)
        for run in side.runs
        for kind, (_, source) in run.counted.items()
        if source in {"modelled", "assumed"}
    }
    if unmeasured:
        listed = " and ".join(f"{kind} {source}" for kind, source in unmeasured.items())
        yield CompareWarning(
            CompareCaution.NOT_MEASURED,
            f"{listed}: of these the ratio compares what was taken for the power, not readings",
            _measured_alone(a, b),
        )


def _measured_alone(a: Side, b: Side) -> str:
    """Which device's readings can be compared instead: one that both sides have read."""
    read = [
        {
            key
            for key, use in run.result.run.devices.items()
            if use.energy is not None and use.energy.source.is_sensor
        }
        for side in (a, b)
        for run in side.runs
    ]
    both = sorted(set.intersection(*read)) if read else []
    if both:
        return f"compare a measured device alone, such as {both[0]}"
    return "no device was measured on both sides; joulewise doctor says what can be measured here"


def simulated_with_real(a: bool, b: bool) -> Iterator[CompareWarning]:
    """Where one side has simulated devices and the other has none."""
    if a != b:
        one, other = ("A", "B") if a else ("B", "A")
        yield CompareWarning(
            CompareCaution.SIMULATED,
            f"{one} was run on simulated devices, {other} on real ones: what differs is also how "
            "far the simulation is from them",
            "compare simulated with simulated, or measure both",
        )


def _models(side: Side) -> list[str]:
    """Of the devices that count, those of one model as one."""
    found: dict[str, int] = {}
    run = side.runs[0]
    for manifest in run.manifests:
        for device in manifest.devices:
            keys = {
                device.info.key,
                f"{manifest.host.get('name') or manifest.id}/{device.info.key}",
            }
            if keys & set(run.result.counted):
                found[device.info.name] = found.get(device.info.name, 0) + 1
    return [name if n == 1 else f"{n} x {name}" for name, n in found.items()]


def _end(run: ComparedRun) -> str:
    if run.result.state != _COMPLETE:
        return (
            f"is {run.result.state}"
            if run.result.state == "recording"
            else f"was {run.result.state}"
        )
    return f"ended with status {run.result.exit_code}" if run.result.exit_code else ""
