"""``joulewise run``: starts a command, waits for its end without disturbing it, gets its result.

Faults of joulewise never become the command's: where the recorder does not start, the command runs
unmeasured; where it dies, the run is finished here from what it has written.
"""

from __future__ import annotations

import fcntl
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from joulewise.budget import Budget, BudgetWatch, as_message, as_note
from joulewise.data import RunResult, WarningCode
from joulewise.errors import JoulewiseError
from joulewise.process.child import Child, find_program, replace_process
from joulewise.process.failpoints import failpoint
from joulewise.process.json_lines import Message
from joulewise.process.signals import Signals, take_signals
from joulewise.record.environment import with_frameworks
from joulewise.session.recorder_client import NoResourcesError, RecorderProcess, RecorderStartError
from joulewise.session.request import Ready, Request
from joulewise.session.termination import (
    COMMAND,
    COMMAND_ID,
    RUN_ID,
    SETTLE_S,
    CommandTermination,
    describe_left,
    left_running,
    list_names,
)
from joulewise.store.checksums import write_final_checksums
from joulewise.store.layout import LIVE, MARKS
from joulewise.store.manifest import (
    CommandRecord,
    Manifest,
    read_manifest,
    with_command,
    write_final_manifest,
)
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from joulewise.process.output_copy import CopiedOutput

# Between SIGTERM and SIGKILL where a budget ends the command. Chosen: time to write a checkpoint,
# and Docker's default; doubled, a command that ignores SIGTERM overruns its budget by 20 s.
GRACE_S: Final = 10.0
_RECORDER_LOST: Final = "the recorder ended: the command goes on, and the rest is not measured"


class BudgetEnforcer:
    """Reports each change of a budget once, and ends the command where a budget says so.

    The recorder checks all budgets; time is checked here as well, since the recorder may be dead,
    or None where the command is not measured. ``token`` identifies the processes of the command:
    they are told to end at the same time. ``notes`` are those of the time budgets that were used
    up, for a recorder that cannot write them any more.
    """

    def __init__(
        self,
        budgets: Sequence[Budget],
        command: MeasuredCommand,
        start_ns: int,
        recorder: RecorderProcess | None,
        say: Callable[[str], None],
        *,
        token: str = "",
        grace_s: float = GRACE_S,
    ) -> None:
        self._watch = BudgetWatch(budgets)
        self._unchecked = [budget.text for budget in budgets if budget.kind != "time"]
        self._command = command
        self._start_ns = start_ns
        self._recorder = recorder
        self._say = say
        self._grace_ns = round(grace_s * NS_PER_S)
        self._reported: set[tuple[str, str]] = set()
        self._token = token
        self._kill_ns = 0
        self._ending: CommandTermination | None = None
        self.notes: list[dict[str, str]] = []
        self.stopped = False
        if any(budget.stop for budget in budgets):
            import psutil  # noqa: F401  # loaded before it is needed to end the command

    def check(self) -> float | None:
        """Do what is due now; return the seconds until something else is, None for never."""
        now_ns = time.monotonic_ns()
        time_s = (now_ns - self._start_ns) / NS_PER_S
        for event in self._watch.check(time_s=time_s, energy_j=None):
            self._on_budget(as_message(event), as_note(event))
        if self._ending and now_ns >= self._kill_ns:
            self._report_killed(self._ending.kill())
            self._ending = None
        waits_s = [self._watch.time_left_s(time_s)]
        if self._ending:
            waits_s.append((self._kill_ns - now_ns) / NS_PER_S)
        return min((wait_s for wait_s in waits_s if wait_s is not None), default=None)

    def end_rest(self, hurry: Callable[[], bool]) -> None:
        """End the processes that outlived the command, within the rest of the same grace."""
        if self._ending:
            left_s = (self._kill_ns - time.monotonic_ns()) / NS_PER_S
            self._report_killed(self._ending.end(left_s, hurry))
            self._ending = None

    def _report_killed(self, names: Sequence[str]) -> None:
        if names:
            grace = f"{self._grace_ns / NS_PER_S:g} s"
            self._say(f"killed, as it had not ended within {grace}: {list_names(names)}")

    def end(self, reason: str) -> None:
        """End the command as a budget does, for a reason that the user reads; once."""
        if not self.stopped:
            self._end()
            self._say(reason)

    def on_message(self, message: Message) -> None:
        """Handle a message of the recorder."""
        if message["kind"] == "budget":
            self._on_budget(message)

    def on_unmeasured(self) -> None:
        """Say which budgets nobody checks from now on: only time is known without a recorder."""
        if self._unchecked:
            self._say(f"not checked, since energy is not measured: {', '.join(self._unchecked)}")

    def left_running(self) -> list[str]:
        """Names of the command's processes that outlived it."""
        return left_running(self._token, SETTLE_S) if self._token else []

    def _on_budget(self, event: Message, note: Mapping[str, str] | None = None) -> None:
        """React to an event, once; ``note`` is that of an event which was found here."""
        key = (event["budget"], event["state"])
        if key in self._reported:
            return
        self._reported.add(key)
        if note is not None:
            code = WarningCode.BUDGET.value
            self.notes.append({"code": code, "message": event["message"], **note})
            if self._recorder:
                self._recorder.tell("budget", **event)
        if event["stop"] and not self.stopped:
            self._end()
        self._say(event["message"])  # last: writing to stderr may block

    def _end(self) -> None:
        self.stopped = True
        self._kill_ns = time.monotonic_ns() + self._grace_ns
        self._ending = CommandTermination(self._token, self._command.pid)
        self._ending.ask()


def finish_run(
    run: Path, command: CommandRecord, failure: str = "", notes: Sequence[Mapping[str, str]] = ()
) -> tuple[RunResult | None, str]:
    """Finish a run whose recorder is gone: its result, or None and the reason.

    ``failure`` is the recorder's last message, empty where it was killed. ``notes`` are what it
    could not note any more.
    """
    try:
        with _exclusive_access(run):
            manifest = write_end(run, command, failure, notes)
            from joulewise.analyse.run_result import analyse
            from joulewise.analyse.stored_result import write_result

            with suppress(OSError):
                (run / LIVE).unlink(missing_ok=True)
                write_final_checksums(run)
            result = analyse(run, manifest)
            with suppress(OSError):  # a full disk: `show` computes it again
                write_result(run, result)
    except JoulewiseError as error:
        return None, f"the recorder has ended unexpectedly, and {error.message}"
    return result, ""


@contextmanager
def _exclusive_access(run: Path) -> Iterator[None]:
    """Lock the run: the commands of a group may all find the recorder gone at once."""
    folder = None
    with suppress(OSError):  # a file system that locks nothing
        folder = os.open(run, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if folder is not None:
            os.close(folder)


def write_end(
    run: Path,
    command: CommandRecord,
    failure: str = "",
    notes: Sequence[Mapping[str, str]] = (),
) -> Manifest:
    """Write into ``run.json`` how the command of a run without a recorder ended.

    It loads neither numpy nor pyarrow. ``failure`` and ``notes`` as for :func:`finish_run`.
    """
    from joulewise.store.redact import mask

    manifest = with_frameworks(run, read_manifest(run))
    command = replace(command, arguments=mask(command.arguments))
    note = {
        "code": WarningCode.RECORDER_ENDED.value,
        "message": "the recorder ended before the command did: data after its end is missing",
        "hint": f"please report its last message: {failure}"
        if failure
        else "find out what killed it (dmesg shows whether the kernel ran out of memory)",
    }
    commands = with_command(manifest.commands, command)
    codes = [each.exit_code for each in commands if each.end_ns is not None]
    end_ns = max(command.end_ns or 0, manifest.monotonic_end_ns or 0)
    others = [each for each in manifest.notes if each.get("code") != note["code"]]
    # The recorder may have noted some of them before it died, and of a group each command has its
    # own: the same one is noted once.
    others += [dict(each) for each in notes if not _is_noted(each, others)]
    manifest = replace(
        manifest,
        commands=commands,
        state="stopped",
        exit_code=next((code for code in codes if code), command.exit_code),
        # Both clocks at the same moment: since then we have waited for the recorder.
        wall_end_ns=time.time_ns() - (time.monotonic_ns() - end_ns),
        monotonic_end_ns=end_ns,
        notes=(*others, note),
    )
    with suppress(OSError):
        write_final_manifest(run, manifest)
    return manifest


def _is_noted(note: Mapping[str, str], others: Sequence[Mapping[str, Any]]) -> bool:
    # A budget is told by its text, since both sides may give the moment differently.
    field = "was" if "was" in note else "message"
    key = note["code"], note[field]
    return any((each.get("code"), each.get(field)) == key for each in others)


END_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True)
class CommandOutcome:
    """How a command ended, and its result; ``remark`` says why there is none."""

    exit_status: int
    run: Path | None
    result: RunResult | None
    remark: str = ""


class HeldSettings(Protocol):
    """Settings of devices that are held while a command runs, and put back when it has ended.

    They are the same all the time (:class:`~joulewise.session.settings.AppliedSettings`), or are
    changed while it runs (a tuner). ``unrestored`` lists what could not be put back.
    """

    @property
    def unrestored(self) -> tuple[str, ...]: ...

    @property
    def unguarded(self) -> str:
        """What ``lost`` has returned; empty while the settings hold."""
        ...

    @property
    def descriptors(self) -> Sequence[int]:
        """Readable when ``lost`` should be called; they may become fewer."""
        ...

    @property
    def poll_s(self) -> float | None:
        """How often ``lost`` should be called at least, in seconds; None: when it is readable."""
        ...

    def on_unmeasured(self) -> None:
        """The command is not measured, and runs all the same."""
        ...

    def lost(self) -> str:
        """A warning where the settings may no longer hold; empty otherwise, and afterwards."""
        ...

    def as_json(self) -> Mapping[str, Mapping[str, float]]:
        """The values that hold for the whole run, by device and control."""
        ...

    def close(self) -> None:
        """Put everything back."""
        ...


class CommandWatch(Protocol):
    """Follows a command while it runs, and may say that it is to end."""

    poll_s: float
    """How often to call ``check``, in seconds."""

    def check(self) -> str:
        """Why the command is to end, as the user reads it; empty while it may go on.

        It must return at once: signals for the command wait for it.
        """
        ...


@dataclass(frozen=True)
class RunCallbacks:
    """How to inform the user: before the command starts, and with lines that cannot wait.

    ``settings`` are put back as soon as the command has ended, before its result is computed.
    ``output`` is where the command writes, if not to our own stdout and stderr.
    ``signals`` takes those that arrive from then on. Who starts several commands closes them after
    each; for a single one they are never given back, since joulewise ends after its result.
    """

    opening: Callable[[Ready], None]
    say: Callable[[str], None]
    settings: HeldSettings
    output: CopiedOutput | None = None
    watch: CommandWatch | None = None
    signals: Callable[[], Signals] = take_signals


class MeasuredCommand(Protocol):
    """A command that is being measured, however it was started."""

    @property
    def pid(self) -> int: ...

    @property
    def signals(self) -> Signals: ...

    @property
    def descriptors(self) -> Sequence[int]:
        """Readable when ``ended`` should be called."""
        ...

    @property
    def poll_s(self) -> float | None:
        """How often to call ``ended`` even so, in seconds."""
        ...

    @property
    def cpu_s(self) -> float | None: ...

    @property
    def exit_status(self) -> int | None:
        """None where it is unknown."""
        ...

    def ended(self) -> bool: ...

    def send(self, number: int) -> None: ...


def run(
    command: Sequence[str],
    store: Path,
    request: Request,
    budgets: Sequence[Budget],
    callbacks: RunCallbacks,
) -> CommandOutcome:
    """Run the command to its end and measure it.

    Raises where the program does not exist or the request cannot be met; where the recorder fails,
    the command runs unmeasured.
    """
    environ = original_environ()
    find_program(command[0], environ.get("PATH", os.defpath))
    # Not for the command: what it measures itself are other runs.
    request = replace(request, run_id=environ.pop(RUN_ID, ""))
    try:
        recorder = RecorderProcess.start(store, request)
    except RecorderStartError as error:  # a sensor's fault is never the command's
        callbacks.say(f"{error.message}: the command is not measured; {error.hint}")
        if isinstance(error, NoResourcesError):  # to check them, too, would need some
            if budgets:
                callbacks.say(f"not checked: {', '.join(budget.text for budget in budgets)}")
            if not callbacks.settings.as_json():
                replace_process(command, environ)
            budgets = ()
        return _run_unmeasured(command, environ, budgets, callbacks)
    with ExitStack() as stack:
        try:
            callbacks.opening(recorder.ready)
            if request.baseline_s:
                time.sleep(request.baseline_s)
            signals = callbacks.signals()
            token = _make_token(environ)
            child_environ = _make_environ(environ, recorder.ready.run, token, hooks=request.hooks)
            start_ns = time.monotonic_ns()
            recorder.command_starting(command, start_ns, token)
            output = callbacks.output
            streams = (output.streams,) if output else ()
            child = stack.enter_context(closing(Child(command, child_environ, signals, *streams)))
            if output:
                output.started()
        except BaseException:
            recorder.cancel()
            raise
        failpoint("command-running")
        recorder.command_started(child.pid, command, start_ns, token)
        enforcer = BudgetEnforcer(budgets, child, start_ns, recorder, callbacks.say, token=token)
        started = CommandRecord(child.pid, tuple(command), start_ns)
        return await_result(child, started, recorder, enforcer, callbacks)


def _run_unmeasured(
    command: Sequence[str],
    environ: Mapping[str, str],
    budgets: Sequence[Budget],
    callbacks: RunCallbacks,
) -> CommandOutcome:
    """Run the command without a recorder: its time and its settings are watched all the same."""
    callbacks.settings.on_unmeasured()
    signals, token, remark = callbacks.signals(), _make_token(environ), ""
    if callbacks.output:  # nothing is tuned either, and nobody reads it
        callbacks.output.close()
    start_ns = time.monotonic_ns()
    with closing(Child(command, _mark_environ(environ, token), signals)) as child:
        try:
            enforcer = BudgetEnforcer(budgets, child, start_ns, None, callbacks.say, token=token)
            enforcer.on_unmeasured()
            _wait_for_end(child, None, enforcer, callbacks)
            enforcer.end_rest(partial(is_end_requested, signals))
        except Exception as error:  # noqa: BLE001  # a fault of joulewise must not end the command
            remark = f"unexpected {type(error).__name__}: {error}"
        return CommandOutcome(child.exit_status, None, None, remark)


def _make_token(environ: Mapping[str, str]) -> str:
    return environ.get(COMMAND_ID) or f"{os.getpid()}-{time.monotonic_ns()}"


def await_result(
    command: MeasuredCommand,
    started: CommandRecord,
    recorder: RecorderProcess,
    enforcer: BudgetEnforcer,
    callbacks: RunCallbacks,
) -> CommandOutcome:
    """Wait until the command has ended, put its settings back, and get its result."""
    run, settings = recorder.ready.run, callbacks.settings
    try:
        _wait_for_end(command, recorder, enforcer, callbacks)
        end_ns, code, cpu_s = time.monotonic_ns(), command.exit_status, command.cpu_s
        recorder.command_ended(command.pid, end_ns, code, cpu_s)
        if callbacks.output:
            callbacks.output.drain()
        is_end_requested_again = partial(is_end_requested, command.signals)
        enforcer.end_rest(is_end_requested_again)
        settings.close()
        result, remark = recorder.finish(is_end_requested_again), recorder.remark
        if recorder.lost:
            ended = replace(started, end_ns=end_ns, exit_code=code, cpu_s=cpu_s)
            result, why = finish_run(run, ended, remark, _missed_notes(enforcer, settings))
            remark = remark or why
    except Exception as error:  # noqa: BLE001  # a fault of joulewise must not end the command
        result, remark = None, f"unexpected {type(error).__name__}: {error}"
    return CommandOutcome(command.exit_status or 0, run, result, remark)


def _missed_notes(enforcer: BudgetEnforcer, settings: HeldSettings) -> list[dict[str, str]]:
    """The notes that a recorder would have made after its death."""
    notes = list(enforcer.notes)
    if settings.unguarded:
        code = WarningCode.SETTINGS_UNGUARDED.value
        notes.append({"code": code, "message": settings.unguarded})
    if left := enforcer.left_running():
        notes.append({"code": WarningCode.LEFT_RUNNING.value, "message": describe_left(left)})
    return notes


def _wait_for_end(
    command: MeasuredCommand,
    recorder: RecorderProcess | None,
    enforcer: BudgetEnforcer,
    callbacks: RunCallbacks,
) -> None:
    settings, output, watch = callbacks.settings, callbacks.output, callbacks.watch
    with selectors.DefaultSelector() as selector:
        for descriptor in command.descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        changing = _watch(selector, set(), _changing_descriptors(callbacks))
        if recorder:
            selector.register(recorder.fileno(), selectors.EVENT_READ)
        listening = recorder
        while not command.ended():
            polls_s = (command.poll_s, settings.poll_s, watch.poll_s if watch else None)
            waits_s = (enforcer.check(), *polls_s)
            selector.select(min((each for each in waits_s if each is not None), default=None))
            for message in listening.messages() if listening else ():
                enforcer.on_message(message)
            if listening and listening.lost:
                selector.unregister(listening.fileno())
                listening = None
                callbacks.say(_RECORDER_LOST)
                enforcer.on_unmeasured()
            if (lost := settings.lost()) and listening:
                listening.tell("unguarded", message=lost)
            if output:
                output.check()
            changing = _watch(selector, changing, _changing_descriptors(callbacks))
            if watch and (reason := watch.check()):
                enforcer.end(reason)


def _changing_descriptors(callbacks: RunCallbacks) -> set[int]:
    output = callbacks.output.descriptors if callbacks.output else ()
    return {*callbacks.settings.descriptors, *output}


def _watch(selector: selectors.BaseSelector, before: set[int], now: set[int]) -> set[int]:
    for descriptor in before - now:
        selector.unregister(descriptor)
    for descriptor in now - before:
        selector.register(descriptor, selectors.EVENT_READ)
    return now


def original_environ() -> dict[str, str]:
    """The environment that this process was started with.

    Python adds LC_CTYPE to ``os.environ`` in the C locale, which the command must not get.
    """
    try:
        block = Path("/proc/self/environ").read_bytes()
    except OSError:
        return dict(os.environ)
    pairs = (entry.partition(b"=") for entry in block.split(b"\0") if b"=" in entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _make_environ(base: Mapping[str, str], run: Path, token: str, *, hooks: bool) -> dict[str, str]:
    from joulewise.hooks.install import environment

    return _mark_environ(environment(base, run / MARKS, run.name, hooks=hooks), token)


def _mark_environ(base: Mapping[str, str], token: str) -> dict[str, str]:
    """The environment of a command, by whose ``token`` its processes are found."""
    environ = {**base, COMMAND: token}
    environ.pop(COMMAND_ID, None)
    return environ


def is_end_requested(signals: Signals) -> bool:
    """Whether one of the signals that arrived asks this process to end."""
    return any(received.number in END_SIGNALS for received in signals)
