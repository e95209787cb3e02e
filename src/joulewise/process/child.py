"""Starts processes: the user's command as a child, and processes of our own that outlive us."""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from joulewise.errors import CommandNotExecutableError, CommandNotFoundError
from joulewise.process.linux import die_with_parent
from joulewise.process.signals import STOPPING, Signal, Signals, Witness

_SCRIPT_HINT: Final = "a script needs a first line such as #!/bin/sh that names its interpreter"
_LIMITS_HINT: Final = "see the limits of this shell: ulimit -n, ulimit -u"
_EXHAUSTED: Final = {errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM}


def find_program(name: str, path: str) -> None:
    """Raise where a shell would not find or not execute ``name``; ``path`` is $PATH."""
    if shutil.which(name, path=path):
        return
    file = Path(name)
    if os.sep in name and file.exists():
        if file.is_dir():
            raise CommandNotExecutableError(f"{name} is a folder", "name a program in it")
        hint = _by_python(name) or f"run: chmod +x {shlex.quote(name)}"
        raise CommandNotExecutableError(f"{name} is not executable", hint)
    raise CommandNotFoundError(f"no program called {name}", _suggest_command(name, path))


def _suggest_command(name: str, path: str) -> str:
    first, _, rest = name.partition(" ")
    if Path(name).is_file():
        return _by_python(name) or f"start a program in this folder as ./{shlex.quote(name)}"
    if rest and shutil.which(first, path=path):
        return f"leave out the quotes: {name}"
    return "check the spelling, or give its full path"


def _by_python(name: str) -> str:
    return f"run it with Python: python {shlex.quote(name)}" if name.endswith(".py") else ""


def replace_process(command: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Become the command (exec), which takes no further process or descriptor."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and exec would keep it so
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvpe(command[0], list(command), dict(environ))  # noqa: S606
    except OSError as error:
        raise CommandNotExecutableError(
            f"{command[0]} cannot start: {error.strerror}", _SCRIPT_HINT
        ) from error


class Child:
    """The user's command as a child that dies with us and gets the signals sent to us.

    It shares our process group: signals from the terminal (Ctrl-C, Ctrl-Z) reach it without us.
    A signal that another process sends to us alone is passed on. Where a signal that we also got
    stops the command, we stop as well, as a shell expects of a job; a command that ignores Ctrl-Z
    goes on, and so do we. ``cpu_s`` is its CPU time and that of the children it waited for, once it
    has ended.
    """

    # SIGCHLD announces its end; the witness of signals is checked this often. Chosen: well above
    # the 0.25 s for which a signal may be late; doubled, a stale one is dropped later.
    poll_s: float | None = 0.5

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        signals: Signals,
        streams: tuple[int, int] = (1, 2),
    ) -> None:
        """``streams`` are the descriptors of its stdout and stderr."""
        self.signals = signals
        self.cpu_s: float | None = None
        self._is_stopped = False
        self._asked_to_stop = False
        parent = os.getpid()

        def before_exec() -> None:
            die_with_parent(parent)
            signal.pthread_sigmask(signal.SIG_SETMASK, signals.mask_before)

        try:
            self._process = subprocess.Popen(
                command,
                env=dict(environ),
                close_fds=False,
                stdout=streams[0] if streams[0] != 1 else None,
                stderr=streams[1] if streams[1] != 2 else None,
                preexec_fn=before_exec,  # noqa: PLW1509  # there is one thread at this point
            )
        except FileNotFoundError as error:
            raise CommandNotFoundError(
                f"{command[0]} cannot start: {error.strerror}",
                "its interpreter (in the first line, after #!) is missing",
            ) from error
        except OSError as error:
            raise CommandNotExecutableError(
                f"{command[0]} cannot start: {error.strerror}",
                _LIMITS_HINT if error.errno in _EXHAUSTED else _SCRIPT_HINT,
            ) from error
        self._witness = Witness()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def descriptors(self) -> Sequence[int]:
        """Readable when ``ended`` should be called."""
        return [self.signals.fileno()]

    def ended(self) -> bool:
        """Pass on the signals that arrived, and tell whether the command has ended."""
        received = self._receive()
        if received and not self._reap(os.WNOHANG):
            self._pass_on(received)
        elif not received:
            self._witness.drop_stale(time.monotonic())
        is_over = self._reap(os.WNOHANG)
        if not is_over:
            self._stop_with_command()
        return is_over

    def _stop_with_command(self) -> None:
        """Stop if the command has stopped; the SIGCONT that resumes us is passed on to it."""
        if self._asked_to_stop and self._is_stopped:
            self._asked_to_stop = False
            os.kill(os.getpid(), signal.SIGSTOP)

    def _receive(self) -> list[Signal]:
        return [received for received in self.signals if received.number != signal.SIGCHLD]

    def _pass_on(self, received: list[Signal]) -> None:
        """Send the command the signals that it has not got itself."""
        witnessed = self._witness.await_others({s.number for s in received if not s.shared})
        received += self._receive()
        for one in received:  # SIGCONT cancels a pending SIGTSTP, and vice versa
            if one.number in (*STOPPING, signal.SIGCONT):
                self._asked_to_stop = one.number != signal.SIGCONT
        # Before the command is sent anything: it may signal the whole group in answer.
        if witnessed:
            self._witness.begin_anew()
        # Where one signal of a number is known to be shared, that is the one the witness has.
        known = {s.number for s in received if s.shared}
        for number in {s.number for s in received if not s.shared}:
            with_us = self._in_our_group() and witnessed >> number - 1 & 1
            if number in known or not with_us:
                self.send(number)

    def _in_our_group(self) -> bool:
        return os.getpgid(self.pid) == os.getpgrp()

    def send(self, number: int) -> None:
        if self._process.returncode is None:
            os.kill(self.pid, number)

    @property
    def exit_status(self) -> int:
        self._reap(0)
        code = self._process.returncode
        return code if code >= 0 else 128 - code

    def close(self) -> None:
        self.send(signal.SIGKILL)
        self._reap(0)
        self._witness.close()

    def _reap(self, options: int) -> bool:
        # Popen.poll tells neither the CPU time nor whether the child is stopped.
        if options & os.WNOHANG:
            options |= os.WUNTRACED | os.WCONTINUED
        while self._process.returncode is None:
            pid, status, usage = os.wait4(self.pid, options)
            if not pid:
                break
            self._is_stopped = os.WIFSTOPPED(status)
            if not self._is_stopped and not os.WIFCONTINUED(status):
                self._process.returncode = os.waitstatus_to_exitcode(status)
                self.cpu_s = usage.ru_utime + usage.ru_stime
        return self._process.returncode is not None


_FIRST_DESCRIPTOR: Final = 3  # the first above stdin, stdout and stderr
_MARKS: Final = "JOULEWISE_MARKS"  # with it, our own process would write spans of its own
# Not ``-m``, which would search the user's working directory first for every module.
_MAIN: Final = (
    "import os, sys; sys.argv[3] and os.fork() and os._exit(0); "
    "sys.path[:] = [p for p in sys.path if p] + sys.argv[4:]; "
    "from importlib import import_module; import_module(sys.argv[1]).main(int(sys.argv[2]))"
)


def start_process(
    module: str, environ: Mapping[str, str], *, is_child: bool = False
) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Run ``main(descriptor)`` of a module in a new process and session, connected by a socket.

    Returns our end of the socket and the process. Unless ``is_child``, the process was forked once
    more, so that nobody here has to wait for it: ``pid`` is then only that of its process group.
    """
    ours, theirs = (above_standard(end) for end in socket.socketpair())
    with theirs:
        process = subprocess.Popen(
            [
                *(sys.executable, "-W", "ignore", "-c", _MAIN, module, str(theirs.fileno())),
                *("" if is_child else "apart", str(Path(__file__).parents[2])),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            env={name: value for name, value in environ.items() if name != _MARKS},
        )
    if not is_child:
        process.wait()
    return ours, process


def above_standard(end: socket.socket) -> socket.socket:
    """The socket with a descriptor above 2: a new one would replace a closed stdin or stdout."""
    if end.fileno() >= _FIRST_DESCRIPTOR:
        return end
    with end:
        return socket.socket(fileno=fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR))
