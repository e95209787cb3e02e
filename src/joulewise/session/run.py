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
from typing import Final, Protocol

from joulewise.data import RunResult, WarningCode
from joulewise.errors import JoulewiseError
from joulewise.process.child import Child, find_program, replace_process
from joulewise.process.json_lines import Message
from joulewise.process.signals import Signals, take_signals
from joulewise.record.environment import with_frameworks
from joulewise.session.budget import Budget, BudgetWatch, as_message
from joulewise.session.recorder_client import NoResourcesError, RecorderProcess, RecorderStartError
from joulewise.session.request import Ready, Request
from joulewise.session.settings import AppliedSettings
from joulewise.session.termination import (
    COMMAND,
    COMMAND_ID,
    RUN_ID,
    CommandTermination,
    list_names,
)
from joulewise.store.checksums import write_final_checksums
from joulewise.store.manifest import (
    CommandRecord,
    Manifest,
    read_manifest,
    with_command,
    write_final_manifest,
)
from joulewise.units import NS_PER_S

# Between SIGTERM and SIGKILL where a budget ends the command. Chosen: time to write a checkpoint,
# and Docker's default; doubled, a command that ignores SIGTERM overruns its budget by 20 s.
GRACE_S: Final = 10.0


class BudgetEnforcer:
    """Reports each change of a budget once, and ends the command where a budget says so.

    The recorder checks all budgets; time is checked here as well, since the recorder may be dead.
    ``token`` identifies the processes of the command: they are told to end at the same time.
    """

    def __init__(
        self,
        budgets: Sequence[Budget],
        command: MeasuredCommand,
        start_ns: int,
        recorder: RecorderProcess,
        say: Callable[[str], None],
        *,
        token: str = "",
        grace_s: float = GRACE_S,
    ) -> None:
        self._watch = BudgetWatch(budgets)
        self._command = command
        self._start_ns = start_ns
        self._recorder = recorder
        self._say = say
        self._grace_ns = round(grace_s * NS_PER_S)
        self._reported: set[tuple[str, str]] = set()
        self._token = token
        self._kill_ns = 0
        self._ending: CommandTermination | None = None
        self.stopped = False
        if any(budget.stop for budget in budgets):
            import psutil  # noqa: F401  # loaded before it is needed to end the command

    def check(self) -> float | None:
        """Do what is due now; return the seconds until something else is, None for never."""
        now_ns = time.monotonic_ns()
        time_s = (now_ns - self._start_ns) / NS_PER_S
        for event in self._watch.check(time_s=time_s, energy_j=None):
            self._on_budget(as_message(event), ours=True)
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

    def on_message(self, message: Message) -> None:
        """Handle a message of the recorder."""
        if message["kind"] == "budget":
            self._on_budget(message, ours=False)

    def _on_budget(self, event: Message, *, ours: bool) -> None:
        key = (event["budget"], event["state"])
        if key in self._reported:
            return
        self._reported.add(key)
        if ours:
            self._recorder.tell("budget", **event)
        if event["stop"] and not self.stopped:
            self.stopped = True
            self._kill_ns = time.monotonic_ns() + self._grace_ns
            self._ending = CommandTermination(self._token, self._command.pid)
            self._ending.ask()
        self._say(event["message"])  # last: writing to stderr may block


def finish_run(
    run: Path, command: CommandRecord, failure: str = ""
) -> tuple[RunResult | None, str]:
    """Finish a run whose recorder is gone: its result, or None and the reason.

    ``failure`` is the recorder's last message, empty where it was killed.
    """
    try:
        with _exclusive_access(run):
            manifest = _write_end(run, command, failure)
            from joulewise.analyse.run_result import analyse
            from joulewise.analyse.stored_result import write_result

            with suppress(OSError):
                write_final_checksums(run)
            result = analyse(run, manifest)
            with suppress(OSError):  # a full disk: `show` computes it again
                write_result(run, result)
    except JoulewiseError as error:
        return None, f"the recorder is gone, and {error.message}"
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


def _write_end(run: Path, command: CommandRecord, failure: str) -> Manifest:
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
    others = (each for each in manifest.notes if each.get("code") != note["code"])
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


_END_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True)
class CommandOutcome:
    """How a command ended, and its result; ``remark`` says why there is none."""

    exit_status: int
    run: Path | None
    result: RunResult | None
    remark: str = ""


@dataclass(frozen=True)
class RunCallbacks:
    """How to inform the user: before the command starts, and with lines that cannot wait.

    ``settings`` are put back as soon as the command has ended, before its result is computed.
    """

    opening: Callable[[Ready], None]
    say: Callable[[str], None]
    settings: AppliedSettings


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
    def look_s(self) -> float | None:
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
        if isinstance(error, NoResourcesError) and not callbacks.settings.as_json():
            replace_process(command, environ)
        return _run_unmeasured(command, environ)
    with ExitStack() as stack:
        try:
            callbacks.opening(recorder.ready)
            if request.baseline_s:
                time.sleep(request.baseline_s)
            signals = take_signals()  # never given back: we exit after showing the result
            token = environ.get(COMMAND_ID) or f"{os.getpid()}-{time.monotonic_ns()}"
            child_environ = _make_environ(environ, recorder.ready.run, token, hooks=request.hooks)
            start_ns = time.monotonic_ns()
            child = stack.enter_context(closing(Child(command, child_environ, signals)))
        except BaseException:
            recorder.cancel()
            raise
        recorder.command_started(child.pid, command, start_ns, token)
        enforcer = BudgetEnforcer(budgets, child, start_ns, recorder, callbacks.say, token=token)
        started = CommandRecord(child.pid, tuple(command), start_ns)
        return await_result(child, started, recorder, enforcer, callbacks.settings)


def _run_unmeasured(command: Sequence[str], environ: Mapping[str, str]) -> CommandOutcome:
    with closing(Child(command, environ, take_signals())) as child:
        with selectors.DefaultSelector() as selector:
            selector.register(child.signals, selectors.EVENT_READ)
            while not child.ended():
                selector.select()
        return CommandOutcome(child.exit_status, None, None)


def await_result(
    command: MeasuredCommand,
    started: CommandRecord,
    recorder: RecorderProcess,
    enforcer: BudgetEnforcer,
    settings: AppliedSettings,
) -> CommandOutcome:
    """Wait until the command has ended, put its settings back, and get its result."""
    run = recorder.ready.run
    try:
        _wait_for_end(command, recorder, enforcer, settings)
        end_ns, code, cpu_s = time.monotonic_ns(), command.exit_status, command.cpu_s
        recorder.command_ended(command.pid, end_ns, code, cpu_s)
        is_end_requested_again = partial(is_end_requested, command.signals)
        enforcer.end_rest(is_end_requested_again)
        settings.close()
        result, remark = recorder.finish(is_end_requested_again), recorder.remark
        if recorder.lost:
            ended = replace(started, end_ns=end_ns, exit_code=code, cpu_s=cpu_s)
            result, why = finish_run(run, ended, remark)
            remark = remark or why
    except Exception as error:  # noqa: BLE001  # a fault of joulewise must not end the command
        result, remark = None, f"unexpected {type(error).__name__}: {error}"
    return CommandOutcome(command.exit_status or 0, run, result, remark)


def _wait_for_end(
    command: MeasuredCommand,
    recorder: RecorderProcess,
    enforcer: BudgetEnforcer,
    settings: AppliedSettings,
) -> None:
    with selectors.DefaultSelector() as selector:
        guard_descriptors = settings.descriptors
        for descriptor in (*command.descriptors, recorder.fileno(), *guard_descriptors):
            selector.register(descriptor, selectors.EVENT_READ)
        listening = True
        while not command.ended():
            waits_s = (enforcer.check(), command.look_s)
            selector.select(min((each for each in waits_s if each is not None), default=None))
            for message in recorder.messages() if listening else ():
                enforcer.on_message(message)
            if recorder.lost and listening:
                selector.unregister(recorder.fileno())
                listening = False
            if lost := settings.lost():
                recorder.tell("unguarded", message=lost)
                for descriptor in guard_descriptors:
                    selector.unregister(descriptor)


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
    from joulewise.store.layout import MARKS

    environ = {**environment(base, run / MARKS, run.name, hooks=hooks), COMMAND: token}
    environ.pop(COMMAND_ID, None)
    return environ


def is_end_requested(signals: Signals) -> bool:
    """Whether one of the signals that arrived asks this process to end."""
    return any(received.number in _END_SIGNALS for received in signals)
