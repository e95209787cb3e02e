"""Going through a lane in blocks that show each row with its neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from joulewise.record.layout import Lane

if TYPE_CHECKING:
    from numpy.typing import NDArray

Columns = dict[str, "NDArray[Any]"]
CHUNK_ROWS: Final = 1 << 18


class Rows(Protocol):
    """What a lane's reader offers (``record.trace.LaneReader``)."""

    @property
    def rows(self) -> int: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    def chunks(self, columns: Sequence[str]) -> Iterator[Columns]: ...


OpenLane = Callable[[str, Lane], "Rows | None"]
"""A device's lane by the device's key; None where nothing of it was recorded."""


class ArrayLane:
    """A lane in memory."""

    def __init__(
        self, columns: Mapping[str, NDArray[Any]], *, chunk_rows: int = CHUNK_ROWS
    ) -> None:
        self._columns = dict(columns)
        self._chunk_rows = chunk_rows
        self.columns = tuple(columns)
        self.rows = len(self._columns["t_ns"])

    def chunks(self, columns: Sequence[str]) -> Iterator[Columns]:
        for start in range(0, self.rows, self._chunk_rows):
            part = slice(start, start + self._chunk_rows)
            yield {name: self._columns[name][part] for name in columns}


@dataclass(frozen=True)
class Block:
    """Rows in order; those from ``first`` up to ``end`` have not been in a block before.

    Around them stand up to ``reach`` rows on either side. ``row`` is the number of the first
    row in the whole lane.
    """

    columns: Columns
    row: int
    first: int
    end: int


def blocks(chunks: Iterable[Columns], reach: int) -> Iterator[Block]:
    """Each row once, without copying any but those at the seams of chunks."""
    chunks = iter(chunks)
    first, second = next(chunks, None), next(chunks, None)
    if first is not None and second is None:  # as a rule: no seam, and no work done thrice
        yield Block(first, 0, 0, len(first["t_ns"]))
        return
    held: Columns = {}
    shown = row = 0
    for chunk in chain([each for each in (first, second) if each is not None], chunks):
        rows = len(chunk["t_ns"])
        large = rows >= 4 * reach
        seam = _join(held, _cut(chunk, 0, 2 * reach) if large else chunk)
        before = len(held["t_ns"]) if held else 0
        end = before + reach if large else before + rows - reach
        if end > shown:
            yield Block(seam, row - before, shown, end)
        else:
            end = shown
        if large:
            yield Block(chunk, row, reach, rows - reach)
            held, shown = _cut(chunk, rows - 2 * reach, rows), reach
        else:
            spare = max(end - reach, 0)
            held, shown = _cut(seam, spare, before + rows), end - spare
        row += rows
    if held:
        rows = len(held["t_ns"])
        yield Block(held, row - rows, shown, rows)


def readable(chunks: Iterable[Columns], name: str) -> Iterator[Columns]:
    """The chunks without the rows in which ``name`` could not be read."""
    for chunk in chunks:
        if np.isnan(chunk[name].sum()):
            there = ~np.isnan(chunk[name])
            yield {key: column[there] for key, column in chunk.items()}
        else:
            yield chunk


def near(rows: NDArray[np.intp], size: int, reach: int) -> NDArray[np.bool_]:
    """Which of ``size`` rows stand near one of these."""
    keep = np.zeros(size, bool)
    if 2 * len(rows) * reach <= size:
        found = (rows[:, None] + np.arange(-reach, reach)).reshape(-1)
        keep[found[(found >= 0) & (found < size)]] = True
        return keep
    begin, end = (np.clip(rows + side, 0, size) for side in (-reach, reach))
    steps = np.bincount(begin, minlength=size + 1) - np.bincount(end, minlength=size + 1)
    return np.asarray(np.cumsum(steps[:-1]) > 0)


def _cut(columns: Columns, start: int, end: int) -> Columns:
    return {name: column[start:end] for name, column in columns.items()}


def _join(first: Columns, second: Columns) -> Columns:
    if not first:
        return second
    return {name: np.concatenate([first[name], second[name]]) for name in second}
