"""When a counter made the values that polls got of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.lanes import Rows
from joulewise.analyse.points import Points
from joulewise.analyse.ticks import ticks_around
from joulewise.analyse.timing import Timing
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

_CLOSE: Final = 0.05
_CLOSE_S: Final = 0.001


@dataclass(frozen=True)
class Placed:
    """A counter's points and when each was made: ``tick_ns``, give or take ``half_s``."""

    points: Points
    tick_ns: NDArray[np.int64]
    half_s: NDArray[np.float64]


def placings(points: Points, buffer: Rows | None, timing: Timing) -> list[Placed]:
    """With the driver's samples, where there are some, or at any time before the poll."""
    any_time = _any_time(points, timing)
    return [any_time] if buffer is None else [_with_samples(points, buffer, timing), any_time]


def _any_time(points: Points, timing: Timing) -> Placed:
    """Within a period before the poll, and after the poll that did not have the value yet."""
    longest_ns = round(timing.counter_s * (1 + timing.spread) * NS_PER_S)
    since_ns = np.maximum(points.before_ns, points.t_ns - longest_ns)
    half_ns = (points.t_ns - since_ns) // 2
    return Placed(points, points.t_ns - half_ns, half_ns / NS_PER_S)


def _with_samples(points: Points, buffer: Rows, timing: Timing) -> Placed:
    """The counter moves when the sensor does.

    A poll takes a little while: one that asked just before a tick may have got the next value.
    Alone among others it can be spared; many in a row are kept, as unsure as they are.
    """
    tick_ns, next_ns = ticks_around(buffer, points.t_ns, timing.period_s * NS_PER_S)
    close_ns = min(_CLOSE * timing.period_s, _CLOSE_S) * NS_PER_S
    close = (next_ns - points.t_ns < close_ns) & ~points.broken
    beside = np.concatenate([[False], close, [False]])
    kept = ~close | beside[:-2] | beside[2:]
    unsure_s = np.where(close, timing.period_s, 0.0)
    return Placed(points.only(kept), tick_ns[kept], unsure_s[kept])
