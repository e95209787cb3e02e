"""Starting a command among simulated GPUs: what it finds, what it is spared, how it ends."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from joulewise.errors import CommandNotExecutableError, CommandNotFoundError

_HERE = Path(__file__).parent
ABSENT = _HERE / "absent"
_FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_PR_SET_PDEATHSIG = 1
_SI_KERNEL = 0x80
_SIGNALFD_SIZE = 128
_libc = ctypes.CDLL(None, use_errno=True)


def environment(
    base: Mapping[str, str], *, library: Path, shared: Path, state: Path
) -> dict[str, str]:
    """What the command finds: our library and ``nvidia-smi`` before any other."""
    return {
        **base,
        "LD_LIBRARY_PATH": _before(base.get("LD_LIBRARY_PATH"), library),
        "PATH": search_path(base),
        "JOULEWISE_SIM": str(shared),
        "JOULEWISE_STATE": str(state),
        "JOULEWISE_PYTHON": sys.executable,
    }


def search_path(base: Mapping[str, str]) -> str:
    return _before(base.get("PATH", os.defpath), _HERE / "bin")


def _before(paths: str | None, first: Path) -> str:
    return f"{first}{os.pathsep}{paths}" if paths else str(first)


def find_program(name: str, path: str) -> None:
    """Raise what a shell would say of a command that cannot start."""
    if shutil.which(name, path=path):
        return
    there = Path(name)
    if os.sep in name and there.exists():
        what = "is a folder" if there.is_dir() else "is not executable"
        raise CommandNotExecutableError(f"{name} {what}", f"make it a program: chmod +x {name}")
    raise CommandNotFoundError(
        f"no program called {name}", "check the spelling, or give its full path"
    )


class Signals:
    """Takes the signals that would end this process, so that its command may answer them.

    The command shares our process group: what the terminal sends (Ctrl-C, Ctrl-Z) reaches it
    without us. What another process sends to us is meant for it, and is passed on.
    """

    def __init__(self) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would take the exit status
        caught = {*_FORWARDED, signal.SIGCHLD}
        self.mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, caught)
        self._descriptor = _signalfd(caught)

    def fileno(self) -> int:
        return self._descriptor

    def to_forward(self) -> Iterator[int]:
        """What has come since the last call, but for the terminal's and the end of a child."""
        while True:
            try:
                record = os.read(self._descriptor, _SIGNALFD_SIZE)
            except BlockingIOError:
                return
            number, _, code = struct.unpack_from("Iii", record)
            if number != signal.SIGCHLD and code != _SI_KERNEL:
                yield number

    def close(self) -> None:
        for _ in self.to_forward():
            pass  # a signal meant for the command must not end us in its place
        os.close(self._descriptor)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask_before)


class Child:
    """The command, which lives no longer than we do."""

    def __init__(
        self, command: Sequence[str], environ: Mapping[str, str], signals: Signals
    ) -> None:
        self.signals = signals
        parent = os.getpid()

        def die_with_parent() -> None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            signal.pthread_sigmask(signal.SIG_SETMASK, signals.mask_before)

        try:
            self._process = subprocess.Popen(
                command,
                env=dict(environ),
                close_fds=False,
                preexec_fn=die_with_parent,  # noqa: PLW1509  # there is one thread at this point
            )
        except FileNotFoundError as error:
            raise CommandNotFoundError(
                f"{command[0]} cannot start: {error.strerror}",
                "its interpreter (in the first line, after #!) is missing",
            ) from error
        except OSError as error:
            raise CommandNotExecutableError(
                f"{command[0]} cannot start: {error.strerror}",
                "a script needs a first line such as #!/bin/sh",
            ) from error

    def ended(self) -> bool:
        """Pass on the signals that came, and say whether the command is over."""
        for number in self.signals.to_forward():
            self._process.send_signal(number)
        return self._process.poll() is not None

    @property
    def exit_status(self) -> int:
        code = self._process.wait()
        return code if code >= 0 else 128 - code

    def close(self) -> None:
        self._process.kill()  # does nothing to one that has ended
        self._process.wait()


def _signalfd(numbers: set[signal.Signals]) -> int:
    mask = (ctypes.c_ulong * 16)(sum(1 << number - 1 for number in numbers))
    descriptor = int(_libc.signalfd(-1, mask, os.O_NONBLOCK | os.O_CLOEXEC))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "signalfd")
    return descriptor
