"""What a try writes to stdout and stderr: the values of its metric in that, and its last words.

Without a pattern for the metric, nothing is put between the command and its output: standard error
is read only where it is a file.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from joulewise.errors import JoulewiseError, UsageError
from joulewise.process.output_copy import CopiedOutput, OutputListener, OutputPart, named_pipe
from joulewise.process.output_lines import OutputLine, OutputLines
from joulewise.store.logged_values import LoggedValue

_GROUP: Final = "value"
_STDERR: Final = 2  # the number of its descriptor (POSIX)
_TAIL_B: Final = 16384  # of standard error: some screens of a traceback (chosen)


def parse_pattern(text: str) -> re.Pattern[str]:
    """The expression; a UsageError where it is none, or has no group for the value."""
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise UsageError(
            f"--metric-regex {text!r} is not a regular expression: {error}",
            "write, for example: --metric-regex 'val_acc=(?P<value>[0-9.]+)'",
        ) from None
    if _GROUP not in pattern.groupindex:
        raise UsageError(
            f"--metric-regex {text!r} has no group named {_GROUP}",
            "mark the number in it, as in: 'val_acc=(?P<value>[0-9.]+)'",
        )
    return pattern


class PrintedValues:
    """Values of a metric in what a program prints; a source of values for a try's watch.

    ``poll_output`` gives what was written since the last time. A line without an end is read once
    it is followed by another, or by ``finish``.
    """

    def __init__(
        self,
        metric: str,
        pattern: re.Pattern[str],
        poll_output: Callable[[], Sequence[OutputPart]],
    ) -> None:
        self._metric = metric
        self._pattern = pattern
        self._poll_output = poll_output
        self._lines = OutputLines()

    def poll(self) -> list[LoggedValue]:
        lines = (line for part in self._poll_output() for line in self._lines.split(part))
        return [value for line in lines for value in self._find(line)]

    def finish(self) -> list[LoggedValue]:
        """Values of the last lines, without an end."""
        values = self.poll()
        return values + [value for line in self._lines.finish() for value in self._find(line)]

    def _find(self, line: OutputLine) -> Iterator[LoggedValue]:
        for match in self._pattern.finditer(line.text):
            with suppress(TypeError, ValueError):
                yield LoggedValue(self._metric, float(match[_GROUP]), line.t_ns)


class TryOutput:
    """The output of one try. ``values`` and ``copied`` are None without a ``pattern``.

    Raises JoulewiseError where there is one, and no terminal or pipe is left.
    """

    def __init__(self, metric: str, pattern: re.Pattern[str] | None) -> None:
        self._tail = b""
        self._unread: list[OutputPart] = []  # that were read for their last words alone
        self._file_b = _file_size(_STDERR)
        self._listener: OutputListener | None = None
        self.copied: CopiedOutput | None = None
        self.values: PrintedValues | None = None
        if pattern is not None:
            try:
                with named_pipe() as pipe:
                    self._listener = OutputListener(pipe)
                    self.copied = CopiedOutput(pipe)
            except OSError as error:
                self.close()
                raise JoulewiseError(
                    f"the output of the command cannot be read: {error.strerror}",
                    "free some space in the folder for temporary files, or leave out "
                    "--metric-regex where the command logs its metric",
                ) from None
            self.values = PrintedValues(metric, pattern, self._take)

    def last_words(self) -> str:
        """The last lines of its standard error, as far as known; once it has ended."""
        self._unread += self._poll()
        tail = self._tail or _read_file(_STDERR, self._file_b)
        return tail.decode("utf-8", "replace")

    def close(self) -> None:
        """Leave the rest of the output to the copier."""
        if self.copied is not None:
            self.copied.close()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _take(self) -> list[OutputPart]:
        unread, self._unread = self._unread, []
        return unread + self._poll()

    def _poll(self) -> list[OutputPart]:
        parts = self._listener.poll() if self._listener else []
        for part in parts:
            if part.stream == _STDERR:
                self._tail = (self._tail + part.text)[-_TAIL_B:]
        return parts


def _file_size(descriptor: int) -> int | None:
    """Bytes of the file that it is; None where it is none."""
    with suppress(OSError):
        status = os.fstat(descriptor)
        return status.st_size if stat.S_ISREG(status.st_mode) else None
    return None


def _read_file(descriptor: int, before_b: int | None) -> bytes:
    """The end of what was written to a file since it had that size."""
    size_b = _file_size(descriptor)
    if before_b is None or size_b is None:
        return b""
    with suppress(OSError), open(f"/dev/fd/{descriptor}", "rb") as file:  # noqa: PTH123
        file.seek(max(min(before_b, size_b), size_b - _TAIL_B))
        return file.read(_TAIL_B)
    return b""
