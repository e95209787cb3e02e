"""``joulewise run``: a command from its start to its result, as if we were not there.

Budgets, as the process sees them that started the command: what to say, and when to end it.

Finishing a run whose recorder is gone: what it wrote is there, and the command has ended.
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

from joulewise.data import Caution, RunResult
from joulewise.errors import JoulewiseError
from joulewise.process.child import Child, find_program, replace_process
from joulewise.process.json_lines import Message
from joulewise.process.signals import Signals, take_signals
from joulewise.record.environment import with_frameworks
from joulewise.session.budget import Budget, as_message, overdue, time_left_s
from joulewise.session.recorder_client import NoResourcesError, NotReadyError, RecorderProcess
from joulewise.session.request import Ready, Request
from joulewise.session.settings import Turned
from joulewise.session.terminate import COMMAND, COMMAND_ID, RUN_ID, Ending, listed
from joulewise.store.checksums import write_final_checksums
from joulewise.store.manifest import (
    CommandRecord,
    Manifest,
    read_manifest,
    with_command,
    write_last,
)
from joulewise.units import NS_PER_S

GRACE_S: Final = 10.0


class Running(Protocol):
    @property
    def pid(self) -> int: ...


class BudgetEnforcer:
    """Says what is foreseen and exceeded, once each; ends the command where a budget says so.

    The recorder knows of energy. Time is looked at here too, since a recorder may be dead.
    ``token`` is what all processes of the command have: they are asked to end at the same time.
    """

    def __init__(
        self,
        budgets: Sequence[Budget],
        command: Running,
        start_ns: int,
        recorder: RecorderProcess,
        say: Callable[[str], None],
        *,
        token: str = "",
        grace_s: float = GRACE_S,
    ) -> None:
        self._budgets = budgets
        self._command = command
        self._start_ns = start_ns
        self._recorder = recorder
        self._say = say
        self._grace_ns = round(grace_s * NS_PER_S)
        self._said: set[tuple[str, str]] = set()
        self._token = token
        self._kill_ns = 0
        self._ending: Ending | None = None
        self.stopped = False
        if any(budget.stop for budget in budgets):
            import psutil  # noqa: F401  # what ends a command must not be loaded only then

    def look(self) -> float | None:
        """Do what is due by now; for how many seconds nothing else will be."""
        now_ns = time.monotonic_ns()
        for event in overdue(self._budgets, self._start_ns, now_ns):
            self._on_budget(as_message(event), ours=True)
        if self._ending and now_ns >= self._kill_ns:
            self._say_killed(self._ending.kill())
            self._ending = None
        waits_s = [time_left_s(self._budgets, self._start_ns, now_ns)]
        if self._ending:
            waits_s.append((self._kill_ns - now_ns) / NS_PER_S)
        return min((wait_s for wait_s in waits_s if wait_s is not None), default=None)

    def end_rest(self, hurry: Callable[[], bool]) -> None:
        """The command has ended: those it started have the rest of the same grace."""
        if self._ending:
            left_s = (self._kill_ns - time.monotonic_ns()) / NS_PER_S
            self._say_killed(self._ending.end(left_s, hurry))
            self._ending = None

    def _say_killed(self, names: Sequence[str]) -> None:
        if names:
            within = f"within {self._grace_ns / NS_PER_S:g} s"
            self._say(f"did not end {within}, and was killed: {listed(names)}")

    def hear(self, message: Message) -> None:
        """What the recorder says."""
        if message["kind"] == "budget":
            self._on_budget(message, ours=False)

    def _on_budget(self, event: Message, *, ours: bool) -> None:
        key = (event["budget"], event["state"])
        if key in self._said:
            return
        self._said.add(key)
        if ours:
            self._recorder.tell("budget", **event)
        if event["stop"] and not self.stopped:
            self.stopped = True
            self._kill_ns = time.monotonic_ns() + self._grace_ns
            self._ending = Ending(self._token, self._command.pid)
            self._ending.ask()
        self._say(event["message"])  # after it: whoever reads it may keep us waiting


def finish_run(
    run: Path, ended: CommandRecord, last_words: str = ""
) -> tuple[RunResult | None, str]:
    """Write down how the command ended, and compute what can be; else the reason why not.

    ``last_words`` are the recorder's, where it failed and was not killed.
    """
    try:
        with _alone(run):
            manifest = _tell(run, ended, last_words)
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
def _alone(run: Path) -> Iterator[None]:
    """All commands of a group find the recorder gone, and some end at once."""
    folder = None
    with suppress(OSError):  # a file system that locks nothing
        folder = os.open(run, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if folder is not None:
            os.close(folder)


def _tell(run: Path, ended: CommandRecord, last_words: str) -> Manifest:
    from joulewise.store.redact import mask

    manifest = with_frameworks(run, read_manifest(run))
    ended = replace(ended, arguments=mask(ended.arguments))
    note = {
        "code": Caution.RECORDER_ENDED.value,
        "message": "the recorder ended before the command did: what came after it is missing",
        "hint": f"please report that it said: {last_words}"
        if last_words
        else "see who killed it (the kernel for want of memory? look into dmesg)",
    }
    commands = with_command(manifest.commands, ended)
    codes = [each.exit_code for each in commands if each.end_ns is not None]
    end_ns = max(ended.end_ns or 0, manifest.monotonic_end_ns or 0)
    others = (each for each in manifest.notes if each.get("code") != note["code"])
    manifest = replace(
        manifest,
        commands=commands,
        state="stopped",
        exit_code=next((code for code in codes if code), ended.exit_code),
        # Of the same moment: a recorder that did not answer was waited for since.
        wall_end_ns=time.time_ns() - (time.monotonic_ns() - end_ns),
        monotonic_end_ns=end_ns,
        notes=(*others, note),
    )
    with suppress(OSError):
        write_last(run, manifest)
    return manifest


_LAST_WORDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True)
class CommandOutcome:
    """How a command ended and what it took; ``remark`` says why there is no result."""

    exit_status: int
    run: Path | None
    result: RunResult | None
    remark: str = ""


@dataclass(frozen=True)
class Voice:
    """What is said to the user: once before the command starts, and whatever cannot wait.

    ``turned`` is put back as soon as the command is over, before its result is computed.
    """

    opening: Callable[[Ready], None]
    say: Callable[[str], None]
    turned: Turned


class Attended(Protocol):
    """A command that is being measured, however it was started."""

    @property
    def pid(self) -> int: ...

    @property
    def signals(self) -> Signals: ...

    @property
    def descriptors(self) -> Sequence[int]:
        """Readable when it is time to ask whether it has ended."""
        ...

    @property
    def look_s(self) -> float | None:
        """How often to ask all the same."""
        ...

    @property
    def cpu_s(self) -> float | None: ...

    @property
    def exit_status(self) -> int | None:
        """None where nobody tells us."""
        ...

    def ended(self) -> bool: ...

    def send(self, number: int) -> None: ...


def run(
    command: Sequence[str],
    store: Path,
    request: Request,
    budgets: Sequence[Budget],
    voice: Voice,
) -> CommandOutcome:
    """Run the command to its end, and measure it."""
    environ = original_environ()
    find_program(command[0], environ.get("PATH", os.defpath))
    # Not for the command: what it measures itself are other runs.
    request = replace(request, run_id=environ.pop(RUN_ID, ""))
    try:
        recorder = RecorderProcess.start(store, request)
    except NotReadyError as error:  # a sensor's fault is never the command's
        voice.say(f"{error.message}: the command is not measured; {error.hint}")
        if isinstance(error, NoResourcesError) and not voice.turned.as_json():
            replace_process(command, environ)
        return _run_unmeasured(command, environ)
    with ExitStack() as stack:
        try:
            voice.opening(recorder.ready)
            if request.baseline_s:
                time.sleep(request.baseline_s)
            signals = take_signals()  # for good: all that is left is to tell, and to exit
            token = environ.get(COMMAND_ID) or f"{os.getpid()}-{time.monotonic_ns()}"
            told = _environ(environ, recorder.ready.run, token, hooks=request.hooks)
            start_ns = time.monotonic_ns()
            child = stack.enter_context(closing(Child(command, told, signals)))
        except BaseException:
            recorder.cancel()
            raise
        recorder.command_started(child.pid, command, start_ns, token)
        limits = BudgetEnforcer(budgets, child, start_ns, recorder, voice.say, token=token)
        started = CommandRecord(child.pid, tuple(command), start_ns)
        return attend(child, started, recorder, limits, voice.turned)


def _run_unmeasured(command: Sequence[str], environ: Mapping[str, str]) -> CommandOutcome:
    with closing(Child(command, environ, take_signals())) as child:
        with selectors.DefaultSelector() as selector:
            selector.register(child.signals, selectors.EVENT_READ)
            while not child.ended():
                selector.select()
        return CommandOutcome(child.exit_status, None, None)


def attend(
    command: Attended,
    started: CommandRecord,
    recorder: RecorderProcess,
    limits: BudgetEnforcer,
    turned: Turned,
) -> CommandOutcome:
    """Wait until the command has ended, and get its result."""
    run = recorder.ready.run
    try:
        _wait(command, recorder, limits, turned)
        end_ns, code, cpu_s = time.monotonic_ns(), command.exit_status, command.cpu_s
        recorder.command_ended(command.pid, end_ns, code, cpu_s)
        impatient = partial(asked_to_end, command.signals)
        limits.end_rest(impatient)
        turned.close()
        result, remark = recorder.finish(impatient), recorder.remark
        if recorder.lost:
            ended = replace(started, end_ns=end_ns, exit_code=code, cpu_s=cpu_s)
            result, why = finish_run(run, ended, remark)
            remark = remark or why
    except Exception as error:  # noqa: BLE001  # a fault of ours must not end the command
        result, remark = None, f"unexpected {type(error).__name__}: {error}"
    return CommandOutcome(command.exit_status or 0, run, result, remark)


def _wait(
    command: Attended, recorder: RecorderProcess, limits: BudgetEnforcer, turned: Turned
) -> None:
    with selectors.DefaultSelector() as selector:
        guarded = turned.descriptors
        for descriptor in (*command.descriptors, recorder.fileno(), *guarded):
            selector.register(descriptor, selectors.EVENT_READ)
        listening = True
        while not command.ended():
            waits_s = (limits.look(), command.look_s)
            selector.select(min((each for each in waits_s if each is not None), default=None))
            for message in recorder.messages() if listening else ():
                limits.hear(message)
            if recorder.lost and listening:
                selector.unregister(recorder.fileno())
                listening = False
            if lost := turned.lost():
                recorder.tell("unguarded", message=lost)
                for descriptor in guarded:
                    selector.unregister(descriptor)


def original_environ() -> dict[str, str]:
    """The environment that we were started with.

    Python adds LC_CTYPE to its own in the C locale, and the command would not have that.
    """
    try:
        block = Path("/proc/self/environ").read_bytes()
    except OSError:
        return dict(os.environ)
    pairs = (entry.partition(b"=") for entry in block.split(b"\0") if b"=" in entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _environ(base: Mapping[str, str], run: Path, token: str, *, hooks: bool) -> dict[str, str]:
    from joulewise.hooks.install import environment
    from joulewise.store.layout import MARKS

    environ = {**environment(base, run / MARKS, run.name, hooks=hooks), COMMAND: token}
    environ.pop(COMMAND_ID, None)
    return environ


def asked_to_end(signals: Signals) -> bool:
    return any(received.number in _LAST_WORDS for received in signals)
