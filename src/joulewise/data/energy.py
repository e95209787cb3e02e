"""A figure in joules, with where it comes from and how far it may be off."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from joulewise.data.devices import Source


@dataclass(frozen=True)
class Energy:
    """Joules and their error, as 95 % half-widths.

    ``error_sampling`` is what the sensor did not see; repeats shrink it. ``error_gain`` is one
    unknown factor of the board: repeats do not shrink it, and it cancels in ratios on one board.
    """

    value: float
    error_sampling: float
    error_gain: float
    source: Source

    @property
    def error(self) -> float:
        return math.hypot(self.error_sampling, self.error_gain)


def total(parts: Iterable[Energy]) -> Energy | None:
    """The sum over devices, whose errors know nothing of each other; None of nothing."""
    parts = list(parts)
    if not parts:
        return None
    sources = {part.source for part in parts}
    return Energy(
        math.fsum(part.value for part in parts),
        math.hypot(*(part.error_sampling for part in parts)),
        math.hypot(*(part.error_gain for part in parts)),
        sources.pop() if len(sources) == 1 else Source.MIXED,
    )


def total_of_one(parts: Iterable[Energy]) -> Energy | None:
    """The sum over one device's times: its gain is off by the same in all of them."""
    parts = list(parts)
    found = total(parts)
    return found and replace(found, error_gain=math.fsum(part.error_gain for part in parts))


@dataclass(frozen=True)
class Card:
    """What is believed of a device's power sensor, and how firmly.

    Times are None where nobody has said. ``timing_spread`` is the relative half-width (95 %)
    within which period, window and lag may differ from what stands here. ``gain`` is reading
    over truth, 1 until a meter has told; ``gain_sigma`` is its standard deviation.
    """

    update_period_s: float | None = None
    window_s: float | None = None
    lag_s: float | None = None
    counter_period_s: float | None = None
    timing_spread: float = 0.2
    gain: float = 1.0
    gain_sigma: float = 0.025
    origin: str = "table"
