"""Starting a command that lives no longer than we do, and answers the signals that we get."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from joulewise.command.linux import SignalQueue, die_with_parent
from joulewise.errors import CommandNotExecutableError, CommandNotFoundError

_FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


def find_program(name: str, path: str) -> None:
    """Raise what a shell would say of a command that cannot start."""
    if shutil.which(name, path=path):
        return
    there = Path(name)
    if os.sep in name and there.exists():
        if there.is_dir():
            raise CommandNotExecutableError(f"{name} is a folder", "name a program in it")
        raise CommandNotExecutableError(f"{name} is not executable", f"run: chmod +x {name}")
    raise CommandNotFoundError(
        f"no program called {name}", "check the spelling, or give its full path"
    )


class Child:
    """The command, which lives no longer than we do, and answers the signals that we get.

    It shares our process group: what the terminal sends (Ctrl-C, Ctrl-Z) reaches it without us.
    What another process sends to us is meant for it, and is passed on.
    """

    def __init__(
        self, command: Sequence[str], environ: Mapping[str, str], signals: SignalQueue
    ) -> None:
        self.signals = signals
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
                "a script needs a first line such as #!/bin/sh, naming a program that you may run",
            ) from error

    def ended(self) -> bool:
        """Pass on the signals that came, and say whether the command is over."""
        for number, by_kernel in self.signals:
            if number != signal.SIGCHLD and not by_kernel:
                self._process.send_signal(number)
        return self._process.poll() is not None

    @property
    def exit_status(self) -> int:
        code = self._process.wait()
        return code if code >= 0 else 128 - code

    def close(self) -> None:
        self._process.kill()  # does nothing to one that has ended
        self._process.wait()


def take_signals() -> SignalQueue:
    """From here on nothing but SIGKILL ends this process before its command."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would take the exit status
    return SignalQueue({*_FORWARDED, signal.SIGCHLD})
