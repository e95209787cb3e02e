"""A run while it is recorded, from its directory to its result.

What a run has drawn so far, with its error, from what the recorder reads anyway.

Where a run stands while it is recorded: joules so far, the outlook, the budgets.

``live.json`` tells it to whoever looks from outside::

    {"t_ns": …, "time_s": 42.0,
     "energy_j": {"total": {"value", "error", "error_sampling", "error_gain", "source", "at_least"},
                  "gpu0": …},
     "counted": ["gpu0", …],
     "epochs": {"done": 3, "total": 10, "training": 0},
     "outlook": {"time_s": {"value", "low", "high"}, "energy_j": {…}, "gco2": {…}, "price": {…}}}

The epochs are those of the training under way, counted from 0; of all trainings where the user gave
their number. An energy that could not be read is null; an outlook that cannot be told yet is
``{"reason", "fix"}``. The file is replaced as a whole, every second where there is a budget, else
every five, however often budgets are looked at.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic_ns
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from joulewise.data import Caution, Energy, Kind, RunResult, RunWarning, Span, Unavailable, total
from joulewise.data.codec import finite
from joulewise.data.contract import TOTAL, energy_json
from joulewise.data.energy import factors_of_estimates, scale
from joulewise.devices import Options, discover, visible_gpus
from joulewise.errors import JoulewiseError
from joulewise.record.recorder import Recorder, RecorderOptions
from joulewise.record.running_total import Tally
from joulewise.session.budget import Budget, BudgetWatch, Event, as_note, parse_budget
from joulewise.session.forecast import Forecaster, RunForecast, as_json
from joulewise.session.request import Ready, Request
from joulewise.session.sight import Sight
from joulewise.session.terminate import listed
from joulewise.store.files import open_regular
from joulewise.store.layout import LIVE, MANIFEST, MARKS, PROCESSES
from joulewise.store.manifest import CommandRecord, Manifest, RecordedDevice, with_command
from joulewise.store.runs import COMPLETE, STOPPED_BY_BUDGET, new_run
from joulewise.units import NS_PER_S, Z95

# How much more than now a device may draw in a moment where nobody knows its maximum. Chosen: an
# idle GPU draws about a tenth of its limit. Twice as much means that a budget is looked at often
# for twice as long before it is used up.
_RISE: Final = 10.0
# For how long a device that has told nothing yet may draw any power. Chosen: a sensor or a model is
# read at least once a second. Twice as long, and a budget is looked at often for twice as long
# where a device never answers.
_FIRST_READING_S: Final = 5.0


@dataclass(frozen=True)
class Draw:
    """What a run has used up to now, in joules, and the most that all devices together may draw."""

    energy_j: float
    most_w: float


def draw_now(
    tallies: Mapping[str, Tally],
    devices: Collection[RecordedDevice],
    counted: Collection[str],
    now_ns: int,
    factors: Mapping[str, tuple[float, float]] = MappingProxyType({}),
) -> Draw | None:
    """The joules of the ``counted`` devices up to now; None where none of them was read.

    ``factors`` are those of ``factors_of_estimates``, by device.

    A device that is not counted yet may be any moment: all of them are in the most, except those
    that never answered and whose maximum nobody knows.
    """
    read = {d.info.key: tallies[d.info.key] for d in devices if d.info.key in tallies}
    known_j = [
        energy_j * factors.get(key, (1.0, 1.0))[0]
        for key in counted
        if key in read and (energy_j := read[key].energy_at(now_ns)) is not None
    ]
    most_w = sum(_most_w(read[d.info.key], d, now_ns) for d in devices if d.info.key in read)
    return Draw(sum(known_j), most_w) if known_j else None


def _most_w(tally: Tally, device: RecordedDevice, now_ns: int) -> float:
    power_w = tally.power_w
    if power_w is None and device.maximum_w is not None:
        return device.maximum_w
    if power_w is None:  # nobody knows what it will tell first, if it ever does
        is_new = now_ns - tally.since_ns < _FIRST_READING_S * NS_PER_S
        return math.inf if is_new else 0.0
    return max(power_w, _RISE * power_w if device.maximum_w is None else device.maximum_w)


def energy_so_far(tally: Tally | None, device: RecordedDevice) -> Energy | None:
    """None where it could not be read."""
    drawn = tally.sum if tally else None
    if drawn is None:
        return None
    # The readings at both ends may be off by as much as the time between two.
    edges_j = drawn.energy_j * drawn.interval_s / max(drawn.time_s, drawn.interval_s)
    gain_j = Z95 * device.card.gain_sigma * drawn.energy_j
    return Energy(drawn.energy_j, edges_j, gain_j, device.sources[drawn.quantity.value])


# A little less than the second between two looks, so that each of these is told.
_TELL_NS: Final = round(0.9 * NS_PER_S)


class Progress:
    """Follows one run from the start of its command."""

    def __init__(
        self,
        run: Path,
        start_ns: int,
        *,
        budgets: Sequence[Budget] = (),
        epochs: int | None = None,
        per_kwh: Mapping[str, float] | None = None,
    ) -> None:
        self._run = run
        self._start_ns = start_ns
        self._course = Forecaster(start_ns, epochs=epochs, per_kwh=per_kwh)
        self._watch = BudgetWatch(budgets)
        self._told_ns = -NS_PER_S

    def look(
        self,
        now_ns: int,
        energy_j: Mapping[str, Energy | None],
        counted: Collection[str],
        spans: Iterable[Span] = (),
        *,
        draw: Draw | None = None,
        ended: bool = False,
    ) -> list[Event]:
        """Take in what is new, write ``live.json``, and tell what became of the budgets.

        ``energy_j`` is what each device drew from the start until it was last read; ``counted`` are
        those that the command has touched so far, and ``draw`` what they used up to now.
        """
        whole = total(energy for key, energy in energy_j.items() if key in counted)
        self._course.spans(spans)
        if whole is not None:
            self._course.energy(now_ns, whole.value)
        gain_error = whole.error_gain / whole.value if whole and whole.value > 0 else 0.0
        outlook = self._course.outlook(now_ns, gain_error)
        time_s = (now_ns - self._start_ns) / NS_PER_S
        if now_ns - self._told_ns >= _TELL_NS:
            self._told_ns = now_ns
            self._tell(now_ns, energy_j, counted, whole, outlook=outlook)
        measured_j = whole.value if whole else None
        return self._watch.look(
            time_s=time_s,
            energy_j=draw.energy_j if draw else measured_j,
            outlook=None if isinstance(outlook, Unavailable) else outlook,
            ended=ended,
        )

    def seconds_left(self, draw: Draw | None) -> float | None:
        """After how long a budget may be used up at the earliest; None where none can be."""
        return self._watch.seconds_left(draw.energy_j, draw.most_w) if draw else None

    def _tell(
        self,
        now_ns: int,
        energy_j: Mapping[str, Energy | None],
        counted: Collection[str],
        whole: Energy | None,
        *,
        outlook: RunForecast | Unavailable,
    ) -> None:
        content = {
            "t_ns": now_ns,
            "time_s": (now_ns - self._start_ns) / NS_PER_S,
            "energy_j": {
                TOTAL: energy_json(whole),
                **{key: energy_json(energy) for key, energy in energy_j.items()},
            },
            "counted": sorted(counted),
            "epochs": self._course.epochs,
            "outlook": _outlook_json(outlook, whole),
        }
        _write(self._run / LIVE, content)

    def heard(self, message: Mapping[str, Any]) -> Event | None:
        """What the starting process found out about a budget by itself, if it is new."""
        return self._watch.heard(message)


def _outlook_json(outlook: RunForecast | Unavailable, so_far: Energy | None) -> dict[str, Any]:
    """With ``at_least`` where the energy so far is a lower bound: so is what follows from it."""
    told = as_json(outlook)
    if so_far is not None and so_far.at_least and told.get("energy_j"):
        told["energy_j"] = {**told["energy_j"], "at_least": True}
    return told


def _write(path: Path, content: Mapping[str, Any]) -> None:
    """A disk that is full costs the view, not the run."""
    new = path.with_name(f".{path.name}.part")
    try:
        new.write_text(json.dumps(finite(content)), encoding="utf-8")
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink(missing_ok=True)


if TYPE_CHECKING:
    from joulewise.analyse.attribution import Sighting
    from joulewise.store.spans import SpanFollower


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
        self.run = new_run(store, run_id=request.run_id)
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
        from joulewise.analyse.run_result import analyse
        from joulewise.analyse.stored_result import write_result
        from joulewise.store.checksums import write_final_checksums
        from joulewise.store.parquet import LARGE_ROWS, compact

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
        import joulewise.analyse.run_result
        import joulewise.analyse.stored_result
        import joulewise.store.parquet  # noqa: F401


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
        from joulewise.store.spans import SpanFollower

        self._follower = self._follower or SpanFollower(self._run / MARKS)
        energies = {
            each.info.key: energy_so_far(tallies.get(each.info.key), each)
            for each in manifest.devices
        }
        counted = self._count(manifest, now_ns)
        spans = self._follower.poll()
        factors = factors_of_estimates(energies, [d.info for d in manifest.devices], counted)
        energies |= {key: scale(energies[key], *each) for key, each in factors.items()}
        self._draw = draw_now(tallies, manifest.devices, counted, now_ns, factors)
        return self.progress.look(now_ns, energies, counted, spans, draw=self._draw, ended=ended)

    @property
    def seconds_left(self) -> float | None:
        """After how long a budget of energy may be used up at the earliest."""
        return self.progress.seconds_left(self._draw)

    def _count(self, manifest: Manifest, now_ns: int) -> tuple[str, ...]:
        """The devices that the command has touched, chosen again when something is new."""
        from joulewise.analyse.attribution import choose

        self._read_sightings()
        known = (self._sighted_b, manifest.devices, manifest.notes)
        if known != self._counted_for:
            self._counted_for = known
            self._counted = choose(manifest, self._sightings, self._start_ns, now_ns).counted
        return self._counted

    def _read_sightings(self) -> None:
        """What was added since: a long run's file is long."""
        from joulewise.analyse.attribution import parse_sightings

        with suppress(OSError), open_regular(self._run / PROCESSES) as file:
            file.seek(self._sighted_b)
            added = file.read()
            whole = added[: added.rfind(b"\n") + 1]
            self._sighted_b += len(whole)
            self._sightings += parse_sightings(whole.splitlines())
