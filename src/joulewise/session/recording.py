"""A run while it is recorded, from its directory to its result."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from joulewise.data import Caution, Kind, RunResult, RunWarning
from joulewise.devices import Options, discover, visible_gpus
from joulewise.errors import JoulewiseError
from joulewise.record.files import open_regular
from joulewise.record.layout import LIVE, MANIFEST, MARKS, PROCESSES
from joulewise.record.manifest import CommandRecord, Manifest, RecordedDevice, with_command
from joulewise.record.recorder import Recorder, RecorderOptions
from joulewise.record.store import COMPLETE, STOPPED_BY_BUDGET, new_run
from joulewise.record.tally import Tally
from joulewise.session.budget import Event, as_note, parse_budget
from joulewise.session.ending import listed
from joulewise.session.live import Progress
from joulewise.session.meters import Draw, draw_now, energy_so_far
from joulewise.session.request import Ready, Request
from joulewise.session.sight import Sight

if TYPE_CHECKING:
    from joulewise.analyse.touched import Sighting
    from joulewise.record.marks import SpanFollower


_OVER_ROWS: Final = "JOULEWISE_COMPACT_OVER_ROWS"
# For each vendor's driver; the command waits for them. Initialising a GPU without persistence mode
# takes one to three seconds (NVIDIA, "Driver Persistence"); one that takes longer joins late.
# Twice as long delays a command by as much where a driver hangs.
_DISCOVERY_S: Final = 2.5
# Chosen: GPUs have been opened before that, so that who they are is known within milliseconds each.
# Where it takes longer, all of them count as seen.
_VISIBLE_S: Final = 1.0
# How often to look: who only wants to know how far a run is can wait. Each look costs some
# thousandths of a second of the recorder. The shortest is what a budget may be late by, beside the
# time between two readings.
_LEISURE_S: Final = 5.0
_BUDGET_S: Final = 1.0
_SHORTEST_S: Final = 0.05


class Recording:
    """Samples from the moment it is made until ``stop`` or ``discard``."""

    def __init__(
        self, store: Path, request: Request, environ: Mapping[str, str], *, shared: bool = False
    ) -> None:
        """``shared``: other commands may join, and see GPUs that the first does not.

        All GPUs of the node are then read from the start. Those that no command sees in the end
        are no part of the run.
        """
        self.request = request
        self._environ = environ
        self._shared = shared
        self._sights: list[Sight] = [Sight.of(environ)]
        self.run = new_run(store)
        try:
            self._open()
        except BaseException:
            shutil.rmtree(self.run, ignore_errors=True)
            raise
        self._commands: tuple[CommandRecord, ...] = ()
        self._manifest: Manifest | None = None
        self._course: RunSoFar | None = None
        self._blind = False
        self._exceeded: list[Event] = []
        # The first look loads what the others need.
        self.look_after_s = _SHORTEST_S if request.budgets else _LEISURE_S

    def _open(self) -> None:
        request, environ = self.request, self._environ
        found = discover(
            Options(
                environ=environ,
                cpu_tdp_w=request.cpu_tdp_w,
                deadline_s=_DISCOVERY_S,
                energy_first=True,
                hidden_too=self._shared,
            )
        )
        gpus = {each.info.key for each in found.devices if each.info.kind is Kind.GPU}
        seen = self._seen(self._sights[0]) if self._shared and gpus else None
        options = RecorderOptions(
            rate_hz=request.rate_hz,
            name=request.name,
            tags=request.tags,
            group=request.group,
            environ=environ,
            hidden=frozenset() if seen is None else frozenset(gpus - seen),
            options=asdict(request),
        )
        self._recorder = Recorder(self.run, found, options)
        self._recorder.start()
        if not (self.run / MANIFEST).exists():
            self._recorder.stop()
            raise JoulewiseError(
                f"cannot write in {self.run.parent}",
                "make room there, or name another with --store",
            )

    def _seen(self, sight: Sight) -> set[str] | None:
        """The GPUs that a command sees; None for all, also where the driver does not answer."""
        if not sight.variables:
            return None
        environ = sight.environ(self._environ)
        return visible_gpus(Options(environ=environ, deadline_s=_VISIBLE_S))

    def joined(self, sight: Sight) -> None:
        """A command joins: the GPUs that it sees are part of the run."""
        if sight in self._sights:
            return
        self._sights.append(sight)
        seen = self._seen(sight)
        if seen is None:
            seen = {each.key for each in self._recorder.all_devices}
        self._recorder.reveal(seen)
        for device in sight.missing(self._environ):
            self._recorder.add_missing(device)

    @property
    def ready(self) -> Ready:
        devices = tuple(
            (each.info.key, each.info.name, _source(each))
            for each in self._recorder.manifest.devices
        )
        return Ready(self.run, devices, self._recorder.manifest.rate_hz)

    @property
    def has_commands(self) -> bool:
        return bool(self._commands)

    def started(self, command: CommandRecord) -> None:
        if not self._commands:
            self._recorder.count_from(command.start_ns)
            self._course = RunSoFar(self.run, self.request, command.start_ns)
        self._tell(command)

    def ended(
        self, pid: int, end_ns: int, exit_code: int | None, cpu_s: float | None = None
    ) -> None:
        running = [each for each in self._commands if each.pid == pid and each.end_ns is None]
        for command in running[:1]:
            self._tell(replace(command, end_ns=end_ns, exit_code=exit_code, cpu_s=cpu_s))

    def look(self, *, ended: bool = False) -> list[Event]:
        """Joules so far, the outlook, and what became of the budgets.

        ``look_after_s`` tells when to look again.
        """
        if self._course is None:
            return []
        ends_ns = [each.end_ns for each in self._commands if each.end_ns]
        now_ns = max(ends_ns) if ended and ends_ns else monotonic_ns()
        try:
            if ended or self.look_after_s < _BUDGET_S:
                self._recorder.write()  # tallies are of what is written, once a second
            manifest, tallies = self._recorder.manifest, self._recorder.tallies
            events = self._course.look(tallies, manifest, now_ns, ended=ended)
            self.look_after_s = self._next_look_s()
        except Exception as error:  # noqa: BLE001  # it costs the view, never the recording
            self._note_blind(error)
            return []
        for event in events:
            self._note_budget(event)
        return events

    def _next_look_s(self) -> float:
        """At the earliest moment at which a budget may be used up, within a second."""
        if not self.request.budgets or self._course is None:
            return _LEISURE_S
        left_s = self._course.seconds_left
        return _BUDGET_S if left_s is None else min(max(left_s, _SHORTEST_S), _BUDGET_S)

    def heard(self, message: Mapping[str, Any]) -> None:
        """The process that started the command found a budget used up."""
        event = self._course and self._course.progress.heard(message)
        if event:
            self._note_budget(event)

    def stop(self, *, stopped: bool) -> None:
        """End the recording; from here on the run is whole, whatever comes of its result."""
        if self.request.budgets:  # between the last look and the end, one may have been used up
            self.look(ended=True)
        codes = [each.exit_code for each in self._commands]
        exit_code = next((code for code in codes if code), codes[0] if codes else None)
        ends_ns = [each.end_ns for each in self._commands if each.end_ns]
        # What computes the result is loaded while sensors are waited for.
        threading.Thread(target=_load_analysis, name="load", daemon=True).start()
        by_budget = any(event.stop for event in self._exceeded)
        state = "stopped" if stopped else STOPPED_BY_BUDGET if by_budget else COMPLETE
        self._manifest = self._recorder.stop(state, exit_code, max(ends_ns, default=None))
        (self.run / LIVE).unlink(missing_ok=True)

    def result(self) -> RunResult:
        """What came of it, computed and kept."""
        from joulewise.analyse.kept import write_result
        from joulewise.analyse.run import analyse
        from joulewise.record.checksums import write_final_checksums
        from joulewise.record.compact import LARGE_ROWS, compact

        with suppress(OSError):  # the streams are as good, only larger
            compact(self.run, over_rows=int(os.environ.get(_OVER_ROWS, LARGE_ROWS)))
        with suppress(OSError):  # a full disk: those written so far tell of most of it
            write_final_checksums(self.run)
        result = analyse(self.run, self._manifest)  # a full disk may not have taken it
        try:
            write_result(self.run, result)
        except OSError as error:
            warning = RunWarning(
                Caution.NOT_STORED,
                f"the result is not stored: {error.strerror}",
                "make room; `joulewise show` computes it again",
            )
            result = replace(result, warnings=(*result.warnings, warning))
        return result

    def discard(self) -> None:
        """Nothing was run: nothing is kept."""
        self._recorder.stop()
        shutil.rmtree(self.run, ignore_errors=True)

    def _tell(self, command: CommandRecord) -> None:
        self._commands = with_command(self._commands, command)
        self._recorder.tell(command)

    def note_stopped(self, why: str) -> None:
        """Measuring ends, and not because the command did."""
        self._recorder.note(Caution.STOPPED.value, why)

    def note_unguarded(self, why: str) -> None:
        """Nobody sees to it any more that what was set for the run stays set."""
        self._recorder.note(Caution.SETTINGS_UNGUARDED.value, why)

    def note_left(self, names: Sequence[str]) -> None:
        """The command has ended, and processes that it started have not."""
        count = "a process" if len(names) == 1 else f"{len(names)} processes"
        goes = "goes on and is" if len(names) == 1 else "go on and are"
        message = f"{count} of the command {goes} not counted: {listed(names)}"
        self._recorder.note(Caution.LEFT_RUNNING.value, message)

    def _note_blind(self, error: Exception) -> None:
        if not self._blind:
            self._blind = True
            code = Caution.BUDGET.value if self.request.budgets else "look_failed"
            why = f"{type(error).__name__}: {error}"
            self._recorder.note(code, f"budgets were not watched to the end: {why}")

    def _note_budget(self, event: Event) -> None:
        if event.state == "exceeded":  # what was foreseen is past once there is a result
            self._exceeded.append(event)
            note = as_note(event)
            self._recorder.note(Caution.BUDGET.value, event.message, **note)


def _source(device: RecordedDevice) -> str:
    """Where its joules come from; empty of a device that is there and cannot be read."""
    if device.sources:
        return next(iter(device.sources.values())).value
    return "simulated, cannot be read" if device.is_simulated else ""


def _load_analysis() -> None:
    with suppress(ImportError):  # said where the result is computed
        import joulewise.analyse.kept
        import joulewise.analyse.run
        import joulewise.record.compact  # noqa: F401


class RunSoFar:
    """How far a run has come since its first command started."""

    def __init__(self, run: Path, request: Request, start_ns: int) -> None:
        self._run = run
        self._start_ns = start_ns
        self._follower: SpanFollower | None = None
        self._sightings: list[Sighting] = []
        self._sighted_b = 0
        self._counted_for: tuple[object, ...] = ()
        self._counted: tuple[str, ...] = ()
        self._draw: Draw | None = None
        costs = {"gco2": request.gco2_per_kwh, "price": request.price_per_kwh}
        self.progress = Progress(
            run,
            start_ns,
            budgets=[parse_budget(text, request.gco2_per_kwh) for text in request.budgets],
            epochs=request.epochs,
            per_kwh={name: cost for name, cost in costs.items() if cost is not None},
        )

    def look(
        self, tallies: Mapping[str, Tally], manifest: Manifest, now_ns: int, *, ended: bool
    ) -> list[Event]:
        # Not before it is needed: a short command is over before all that is loaded.
        from joulewise.record.marks import SpanFollower

        self._follower = self._follower or SpanFollower(self._run / MARKS)
        energies = {
            each.info.key: energy_so_far(tallies.get(each.info.key), each)
            for each in manifest.devices
        }
        counted = self._count(manifest, now_ns)
        spans = self._follower.poll()
        self._draw = draw_now(tallies, manifest.devices, counted, now_ns)
        return self.progress.look(now_ns, energies, counted, spans, draw=self._draw, ended=ended)

    @property
    def seconds_left(self) -> float | None:
        """After how long a budget of energy may be used up at the earliest."""
        return self.progress.seconds_left(self._draw)

    def _count(self, manifest: Manifest, now_ns: int) -> tuple[str, ...]:
        """The devices that the command has touched, chosen again when something is new."""
        from joulewise.analyse.touched import choose

        self._read_sightings()
        known = (self._sighted_b, manifest.devices, manifest.notes)
        if known != self._counted_for:
            self._counted_for = known
            self._counted = choose(manifest, self._sightings, self._start_ns, now_ns).counted
        return self._counted

    def _read_sightings(self) -> None:
        """What was added since: a long run's file is long."""
        from joulewise.analyse.touched import parse_sightings

        with suppress(OSError), open_regular(self._run / PROCESSES) as file:
            file.seek(self._sighted_b)
            added = file.read()
            whole = added[: added.rfind(b"\n") + 1]
            self._sighted_b += len(whole)
            self._sightings += parse_sightings(whole.splitlines())
