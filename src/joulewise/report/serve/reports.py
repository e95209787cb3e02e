"""Reports, made when they are asked for and kept until what they are of has changed."""

from __future__ import annotations

import shlex
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from joulewise.errors import JoulewiseError, UsageError
from joulewise.record.manifest import read_manifest
from joulewise.report.serve.lookup import Stamp, run_folder, stamp, sweep_folder
from joulewise.report.serve.response import REPORT, Response
from joulewise.sweep.lock import is_running

if TYPE_CHECKING:
    from joulewise.data.sweeps import Sweep
    from joulewise.metrics.compare_values import Run
    from joulewise.report.page.page import Page

_MOST_B: Final = 64 << 20
_SWEEP: Final = "sweep:"


class Reports:
    """One is made at a time: it takes a processor's whole attention for seconds."""

    def __init__(self, store: Path, program: str) -> None:
        self._store = store
        self._program = program
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, ...], tuple[tuple[Stamp, ...], bytes]] = OrderedDict()

    def run(self, name: str) -> Response:
        folder = run_folder(self._store, name)
        return self._made(("run", name), (folder,), lambda: self._run_page(folder), "..")

    def sweep(self, name: str) -> Response:
        folder = sweep_folder(self._store, name)
        key = ("sweep", name, str(is_running(folder)))  # who is killed leaves all files as they are
        return self._made(key, (folder,), lambda: self._sweep_page(folder), "..")

    def compare(self, a: Sequence[str], b: Sequence[str]) -> Response:
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
        make: Callable[[], Page],
        root: str,
    ) -> Response:
        from joulewise.report.page.render import render

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
            return Response(kept[1], policy=REPORT)

    def _run_page(self, folder: Path) -> Page:
        from joulewise.analyse.group import Member
        from joulewise.analyse.stored import result_of
        from joulewise.report.meant import MeantRuns
        from joulewise.report.page.run_page import run_page

        result = result_of(folder)
        found = MeantRuns(result, (folder,), (Member(read_manifest(folder), result),))
        return run_page(found, self._store, program=self._program)

    def _sweep_page(self, folder: Path) -> Page:
        from joulewise.metrics.boundary import boundary_read
        from joulewise.metrics.evaluate import evaluate
        from joulewise.metrics.rules import parse
        from joulewise.metrics.view import GPU, View
        from joulewise.report.meant import MeantSweep
        from joulewise.report.page.sweep_page import sweep_page
        from joulewise.report.sweep_outlook import next_commands, outlook

        sweep = self._sweep(folder)
        asked = sweep.asked
        boundary = boundary_read(asked.get("boundary", GPU), sweep)
        view = View(boundary, overhead_w=asked.get("overhead_w"), pue=asked.get("pue"))
        result = evaluate(sweep, [parse(text) for text in asked.get("by") or ()], view)
        commands = next_commands(sweep, outlook(sweep, result, view), self._program)
        return sweep_page(MeantSweep(sweep, folder), result, view, self._store, commands=commands)

    def _compare_page(self, a: Sequence[str], b: Sequence[str]) -> Page:
        from joulewise.metrics.compare_runs import Side
        from joulewise.report.compared import Asked, compared_runs, compared_sweeps
        from joulewise.report.page.compare_page import compare_page

        of_sweeps = [name.startswith(_SWEEP) for name in (*a, *b)]
        again = shlex.join([",".join(side).replace(_SWEEP, "") for side in (a, b)])
        if not any(of_sweeps):
            side_a, side_b = (
                Side(", ".join(names), tuple(self._run(name) for name in names)) for names in (a, b)
            )
            made = compared_runs(side_a, side_b, Asked())
        elif of_sweeps == [True, True]:
            sweep_a, sweep_b = (self._sweep(self._side(name)) for name in (*a, *b))
            made = compared_sweeps(sweep_a, sweep_b, Asked())
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

    def _run(self, name: str) -> Run:
        from joulewise.analyse.stored import result_of
        from joulewise.metrics.compare_values import Run

        folder = run_folder(self._store, name)
        return Run.of(read_manifest(folder), result_of(folder), folder)

    def _sweep(self, folder: Path) -> Sweep:
        """Its runs are named in a file, which could name what is no run of this store."""
        from joulewise.sweep.store import load

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
