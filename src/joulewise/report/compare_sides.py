"""Loads the two sides of a comparison: runs, groups of runs, or sweeps.

Apart from ``report.resolve``, since a comparison needs numpy and ``show`` must start without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from joulewise.analyse.stored_result import load_or_compute_result
from joulewise.compare.quantities import ComparedRun
from joulewise.compare.runs import Side
from joulewise.data.sweeps import Sweep
from joulewise.errors import JoulewiseError, UsageError
from joulewise.report.resolve import GroupRef, Reference, RunRef, TableRef, load_group, resolve
from joulewise.store.manifest import read_manifest
from joulewise.store.runs import COMPLETE
from joulewise.sweep.csv_import import read_table
from joulewise.sweep.stored_sweeps import load_sweep


def load_sides(store: Path, a: str, b: str) -> tuple[Side, Side] | tuple[Sweep, Sweep]:
    """What ``a`` and ``b`` refer to: two sweeps, or runs that are on one side only.

    Anything else is a UsageError.
    """
    side_a, side_b = (_load_side(store, name) for name in (a, b))
    if isinstance(side_a, Sweep) and isinstance(side_b, Sweep):
        if side_a == side_b:
            raise UsageError(f"{side_a.id} is on both sides", "give each side a sweep of its own")
        return side_a, side_b
    if isinstance(side_a, Sweep) or isinstance(side_b, Sweep):
        sweep, other = (a, b) if isinstance(side_a, Sweep) else (b, a)
        raise UsageError(
            f"{sweep} is a sweep and {other} is not",
            "compare runs with runs, or sweeps with sweeps",
        )
    twice = {run.id for run in side_a.runs} & {run.id for run in side_b.runs}
    if twice:
        raise UsageError(
            f"{min(twice)} is on both sides", "give each side runs of its own, by their ids"
        )
    return side_a, side_b


def _load_side(store: Path, name: str) -> Side | Sweep:
    """One thing by its name, which may contain a comma, or else a list of runs with commas."""
    names = [part.strip() for part in name.split(",")]
    try:
        ref = resolve(store, name)
    except UsageError:
        if len(names) == 1 or not all(names):
            raise
    else:
        return _load(store, name, ref)
    parts: list[Side] = []
    for part_name in names:
        part = _load(store, part_name, resolve(store, part_name))
        if isinstance(part, Sweep):
            raise UsageError(
                f"{part_name} is a sweep, and a list is of runs", "compare one sweep with one other"
            )
        parts.append(part)
    runs = {run.id: run for part in parts for run in part.runs}
    left_out = dict.fromkeys(entry for part in parts for entry in part.left_out)
    return Side(name, tuple(runs.values()), tuple(left_out))


def _load(store: Path, name: str, ref: Reference) -> Side | Sweep:
    if isinstance(ref, TableRef):
        return read_table(ref.path)
    if isinstance(ref, RunRef):
        if ref.is_exact:  # compared however it ended, since it was named by itself
            return Side(name, (_load_run(ref.newest),))
        return _load_finished(name, ref.paths)
    if isinstance(ref, GroupRef):
        group = load_group(store, ref)
        run = ComparedRun.of_group(group.members, group.result, group.runs)
        return Side(name, (run,), group.left_out)
    return load_sweep(ref.folder)


def _load_finished(name: str, paths: Sequence[Path]) -> Side:
    """The runs that finished without an error; the others are left out, with the reason."""
    runs, left_out = [], []
    for path in paths:
        try:
            run = _load_run(path)
        except JoulewiseError as error:
            left_out.append((path.name, error.message))
            continue
        if problem := _problem(run):
            left_out.append((run.id, problem))
        else:
            runs.append(run)
    if not runs:
        first, problem = left_out[0]
        raise UsageError(
            f"no run of {name!r} can be compared; {first}: {problem}",
            "name one that finished; joulewise ls lists them",
        )
    return Side(name, tuple(runs), tuple(left_out))


def _load_run(path: Path) -> ComparedRun:
    return ComparedRun.of(read_manifest(path), load_or_compute_result(path), path)


def _problem(run: ComparedRun) -> str:
    """Why a run is not compared unless it is named by its id; empty where it finished."""
    result = run.result
    if result.state != COMPLETE:
        return f"it is {result.state}"
    return f"it ended with status {result.exit_code}" if result.exit_code else ""
