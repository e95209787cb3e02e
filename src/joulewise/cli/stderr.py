"""Lines to stderr: wrapped in a terminal, whole for whatever else reads them.

A command that is measured keeps its exit status whatever becomes of stderr. Its reader may leave
(``2>&1 | head -1``), the disk behind it may be full, or nobody may read it at all.
"""

from __future__ import annotations

import io
import os
import re
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_WHO: Final = "joulewise: "
_WIDTH: Final = 80  # of a terminal that does not tell
# How long a full pipe is waited for at the end. Chosen: a reader on a loaded machine reads within a
# second; twice as long delays our end by as much where nobody reads.
_PATIENCE_S: Final = 5.0
# A pipe that is ready takes this much without blocking (POSIX).
_CHUNK_B: Final = getattr(select, "PIPE_BUF", 512)


# How repr writes a byte that is no UTF-8, in names that messages quote.
_SURROGATE: Final = re.compile(r"\\u(dc[89a-f][0-9a-f])")


class LenientStderr(io.RawIOBase):
    """Writes to a descriptor as far as it can, and raises nothing.

    What a full pipe does not take yet is kept and written later, so that no command waits for its
    reader. What a lost reader or a full disk does not take is dropped.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = bytearray()
        self._poller = select.poll()
        self._poller.register(descriptor, select.POLLOUT)

    def write(self, data: ReadableBuffer) -> int:
        """Write what can be written at once; always the length of ``data``."""
        length = memoryview(data).nbytes
        self._rest += data
        while self._rest and self._poller.poll(0) and self._write_chunk():
            pass
        return length

    def finish(self, patience_s: float = _PATIENCE_S) -> None:
        """Write the rest, and give it up when the reader has taken nothing for ``patience_s``.

        A terminal is waited for without limit: whoever stopped it with Ctrl-S reads on later.
        """
        limit_ms = None if self._rest and self.isatty() else patience_s * 1e3
        while self._rest and self._poller.poll(limit_ms) and self._write_chunk():
            pass
        self._rest.clear()

    def _write_chunk(self) -> bool:
        """Whether some of the rest is gone: written, or dropped as nobody will ever take it."""
        try:
            del self._rest[: os.write(self._descriptor, self._rest[:_CHUNK_B])]
        except BlockingIOError:
            return False
        except OSError:
            self._rest.clear()
        return True

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor


@contextmanager
def lenient_stderr() -> Iterator[None]:
    """Within it, no write to ``sys.stderr`` raises, and none waits for ever."""
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # closed, or no file of the system
        descriptor = None
    if descriptor is None or not hasattr(select, "poll"):  # Windows, where nothing is run
        yield
        return
    raw = LenientStderr(descriptor)
    stream = io.TextIOWrapper(
        io.BufferedWriter(raw), sys.stderr.encoding, sys.stderr.errors, line_buffering=True
    )
    with redirect_stderr(stream):
        try:
            yield
        finally:
            stream.flush()
            raw.finish()


def say(line: str, hint: str = "") -> None:
    """If nobody is there any more, whoever says it goes on all the same."""
    if sys.stderr is None:
        return
    from joulewise.report.figures import fitting, hanging, shell_bytes

    line, hint = (shell_bytes(_SURROGATE.sub(_decode, text)) for text in (line, hint))
    with suppress(OSError, ValueError):
        columns = _columns() if sys.stderr.isatty() else None
        said = hanging(fitting(line, sys.stderr.encoding), _WHO, columns)
        if hint:
            said += hanging(fitting(hint, sys.stderr.encoding), "  ", columns)
        sys.stderr.write(said)
        sys.stderr.flush()


def _decode(escaped: re.Match[str]) -> str:
    return chr(int(escaped[1], 16))


def _columns() -> int:
    return os.get_terminal_size(sys.stderr.fileno()).columns or _WIDTH
