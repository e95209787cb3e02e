"""The writer of marks: when spans begin and end, on disk whatever happens to the process.

::

    marks = Marks(folder)                        # nothing is opened before the first mark
    token = marks.begin("epoch", 3, total=10)    # any thread; spans may nest and overlap
    marks.end(token)                             # once more moves the end
    marks.end(token, cut=True)                   # it was cut off, and does not count as whole
    marks.whole("step", start_ns, end_ns, 17)    # a span that is over, in one record
    marks.figure("val_acc", 0.61, epoch=3)       # a figure that the program logs

Every call takes the time of CLOCK_MONOTONIC (``t_ns``), by default the present. None of them raises
or prints: where marks cannot be written, the writer goes silent (``marks.silent``). ``guessed``
marks a span that was inferred, or a figure that a hook took from its framework: where the program
marks that name itself, its own count. A name may be any text, of which NAME_BYTES of UTF-8 are
kept. There is one file for each process and one ``write`` for each mark. The format is described in
docs/reference/marks.md, and read by ``joulewise.store.spans`` and ``store.logged_values``.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
import threading
import time
import weakref
from collections.abc import Callable

from .ranks import find_rank

# Of the format; counted up where an older joulewise could not read it. 2: figures.
VERSION = 2
MAGIC = 0x4A  # the letter J, the first byte of every record
HEADER, NAME, BEGIN, END, WHOLE, FIGURE = 1, 2, 3, 4, 5, 6
RECORD_BYTES = 48
# magic, kind, version, pid, start, wall clock, rank, world size, local rank, clock, job
HEADER_FORM = struct.Struct("<BBHIqqiiiIQ")
# magic, kind, part, name, text
NAME_FORM = struct.Struct("<BBHI40s")
# magic, kind, flags, name, t, start, index, total, thread, token
MARK_FORM = struct.Struct("<BBHIqqqqII")
# magic, kind, flags, name, t, value, epoch, none, thread, 0
FIGURE_FORM = struct.Struct("<BBHIqdqqII")
CLOCK_MONOTONIC = 1
GUESSED = 1
CUT = 2
NONE = -(2**63)
SHUT = -1
# The lowest number of the file's descriptor: above those that a program uses, and below the 1,024
# that a process may have by default.
HIGH_DESCRIPTOR = 700
PART_BYTES = 40
NAME_BYTES = 5 * PART_BYTES
# A program that makes up a new name for every span must not fill its own memory with them.
MOST_NAMES = 10_000
OTHER_NAMES = "other names"


class Marks:
    """The marks of this process, and of each of its forks in a file of its own."""

    _descriptor: int
    _opened: bool

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = os.fspath(folder)
        # Not reset in a fork: an end that a child writes to its file then matches no span there.
        self._tokens = itertools.count(1)
        self._start_afresh()
        _grow_descriptor_table()
        if hasattr(os, "register_at_fork"):
            in_child = weakref.WeakMethod(self._in_child)
            os.register_at_fork(after_in_child=lambda: _call(in_child()))

    @property
    def silent(self) -> bool:
        return self._descriptor == SHUT and self._opened

    def begin(
        self,
        name: str,
        index: int | None = None,
        total: int | None = None,
        t_ns: int | None = None,
        *,
        guessed: bool = False,
    ) -> int:
        """Begin a span, and return the token for its end."""
        token = next(self._tokens)
        start_ns = time.monotonic_ns() if t_ns is None else t_ns
        self._mark(BEGIN, guessed, name, start_ns, start_ns, index, total, token)
        return token

    def end(self, token: int, t_ns: int | None = None, *, cut: bool = False) -> None:
        """End a span; ``cut`` where it was not completed, as an epoch that Ctrl-C left."""
        end_ns = time.monotonic_ns() if t_ns is None else t_ns
        flags, thread = CUT if cut else 0, self._thread.id
        self._write(MARK_FORM.pack(MAGIC, END, flags, 0, end_ns, 0, NONE, NONE, thread, token))

    def whole(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        index: int | None = None,
        total: int | None = None,
        *,
        guessed: bool = False,
    ) -> None:
        self._mark(WHOLE, guessed, name, end_ns, start_ns, index, total, 0)

    def figure(
        self,
        name: str,
        value: float,
        epoch: int | None = None,
        t_ns: int | None = None,
        *,
        guessed: bool = False,
    ) -> None:
        """A figure that the program logs (a loss, an accuracy); ``value`` need not be finite."""
        now_ns = time.monotonic_ns() if t_ns is None else t_ns
        if not self._opened:
            self._open(now_ns)
        if self._descriptor == SHUT:
            return
        try:
            record = FIGURE_FORM.pack(
                MAGIC,
                FIGURE,
                GUESSED if guessed else 0,
                self._names.get(name) or self._new_name(name),
                now_ns,
                value,
                NONE if epoch is None else epoch,
                NONE,
                self._thread.id,
                0,
            )
        except (struct.error, TypeError, AttributeError, OverflowError):
            return  # as of a mark
        self._write(record)

    def close(self) -> None:
        """Write no more. Open spans stay open; a reader sees that they were not ended."""
        descriptor, self._descriptor, self._opened = self._descriptor, SHUT, True
        _close(descriptor)

    def _mark(  # noqa: PLR0917 - the fields of a record; keywords would cost every step
        self,
        kind: int,
        guessed: bool,
        name: str,
        t_ns: int,
        start_ns: int,
        index: int | None,
        total: int | None,
        token: int,
    ) -> None:
        if not self._opened:
            self._open(t_ns)
        if self._descriptor == SHUT:
            return
        try:
            record = MARK_FORM.pack(
                MAGIC,
                kind,
                GUESSED if guessed else 0,
                self._names.get(name) or self._new_name(name),
                t_ns,
                start_ns,
                NONE if index is None else index,
                NONE if total is None else total,
                self._thread.id,
                token & 0xFFFFFFFF,
            )
        except (
            struct.error,
            TypeError,
            AttributeError,
        ):  # a name or number of the wrong type: the mark is lost
            return
        self._write(record)

    def _write(self, record: bytes) -> None:
        descriptor = self._descriptor
        if descriptor == SHUT:
            return
        try:
            whole = os.write(descriptor, record) == len(record)
        except OSError:
            whole = False
        if not whole:  # a reader could not find the records after half of one
            self.close()
            _note_loss(self._lost)

    def _new_name(self, name: str) -> int:
        with self._lock:
            if len(self._names) >= MOST_NAMES:
                name = OTHER_NAMES
            if name in self._names:
                return self._names[name]
            text = name.encode("utf-8", "replace")
            if len(text) > NAME_BYTES:
                text = text[: NAME_BYTES - 3].decode("utf-8", "ignore").encode() + b"\xe2\x80\xa6"
            code = len(self._names) + 1
            parts = [
                NAME_FORM.pack(MAGIC, NAME, part, code, text[at : at + PART_BYTES])
                for part, at in enumerate(range(0, len(text) or 1, PART_BYTES))
            ]
            # Written before other threads see the code: a mark must follow its name.
            self._write(b"".join(parts))
            self._names[name] = code
            return code

    def _open(self, now_ns: int) -> None:
        with self._lock:
            if self._opened:
                return
            try:
                stem = f"{self._folder}/{os.getpid()}-{time.monotonic_ns()}"
                self._lost = f"{stem}.lost"
                self._descriptor = _create(f"{stem}.marks")
                self._write(_header(now_ns))
            except (OSError, struct.error):  # no such folder (a container), no permission, no space
                self._descriptor = SHUT
            self._opened = True

    def _start_afresh(self) -> None:
        self._lock = threading.Lock()
        self._thread = _Thread()
        self._names: dict[str, int] = {}
        self._descriptor = SHUT
        self._opened = False
        self._lost = ""

    def _in_child(self) -> None:
        was_silent, descriptor = self.silent, self._descriptor
        self._start_afresh()
        self._opened = was_silent
        _close(descriptor)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.id = threading.get_native_id() & 0xFFFFFFFF


def _call(method: Callable[[], None] | None) -> None:
    if method is not None:
        method()


def _close(descriptor: int) -> None:
    if descriptor != SHUT:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _note_loss(path: str) -> None:
    # A full disk mostly has space for the name of an empty file.
    with contextlib.suppress(OSError):
        _close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o644))


def _create(path: str) -> int:
    # O_EXCL, since after exec the same process begins a new file.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
    return _move_high(os.open(path, flags, 0o644))


def _grow_descriptor_table() -> None:
    # Linux stops all threads of a process for some 10 ms when its table of descriptors grows: let
    # that happen now, and not in the program's first step.
    with contextlib.suppress(OSError):
        reader, writer = os.pipe()
        _close(writer)
        _close(_move_high(reader))


def _move_high(descriptor: int) -> int:
    """Move a descriptor to a high number.

    A program that closes all open descriptors, as daemons do, then opens its own files under low
    numbers: marks must not be written to one of them.
    """
    try:
        from fcntl import F_DUPFD_CLOEXEC, fcntl

        high = fcntl(descriptor, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR)
    except (ImportError, OSError):
        return descriptor
    _close(descriptor)
    return high


def _header(start_ns: int) -> bytes:
    rank, world_size, local_rank, job = find_rank(os.environ)
    return HEADER_FORM.pack(
        MAGIC,
        HEADER,
        VERSION,
        os.getpid(),
        start_ns,
        time.time_ns(),
        rank,
        world_size,
        local_rank,
        CLOCK_MONOTONIC,
        job,
    )
