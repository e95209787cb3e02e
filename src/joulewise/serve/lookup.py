"""Finds what an address names among the entries of the store, and renders and caches reports.

A path is never built from an address. Links are not followed: nothing outside the store is shown.
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
from joulewise.serve.server import REPORT_POLICY, HttpResponse
from joulewise.store.layout import SWEEPS
from joulewise.store.manifest import read_manifest
from joulewise.sweep.lock import is_running

if TYPE_CHECKING:
    from joulewise.compare.quantities import ComparedRun
    from joulewise.data.sweeps import Sweep
    from joulewise.report.html.render import HtmlPage

LINK: Final = "a symbolic link; nothing outside the store is shown here"
_CACHE_B: Final = 64 << 20  # of reports, about 50 (chosen); the one used least recently is dropped
_SWEEP: Final = "sweep:"  # before the name of a sweep in the address of a comparison
_NAME_LETTERS: Final = 60  # of an unknown name that are repeated in an error
Stamp = tuple[tuple[str, int, int], ...]
"""Path, modification time in ns and size of every file in a folder."""


class NotThereError(UsageError):
    """Nothing in the store has that name."""


def run_folder(store: Path, name: str) -> Path:
    """The folder of a run; raises NotThereError."""
    if name == SWEEPS:
        raise _not_there("run", name)
    return _entry(store, "run", name)


def sweep_folder(store: Path, name: str) -> Path:
    """The folder of a sweep; raises NotThereError."""
    if (store / SWEEPS).is_symlink():
        raise _not_there("sweep", name)
    return _entry(store / SWEEPS, "sweep", name)


def stamp(folder: Path) -> Stamp:
    """A value that differs after any change in the folder; a link in it raises JoulewiseError."""
    return tuple(sorted(_stamps(folder)))


def link_problem(folder: Path, *files: str) -> str:
    """Why the folder is not shown: it, or one of these files, is a link; empty if none is."""
    for path in (folder, *(folder / file for file in files)):
        if path.is_symlink():
            return f"{path} is {LINK}"
    return ""


def _entry(folder: Path, kind: str, name: str) -> Path:
    try:
        with os.scandir(folder) as entries:
            found = any(e.name == name and e.is_dir(follow_symlinks=False) for e in entries)
    except OSError:
        found = False
    if not found:
        raise _not_there(kind, name)
    return folder / name


def _stamps(folder: Path) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise JoulewiseError(
                    f"{entry.path} is {LINK}", "copy what it points to into the store"
                )
            if entry.is_dir():
                yield from _stamps(Path(entry.path))
                continue
            with suppress(FileNotFoundError):  # replaced at this moment
                status = entry.stat()
                yield entry.path, status.st_mtime_ns, status.st_size


def _not_there(kind: str, name: str) -> NotThereError:
    return NotThereError(
        f"there is no {kind} {name[:_NAME_LETTERS]!r} in this store", "go back to the list"
    )


class Reports:
    """Renders reports, one at a time since each takes seconds of a core, and caches them."""

    def __init__(self, store: Path, program: str) -> None:
        self._store = store
        self._program = program
        self._lock = threading.Lock()
        self._cache: OrderedDict[tuple[str, ...], tuple[tuple[Stamp, ...], bytes]] = OrderedDict()

    def run(self, name: str) -> HttpResponse:
        """The report of a run."""
        folder = run_folder(self._store, name)
        return self._cached(("run", name), (folder,), lambda: self._run_page(folder), "..")

    def sweep(self, name: str) -> HttpResponse:
        """The report of a sweep."""
        folder = sweep_folder(self._store, name)
        key = ("sweep", name, str(is_running(folder)))  # a sweep that is killed changes no file
        return self._cached(key, (folder,), lambda: self._sweep_page(folder), "..")

    def compare(self, a: Sequence[str], b: Sequence[str]) -> HttpResponse:
        """The comparison of B with A; each is the names of runs, or that of one sweep."""
        if not a or not b or set(a) & set(b):
            raise UsageError(
                "a comparison needs a side A and a side B that have nothing in common",
                "go back, and select both sides",
            )
        folders = [self._side(name) for name in (*a, *b)]
        key = ("compare", *a, "", *b)
        return self._cached(key, folders, lambda: self._compare_page(a, b), ".")

    def _cached(
        self,
        key: tuple[str, ...],
        folders: Sequence[Path],
        make: Callable[[], HtmlPage],
        root: str,
    ) -> HttpResponse:
        from joulewise.report.html.render import render

        with self._lock:
            # Before it is rendered, so that a change in the meantime makes it outdated.
            stamps = tuple(stamp(folder) for folder in folders)
            cached = self._cache.pop(key, None)
            if cached is None or cached[0] != stamps:
                cached = stamps, render(make(), f"{root}/").encode(errors="replace")
            self._cache[key] = cached
            while len(self._cache) > 1 and self._cache_b() > _CACHE_B:
                self._cache.popitem(last=False)
            return HttpResponse(cached[1], policy=REPORT_POLICY)

    def _cache_b(self) -> int:
        return sum(len(report) for _, report in self._cache.values())

    def _run_page(self, folder: Path) -> HtmlPage:
        from joulewise.analyse.group import GroupRun
        from joulewise.analyse.stored_result import load_or_compute_result
        from joulewise.report.html.pages import run_page
        from joulewise.report.resolve import LoadedRuns

        result = load_or_compute_result(folder)
        resolved = LoadedRuns(result, (folder,), (GroupRun(read_manifest(folder), result),))
        return run_page(resolved, self._store, program=self._program)

    def _sweep_page(self, folder: Path) -> HtmlPage:
        from joulewise.metrics.boundary import GPU, View, resolve_boundary
        from joulewise.metrics.evaluate import evaluate
        from joulewise.metrics.metric import parse
        from joulewise.report.html.pages import sweep_page
        from joulewise.report.resolve import LoadedSweep
        from joulewise.report.views.projection import next_commands, outlook

        sweep = self._sweep(folder)
        options = sweep.asked
        boundary = resolve_boundary(options.get("boundary", GPU), sweep)
        view = View(boundary, overhead_w=options.get("overhead_w"), pue=options.get("pue"))
        result = evaluate(sweep, [parse(text) for text in options.get("by") or ()], view)
        commands = next_commands(sweep, outlook(sweep, result, view), self._program)
        return sweep_page(LoadedSweep(sweep, folder), result, view, self._store, commands=commands)

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
            comparison = compared_runs(side_a, side_b, CompareOptions())
        elif of_sweeps == [True, True]:
            sweep_a, sweep_b = (self._sweep(self._side(name)) for name in (*a, *b))
            comparison = compared_sweeps(sweep_a, sweep_b, CompareOptions())
        else:
            raise UsageError(
                "a sweep can only be compared with one other sweep",
                "select one sweep as A and one as B, or only runs",
            )
        return compare_page(comparison, self._store, f"{self._program} compare {again}")

    def _side(self, name: str) -> Path:
        if name.startswith(_SWEEP):
            return sweep_folder(self._store, name.removeprefix(_SWEEP))
        return run_folder(self._store, name)

    def _run(self, name: str) -> ComparedRun:
        from joulewise.analyse.stored_result import load_or_compute_result
        from joulewise.compare.quantities import ComparedRun

        folder = run_folder(self._store, name)
        return ComparedRun.of(read_manifest(folder), load_or_compute_result(folder), folder)

    def _sweep(self, folder: Path) -> Sweep:
        """A sweep whose runs are all in this store: its file could name any path."""
        from joulewise.sweep.stored_sweeps import load_sweep

        sweep = load_sweep(folder)
        for name in {trial.run for trial in sweep.trials if trial.run}:
            run = self._store / name
            if run.name != name or run.is_symlink():
                raise JoulewiseError(
                    f"{folder.name} names a run outside the store: {name[:_NAME_LETTERS]!r}",
                    "use joulewise choose, which shows it without its runs",
                )
            with suppress(FileNotFoundError):  # deleted since
                stamp(run)
        return sweep
