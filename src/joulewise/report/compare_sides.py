"""The two sides of a comparison: runs, groups of runs, or sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from glob import escape
from pathlib import Path

from joulewise.analyse.stored_result import result_of
from joulewise.compare.quantities import ComparedRun
from joulewise.compare.runs import Side
from joulewise.data.sweeps import Sweep
from joulewise.errors import JoulewiseError, UsageError, did_you_mean
from joulewise.report.resolve import MeantSweep, meant, meant_group
from joulewise.store.files import is_file, is_folder
from joulewise.store.index.conditions import any_matches, text_is
from joulewise.store.index.run_entry import find_runs
from joulewise.store.layout import MANIFEST
from joulewise.store.manifest import Manifest, read_manifest
from joulewise.store.runs import (
    ELSEWHERE,
    LAST,
    Skipped,
    beginning,
    find,
    manifest_of,
    readable,
    run_names,
    runs,
)
from joulewise.sweep import stored_sweeps as sweep_store
from joulewise.sweep.csv_import import read_table

_COMPLETE = "complete"


def sides(store: Path, a: str, b: str) -> tuple[Side, Side] | tuple[Sweep, Sweep]:
    """Two of one kind, and nothing on both; anything else is a UsageError."""
    of_a, of_b = (_side(store, which) for which in (a, b))
    if isinstance(of_a, Sweep) and isinstance(of_b, Sweep):
        if of_a == of_b:
            raise UsageError(f"{of_a.id} stands on both sides", "give each side a sweep of its own")
        return of_a, of_b
    if isinstance(of_a, Sweep) or isinstance(of_b, Sweep):
        sweep, other = (a, b) if isinstance(of_a, Sweep) else (b, a)
        raise UsageError(
            f"{sweep} is a sweep and {other} is not",
            "compare runs with runs, or sweeps with sweeps",
        )
    twice = {run.id for run in of_a.runs} & {run.id for run in of_b.runs}
    if twice:
        raise UsageError(
            f"{min(twice)} stands on both sides", "give each side runs of its own, by their ids"
        )
    return of_a, of_b


def _side(store: Path, which: str) -> Side | Sweep:
    """One thing by its name, which may have a comma in it, or a list of runs."""
    found = _one(store, which)
    if found is not None:
        return found
    words = [word.strip() for word in which.split(",")]
    if len(words) == 1 or not all(words):
        raise _nothing(store, which)
    parts = [(word, _one(store, word)) for word in words]
    listed: list[Side] = []
    for word, part in parts:
        if part is None:
            raise _nothing(store, word)
        if isinstance(part, Sweep):
            raise UsageError(
                f"{word} is a sweep, and a list is of runs", "compare one sweep with one other"
            )
        listed.append(part)
    every = {run.id: run for part in listed for run in part.runs}
    left_out = tuple(dict.fromkeys(out for part in listed for out in part.left_out))
    return Side(which, tuple(every.values()), left_out)


def _one(store: Path, which: str) -> Side | Sweep | None:
    path = Path(which)
    if is_file(path / MANIFEST):
        return Side(which, (_run(path),))
    if is_file(path / sweep_store.FILE):
        return sweep_store.load(path)
    if which.endswith(".csv") and is_file(path):
        return read_table(path)
    if which not in {"", ".", ".."} and is_folder(path) and next(runs(path), None):
        return _several(which, list(readable(path)))
    if which == LAST:
        last = meant(store, which, {})
        return last.sweep if isinstance(last, MeantSweep) else Side(which, (_run(last.runs[0]),))
    found = _in_store(store, which)
    return _sweep(store, which) if found is None else found


def _in_store(store: Path, which: str) -> Side | None:
    if which and beginning(store, which):
        return Side(which, (_run(find(store, which)),))
    conditions = [text_is("name", which)] if which else []
    for condition in (*conditions, any_matches("tags", escape(which))):
        mine = [entry.path for entry in find_runs(store, condition)]
        if mine:
            return _several(which, [manifest_of(run) for run in mine])
    group = meant_group(store, which)
    if group is None:
        return None
    return Side(
        which, (ComparedRun.of_group(group.members, group.result, group.runs),), group.left_out
    )


def _sweep(store: Path, which: str) -> Sweep | None:
    try:
        return sweep_store.load(sweep_store.find(store, which))
    except UsageError:
        return None


def _several(which: str, found: Sequence[tuple[Path, Manifest] | Skipped]) -> Side:
    """Those that ended well; the others are left out, and told of."""
    entering, left_out = [], []
    for each in found:
        if isinstance(each, Skipped):
            left_out.append((each.path.name, each.reason))
            continue
        try:
            run = ComparedRun.of(each[1], result_of(each[0]), each[0])
        except JoulewiseError as error:
            left_out.append((each[0].name, error.message))
            continue
        why = _not_well(run)
        if why:
            left_out.append((run.id, why))
        else:
            entering.append(run)
    if not entering:
        first, why = left_out[0]
        raise UsageError(
            f"no run of {which!r} can be compared; {first}: {why}",
            "name one that ended well; joulewise ls lists them",
        )
    return Side(which, tuple(entering), tuple(left_out))


def _run(path: Path) -> ComparedRun:
    return ComparedRun.of(read_manifest(path), result_of(path), path)


def _not_well(run: ComparedRun) -> str:
    result = run.result
    if result.state != _COMPLETE:
        return f"it is {result.state}"
    return f"it ended with status {result.exit_code}" if result.exit_code else ""


def _nothing(store: Path, which: str) -> UsageError:
    near = did_you_mean(which, [*run_names(store), *sweep_store.sweep_names(store)])
    return UsageError(
        f"{store} has no run, name, tag, group or sweep {which!r}",
        f"{near}joulewise ls lists the runs, joulewise choose the sweeps; or {ELSEWHERE}",
    )
