"""Copies the output of a command to where it belongs, so that its lines can be read as well.

The command writes to a terminal of its own (a pty) where its output is a terminal, else to a pipe.
A process of ours, the copier, writes all bytes on, unchanged and in their order, and gives a copy
to a listener (:class:`OutputListener`). Nothing that the listener does holds the output up: what it
does not take in time is dropped, and it is told so.

::

    command ── pty or pipe ──> copier ──> stdout, stderr
                                  └─────> listener (a named pipe)

Where stdout and stderr are the same terminal or file, they are one for the command, too. A reader
that goes away (``| head``) closes the command's end, as it would without the copier. The copier
blocks all signals; where it is killed, another takes its place, and what it had just read is lost.
It ends when the last process that the command has started has closed its output.

What is different for the command: it has another terminal, of the same size and settings, which is
not its controlling terminal; a file that it writes to is a pipe, in which it cannot seek.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import socket
import struct
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, NoReturn

from joulewise.process.child import above_standard

_STREAMS: Final = (1, 2)  # stdout and stderr
# A record for the listener: time, stream, whether bytes before it were dropped, and their number.
_HEAD: Final = struct.Struct("<qBBH")
_MOST_B: Final = select.PIPE_BUF - _HEAD.size  # so that a record is written as a whole
_LISTENER_B: Final = 1 << 20  # what waits for the listener; chosen, the most that Linux allows
_READ_B: Final = 1 << 16
_END, _DRAINED, _BROKEN = b"e", b"d", b"b"
# Until all output has been written that was there when the command ended. Chosen: whoever reads it
# may be stopped, and our result must not wait for that for ever.
_DRAIN_S: Final = 10.0
_SIZE_FORM: Final = struct.pack("HHHH", 0, 0, 0, 0)  # of a terminal


@contextmanager
def named_pipe() -> Iterator[Path]:
    """A named pipe for a copy of the output; its name is gone afterwards, its open ends stay."""
    with TemporaryDirectory(prefix="joulewise-") as folder:
        path = Path(folder, "output")
        os.mkfifo(path, 0o600)
        yield path


class OutputPart(NamedTuple):
    """Bytes that the command wrote to a stream (1 or 2), by CLOCK_MONOTONIC.

    ``is_after_gap``: bytes before them were dropped.
    """

    t_ns: int
    stream: int
    is_after_gap: bool
    text: bytes


class OutputListener:
    """The end of the named pipe at which the copied output can be read; ``poll`` never waits."""

    def __init__(self, path: Path) -> None:
        self._descriptor = _open_above_standard(path, os.O_RDONLY)
        with suppress(OSError):
            fcntl.fcntl(self._descriptor, fcntl.F_SETPIPE_SZ, _LISTENER_B)
        self._rest = b""

    def poll(self) -> list[OutputPart]:
        """What has been written since the last poll."""
        parts = []
        with suppress(BlockingIOError):
            while data := os.read(self._descriptor, _LISTENER_B):
                self._rest += data
        at = 0
        while len(self._rest) - at >= _HEAD.size:
            t_ns, stream, has_gap, size = _HEAD.unpack_from(self._rest, at)
            begin, end = at + _HEAD.size, at + _HEAD.size + size
            if len(self._rest) < end:
                break
            parts.append(OutputPart(t_ns, stream, bool(has_gap), self._rest[begin:end]))
            at = end
        self._rest = self._rest[at:]
        return parts

    def close(self) -> None:
        os.close(self._descriptor)


@dataclass
class _Copied:
    """A stream that is copied: our end of it, and the descriptor to which its bytes go."""

    source: int
    target: int
    is_terminal: bool


class CopiedOutput:
    """The output of one command, copied to a listener.

    ``streams`` are the stdout and stderr for the command, and belong to it once it has started:
    then call ``started``.
    """

    def __init__(self, listener: Path) -> None:
        self._listener = _open_above_standard(listener, os.O_WRONLY)
        self._copied: dict[int, _Copied] = {}  # by the command's end
        self.streams = self._open_streams()
        self._ends: tuple[int, ...] = tuple(self._copied)
        self._copier: socket.socket | None = None
        self._start_copier()

    def _open_streams(self) -> tuple[int, int]:
        ends: dict[tuple[int, int, int], int] = {}
        streams = []
        for stream in _STREAMS:
            try:
                status = os.fstat(stream)
            except OSError:  # it is closed
                streams.append(stream)
                continue
            key = (status.st_dev, status.st_ino, status.st_rdev)
            if key not in ends:
                ends[key] = self._open(stream)
            streams.append(ends[key])
        return streams[0], streams[1]

    def _open(self, stream: int) -> int:
        is_terminal = os.isatty(stream)
        source, end = map(_above_standard, os.openpty() if is_terminal else os.pipe())
        if is_terminal:
            _make_alike(end, stream)
        self._copied[end] = _Copied(source, stream, is_terminal)
        return end

    def started(self) -> None:
        """The command has the streams now: close ours, so that the end of its output is seen."""
        ends, self._ends = self._ends, ()
        for end in ends:
            os.close(end)

    @property
    def descriptors(self) -> Sequence[int]:
        """Readable when ``check`` should be called."""
        return [self._copier.fileno()] if self._copier else []

    def check(self) -> None:
        """Hear what the copier tells; start another where it was killed."""
        if self._copier is None:
            return
        if self._receive() is None:
            before, self._copier = self._copier, None
            if self._sources():
                self._start_copier()
            before.close()  # only now: its number must not be that of the new one

    def drain(self) -> None:
        """Wait until what the command has written until now is where it belongs."""
        if self._copier is None:
            return
        with suppress(OSError):
            self._copier.send(_END)
        deadline_s = time.monotonic() + _DRAIN_S
        while (left_s := deadline_s - time.monotonic()) > 0:
            if not select.select([self._copier], [], [], left_s)[0]:
                break
            told = self._receive()
            if told is None or _DRAINED in told:
                break
        self.close()

    def close(self) -> None:
        """Leave the rest to the copier. It may be called again."""
        self.started()
        for source in self._sources():
            os.close(source)
        self._copied.clear()
        if self._copier is not None:
            self._copier.close()
            self._copier = None
        if self._listener >= 0:
            os.close(self._listener)
            self._listener = -1

    def _sources(self) -> list[int]:
        return [each.source for each in self._copied.values() if each.source >= 0]

    def _receive(self) -> bytes | None:
        """What the copier tells; None where it has ended."""
        assert self._copier is not None  # noqa: S101  # by its callers
        try:
            told = self._copier.recv(64, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return b""
        except OSError:
            return None
        for name, target in pairwise(told):
            if name == ord(_BROKEN):
                self._close_source(target)
        return told or None

    def _close_source(self, target: int) -> None:
        # With it the last reading end is gone, and the command is told so by SIGPIPE.
        for each in self._copied.values():
            if each.target == target and each.source >= 0:
                os.close(each.source)
                each.source = -1

    def _start_copier(self) -> None:
        """Fork the copier: a small process that must not be interrupted, as this one is."""
        ours, its = map(above_standard, socket.socketpair())
        copied = [each for each in self._copied.values() if each.source >= 0]
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            if os.fork() == 0:
                _run_copier(copied, its, self._listener)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        its.close()
        self._copier = ours


def _open_above_standard(path: Path, flags: int) -> int:
    return _above_standard(os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC))


def _above_standard(descriptor: int) -> int:
    """The same with a number above 2: it may have got that of a stdin or stdout that is closed."""
    if descriptor > max(_STREAMS):
        return descriptor
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, max(_STREAMS) + 1)
    os.close(descriptor)
    return moved


def _make_alike(terminal: int, model: int) -> None:
    """Give a new terminal the size and settings of another; bytes written to it stay as they are.

    What becomes of a newline is left to the other terminal, to which all bytes are written.
    """
    with suppress(OSError, termios.error):
        _copy_size(model, terminal)
        settings = termios.tcgetattr(model)
        settings[tty.OFLAG] &= ~termios.OPOST
        settings[tty.LFLAG] &= ~(termios.ECHO | termios.ECHONL)
        termios.tcsetattr(terminal, termios.TCSANOW, settings)


def _copy_size(model: int, terminal: int) -> None:
    size = fcntl.ioctl(model, termios.TIOCGWINSZ, _SIZE_FORM)
    if size != fcntl.ioctl(terminal, termios.TIOCGWINSZ, _SIZE_FORM):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)


def _run_copier(copied: Sequence[_Copied], front: socket.socket, listener: int) -> NoReturn:
    """Copy until all sources have ended; this is the forked process."""
    try:
        own = {front.fileno(), listener}
        _close_all_but(own | {end for each in copied for end in (each.source, each.target)})
        _Copier(copied, front, listener).run()
    finally:
        os._exit(0)


def _close_all_but(kept: set[int]) -> None:
    low = 0
    for descriptor in [*sorted(kept), os.sysconf("SC_OPEN_MAX")]:
        os.closerange(low, descriptor)
        low = descriptor + 1


class _Copier:
    """The loop of the copier."""

    def __init__(self, copied: Sequence[_Copied], front: socket.socket, listener: int) -> None:
        self._by_source = {each.source: each for each in copied}
        self._front: socket.socket | None = front
        self._listener = listener
        self._has_gap = False
        # How much of each source there was when the command ended; empty before.
        self._left_b: dict[int, int] = {}
        self._has_ended = False

    def run(self) -> None:
        while self._by_source:
            told = self._front.fileno() if self._front else None
            watched = [*self._by_source, *([] if told is None else [told])]
            for ready in select.select(watched, [], [])[0]:
                if ready == told:
                    self._hear()
                else:
                    self._copy(self._by_source[ready])
            self._tell_drained()

    def _hear(self) -> None:
        told = b""
        with suppress(OSError):  # it ended, and had not heard all that it was told
            told = self._front.recv(1) if self._front else b""
        if told:
            self._has_ended = True
            self._left_b = {source: _waiting_b(source) for source in self._by_source}
        else:  # it has ended; the command's children may go on
            self._front = None

    def _copy(self, copied: _Copied) -> None:
        try:
            data = os.read(copied.source, _READ_B)
        except OSError as error:  # of a terminal whose last writer has gone
            data = b""
            if error.errno == errno.EINTR:
                return
        now_ns = time.monotonic_ns()
        if data and copied.is_terminal:
            with suppress(OSError):
                _copy_size(copied.target, copied.source)
        if not data or not _write_all(copied.target, data):
            if data:
                self._tell(_BROKEN + bytes([copied.target]))
            os.close(copied.source)
            del self._by_source[copied.source]
            self._left_b.pop(copied.source, None)
            return
        if copied.source in self._left_b:
            self._left_b[copied.source] -= len(data)
        self._pass_on(now_ns, copied.target, data)

    def _pass_on(self, t_ns: int, stream: int, data: bytes) -> None:
        for at in range(0, len(data), _MOST_B):
            part = data[at : at + _MOST_B]
            try:
                os.write(self._listener, _HEAD.pack(t_ns, stream, self._has_gap, len(part)) + part)
                self._has_gap = False
            except OSError:  # it is busy, or gone
                self._has_gap = True

    def _tell_drained(self) -> None:
        if self._has_ended and all(left <= 0 for left in self._left_b.values()):
            self._has_ended = False
            self._tell(_DRAINED)

    def _tell(self, what: bytes) -> None:
        if self._front is not None:
            with suppress(OSError):
                self._front.send(what)


def _waiting_b(source: int) -> int:
    try:
        return int(struct.unpack("i", fcntl.ioctl(source, termios.FIONREAD, b"\0" * 4))[0])
    except OSError:
        return 0


def _write_all(target: int, data: bytes) -> bool:
    """Write all of it, however long that takes; False where nobody reads it any more."""
    try:
        while data:
            select.select([], [target], [])  # somebody may have set it non-blocking
            with suppress(BlockingIOError):
                data = data[os.write(target, data) :]
    except OSError:
        return False
    return True
