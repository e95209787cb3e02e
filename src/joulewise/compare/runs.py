"""Compares two sides of runs: every quantity that both have, what differs, and warnings."""

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
    PER_WORK,
    POWER,
    SOURCES_JOINED,
    STEP,
    TIME,
    WORKS,
    ComparedRun,
    WorkCompared,
    compare_work,
    unit_of,
    values,
)
from joulewise.data import ControlKind, QualityWarning, QualityWarningCode, Source
from joulewise.store.manifest import Manifest
from joulewise.store.runs import COMPLETE, RECORDING

# The names of settings in a manifest, and facts of the host and of git with their labels.
_CONTROLS: Final = {control.value: control for control in ControlKind}
_HOST: Final = {"name": "host", "system": "system", "kernel": "kernel", "cpus": "CPUs"}
_GIT: Final = {"commit": "git commit", "branch": "git branch", "dirty": "uncommitted changes"}
# Variables that differ in every run and do not change what it takes.
_INCIDENTAL: Final = ("SLURM_JOB_ID", "SLURM_STEP_ID", "PBS_JOBID", "LSB_JOBID", "MASTER_PORT")


@dataclass(frozen=True)
class Difference:
    """A fact that is not the same on both sides, with every value that the runs of a side have."""

    what: str
    a: tuple[str, ...]
    b: tuple[str, ...]


def differences(a: Sequence[ComparedRun], b: Sequence[ComparedRun]) -> tuple[Difference, ...]:
    """What is not the same on both sides: the work first, then settings, hosts and versions."""
    facts_a, facts_b = _collect_facts(a), _collect_facts(b)
    return tuple(
        Difference(what, facts_a.get(what, ()), facts_b.get(what, ()))
        for what in dict.fromkeys((*facts_a, *facts_b))
        if set(facts_a.get(what, ())) != set(facts_b.get(what, ()))
    )


def _facts_that_vary(runs: Sequence[ComparedRun]) -> tuple[str, ...]:
    """Facts of the work that differ within a side, so that its spread is not only noise."""
    facts = _collect_facts(runs)
    work = [what for what in facts if what in _WORK or what.endswith(_SETTINGS)]
    return tuple(what for what in work if len(facts[what]) > 1)


# Facts that change what a run does; others, such as the host, only change how.
_WORK: Final = ("command", "epochs", "devices counted", "git commit")
_SETTINGS: Final = tuple(control.label for control in ControlKind)


def _collect_facts(runs: Sequence[ComparedRun]) -> dict[str, tuple[str, ...]]:
    """The distinct values of each fact over some runs, in the order of the runs."""
    facts: dict[str, dict[str, None]] = {}
    for run in runs:
        for what, value in _facts(run):
            if value:
                facts.setdefault(what, {})[value] = None
    return {what: tuple(values) for what, values in facts.items()}


def _facts(run: ComparedRun) -> Iterator[tuple[str, str]]:
    first = run.manifests[0]
    yield "command", shlex.join(first.commands[0].arguments) if first.commands else ""
    for work in ("epoch", "step"):
        count = run.count_of(work)
        yield f"{work}s", "" if count is None else str(count)
    place = place_validations(run.result)
    yield "validations", "" if place is ValidationPlace.NONE else place.value
    yield "devices counted", counted_words(run.counted)
    for manifest in run.manifests:
        yield from _devices(manifest)
    for manifest in run.manifests:
        yield from ((label, manifest.git.get(key, "")) for key, label in _GIT.items())
        yield "working directory", manifest.cwd
        yield from ((label, manifest.host.get(key, "")) for key, label in _HOST.items())
        yield "Python", manifest.host.get("python", "")
        yield from manifest.versions.items()
        yield from ((k, value) for k, value in manifest.environ.items() if k not in _INCIDENTAL)
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
            control = _CONTROLS.get(name)
            label, unit = (control.label, control.unit) if control else (name, "")
            yield f"{key} {label}", f"{value:g} {unit}".strip()


DIFFERENT_BOARDS_HINT: Final = (
    "the difference includes that of the boards, whose calibration errors are in the intervals"
)
# Quantities made of the total energy: not comparable where the totals are not.
_TOTALS: Final = (ENERGY, POWER, EDP, *(f"{ENERGY}/{work}" for work in WORKS))


@dataclass(frozen=True)
class Side:
    """The runs on one side; ``name`` is what the user called them.

    ``left_out`` are runs of that name which are not compared, each with the reason.
    """

    name: str
    runs: tuple[ComparedRun, ...]
    left_out: tuple[tuple[str, str], ...] = ()


class CompareWarningCode(QualityWarningCode, Enum):
    """What a reader of a comparison must know."""

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
class Comparison:
    """Two sides of runs with everything that was compared."""

    a: Side
    b: Side
    quantities: tuple[ComparedQuantity, ...]
    differences: tuple[Difference, ...]
    warnings: tuple[QualityWarning, ...]
    work: WorkCompared = field(default_factory=WorkCompared)

    @property
    def bounded(self) -> str:
        """Whose energy is only a lower bound, in words; empty where both are known."""
        return _bounded(self.a, self.b)

    @property
    def simulated(self) -> tuple[bool, bool]:
        """For A and for B, whether any device in the total is simulated."""
        a, b = (any(run.result.simulated_counted for run in side.runs) for side in (self.a, self.b))
        return a, b

    def get(self, quantity: str) -> ComparedQuantity | None:
        """The result for a quantity such as ``energy`` or ``time/epoch``; None without one."""
        return next((it for it in self.quantities if it.quantity == quantity), None)


def compare_runs(a: Side, b: Side) -> Comparison:
    """Compare every quantity that both sides have."""
    values_a, values_b = ([values(run) for run in side.runs] for side in (a, b))
    unlike_totals = _unlike_totals(a, b)
    bounded = _bounded(a, b)
    work = compare_work(a.runs, b.runs)
    # A step or an epoch may be another amount of work on the other side.
    unlike_work = {STEP: work.unlike_steps, EPOCH: work.unlike_epochs or work.unlike_data}
    compared = []
    for quantity in _quantities(values_a, values_b):
        samples = _samples(values_a, quantity), _samples(values_b, quantity)
        # Of several reasons the first is given.
        reason = (bounded or unlike_totals) if quantity in _TOTALS else ""
        reason = reason or unlike_work.get(quantity.partition("/")[2], "")
        if not reason and (len(samples[0]) < len(values_a) or len(samples[1]) < len(values_b)):
            reason = "not known for every run"
        unit = unit_of(quantity)
        compared.append(
            not_comparable(quantity, unit, samples, reason)
            if reason
            else compare(quantity, unit, *samples)
        )
    warnings = (*_warnings(a, b, compared, unlike_totals), *_work_warnings(work))
    return Comparison(a, b, tuple(compared), differences(a.runs, b.runs), warnings, work)


def _quantities(
    values_a: Sequence[Mapping[str, RunValue]], values_b: Sequence[Mapping[str, RunValue]]
) -> list[str]:
    """The totals, even if a side lacks one; then the devices and kinds of work of both sides."""
    in_a, in_b = ({name for run in side for name in run} for side in (values_a, values_b))
    totals = [ENERGY, TIME, POWER, EDP]
    names = dict.fromkeys(name for run in (*values_a, *values_b) for name in run)
    devices = [name for name in names if name in in_a & in_b and name not in {*totals, *PER_WORK}]
    return [*totals, *devices, *(name for name in PER_WORK if name in in_a & in_b)]


def _samples(side: Sequence[Mapping[str, RunValue]], quantity: str) -> list[RunValue]:
    return [run[quantity] for run in side if quantity in run]


def _unlike_totals(a: Side, b: Side) -> str:
    """Why the totals count other kinds of device, or other sources; empty where they do not."""
    shapes: dict[str, dict[str, str]] = {}
    for side, name in ((a, "A"), (b, "B")):
        for run in side.runs:
            kinds = {kind: _read_by(source) for kind, (_, source) in run.counted.items()}
            shapes.setdefault(str(sorted(kinds.items())), {})[name] = counted_words(run.counted)
    if len(shapes) < 2:
        return ""
    return "; ".join(
        f"{side} counts {words}" for shape in shapes.values() for side, words in shape.items()
    )


def _read_by(source: str) -> str:
    """Simulated sensors are read as real ones are; a warning of its own says what is simulated."""
    if SOURCES_JOINED in source:
        return Source.MIXED.value
    return Source.MEASURED.value if source == Source.SIMULATED.value else source


def _bounded(a: Side, b: Side) -> str:
    """Whose total is only a lower bound, so that no ratio can be given; empty of neither."""
    sides = [name for side, name in ((a, "A"), (b, "B")) if any(map(_is_bound, side.runs))]
    return f"the energy of {' and '.join(sides)} is a lower bound" if sides else ""


def _is_bound(run: ComparedRun) -> bool:
    total = run.result.run.total
    return total is not None and total.at_least


def _warnings(
    a: Side, b: Side, compared: Sequence[ComparedQuantity], unlike_totals: str
) -> Iterator[QualityWarning]:
    if unlike_totals:
        yield QualityWarning(
            CompareWarningCode.NOT_COMPARABLE,
            f"the totals do not count the same devices: {unlike_totals}",
            "compare a device that both sides have, or measure both in the same way",
        )
    for side, name in ((a, "A"), (b, "B")):
        yield from _side_warnings(side, name)
    yield from _device_warnings(a, b)
    bases = {quantity.basis for quantity in compared}
    if bases & {VerdictBasis.MEASUREMENT, VerdictBasis.NOTHING}:
        allowed = "the verdicts allow for the measurement error, but not for"
        yield QualityWarning(
            CompareWarningCode.SINGLE_RUNS,
            "there is one run on each side: "
            f"{allowed if VerdictBasis.MEASUREMENT in bases else 'it is not known'} how much time "
            "and energy vary from run to run",
            "repeat each side three times or more under one name: joulewise run --name NAME",
        )


def _side_warnings(side: Side, name: str) -> Iterator[QualityWarning]:
    bounded = [run.id for run in side.runs if _is_bound(run)]
    if bounded:
        yield QualityWarning(
            CompareWarningCode.LOWER_BOUND,
            f"the energy of {name} is a lower bound: a device in the total was not read throughout "
            f"{', '.join(bounded)}",
            "it is not compared; compare a device that was read, or run it again",
        )
    yield from _run_warnings(side, name)
    if side.left_out:
        listed = "; ".join(f"{run}: {why}" for run, why in side.left_out)
        yield QualityWarning(
            CompareWarningCode.LEFT_OUT,
            f"left out of {name}: {listed}",
            "to compare such a run, name it by its id",
        )
    ends = [(run.id, _bad_end(run)) for run in side.runs]
    if bad_ends := "; ".join(f"{run} {end}" for run, end in ends if end):
        yield QualityWarning(
            CompareWarningCode.DID_NOT_END_WELL,
            f"not every run of {name} finished without an error: {bad_ends}",
            "compare energy and time per epoch or per step, or run it again",
        )
    unfinished = [(run.id, n) for run in side.runs if (n := run.unfinished_epochs)]
    if unfinished:
        listed = ", ".join(f"{n} of {run}" for run, n in unfinished)
        yield QualityWarning(
            CompareWarningCode.UNFINISHED,
            f"{name} has unfinished epochs: {listed}",
            "they count in the energy and time of the run, but not in figures per epoch",
        )
    if varying := _facts_that_vary(side.runs):
        yield QualityWarning(
            CompareWarningCode.MIXED_SIDE,
            f"the runs of {name} differ in {', '.join(varying)}: their spread is not only noise",
            "put only runs of the same work on one side",
        )


def _run_warnings(side: Side, name: str) -> Iterator[QualityWarning]:
    """The runs' own warnings after which their figures may be wrong, one for each code."""
    by_code: dict[QualityWarningCode, list[tuple[ComparedRun, QualityWarning]]] = {}
    for run in side.runs:
        for warning in run.result.warnings:
            if warning.is_doubtful:
                by_code.setdefault(warning.code, []).append((run, warning))
    for code, warnings in by_code.items():
        run, first = warnings[0]
        others = len(warnings) - 1
        more = f" (and {others} more such warning{'s' if others > 1 else ''})" if others else ""
        yield QualityWarning(
            CompareWarningCode.RUN_WARNING,
            f"figures of {name} may be wrong: {run.id}, {code.value}: {first.message}{more}",
            first.hint or f"see: joulewise show {run.id}",
        )


def _work_warnings(work: WorkCompared) -> Iterator[QualityWarning]:
    counts = [" or ".join(map(str, numbers)) for numbers in (work.a, work.b)]
    if work.unlike:
        yield QualityWarning(
            CompareWarningCode.DIFFERENT_WORK,
            f"different amounts of work: A has {counts[0]} {work.unit}s, B {counts[1]}",
            f"compare energy/{work.unit} and time/{work.unit}",
        )
    if work.unlike_epochs:
        yield QualityWarning(
            CompareWarningCode.DIFFERENT_EPOCHS,
            f"an epoch is not the same on both sides: {work.unlike_epochs}",
            "epochs are not compared; compare whole runs, or mark the epochs in the same way",
        )
    if work.is_same is None and work.unknown:
        yield QualityWarning(
            CompareWarningCode.WORK_NOT_KNOWN,
            f"it is not known whether both sides did the same work: {work.unknown}",
            work.remedy,
        )


def _device_warnings(a: Side, b: Side) -> Iterator[QualityWarning]:
    models_a, models_b = (_models(side) for side in (a, b))
    if models_a != models_b:
        yield QualityWarning(
            CompareWarningCode.DIFFERENT_DEVICES,
            f"different devices: {', '.join(models_a)} in A, {', '.join(models_b)} in B",
            DIFFERENT_BOARDS_HINT,
        )
    yield from simulated_with_real(
        *(any(run.result.simulated_counted for run in s.runs) for s in (a, b))
    )
    # A ratio of modelled powers is a ratio of what the model was given, such as a TDP.
    unmeasured = {
        kind: source
        for side in (a, b)
        for run in side.runs
        for kind, (_, source) in run.counted.items()
        if source in {"modelled", "assumed"}
    }
    if unmeasured:
        listed = " and ".join(f"{kind} is {source}" for kind, source in unmeasured.items())
        yield QualityWarning(
            CompareWarningCode.NOT_MEASURED,
            f"{listed}: its energy, and any change of it, is an estimate and no reading",
            _measured_device_hint(a, b),
        )


def _measured_device_hint(a: Side, b: Side) -> str:
    """Names a device that was measured on both sides, to be compared instead."""
    measured = [
        {
            key
            for key, use in run.result.run.devices.items()
            if use.energy is not None and use.energy.source.is_sensor
        }
        for side in (a, b)
        for run in side.runs
    ]
    both = sorted(set.intersection(*measured)) if measured else []
    if both:
        return f"compare a measured device by itself, such as {both[0]}"
    return "no device was measured on both sides; joulewise doctor shows what can be measured here"


def simulated_with_real(a: bool, b: bool) -> Iterator[QualityWarning]:
    """A warning where one side is simulated (``a``, ``b``) and the other is not."""
    if a != b:
        one, other = ("A", "B") if a else ("B", "A")
        yield QualityWarning(
            CompareWarningCode.SIMULATED,
            f"{one} ran on simulated devices and {other} on real ones: the difference includes the "
            "error of the simulation",
            "compare simulated runs with simulated ones, or measure both",
        )


def _models(side: Side) -> list[str]:
    """The models of the devices in the total, such as ``2 x Tesla V100``."""
    counts: dict[str, int] = {}
    run = side.runs[0]
    for manifest in run.manifests:
        for device in manifest.devices:
            # In a group the keys of devices are prefixed with their node.
            keys = {
                device.info.key,
                f"{manifest.host.get('name') or manifest.id}/{device.info.key}",
            }
            if keys & set(run.result.counted):
                counts[device.info.name] = counts.get(device.info.name, 0) + 1
    return [name if n == 1 else f"{n} x {name}" for name, n in counts.items()]


def _bad_end(run: ComparedRun) -> str:
    """How a run ended that did not finish without an error; else empty."""
    result = run.result
    if result.state != COMPLETE:
        return f"{'is' if result.state == RECORDING else 'was'} {result.state}"
    return f"ended with status {result.exit_code}" if result.exit_code else ""
