"""Starting a command that lives no longer than we do, and answers the signals that we get.

Descriptors 0 to 2, which are the command's, whether they are open or closed.

Starting a process of our own that lives apart: in a session of its own, and no child of ours.
"""

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

_SCRIPT_HINT: Final = (
    "a script needs a first line such as #!/bin/sh, naming a program that you may run"
)
_LIMITS_HINT: Final = "see the limits of this shell: ulimit -n, ulimit -u"
_EXHAUSTED: Final = {errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM}


def find_program(name: str, path: str) -> None:
    """Raise what a shell would say of a command that cannot start."""
    if shutil.which(name, path=path):
        return
    there = Path(name)
    if os.sep in name and there.exists():
        if there.is_dir():
            raise CommandNotExecutableError(f"{name} is a folder", "name a program in it")
        hint = _by_python(name) or f"run: chmod +x {shlex.quote(name)}"
        raise CommandNotExecutableError(f"{name} is not executable", hint)
    raise CommandNotFoundError(f"no program called {name}", _meant(name, path))


def _meant(name: str, path: str) -> str:
    """What to write instead of what no shell would find, either."""
    first, _, rest = name.partition(" ")
    if Path(name).is_file():
        return _by_python(name) or f"one in this folder is started as ./{shlex.quote(name)}"
    if rest and shutil.which(first, path=path):
        return f"leave out the quotes: {name}"
    return "check the spelling, or give its full path"


def _by_python(name: str) -> str:
    return f"have Python run it: python {shlex.quote(name)}" if name.endswith(".py") else ""


def replace_process(command: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Become the command (exec), which needs neither a process nor a descriptor more."""
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
    """The command, which lives no longer than we do, and answers the signals that we get.

    It shares our process group: what the terminal sends (Ctrl-C, Ctrl-Z) reaches it without us.
    What another process sends to us alone is meant for it, and is passed on. Where it is stopped by
    a signal that we got as well, so are we, as our parent expects of a job; a command that ignores
    Ctrl-Z goes on, and we with it. ``cpu_s`` is its CPU time with that of the children it waited
    for, once it has ended.
    """

    # It tells by a signal that it has ended; so often the witness of signals is looked at.
    look_s: float | None = 0.5

    def __init__(
        self, command: Sequence[str], environ: Mapping[str, str], signals: Signals
    ) -> None:
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
        """Readable when it is time to ask whether it has ended."""
        return [self.signals.fileno()]

    def ended(self) -> bool:
        """Pass on the signals that came, and say whether the command is over."""
        came = self._came()
        if came and not self._reap(os.WNOHANG):
            self._pass_on(came)
        elif not came:
            self._witness.drop_stale(time.monotonic())
        is_over = self._reap(os.WNOHANG)
        if not is_over:
            self._stop_with_command()
        return is_over

    def _stop_with_command(self) -> None:
        """Stop where the command has; the SIGCONT that resumes us is passed on to it."""
        if self._asked_to_stop and self._is_stopped:
            self._asked_to_stop = False
            os.kill(os.getpid(), signal.SIGSTOP)

    def _came(self) -> list[Signal]:
        return [each for each in self.signals if each.number != signal.SIGCHLD]

    def _pass_on(self, came: list[Signal]) -> None:
        """What the command has not got already."""
        alone = {each.number for each in came if not each.shared}
        witnessed = self._witness.await_others(alone)
        came += self._came()
        for each in came:  # SIGCONT takes back a SIGTSTP that nobody has looked at, and vice versa
            if each.number in (*STOPPING, signal.SIGCONT):
                self._asked_to_stop = each.number != signal.SIGCONT
        # Before the command is sent anything: it, or who hears it, may signal the group in answer.
        if witnessed:
            self._witness.begin_anew()
        # Of a number that went to all, the witness has the one that is known.
        known = {each.number for each in came if each.shared}
        for number in {each.number for each in came if not each.shared}:
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
        # Popen's own way does not tell the CPU time, nor whether it was stopped.
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


_FIRST_DESCRIPTOR: Final = 3
_MARKS: Final = "JOULEWISE_MARKS"  # in it, our own process would mark its spans
# Not ``-m``: that would look for every module in the user's working directory first.
_MAIN: Final = (
    "import os, sys; sys.argv[3] and os.fork() and os._exit(0); "
    "sys.path[:] = [p for p in sys.path if p] + sys.argv[4:]; "
    "from importlib import import_module; import_module(sys.argv[1]).main(int(sys.argv[2]))"
)


def start(
    module: str, environ: Mapping[str, str], *, is_child: bool = False
) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Call ``main`` of a module with one end of a line to us; the other end, and its process.

    Unless ``is_child``, what is told of the process is only its group: it was forked once more, so
    that nobody here has to wait for it.
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
    """Where stdin, stdout or stderr is closed, a new descriptor would take its place."""
    if end.fileno() >= _FIRST_DESCRIPTOR:
        return end
    with end:
        return socket.socket(fileno=fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR))
