"""Resolves a name on the command line to runs, a group, a sweep or a table, and loads its results.

Every verb that takes a name resolves it here, so that all verbs understand the same spellings. The
first of these that fits is taken:

1. a path: the folder of a run or of a sweep, a CSV table, or a folder that holds runs;
2. ``last``: the newest run or, if that run belongs to the newest sweep, the sweep;
3. the id of a run, or the beginning of one;
4. a name, or else a tag, that runs have in common;
5. a group (``run --group``);
6. the id of a sweep, the beginning of one, or its name.

This module loads no numpy, so that ``show`` starts without it; what a comparison needs of the
results is loaded by ``report.compare_sides``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path
from typing import Final

from joulewise.analyse.group import GroupRun, sum_group
from joulewise.analyse.stored_result import load_or_compute_result
from joulewise.data import QualityWarning, RunResult, WarningCode
from joulewise.data.sweeps import Sweep
from joulewise.errors import JoulewiseError, UsageError, did_you_mean
from joulewise.store.files import is_file, is_folder, read_regular_bytes
from joulewise.store.index.conditions import SqlCondition, any_matches, text_begins, text_is
from joulewise.store.index.run_entry import SWEEP_TAG, find_runs, find_unreadable_runs
from joulewise.store.layout import MANIFEST, TRACE
from joulewise.store.manifest import read_manifest
from joulewise.store.runs import (
    ELSEWHERE,
    LAST,
    Skipped,
    beginning,
    named,
    readable,
    resolve_run,
    run_names,
    runs,
)
from joulewise.sweep import stored_sweeps as sweeps
from joulewise.sweep.csv_import import read_table
from joulewise.sweep.stored_sweeps import load_sweep

_TABLE_ENDING = ".csv"


@dataclass(frozen=True)
class RunRef:
    """Runs by their folders, oldest first: one, or all that share a name, a tag or a folder.

    ``is_exact`` is True of a run that was named by itself: by its id, its path or ``last``.
    """

    paths: tuple[Path, ...]
    is_exact: bool = False

    @property
    def newest(self) -> Path:
        """The run that is meant by a verb that takes only one."""
        return self.paths[-1]


@dataclass(frozen=True)
class GroupRef:
    """The runs of a group, such as the nodes of one job, which are summed up as one run."""

    name: str
    paths: tuple[Path, ...]


@dataclass(frozen=True)
class SweepRef:
    """A sweep by its folder."""

    folder: Path


@dataclass(frozen=True)
class TableRef:
    """A CSV table of measurements, one row for each run."""

    path: Path


Reference = RunRef | GroupRef | SweepRef | TableRef


def resolve(store: Path, name: str) -> Reference:
    """What ``name`` refers to; a UsageError where nothing has that name."""
    if name == LAST:
        return _last(store)
    found = _at_path(name) or _runs(store, name) or _group(store, name)
    if found is None and name and len(beginning(store, name)) > 1:
        resolve_run(store, name)  # raises: more of the id is needed
    found = found or _sweep(store, name)
    if found is not None:
        return found
    if name.endswith(_TABLE_ENDING):
        return TableRef(Path(name))  # that it is not there is said by whoever opens it
    if name and next(runs(store), None) is None:
        resolve_run(store, name)  # raises: there are no runs at all
    raise nothing_named(store, name)


def resolve_runs(store: Path, name: str, program: str = "joulewise") -> RunRef | GroupRef:
    """For verbs on runs: ``last`` is the newest run, also after a sweep.

    Raises a UsageError, with the command to use instead, where ``name`` is a sweep or a table.
    """
    found = resolve(store, name)
    if name == LAST and isinstance(found, SweepRef) and next(runs(store), None):
        found = RunRef((resolve_run(store, LAST).path,), is_exact=True)
    if isinstance(found, SweepRef):
        sweep = sweeps.load_sweep(found.folder, has_trials=False)
        raise UsageError(
            f"{sweep.id} is a sweep ({sweep.state}), and not a run or a group of runs",
            f"{program} choose {sweep.id}",
        )
    if isinstance(found, TableRef):
        raise UsageError(
            f"{name} is a table, and not a run or a group of runs", f"{program} choose {name}"
        )
    return found


def resolve_one_run(store: Path, name: str, program: str = "joulewise") -> RunRef:
    """For verbs on one run, which is the newest of several; a UsageError where it is a group."""
    found = resolve_runs(store, name, program)
    if isinstance(found, GroupRef):
        ids = ", ".join(path.name for path in found.paths[:3])
        more = ", …" if len(found.paths) > 3 else ""
        raise UsageError(f"{name} is a group, and not one run", f"name one of {ids}{more}")
    return found


def resolve_sweep(store: Path, name: str, program: str = "joulewise") -> SweepRef | TableRef:
    """For verbs on sweeps: ``last`` is the newest sweep, whatever was run after it.

    A name that a sweep shares with runs is the sweep here. Raises a UsageError, with the command to
    use instead, where only runs have that name.
    """
    if name.endswith(_TABLE_ENDING):
        return TableRef(Path(name))
    try:
        return SweepRef(sweeps.find_sweep(store, name))
    except UsageError:
        if name != LAST and (_at_path(name) or _runs(store, name) or _group(store, name)):
            raise UsageError(
                f"{name} is a run or a group of runs, and not a sweep", f"{program} show {name}"
            ) from None
        raise


def sweep_of_last_run(store: Path, run: Path) -> SweepRef | None:
    """The newest sweep, if the newest run is one of its; else None."""
    tags = read_manifest(run).tags
    if not any(tag.startswith(SWEEP_TAG) for tag in tags):
        return None  # without asking the index, which may have to be made
    try:
        folder = sweeps.find_sweep(store, LAST)
        sweep_id = sweeps.load_sweep(folder, has_trials=False).id
    except sweeps.UnreadableSweepError as error:
        if SWEEP_TAG + error.sweep_id in tags:
            raise
        return None
    except UsageError:
        return None
    return SweepRef(folder) if SWEEP_TAG + sweep_id in tags else None


def nothing_named(store: Path, name: str) -> UsageError:
    """The error for a name that nothing in the store has, with names that are spelt alike."""
    near = did_you_mean(name, [LAST, *run_names(store), *sweeps.sweep_names(store)])
    return UsageError(
        f"{store} has no run, tag, group or sweep {name!r}",
        f"{near}`joulewise ls` lists the runs, `joulewise choose` the sweeps; or {ELSEWHERE}",
    )


def _last(store: Path) -> RunRef | SweepRef:
    try:
        run = resolve_run(store, LAST).path
    except UsageError:
        if sweep := _sweep(store, LAST):  # whose runs were deleted
            return sweep
        raise
    return sweep_of_last_run(store, run) or RunRef((run,), is_exact=True)


def _at_path(name: str) -> Reference | None:
    path = Path(name)
    if is_file(path / MANIFEST):
        return RunRef((path,), is_exact=True)
    if is_file(path / sweeps.SWEEP_FILE):
        return SweepRef(path)
    if name.endswith(_TABLE_ENDING) and is_file(path):
        return TableRef(path)
    if name not in {"", ".", ".."} and is_folder(path) and next(runs(path), None):
        # Unreadable runs come first: the last one is the newest that can be read.
        entries = readable(path)
        return RunRef(tuple(it.path if isinstance(it, Skipped) else it[0] for it in entries))
    return None


def _runs(store: Path, name: str) -> RunRef | None:
    try:
        path = resolve_run(store, name).path
    except UsageError:
        tagged = find_runs(store, any_matches("tags", escape(name))) if name else []
        return RunRef(tuple(entry.path for entry in tagged)) if tagged else None
    # resolve_run() prefers ids to names, so that a match with the folder's name is an id.
    if path.name.startswith(name):
        return RunRef((path,), is_exact=True)
    return RunRef(tuple(named(store, name)))


def _group(store: Path, name: str) -> GroupRef | None:
    paths = tuple(entry.path for entry in find_runs(store, _is_in(name))) if name else ()
    return GroupRef(name, paths) if paths else None


def _is_in(group: str) -> SqlCondition:
    """The name of a job stands for all its steps, whose groups are named ``JOB.STEP``."""
    return text_is("group_name", group) | text_begins("group_name", f"{group}.")


def _sweep(store: Path, name: str) -> SweepRef | None:
    try:
        return SweepRef(sweeps.find_sweep(store, name))
    except UsageError:
        return None


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
    return LoadedSweep(load_sweep(ref.folder), ref.folder)


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
            f"`joulewise ls` lists those that can; or {ELSEWHERE}",
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
