"""What is meant by a word on the command line: a run, a group of runs, a sweep, a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from joulewise.analyse.group import GroupRun, sum_group
from joulewise.analyse.stored_result import result_of
from joulewise.data import Caution, RunResult, RunWarning
from joulewise.data.sweeps import Sweep
from joulewise.errors import JoulewiseError, UsageError, did_you_mean
from joulewise.store.files import is_folder, read_regular_bytes
from joulewise.store.index.conditions import SqlCondition, text_begins, text_is
from joulewise.store.index.run_entry import find_runs, find_unreadable_runs
from joulewise.store.layout import MANIFEST, TRACE
from joulewise.store.manifest import read_manifest
from joulewise.store.runs import (
    ELSEWHERE,
    LAST,
    beginning,
    resolve_run,
    run_names,
)
from joulewise.sweep import stored_sweeps as sweeps
from joulewise.sweep.csv_import import read_table

_NAMED: Final = 3  # so many runs that cannot be read are named


@dataclass(frozen=True)
class MeantRuns:
    """A run, or the runs of a group and what they come to together.

    ``left_out`` are those that cannot be read, each with the reason. ``alike`` is how many runs
    have the name by which a run was found.
    """

    result: RunResult
    runs: tuple[Path, ...]
    members: tuple[GroupRun, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    alike: int = 1


@dataclass(frozen=True)
class MeantSweep:
    """``folder`` is its own in the store; None where it is a table from elsewhere."""

    sweep: Sweep
    folder: Path | None


def meant(store: Path, which: str, reference: Mapping[str, str]) -> MeantRuns | MeantSweep:
    """Of one name, a run before a sweep before a group; ``reference`` is that of a table."""
    if which.endswith(".csv"):
        return MeantSweep(read_table(Path(which), reference), None)
    if reference:
        raise UsageError(
            "--reference is for a table; a sweep has its own", "sweep again with --reference"
        )
    try:
        named = resolve_run(store, which)
    except UsageError as error:
        found = _sweep(store, which) or meant_group(store, which)
        if found is None:
            begins = bool(beginning(store, which))
            raise (error if begins else _nothing(store, which)) from None
        return found
    run = named.path
    of_last = sweep_of(store, run) if which == LAST else None
    return of_last or MeantRuns(
        result := result_of(run),
        (run,),
        (GroupRun(read_manifest(run), result),),
        alike=named.alike,
    )


def meant_group(store: Path, name: str) -> MeantRuns | None:
    mine = [entry.path for entry in find_runs(store, _is_in(name))] if name else []
    if not mine:
        return None
    members: dict[Path, GroupRun] = {}
    left_out = []
    for run in mine:
        try:
            members[run] = GroupRun(read_manifest(run), result_of(run))
        except JoulewiseError as error:  # noqa: PERF203  # one must not take the others along
            left_out.append((run.name, error.message))
    if not members:
        raise UsageError(
            f"no run of the group {name} can be read; {left_out[0][0]}: {left_out[0][1]}",
            f"joulewise ls lists those that can; or {ELSEWHERE}",
        )
    damaged = (entry.path for entry in find_unreadable_runs(store))
    unreadable = [path.name for path in damaged if _may_be_in(path, name)]
    result = sum_group(name, list(members.values()))
    result = _as_bound(result, [run for run, _ in left_out], unreadable)
    return MeantRuns(result, tuple(members), tuple(members.values()), tuple(left_out))


def _as_bound(result: RunResult, left_out: Sequence[str], unreadable: Sequence[str]) -> RunResult:
    """A group of which a run cannot be read took more than its sum, or may have.

    ``unreadable`` are the runs of the store of which nobody can tell to which group they belong.
    """
    if not left_out and not unreadable:
        return result
    if left_out:
        message = f"{', '.join(left_out)} of the group cannot be read: the sum is a lower bound"
    else:
        message = (
            f"{', '.join(unreadable[:_NAMED])}{', …' if len(unreadable) > _NAMED else ''} cannot "
            "be read: if that is of the group too, the sum is too low, so it is a lower bound"
        )
    hint = "joulewise ls tells why; put it back from a copy, or joulewise rm it"
    total = result.run.total and replace(result.run.total, at_least=True)
    return replace(
        result,
        run=replace(result.run, total=total),
        warnings=(RunWarning(Caution.DAMAGED, message, hint), *result.warnings),
    )


def _may_be_in(run: Path, name: str) -> bool:
    """Whether a run that cannot be read may be of a group: by its text, where that still tells.

    A job's name is that of all its steps, which have a dot behind it.
    """
    try:
        text = read_regular_bytes(run / MANIFEST).decode("utf-8", "replace")
    except OSError:
        text = ""
    if '"group": "' in text:
        begins = f'"group": {json.dumps(name)[:-1]}'  # in JSON as run.json has it: ASCII
        return f'{begins}"' in text or f"{begins}." in text
    return is_folder(run / TRACE)


def _is_in(name: str) -> SqlCondition:
    """A job's name is that of all its steps."""
    return text_is("group_name", name) | text_begins("group_name", f"{name}.")


def _sweep(store: Path, which: str) -> MeantSweep | None:
    try:
        folder = sweeps.find(store, which)
    except UsageError:
        return None
    return MeantSweep(sweeps.load(folder), folder)


def sweep_of(store: Path, run: Path) -> MeantSweep | None:
    """The last is what was done last, which is the whole sweep and not its last run."""
    tags = read_manifest(run).tags
    try:
        found = _sweep(store, LAST)
    except sweeps.UnreadableSweepError as error:
        if f"sweep:{error.sweep_id}" in tags:
            raise
        return None
    return found if found and f"sweep:{found.sweep.id}" in tags else None


def _nothing(store: Path, which: str) -> UsageError:
    near = did_you_mean(which, [LAST, *run_names(store), *sweeps.sweep_names(store)])
    return UsageError(
        f"{store} has no run, sweep or group {which!r}",
        f"{near}joulewise ls lists the runs, joulewise choose the sweeps; or {ELSEWHERE}",
    )
