"""Lines of the copied output of a command, as text without colours.

Lines end with a newline or, as those of a progress bar that is drawn again and again, with a
carriage return. Colours and other escape sequences are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from joulewise.process.output_copy import OutputPart

_LINE_END: Final = re.compile(rb"[\r\n]")
# CSI and OSC sequences (ECMA-48), and the two-byte escapes.
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# Longer lines are cut to their end, where a bar has its numbers. Chosen: rows of a log are shorter,
# and bars that never end a line do not grow without bound. Doubled, only memory and time do.
_LONGEST_B: Final = 65536


class OutputLine(NamedTuple):
    """A line without its end, by the time (CLOCK_MONOTONIC) when its last character was written."""

    t_ns: int
    text: str


class OutputLines:
    """Puts the lines of each stream together from the parts in which they were written."""

    def __init__(self) -> None:
        self._begun: dict[int, tuple[int, bytes]] = {}  # of each stream: its time, and its begin

    def split(self, part: OutputPart) -> Iterator[OutputLine]:
        """The lines that a part ends; of which stream the bytes before a gap were is not known."""
        if part.is_after_gap:
            self._begun.clear()
        written_ns, text = self._begun.get(part.stream, (part.t_ns, b""))
        *lines, rest = _LINE_END.split(part.text)
        for line in lines:
            # The end of a line alone says nothing new: the line was there before.
            t_ns = part.t_ns if line or not text else written_ns
            yield _as_line(t_ns, text + line)
            text = b""
        self._begun[part.stream] = part.t_ns if rest else written_ns, (text + rest)[-_LONGEST_B:]

    def finish(self) -> Iterator[OutputLine]:
        """What was written since the last end of a line, once the command has ended."""
        begun, self._begun = self._begun, {}
        for written_ns, text in begun.values():
            if text:
                yield _as_line(written_ns, text)


def _as_line(t_ns: int, line: bytes) -> OutputLine:
    return OutputLine(t_ns, _ESCAPES.sub("", line[-_LONGEST_B:].decode("utf-8", "replace")))
