"""The results that a report is made of, loaded from what ``report.resolve`` refers to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from joulewise.analyse.group import GroupRun, sum_group
from joulewise.analyse.stored_result import load_or_compute_result
from joulewise.data import QualityWarning, RunResult, WarningCode
from joulewise.data.sweeps import Sweep
from joulewise.errors import JoulewiseError, UsageError
from joulewise.report.resolve import GroupRef, Reference, RunRef, TableRef
from joulewise.store.files import is_folder, read_regular_bytes
from joulewise.store.index.run_entry import find_unreadable_runs
from joulewise.store.layout import MANIFEST, TRACE
from joulewise.store.manifest import read_manifest
from joulewise.store.runs import ELSEWHERE
from joulewise.sweep.csv_import import read_table
from joulewise.sweep.stored_sweeps import load

# A warning names so many unreadable runs (chosen: they fit on a line); the others are "…".
_NAMED: Final = 3


@dataclass(frozen=True)
class LoadedRuns:
    """A run, or the runs of a group and their sum.

    ``left_out`` are the runs that cannot be read, each with the reason. ``alike`` is how many runs
    have the name or the tag by which this run, the newest, was found.
    """

    result: RunResult
    runs: tuple[Path, ...]
    members: tuple[GroupRun, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    alike: int = 1


@dataclass(frozen=True)
class LoadedSweep:
    """A sweep, and its folder in the store; None where it was read from a table."""

    sweep: Sweep
    folder: Path | None


def load_inputs(
    store: Path, ref: Reference, table_reference: Mapping[str, str]
) -> LoadedRuns | LoadedSweep:
    """Load the results; ``table_reference`` is the setting that a table is compared with.

    Raises a UsageError where a reference is given and ``ref`` is no table.
    """
    if isinstance(ref, TableRef):
        return LoadedSweep(read_table(ref.path, table_reference), None)
    if table_reference:
        raise UsageError(
            "--reference is for a table; a sweep has its own", "sweep again with --reference"
        )
    if isinstance(ref, RunRef):
        run = ref.newest
        result = load_or_compute_result(run)
        member = GroupRun(read_manifest(run), result)
        return LoadedRuns(result, (run,), (member,), alike=len(ref.paths))
    if isinstance(ref, GroupRef):
        return load_group(store, ref)
    return LoadedSweep(load(ref.folder), ref.folder)


def load_group(store: Path, ref: GroupRef) -> LoadedRuns:
    """The runs of a group and their sum, a lower bound where one of them cannot be read."""
    members: dict[Path, GroupRun] = {}
    left_out = []
    for run in ref.paths:
        try:
            members[run] = GroupRun(read_manifest(run), load_or_compute_result(run))
        except JoulewiseError as error:  # noqa: PERF203  # the others can still be read
            left_out.append((run.name, error.message))
    if not members:
        raise UsageError(
            f"no run of the group {ref.name} can be read; {left_out[0][0]}: {left_out[0][1]}",
            f"joulewise ls lists those that can; or {ELSEWHERE}",
        )
    unreadable = [
        entry.path.name
        for entry in find_unreadable_runs(store)
        if _may_be_in_group(entry.path, ref.name)
    ]
    result = sum_group(ref.name, list(members.values()))
    result = _as_lower_bound(result, [run for run, _ in left_out], unreadable)
    return LoadedRuns(result, tuple(members), tuple(members.values()), tuple(left_out))


def _as_lower_bound(
    result: RunResult, left_out: Sequence[str], unreadable: Sequence[str]
) -> RunResult:
    """The sum of a group as a lower bound, where runs of it cannot be read, or may not.

    ``unreadable`` are damaged runs of the store that may belong to any group.
    """
    if not left_out and not unreadable:
        return result
    if left_out:
        message = f"{', '.join(left_out)} of the group cannot be read: the sum is a lower bound"
    else:
        names = ", ".join(unreadable[:_NAMED]) + (", …" if len(unreadable) > _NAMED else "")
        message = (
            f"{names} cannot be read and may belong to the group: the sum is taken as a lower bound"
        )
    hint = "joulewise ls tells why; restore it from a copy, or delete it with joulewise rm"
    total = result.run.total and replace(result.run.total, at_least=True)
    return replace(
        result,
        run=replace(result.run, total=total),
        warnings=(QualityWarning(WarningCode.DAMAGED, message, hint), *result.warnings),
    )


def _may_be_in_group(run: Path, group: str) -> bool:
    """Whether a damaged run may belong to a group, as far as the text of its manifest tells.

    The name of a job stands for all its steps, whose groups are named ``JOB.STEP``.
    """
    try:
        text = read_regular_bytes(run / MANIFEST).decode("utf-8", "replace")
    except OSError:
        text = ""
    if '"group": "' in text:
        start = f'"group": {json.dumps(group)[:-1]}'  # escaped as run.json has it
        return f'{start}"' in text or f"{start}." in text
    return is_folder(run / TRACE)
