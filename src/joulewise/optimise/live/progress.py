"""Steps by the lines of a command's output, for ``joulewise tune --progress REGEX``.

Each match of the expression in a line says that a step is done: it lasted since the match before.
A group named ``step`` is the number of steps done so far, as in ``(?P<step>[0-9]+)/500``: a number
that grew by n is n steps, which took equal shares of the time; the same number again is none; a
smaller one begins anew, as in the next epoch, and the time before it belongs to no step.

A bar that begins with a carriage return is known once the next is drawn, and counts from the time
when it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from joulewise.data.tuning import StepSource
from joulewise.optimise.live.steps import JobStep
from joulewise.process.output_copy import OutputPart
from joulewise.process.output_lines import OutputLines

_GROUP: Final = "step"
# A number that grew by more is another count. Chosen: output would have to come once a minute from
# a program with 150 steps/s.
_MOST_STEPS: Final = 10_000


class Output(Protocol):
    """Where the output comes from; see :class:`joulewise.process.output_copy.OutputListener`."""

    def poll(self) -> list[OutputPart]: ...


class ProgressFollower:
    """Follows the steps that the output of a command tells of."""

    source: Final = StepSource.PROGRESS
    is_inferred: Final = False
    note: Final = ""

    def __init__(self, output: Output, pattern: re.Pattern[str]) -> None:
        self._output = output
        self._pattern = pattern
        self._has_number = _GROUP in pattern.groupindex
        self._lines = OutputLines()
        self._last_ns: int | None = None
        self._number = 0

    def poll(self) -> Sequence[JobStep]:
        """The steps that are known since the last poll, oldest first."""
        return [step for part in self._output.poll() for step in self._read(part)]

    def has_lost_rank(self, now_ns: int) -> str:
        """One output tells of all ranks: none is known to be lost."""
        del now_ns
        return ""

    def _read(self, part: OutputPart) -> Iterator[JobStep]:
        if part.is_after_gap:  # steps may have been in it
            self._last_ns = None
        for line in self._lines.split(part):
            for match in self._pattern.finditer(line.text):
                yield from self._add(line.t_ns, match)

    def _add(self, t_ns: int, match: re.Match[str]) -> Iterator[JobStep]:
        last_ns, steps = self._last_ns, 1
        if self._has_number:
            number = _read_number(match.group(_GROUP))
            if number is None:
                return
            steps, self._number = number - self._number, number
            if steps == 0 and last_ns is not None:
                return
        self._last_ns = t_ns
        if last_ns is None or not 0 < steps <= _MOST_STEPS:
            return
        taken_ns = t_ns - last_ns
        for at in range(steps):
            start_ns, end_ns = (last_ns + taken_ns * each // steps for each in (at, at + 1))
            if end_ns > start_ns:
                yield JobStep(start_ns, end_ns, last_ns)


def _read_number(text: str | None) -> int | None:
    """A count as people write it: 1,200 or 1 200."""
    digits = re.sub(r"[\s,_'.]", "", text or "")
    return int(digits) if digits.isdecimal() else None
