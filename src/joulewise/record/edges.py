"""Dense readings where a measurement begins and ends.

A sensor shows nothing between two updates. What was drawn up to an edge (the start or the end of
the command) is known well only if it is known when the counter ticked around it, and if it was
read again after an update that was made later. So a device is read every few milliseconds for
about one update before the command starts, and after its end until such an update has shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from joulewise.data import Card
from joulewise.units import NS_PER_MS, NS_PER_S

# Where nobody has said how often a board updates: the slowest that is known (Turing, GA100).
_UPDATE_PERIOD_S: Final = 0.100
# Dense readings in one update period: a tick is placed to an eighth of it. Twice as many cost
# twice the calls, in a tenth of a second at each edge.
_STEPS_A_PERIOD: Final = 8
# Between 200 and 50 readings a second: one takes a driver 0.1 to 1 ms for each call.
_SHORTEST_STEP_NS: Final = 5 * NS_PER_MS
_LONGEST_STEP_NS: Final = 20 * NS_PER_MS
# Chosen: nobody has published how late counters are. One update is what a value that was being made
# at the edge can be late by; on simulated boards of 100 ms joules were placed 20 to 40 ms late.
# Twice as much delays the end of each run by as much.
_LONGEST_LAG_NS: Final = 40 * NS_PER_MS
# What a command's start may be delayed by, at most: as a rule, making files ready takes as long.
_LONGEST_LEAD_NS: Final = 120 * NS_PER_MS
# What a run's end may be delayed by: twice what the slowest known board needs.
_LONGEST_TAIL_NS: Final = 500 * NS_PER_MS


@dataclass(frozen=True)
class EdgeTiming:
    """How a device is read around an edge.

    ``step_ns`` lies between dense readings, which begin ``lead_ns`` before the command at least.
    What a sensor shows less than ``lag_ns`` after the end may be of the time before it. No update
    is waited for beyond ``tail_ns`` after the end.
    """

    step_ns: int = 0
    lead_ns: int = 0
    lag_ns: int = 0
    tail_ns: int = 0


NO_EDGE: Final = EdgeTiming()
"""Of what can be read at any moment: once is enough."""


def edge_timing(card: Card) -> EdgeTiming:
    """What a sensor with this card asks for."""
    periods_s = [s for s in (card.update_period_s, card.counter_period_s) if s is not None]
    period_s = max(periods_s, default=_UPDATE_PERIOD_S)
    if not period_s:
        return NO_EDGE
    period_ns = round(period_s * NS_PER_S)
    step_ns = min(max(period_ns // _STEPS_A_PERIOD, _SHORTEST_STEP_NS), _LONGEST_STEP_NS)
    # An average over a second shows an edge for that long: its counter does not.
    window_ns = min(round((card.window_s or 0.0) * NS_PER_S), period_ns)
    lag_ns = max(min(period_ns, _LONGEST_LAG_NS), round((card.lag_s or 0.0) * NS_PER_S))
    return EdgeTiming(
        step_ns=step_ns,
        lead_ns=min(period_ns + step_ns, _LONGEST_LEAD_NS),
        lag_ns=lag_ns,
        tail_ns=min(period_ns + window_ns + lag_ns + step_ns, _LONGEST_TAIL_NS),
    )
