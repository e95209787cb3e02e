"""One pass over a lane for all who want to see its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from joulewise.analyse.lanes import Columns, Rows
from joulewise.analyse.stretch import Stretch

if TYPE_CHECKING:
    from numpy.typing import NDArray


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


def even_edges(stretch: Stretch, pieces: int) -> NDArray[np.int64]:
    """The borders of so many pieces of one length; fewer where they would be empty."""
    pieces = int(np.clip(stretch.time_ns, 1, max(pieces, 1)))
    steps = np.arange(pieces + 1)
    # Not linspace: a long run's nanoseconds have more digits than a float.
    whole, rest = divmod(max(stretch.time_ns, 1), pieces)
    return np.asarray(stretch.start_ns + steps * whole + steps * rest // pieces)
