"""A run while it is recorded, from its directory to its result.

``live.json`` in that directory shows other processes how far it is::

    {"t_ns": …, "time_s": 42.0,
     "energy_j": {"total": {"value", "error", "error_sampling", "error_gain", "source", "at_least"},
                  "gpu0": …},
     "counted": ["gpu0", …],
     "epochs": {"done": 3, "total": 10, "training": 0},
     "outlook": {"time_s": {"value", "low", "high"}, "energy_j": {…}, "gco2": {…}, "price": {…}}}

The epochs are those of the training under way, counted from 0; of all trainings where the user gave
their number. An energy that could not be read is null; a forecast (``outlook``) that cannot be made
yet is ``{"reason", "fix"}``. The file is replaced as a whole, every second where there is a budget,
otherwise every five, however often budgets are checked.
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

from joulewise.budget import Budget, BudgetEvent, BudgetWatch, as_note, parse_budget
from joulewise.data import (
    Energy,
    Kind,
    QualityWarning,
    RunResult,
    Span,
    Unavailable,
    WarningCode,
    total,
)
from joulewise.data.codec import encode
from joulewise.data.energy import factors_of_estimates, scale
from joulewise.data.run_result_json import TOTAL, encode_energy
from joulewise.data.runs import RunForecast
from joulewise.devices import Options, discover, visible_gpus
from joulewise.errors import JoulewiseError
from joulewise.record.recorder import Recorder, RecorderOptions
from joulewise.record.statistics import RunningTotal
from joulewise.session.forecast import Forecaster, as_json
from joulewise.session.group import GpuVisibility
from joulewise.session.request import Ready, Request
from joulewise.session.termination import describe_left
from joulewise.store.files import open_regular, replace_file
from joulewise.store.layout import LIVE, MANIFEST, MARKS, PROCESSES
from joulewise.store.manifest import CommandRecord, Manifest, RecordedDevice, with_command
from joulewise.store.runs import COMPLETE, STOPPED_BY_BUDGET, new_run
from joulewise.units import NS_PER_S, Z95

# How many times its power now a device may draw in a moment, where its maximum is unknown. Chosen:
# an idle GPU draws about a tenth of its limit. Doubled, budgets are checked at the shortest period
# for twice as long before they are used up.
_RISE_FACTOR: Final = 10.0
# For how long a device without a reading yet may draw any power. Chosen: a sensor or a model is
# read at least once a second. Doubled, budgets are checked at the shortest period for twice as long
# where a device never answers.
_FIRST_READING_S: Final = 5.0


@dataclass(frozen=True)
class PowerDraw:
    """Energy that a run has used so far, and the highest power that its devices may draw."""

    energy_j: float
    most_w: float


def estimate_draw(
    running_totals: Mapping[str, RunningTotal],
    devices: Collection[RecordedDevice],
    counted: Collection[str],
    now_ns: int,
    factors: Mapping[str, tuple[float, float]] = MappingProxyType({}),
) -> PowerDraw | None:
    """Energy of the ``counted`` devices up to now; None where none of them was read.

    ``factors`` are those of ``factors_of_estimates``, by device. A device that is not counted yet
    may be at any moment, so ``most_w`` is that of all devices, except those that never answered and
    whose maximum is unknown.
    """
    read = {d.info.key: running_totals[d.info.key] for d in devices if d.info.key in running_totals}
    known_j = [
        energy_j * factors.get(key, (1.0, 1.0))[0]
        for key in counted
        if key in read and (energy_j := read[key].energy_at(now_ns)) is not None
    ]
    most_w = sum(_most_w(read[d.info.key], d, now_ns) for d in devices if d.info.key in read)
    return PowerDraw(sum(known_j), most_w) if known_j else None


def _most_w(running_total: RunningTotal, device: RecordedDevice, now_ns: int) -> float:
    power_w = running_total.power_w
    if power_w is None and device.maximum_w is not None:
        return device.maximum_w
    if power_w is None:  # its first reading, if one ever comes, may be anything
        is_new = now_ns - running_total.since_ns < _FIRST_READING_S * NS_PER_S
        return math.inf if is_new else 0.0
    return max(power_w, _RISE_FACTOR * power_w if device.maximum_w is None else device.maximum_w)


def energy_so_far(running_total: RunningTotal | None, device: RecordedDevice) -> Energy | None:
    """Energy that a device has used so far, with its error; None where it could not be read."""
    drawn = running_total.sum if running_total else None
    if drawn is None:
        return None
    # The readings at both ends may be off by as much as the time between two.
    edges_j = drawn.energy_j * drawn.interval_s / max(drawn.time_s, drawn.interval_s)
    gain_j = Z95 * device.card.gain_sigma * drawn.energy_j
    return Energy(drawn.energy_j, edges_j, gain_j, device.sources[drawn.quantity.value])


# A little less than the second between two checks, so that live.json is written at each of them.
_LIVE_PERIOD_NS: Final = round(0.9 * NS_PER_S)


class LiveProgress:
    """Forecast, budgets and ``live.json`` of one run, from the start of its command."""

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
        self._forecaster = Forecaster(start_ns, epochs=epochs, per_kwh=per_kwh)
        self._watch = BudgetWatch(budgets)
        self._written_ns = -NS_PER_S

    def check(
        self,
        now_ns: int,
        energy_j: Mapping[str, Energy | None],
        counted: Collection[str],
        spans: Iterable[Span] = (),
        *,
        draw: PowerDraw | None = None,
        ended: bool = False,
    ) -> list[BudgetEvent]:
        """Add what is new, write ``live.json``, and return the budgets that changed their state.

        ``energy_j`` is the energy of each device from the start until its last reading; ``counted``
        are the devices that the command has used so far, and ``draw`` their energy up to now.
        """
        total_energy = total(energy for key, energy in energy_j.items() if key in counted)
        self._forecaster.add_spans(spans)
        if total_energy is not None:
            self._forecaster.add_energy(now_ns, total_energy.value)
        gain_error = (
            total_energy.error_gain / total_energy.value
            if total_energy and total_energy.value > 0
            else 0.0
        )
        forecast = self._forecaster.forecast(now_ns, gain_error)
        time_s = (now_ns - self._start_ns) / NS_PER_S
        if now_ns - self._written_ns >= _LIVE_PERIOD_NS:
            self._written_ns = now_ns
            self._write_live(now_ns, energy_j, counted, total_energy, forecast=forecast)
        measured_j = total_energy.value if total_energy else None
        return self._watch.check(
            time_s=time_s,
            energy_j=draw.energy_j if draw else measured_j,
            forecast=None if isinstance(forecast, Unavailable) else forecast,
            ended=ended,
        )

    def seconds_left(self, draw: PowerDraw | None) -> float | None:
        """How soon an energy budget may be used up, in seconds; None where none can be."""
        return self._watch.seconds_left(draw.energy_j, draw.most_w) if draw else None

    def _write_live(
        self,
        now_ns: int,
        energy_j: Mapping[str, Energy | None],
        counted: Collection[str],
        total_energy: Energy | None,
        *,
        forecast: RunForecast | Unavailable,
    ) -> None:
        content = {
            "t_ns": now_ns,
            "time_s": (now_ns - self._start_ns) / NS_PER_S,
            "energy_j": {
                TOTAL: encode_energy(total_energy),
                **{key: encode_energy(energy) for key, energy in energy_j.items()},
            },
            "counted": sorted(counted),
            "epochs": self._forecaster.epochs,
            "outlook": _forecast_json(forecast, total_energy),
        }
        with suppress(OSError):  # a full disk costs the live view, not the run
            replace_file(self._run / LIVE, json.dumps(encode(content)), durable=False)

    def on_budget(self, message: Mapping[str, Any]) -> BudgetEvent | None:
        """The event that the starting process found by itself, if it is new."""
        return self._watch.add_external(message)


def _forecast_json(forecast: RunForecast | Unavailable, so_far: Energy | None) -> dict[str, Any]:
    """With ``at_least`` where the energy so far is a lower bound: so is the forecast then."""
    content = as_json(forecast)
    if so_far is not None and so_far.at_least and content.get("energy_j"):
        content["energy_j"] = {**content["energy_j"], "at_least": True}
    return content


if TYPE_CHECKING:
    from joulewise.analyse.attribution import Sighting
    from joulewise.store.spans import SpanFollower


_COMPACT_VARIABLE: Final = "JOULEWISE_COMPACT_OVER_ROWS"
# For each vendor's driver, while the command waits. Initialising a GPU without persistence mode
# takes one to three seconds (NVIDIA, "Driver Persistence"); one that takes longer joins late.
# Doubled, the command starts 2.5 s later where a driver hangs.
_DISCOVERY_S: Final = 2.5
# Chosen: the GPUs are open already, so that each is identified within milliseconds. Where it takes
# longer, all of them count as visible.
_VISIBLE_S: Final = 1.0
# How often to check a run: without a budget, with one, and shortly before one is used up. Chosen:
# each check takes the recorder some milliseconds; the shortest period is how late a budget may be
# noticed, beside the time between two readings.
_IDLE_CHECK_S: Final = 5.0
_BUDGET_CHECK_S: Final = 1.0
_MIN_CHECK_S: Final = 0.05


class Recording:
    """Records from its creation until ``stop`` or ``discard``."""

    def __init__(
        self, store: Path, request: Request, environ: Mapping[str, str], *, shared: bool = False
    ) -> None:
        """``shared``: other commands may join, and may see GPUs that the first cannot.

        All GPUs of the node are then read from the start. Those that no command sees in the end
        are not part of the run.
        """
        self.request = request
        self._environ = environ
        self._shared = shared
        self._visibilities: list[GpuVisibility] = [GpuVisibility.of(environ)]
        self.run = new_run(store, run_id=request.run_id)
        try:
            self._open()
        except BaseException:
            shutil.rmtree(self.run, ignore_errors=True)
            raise
        self._commands: tuple[CommandRecord, ...] = ()
        self._manifest: Manifest | None = None
        self._tracker: ProgressTracker | None = None
        self._has_check_failed = False
        self._exceeded: list[BudgetEvent] = []
        # The first check also loads the modules that all of them need.
        self.check_after_s = _MIN_CHECK_S if request.budgets else _IDLE_CHECK_S

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
        seen = self._visible_keys(self._visibilities[0]) if self._shared and gpus else None
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
                "free some disk space, or choose another folder with --store",
            )

    def _visible_keys(self, visibility: GpuVisibility) -> set[str] | None:
        """The GPUs that a command can see; None for all, or where the driver does not answer."""
        if not visibility.variables:
            return None
        environ = visibility.environ(self._environ)
        return visible_gpus(Options(environ=environ, deadline_s=_VISIBLE_S))

    def add_visibility(self, visibility: GpuVisibility) -> None:
        """Add the GPUs that a joining command can see to the run."""
        if visibility in self._visibilities:
            return
        self._visibilities.append(visibility)
        seen = self._visible_keys(visibility)
        if seen is None:
            seen = {each.key for each in self._recorder.all_devices}
        self._recorder.reveal(seen)
        for device in visibility.missing(self._environ):
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

    def command_started(self, command: CommandRecord) -> None:
        if not self._commands:
            self._recorder.count_from(command.start_ns)
            self._tracker = ProgressTracker(self.run, self.request, command.start_ns)
        self._record_command(command)

    def command_ended(
        self, pid: int, end_ns: int, exit_code: int | None, cpu_s: float | None = None
    ) -> None:
        running = [each for each in self._commands if each.pid == pid and each.end_ns is None]
        for command in running[:1]:
            self._record_command(replace(command, end_ns=end_ns, exit_code=exit_code, cpu_s=cpu_s))

    def check(self, *, ended: bool = False) -> list[BudgetEvent]:
        """Update the energy so far and the forecast; return the budgets that changed their state.

        ``check_after_s`` says when to check again.
        """
        if self._tracker is None:
            return []
        ends_ns = [each.end_ns for each in self._commands if each.end_ns]
        now_ns = max(ends_ns) if ended and ends_ns else monotonic_ns()
        try:
            if ended or self.check_after_s < _BUDGET_CHECK_S:
                self._recorder.write()  # totals cover what is written, once a second
            manifest, running_totals = self._recorder.manifest, self._recorder.running_totals
            events = self._tracker.check(running_totals, manifest, now_ns, ended=ended)
            self.check_after_s = self._next_check_s()
        except Exception as error:  # noqa: BLE001  # a fault here must not end the recording
            self._note_check_failure(error)
            return []
        for event in events:
            self._note_budget(event)
        return events

    def _next_check_s(self) -> float:
        """Seconds until a budget may be used up at the earliest, at most one second."""
        if not self.request.budgets or self._tracker is None:
            return _IDLE_CHECK_S
        left_s = self._tracker.seconds_left
        return (
            _BUDGET_CHECK_S if left_s is None else min(max(left_s, _MIN_CHECK_S), _BUDGET_CHECK_S)
        )

    def on_budget(self, message: Mapping[str, Any]) -> None:
        """The process that started the command found a time budget used up."""
        event = self._tracker and self._tracker.progress.on_budget(message)
        if event:
            self._note_budget(event)

    def stop(self, *, stopped: bool) -> None:
        """End the recording; the run is complete from here on, even if its result fails."""
        if self.request.budgets:  # one may have been used up since the last check
            self.check(ended=True)
        codes = [each.exit_code for each in self._commands]
        exit_code = next((code for code in codes if code), codes[0] if codes else None)
        ends_ns = [each.end_ns for each in self._commands if each.end_ns]
        # The modules that compute the result are loaded while the last readings are awaited.
        threading.Thread(target=_load_analysis, name="load", daemon=True).start()
        by_budget = any(event.stop for event in self._exceeded)
        state = "stopped" if stopped else STOPPED_BY_BUDGET if by_budget else COMPLETE
        self._manifest = self._recorder.stop(state, exit_code, max(ends_ns, default=None))
        (self.run / LIVE).unlink(missing_ok=True)

    def result(self) -> RunResult:
        """Compute the result and store it in the run's directory."""
        from joulewise.analyse.run_result import analyse
        from joulewise.analyse.stored_result import write_result
        from joulewise.store.checksums import write_final_checksums
        from joulewise.store.parquet import LARGE_ROWS, compact

        with suppress(OSError):  # the uncompacted streams hold the same data
            compact(self.run, over_rows=int(os.environ.get(_COMPACT_VARIABLE, LARGE_ROWS)))
        with suppress(OSError):  # a full disk: the checksums written so far cover most of it
            write_final_checksums(self.run)
        result = analyse(self.run, self._manifest)  # on a full disk it may not be in the file
        try:
            write_result(self.run, result)
        except OSError as error:
            warning = QualityWarning(
                WarningCode.NOT_STORED,
                f"the result is not stored: {error.strerror}",
                "free some disk space; `joulewise show` computes it again",
            )
            result = replace(result, warnings=(*result.warnings, warning))
        return result

    def discard(self) -> None:
        """No command was started: stop, and delete the run."""
        self._recorder.stop()
        shutil.rmtree(self.run, ignore_errors=True)

    def _record_command(self, command: CommandRecord) -> None:
        self._commands = with_command(self._commands, command)
        self._recorder.tell(command)

    def note_stopped(self, why: str) -> None:
        """Note that measuring stopped before the command ended."""
        self._recorder.note(WarningCode.STOPPED.value, why)

    def note_unguarded(self, why: str) -> None:
        """Note that the guardian of the run's settings is gone."""
        self._recorder.note(WarningCode.SETTINGS_UNGUARDED.value, why)

    def note_left(self, names: Sequence[str]) -> None:
        """Note the processes of the command that did not end with it."""
        self._recorder.note(WarningCode.LEFT_RUNNING.value, describe_left(names))

    def _note_check_failure(self, error: Exception) -> None:
        if not self._has_check_failed:
            self._has_check_failed = True
            code = WarningCode.BUDGET.value if self.request.budgets else "look_failed"
            why = f"{type(error).__name__}: {error}"
            self._recorder.note(code, f"budgets were not checked until the end: {why}")

    def _note_budget(self, event: BudgetEvent) -> None:
        if event.state == "exceeded":  # a forecast says nothing once there is a result
            self._exceeded.append(event)
            note = as_note(event)
            self._recorder.note(WarningCode.BUDGET.value, event.message, **note)


def _source(device: RecordedDevice) -> str:
    """The source of a device's energy; empty where the device cannot be read."""
    if device.sources:
        return next(iter(device.sources.values())).value
    return "simulated, cannot be read" if device.is_simulated else ""


def _load_analysis() -> None:
    with suppress(ImportError):  # reported where the result is computed
        import joulewise.analyse.run_result
        import joulewise.analyse.stored_result
        import joulewise.store.parquet  # noqa: F401


class ProgressTracker:
    """Reads energies, spans and the devices in use of a run, for its ``LiveProgress``."""

    def __init__(self, run: Path, request: Request, start_ns: int) -> None:
        self._run = run
        self._start_ns = start_ns
        self._follower: SpanFollower | None = None
        self._sightings: list[Sighting] = []
        self._sighted_b = 0
        self._counted_inputs: tuple[object, ...] = ()
        self._counted: tuple[str, ...] = ()
        self._draw: PowerDraw | None = None
        costs = {"gco2": request.gco2_per_kwh, "price": request.price_per_kwh}
        self.progress = LiveProgress(
            run,
            start_ns,
            budgets=[parse_budget(text, request.gco2_per_kwh) for text in request.budgets],
            epochs=request.epochs,
            per_kwh={name: cost for name, cost in costs.items() if cost is not None},
        )

    def check(
        self,
        running_totals: Mapping[str, RunningTotal],
        manifest: Manifest,
        now_ns: int,
        *,
        ended: bool,
    ) -> list[BudgetEvent]:
        # Imported late: a short command has ended before this is loaded.
        from joulewise.store.spans import SpanFollower

        self._follower = self._follower or SpanFollower(self._run / MARKS)
        energy_j = {
            each.info.key: energy_so_far(running_totals.get(each.info.key), each)
            for each in manifest.devices
        }
        counted = self._select_counted(manifest, now_ns)
        spans = self._follower.poll()
        factors = factors_of_estimates(energy_j, [d.info for d in manifest.devices], counted)
        energy_j |= {key: scale(energy_j[key], *pair) for key, pair in factors.items()}
        self._draw = estimate_draw(running_totals, manifest.devices, counted, now_ns, factors)
        return self.progress.check(now_ns, energy_j, counted, spans, draw=self._draw, ended=ended)

    @property
    def seconds_left(self) -> float | None:
        """How soon an energy budget may be used up, in seconds."""
        return self.progress.seconds_left(self._draw)

    def _select_counted(self, manifest: Manifest, now_ns: int) -> tuple[str, ...]:
        """The devices that the command has used, selected again when their inputs change."""
        from joulewise.analyse.attribution import choose

        self._read_sightings()
        inputs = (self._sighted_b, manifest.devices, manifest.notes)
        if inputs != self._counted_inputs:
            self._counted_inputs = inputs
            self._counted = choose(manifest, self._sightings, self._start_ns, now_ns).counted
        return self._counted

    def _read_sightings(self) -> None:
        """Read only what was added since the last call: the file of a long run is long."""
        from joulewise.analyse.attribution import parse_sightings

        with suppress(OSError), open_regular(self._run / PROCESSES) as file:
            file.seek(self._sighted_b)
            added = file.read()
            whole = added[: added.rfind(b"\n") + 1]
            self._sighted_b += len(whole)
            self._sightings += parse_sightings(whole.splitlines())
