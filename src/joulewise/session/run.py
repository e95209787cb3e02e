"""``joulewise run``: a command from its start to its result, as if we were not there."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from joulewise.command.child import Child, find_program, replace_process
from joulewise.command.signals import Signals, take_signals
from joulewise.data import RunResult
from joulewise.record.manifest import CommandRecord
from joulewise.session.budget import Budget
from joulewise.session.ending import COMMAND
from joulewise.session.limits import Limits
from joulewise.session.link import RecorderProcess
from joulewise.session.request import Ready, Request
from joulewise.session.rescue import finish_run
from joulewise.session.settings import Turned
from joulewise.session.starting import NoResourcesError, NotReadyError

_LAST_WORDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@dataclass(frozen=True)
class Outcome:
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
) -> Outcome:
    """Run the command to its end, and measure it."""
    environ = original_environ()
    find_program(command[0], environ.get("PATH", os.defpath))
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
            token = f"{os.getpid()}-{time.monotonic_ns()}"
            told = _environ(environ, recorder.ready.run, token, hooks=request.hooks)
            start_ns = time.monotonic_ns()
            child = stack.enter_context(closing(Child(command, told, signals)))
        except BaseException:
            recorder.cancel()
            raise
        recorder.command_started(child.pid, command, start_ns, token)
        limits = Limits(budgets, child, start_ns, recorder, voice.say, token=token)
        started = CommandRecord(child.pid, tuple(command), start_ns)
        return attend(child, started, recorder, limits, voice.turned)


def _run_unmeasured(command: Sequence[str], environ: Mapping[str, str]) -> Outcome:
    with closing(Child(command, environ, take_signals())) as child:
        with selectors.DefaultSelector() as selector:
            selector.register(child.signals, selectors.EVENT_READ)
            while not child.ended():
                selector.select()
        return Outcome(child.exit_status, None, None)


def attend(
    command: Attended,
    started: CommandRecord,
    recorder: RecorderProcess,
    limits: Limits,
    turned: Turned,
) -> Outcome:
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
    return Outcome(command.exit_status or 0, run, result, remark)


def _wait(command: Attended, recorder: RecorderProcess, limits: Limits, turned: Turned) -> None:
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
    from joulewise.record.layout import MARKS

    return {**environment(base, run / MARKS, run.name, hooks=hooks), COMMAND: token}


def asked_to_end(signals: Signals) -> bool:
    return any(received.number in _LAST_WORDS for received in signals)
