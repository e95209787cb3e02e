"""A counter that stands still: a live GPU draws power, so its sensors have stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.stretch import Stretch
from joulewise.data import Kind, Quantity, Source

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from joulewise.analyse.lanes import Rows
    from joulewise.record.manifest import RecordedDevice

_PERIODS: Final = 10
_SHORTEST_S: Final = 2.0
_COUNT: Final = Quantity.ENERGY.value


def frozen(device: RecordedDevice, fast: Rows | None, run: Stretch) -> Stretch | None:
    """The longest time in which a GPU's counter showed the same, if that cannot be."""
    if (
        fast is None
        or device.info.kind is not Kind.GPU
        or device.sources.get(_COUNT) is not Source.MEASURED
    ):
        return None
    least_s = max(_PERIODS * (device.card.counter_period_s or 0.0), _SHORTEST_S)
    longest = Stretch(0, 0)
    since_ns, shown_j = np.empty(0, np.int64), np.empty(0)
    for chunk in fast.chunks(("t_ns", _COUNT)):
        read = run.holds(chunk["t_ns"]) & np.isfinite(chunk[_COUNT])
        t_ns = np.append(since_ns, chunk["t_ns"][read])
        count_j = np.append(shown_j, chunk[_COUNT][read])
        if len(t_ns):
            starts, ends = _same(t_ns, count_j)
            most = int(np.argmax(ends - starts))
            here = Stretch(int(starts[most]), int(ends[most]))
            longest = max(longest, here, key=lambda stretch: stretch.time_s)
            since_ns, shown_j = starts[-1:], count_j[-1:]
    return longest if longest.time_s > least_s else None


def _same(
    t_ns: NDArray[np.int64], count_j: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """When each value was read first and last."""
    moves = np.flatnonzero(np.diff(count_j)) + 1
    return t_ns[np.append(0, moves)], t_ns[np.append(moves, len(t_ns)) - 1]
