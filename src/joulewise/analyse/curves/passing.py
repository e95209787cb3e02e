"""One pass over a lane for all who want to see its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from joulewise.analyse.course import typical_step_ns
from joulewise.analyse.lanes import Columns, Rows
from joulewise.analyse.stretch import Stretch

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FILLED: Final = 0.9  # rows come late now and then


class Viewer(Protocol):
    """Whoever looks at a lane's rows, in their order, some 100,000 at a time."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    def take(self, chunk: Columns) -> None: ...


def show(lane: Rows, *viewers: Viewer) -> None:
    """Every row to every viewer, decoded once."""
    wanted = dict.fromkeys(("t_ns", *(name for viewer in viewers for name in viewer.columns)))
    for chunk in lane.chunks([name for name in wanted if name in lane.columns]):
        for viewer in viewers:
            viewer.take(chunk)


class Shown:
    """A lane that viewers see along with the first who reads all they want, to its end.

    So nothing is decoded twice. ``finish`` shows it to them where there was no such reader.
    """

    def __init__(self, lane: Rows, *viewers: Viewer) -> None:
        self._lane = lane
        self._viewers = viewers
        self.rows, self.columns = lane.rows, lane.columns

    def chunks(self, columns: Sequence[str]) -> Iterator[Columns]:
        wanted = {name for viewer in self._viewers for name in viewer.columns}
        viewers = self._viewers if wanted <= set(columns) else ()
        self._viewers = () if viewers else self._viewers
        for chunk in self._lane.chunks(columns):
            for viewer in viewers:
                viewer.take(chunk)
            yield chunk

    def finish(self) -> None:
        if self._viewers:
            show(self._lane, *self._viewers)


def pixel_edges(lane: Rows, stretch: Stretch, pixels: int) -> NDArray[np.int64]:
    """So many pixels, or fewer, so that as a rule each of them has a row."""
    step_ns = typical_step_ns(lane) or stretch.time_ns
    rows = min(lane.rows, stretch.time_ns / max(step_ns, 1.0))
    return even_edges(stretch, min(pixels, int(_FILLED * rows)))


def even_edges(stretch: Stretch, pieces: int) -> NDArray[np.int64]:
    """The borders of so many pieces of one length; fewer where they would be empty."""
    pieces = int(np.clip(stretch.time_ns, 1, max(pieces, 1)))
    steps = np.arange(pieces + 1)
    # Not linspace: a long run's nanoseconds have more digits than a float.
    whole, rest = divmod(max(stretch.time_ns, 1), pieces)
    return np.asarray(stretch.start_ns + steps * whole + steps * rest // pieces)
