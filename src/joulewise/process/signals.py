"""The signals that arrive while a command runs, and whether the command has received them, too.

The kernel does not tell whether a signal was sent to us alone or to our whole process group. A
*witness*, a process of the group that does nothing, shows it: what it got, the group got.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from joulewise.process import linux

_FORWARDED: Final = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
    signal.SIGXCPU,
    signal.SIGALRM,
)
STOPPING: Final = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
"""What stops a job of a shell. Its resumption is SIGCONT."""

# Signals by the kernel about this process itself (a fault in its code, a pipe without a reader, a
# file that is too large), and those that cannot be caught. All others are for the command.
_OWN: Final = {
    signal.SIGKILL,
    signal.SIGSTOP,
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGSYS,
    signal.SIGPIPE,
    signal.SIGXFSZ,
}
_JOB_CONTROL: Final = {*STOPPING, signal.SIGCONT}
_BY_TERMINALS: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH, *STOPPING)
# The kernel sends it for the CPU time of one process; the command has the same limit for itself.
_OF_EACH: Final = (signal.SIGXCPU,)


@dataclass(frozen=True)
class Signal:
    """A signal; ``shared`` where our whole process group certainly got it, the command included."""

    number: int
    shared: bool


class Signals(Protocol):
    """Signals that are queued to be read, instead of ending or stopping this process."""

    @property
    def mask_before(self) -> Collection[int]: ...

    def fileno(self) -> int:
        """Readable when a signal has arrived."""
        ...

    def __iter__(self) -> Iterator[Signal]: ...

    def close(self) -> None: ...


def take_signals(*, with_job_control: bool = True) -> Signals:
    """Queue all signals that can be: only SIGKILL ends this process before its command.

    Without job control, Ctrl-Z stops this process at once, like any other.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would take the exit status
    if not linux.IS_LINUX:
        return HandledSignals({*_FORWARDED, signal.SIGCHLD})
    numbers = signal.valid_signals() - _OWN
    return QueuedSignals(numbers if with_job_control else numbers - _JOB_CONTROL)


class QueuedSignals:
    """Signals on Linux, which reports the sender of each."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._queue = linux.SignalQueue(numbers)
        self.mask_before = self._queue.mask_before

    def fileno(self) -> int:
        return self._queue.fileno()

    def __iter__(self) -> Iterator[Signal]:
        for number, by_kernel, sender in self._queue:
            # A terminal sends to its whole foreground group, and so does a command that ends
            # the group it is in. It must not get back what it sent. When a terminal is hung up,
            # only the leader of its session gets SIGHUP, and an alarm is for one process.
            shared = by_kernel and number in (*_BY_TERMINALS, *_OF_EACH)
            yield Signal(number, shared=shared or _descends(sender))

    def close(self) -> None:
        self._queue.close()


class HandledSignals:
    """Signals on other systems, which report the number only.

    One that a terminal can send counts as shared while we are in its foreground.
    """

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self.mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._before = {
            number: signal.signal(number, lambda *_: None)
            for number in numbers
            if signal.getsignal(number) is not signal.SIG_IGN
        }

    def fileno(self) -> int:
        return self._read

    def __iter__(self) -> Iterator[Signal]:
        with suppress(BlockingIOError):
            for number in os.read(self._read, 4096):
                yield Signal(number, shared=number in _BY_TERMINALS and _in_foreground())

    def close(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._read)
        os.close(self._write)


def _descends(pid: int) -> bool:
    """Whether a process descends from this one, as far as /proc still shows it."""
    ours = os.getpid()
    while pid > 1:
        pid = linux.parent_pid(pid)
        if pid == ours:
            return True
    return False


def _in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


# Job managers and timeout(1) signal one process after the other, and some send two signals in a
# row (SIGCONT and SIGTERM): all of that has come after this time. Doubled, a command would miss
# more of the signals that somebody repeats: those that come meanwhile are one.
_GRACE_S: Final = 0.05
# On a busy machine more than that passes between two processes. A command that is to end would get
# the signal twice, which many take for "at once": for these alone, what is missing is waited for.
# Chosen: half as long, it would happen now and then; doubled, whoever stops a job would notice.
_ENDING: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
_ENDING_GRACE_S: Final = 0.25
_LOOK_S: Final = 0.01
_PENDING: Final = re.compile(r"^ShdPnd:\s*(\w+)$", re.MULTILINE)


class Witness:
    """A process in our group whose pending signals show what the whole group was sent.

    Signals are blocked when it starts, so they stay pending and can be read from /proc. Where there
    is no witness, every signal counts as sent to us alone.
    """

    def __init__(self) -> None:
        self._process = _start()
        self._stale_since_s: float | None = None

    def await_others(self, numbers: Collection[int]) -> int:
        """Wait until a sender has signalled the whole group; return ``pending`` after that.

        ``numbers`` are the signals that we got; empty where all are known to be shared.
        """
        if not numbers or self._process is None:
            return self.pending()
        select.select((), (), (), _GRACE_S)
        ending = sum(1 << number - 1 for number in numbers if number in _ENDING)
        for _ in range(round((_ENDING_GRACE_S - _GRACE_S) / _LOOK_S)):
            if self.pending() & ending == ending:
                break
            select.select((), (), (), _LOOK_S)
        return self.pending()

    def pending(self) -> int:
        """The signals that it has got since its start, one bit each."""
        if self._process is None:
            return 0
        try:
            found = _PENDING.search(Path(f"/proc/{self._process.pid}/status").read_text())
        except OSError:
            return 0
        return int(found[1], 16) if found else 0

    def drop_stale(self, now_s: float) -> None:
        """Start a new witness where it has had a signal for a while that we did not get.

        That one was sent to other processes of the group, or to the witness long after us, and
        would be taken for the next signal of its number.
        """
        if not self.pending():
            self._stale_since_s = None
        elif self._stale_since_s is None:
            self._stale_since_s = now_s
        elif now_s - self._stale_since_s > _ENDING_GRACE_S:
            self.begin_anew()

    def begin_anew(self) -> None:
        """Start a new witness without pending signals; those that arrive meanwhile are missed."""
        self.close()
        self._process = _start()
        self._stale_since_s = None

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _start() -> subprocess.Popen[bytes] | None:
    """A ``cat`` on a pipe from us: it ends when we end, in whatever way."""
    with suppress(OSError):
        if linux.IS_LINUX:
            return subprocess.Popen(
                ["cat"],  # noqa: S607  # wherever it is
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
    return None
