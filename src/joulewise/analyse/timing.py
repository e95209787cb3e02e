"""The times that matter of a sensor: what its card says, and what the lanes themselves show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from joulewise.analyse.course import typical_step_ns
from joulewise.analyse.lanes import Rows
from joulewise.data import Card
from joulewise.units import NS_PER_S

# Nobody states how late a reading is. Where it was measured, it is about a fifth of the period.
_LAG: Final = 0.2
_DEFAULT_S: Final = 0.1


@dataclass(frozen=True)
class Timing:
    """``step_s`` from row to row of the power lane, ``period_s`` from new value to new value.

    ``poll_s`` is the time between two polls of the counter, ``counter_s`` that between its ticks:
    0 where it is computed when asked. ``held_s`` is how long a reading
    stands, None where nobody has said how often there is a new one.

    ``shift_s`` is how much later than the power itself the power lane tells of it, ``place_s``
    by how much (one standard deviation) that may be off at the edge of a window.
    """

    step_s: float
    poll_s: float
    held_s: float | None
    period_s: float
    window_s: float
    counter_s: float
    shift_s: float
    place_s: float
    spread: float

    @property
    def shortest_s(self) -> float:
        """What is shorter than this, nothing tells apart."""
        return max(self.period_s, self.counter_s, min(self.window_s, self.step_s))

    @property
    def seen(self) -> float:
        """The share of the time that readings average over."""
        return self.window_s / max(self.period_s, self.step_s)


def timing_of(card: Card, fast: Rows | None, buffer: Rows | None) -> Timing:
    power = buffer if buffer is not None else fast
    step_s = (typical_step_ns(power) / NS_PER_S if power is not None else 0.0) or _DEFAULT_S
    stated_s = card.update_period_s or step_s
    period_s = step_s if buffer is not None else stated_s
    window_s = stated_s if card.window_s is None else card.window_s
    if buffer is not None:
        # The driver's own samples are not those that it averages over many periods.
        window_s = min(window_s, period_s)
    lag_s = _LAG * period_s if card.lag_s is None else card.lag_s
    late_s = lag_s + window_s / 2 + (0.0 if buffer is not None else period_s / 2)
    lag_spread = 1.0 if card.lag_s is None else card.timing_spread
    place_s = (
        (step_s**2 / 12) + (lag_spread * lag_s / 2) ** 2 + (card.timing_spread * window_s / 4) ** 2
    ) ** 0.5
    return Timing(
        step_s=step_s,
        held_s=max(step_s, period_s) if buffer is not None or card.update_period_s else None,
        poll_s=typical_step_ns(fast) / NS_PER_S if fast is not None else step_s,
        period_s=period_s,
        window_s=window_s,
        counter_s=period_s if card.counter_period_s is None else card.counter_period_s,
        shift_s=late_s - step_s / 2,
        place_s=place_s,
        spread=card.timing_spread,
    )
