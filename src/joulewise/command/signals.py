"""The signals that come while a command runs: which, and whether the command has it already."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from joulewise.command import linux

_FORWARDED: Final = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
_BY_TERMINALS: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH)


@dataclass(frozen=True)
class Signal:
    """``shared`` is what all of our process group is sure to have got, and so the command, too."""

    number: int
    shared: bool


class Signals(Protocol):
    """Signals that do nothing but wait to be looked at."""

    @property
    def mask_before(self) -> Collection[int]: ...

    def fileno(self) -> int:
        """Readable when one has come."""
        ...

    def __iter__(self) -> Iterator[Signal]: ...

    def close(self) -> None: ...


def take_signals() -> Signals:
    """From here on nothing but SIGKILL ends this process before its command."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would take the exit status
    numbers = {*_FORWARDED, signal.SIGCHLD}
    return QueuedSignals(numbers) if linux.HERE else HandledSignals(numbers)


class QueuedSignals:
    """Linux tells of each signal who sent it."""

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self._queue = linux.SignalQueue(numbers)
        self.mask_before = self._queue.mask_before

    def fileno(self) -> int:
        return self._queue.fileno()

    def __iter__(self) -> Iterator[Signal]:
        for number, by_kernel, sender in self._queue:
            # A terminal sends to its whole foreground group, and so does a command that ends
            # the group it is in. It must not get back what it sent.
            yield Signal(number, shared=by_kernel or _descends(sender))

    def close(self) -> None:
        self._queue.close()


class HandledSignals:
    """Elsewhere only the number is known: what is typed at our terminal went to the command."""

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
    """Whether a process comes from this one, as far as it can still be told."""
    ours = os.getpid()
    while pid > 1:
        pid = linux.parent(pid)
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
