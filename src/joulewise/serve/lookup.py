"""Finding what an address names: among what lies in the store, never by making a path of it.

Reports, made when they are asked for and kept until what they are of has changed.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from joulewise.errors import JoulewiseError, UsageError
from joulewise.serve.server import REPORT, HttpResponse
from joulewise.store.layout import SWEEPS
from joulewise.store.manifest import read_manifest
from joulewise.sweep.lock import is_running

LINK: Final = "a link, and nothing outside of the store is shown here"
Stamp = tuple[tuple[str, int, int], ...]


class NotThereError(UsageError):
    """Nothing in the store has that name."""


def run_folder(store: Path, name: str) -> Path:
    if name == SWEEPS:
        raise _not_there("run", name)
    return _entry(store, "run", name)


def sweep_folder(store: Path, name: str) -> Path:
    if (store / SWEEPS).is_symlink():
        raise _not_there("sweep", name)
    return _entry(store / SWEEPS, "sweep", name)


def stamp(folder: Path) -> Stamp:
    """What tells whether anything in it has changed; a link in it is an error."""
    return tuple(sorted(_stamps(folder)))


def leads_out(folder: Path, *files: str) -> str:
    """Why it is not shown, empty where it can be: it, or one of these files, is a link."""
    for path in (folder, *(folder / file for file in files)):
        if path.is_symlink():
            return f"{path} is {LINK}"
    return ""


def _entry(folder: Path, what: str, name: str) -> Path:
    try:
        with os.scandir(folder) as entries:
            found = any(e.name == name and e.is_dir(follow_symlinks=False) for e in entries)
    except OSError:
        found = False
    if not found:
        raise _not_there(what, name)
    return folder / name


def _stamps(folder: Path) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise JoulewiseError(
                    f"{entry.path} is {LINK}", "copy what it leads to into the store"
                )
            if entry.is_dir():
                yield from _stamps(Path(entry.path))
                continue
            with suppress(FileNotFoundError):  # replaced at this very moment
                told = entry.stat()
                yield entry.path, told.st_mtime_ns, told.st_size


def _not_there(what: str, name: str) -> NotThereError:
    return NotThereError(f"there is no {what} {name[:60]!r} in this store", "go back to the list")


if TYPE_CHECKING:
    from joulewise.compare.quantities import ComparedRun
    from joulewise.data.sweeps import Sweep
    from joulewise.report.html.render import HtmlPage

_MOST_B: Final = 64 << 20
_SWEEP: Final = "sweep:"


class Reports:
    """One is made at a time: it takes a processor's whole attention for seconds."""

    def __init__(self, store: Path, program: str) -> None:
        self._store = store
        self._program = program
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, ...], tuple[tuple[Stamp, ...], bytes]] = OrderedDict()

    def run(self, name: str) -> HttpResponse:
        folder = run_folder(self._store, name)
        return self._made(("run", name), (folder,), lambda: self._run_page(folder), "..")

    def sweep(self, name: str) -> HttpResponse:
        folder = sweep_folder(self._store, name)
        key = ("sweep", name, str(is_running(folder)))  # who is killed leaves all files as they are
        return self._made(key, (folder,), lambda: self._sweep_page(folder), "..")

    def compare(self, a: Sequence[str], b: Sequence[str]) -> HttpResponse:
        """What B takes more or less than A; each is the names of runs, or that of one sweep."""
        if not a or not b or set(a) & set(b):
            raise UsageError(
                "a comparison has two sides, A and B, and nothing is on both of them",
                "go back, and tick what is to be on each",
            )
        folders = [self._side(name) for name in (*a, *b)]
        key = ("compare", *a, "", *b)
        return self._made(key, folders, lambda: self._compare_page(a, b), ".")

    def _made(
        self,
        key: tuple[str, ...],
        folders: Sequence[Path],
        make: Callable[[], HtmlPage],
        root: str,
    ) -> HttpResponse:
        from joulewise.report.html.render import render

        with self._lock:
            # Before it is made: what changes meanwhile makes it old.
            stamps = tuple(stamp(folder) for folder in folders)
            kept = self._kept.pop(key, None)
            if kept is None or kept[0] != stamps:
                kept = stamps, render(make(), f"{root}/").encode(errors="replace")
            self._kept[key] = kept
            while (
                len(self._kept) > 1 and sum(len(each[1]) for each in self._kept.values()) > _MOST_B
            ):
                self._kept.popitem(last=False)
            return HttpResponse(kept[1], policy=REPORT)

    def _run_page(self, folder: Path) -> HtmlPage:
        from joulewise.analyse.group import GroupRun
        from joulewise.analyse.stored_result import result_of
        from joulewise.report.html.pages import run_page
        from joulewise.report.inputs import MeantRuns

        result = result_of(folder)
        found = MeantRuns(result, (folder,), (GroupRun(read_manifest(folder), result),))
        return run_page(found, self._store, program=self._program)

    def _sweep_page(self, folder: Path) -> HtmlPage:
        from joulewise.metrics.boundary import GPU, View, boundary_read
        from joulewise.metrics.evaluate import evaluate
        from joulewise.metrics.metric import parse
        from joulewise.report.html.pages import sweep_page
        from joulewise.report.inputs import MeantSweep
        from joulewise.report.views.projection import next_commands, outlook

        sweep = self._sweep(folder)
        asked = sweep.asked
        boundary = boundary_read(asked.get("boundary", GPU), sweep)
        view = View(boundary, overhead_w=asked.get("overhead_w"), pue=asked.get("pue"))
        result = evaluate(sweep, [parse(text) for text in asked.get("by") or ()], view)
        commands = next_commands(sweep, outlook(sweep, result, view), self._program)
        return sweep_page(MeantSweep(sweep, folder), result, view, self._store, commands=commands)

    def _compare_page(self, a: Sequence[str], b: Sequence[str]) -> HtmlPage:
        from joulewise.compare.runs import Side
        from joulewise.report.html.pages import compare_page
        from joulewise.report.views.compare import CompareOptions, compared_runs, compared_sweeps

        of_sweeps = [name.startswith(_SWEEP) for name in (*a, *b)]
        again = shlex.join([",".join(side).replace(_SWEEP, "") for side in (a, b)])
        if not any(of_sweeps):
            side_a, side_b = (
                Side(", ".join(names), tuple(self._run(name) for name in names)) for names in (a, b)
            )
            made = compared_runs(side_a, side_b, CompareOptions())
        elif of_sweeps == [True, True]:
            sweep_a, sweep_b = (self._sweep(self._side(name)) for name in (*a, *b))
            made = compared_sweeps(sweep_a, sweep_b, CompareOptions())
        else:
            raise UsageError(
                "sweeps are compared with sweeps, and one with one other",
                "tick one sweep as A and one as B, or only runs",
            )
        return compare_page(made, self._store, f"{self._program} compare {again}")

    def _side(self, name: str) -> Path:
        if name.startswith(_SWEEP):
            return sweep_folder(self._store, name.removeprefix(_SWEEP))
        return run_folder(self._store, name)

    def _run(self, name: str) -> ComparedRun:
        from joulewise.analyse.stored_result import result_of
        from joulewise.compare.quantities import ComparedRun

        folder = run_folder(self._store, name)
        return ComparedRun.of(read_manifest(folder), result_of(folder), folder)

    def _sweep(self, folder: Path) -> Sweep:
        """Its runs are named in a file, which could name what is no run of this store."""
        from joulewise.sweep.stored_sweeps import load

        sweep = load(folder)
        for name in {trial.run for trial in sweep.trials if trial.run}:
            run = self._store / name
            if run.name != name or run.is_symlink():
                raise JoulewiseError(
                    f"{folder.name} names a run outside of the store: {name[:60]!r}",
                    "joulewise choose shows it without its runs",
                )
            with suppress(FileNotFoundError):  # deleted since
                stamp(run)
        return sweep
