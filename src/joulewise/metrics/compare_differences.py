"""What is not the same on both sides: what was run, with which settings, where, on what."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from joulewise.analyse.validation import ValidationPlace, place_validations
from joulewise.data import Knob
from joulewise.metrics.compare_values import Run
from joulewise.record.manifest import Manifest

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


def differences(a: Sequence[Run], b: Sequence[Run]) -> tuple[Difference, ...]:
    """Facts of which the sides have not the same, the work first."""
    of_a, of_b = _together(a), _together(b)
    return tuple(
        Difference(what, of_a.get(what, ()), of_b.get(what, ()))
        for what in dict.fromkeys((*of_a, *of_b))
        if set(of_a.get(what, ())) != set(of_b.get(what, ()))
    )


def varied(runs: Sequence[Run]) -> tuple[str, ...]:
    """What differs within a side in the work itself, so that its spread is not only noise."""
    facts = _together(runs)
    work = [what for what in facts if what in _WORK or what.endswith(_SETTINGS)]
    return tuple(what for what in work if len(facts[what]) > 1)


_WORK: Final = ("command", "epochs", "devices that count", "git commit")
_SETTINGS: Final = tuple(knob.label for knob in Knob)


def _together(runs: Sequence[Run]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        for what, value in _facts(run):
            if value:
                found.setdefault(what, {})[value] = None
    return {what: tuple(values) for what, values in found.items()}


def _facts(run: Run) -> Iterator[tuple[str, str]]:
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
