"""The moments at which a sensor makes a new value, by the driver's own times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.lanes import Rows, blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SILENT: Final = 1.5


def ticks_around(
    lane: Rows, times_ns: NDArray[np.int64], period_ns: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each moment the tick at or before it and the one after it.

    Where the lane is silent the ticks go on in steps of ``period_ns``.
    """
    last = np.empty(len(times_ns), np.int64)
    following = np.empty_like(last)
    done = 0
    end_ns = 0
    for block in blocks(lane.chunks(("t_ns",)), 1):
        t_ns = block.columns["t_ns"][: block.end]
        if not len(t_ns):
            continue
        if block.row == 0:
            done = int(np.searchsorted(times_ns, t_ns[0]))
            following[:done] = last[:done] = t_ns[0]
        end_ns = int(t_ns[-1])
        here = slice(done, int(np.searchsorted(times_ns, end_ns)))
        after = np.searchsorted(t_ns, times_ns[here], "right")
        last[here], following[here] = t_ns[after - 1], t_ns[after]
        done = here.stop
    following[done:] = last[done:] = end_ns
    step_ns = following - last
    silent = (step_ns == 0) | (step_ns > _SILENT * period_ns)
    whole = np.where(silent, np.floor((times_ns - last) / period_ns), 0.0)
    tick_ns = last + np.rint(whole * period_ns).astype(np.int64)
    return tick_ns, np.where(silent, tick_ns + round(period_ns), following)
