"""Whether a power limit does anything: one above all need never binds, one below the floor fails.

Clocks can be lowered only so far. What a board draws at its lowest clock is the floor of that
load, and no limit brings it below.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final

IDLE: Final = 0x1  # of NVML's reasons for lower clocks
CAPPED: Final = 0x4
ENOUGH: Final = 5
"""Looks under load, fewer of which say nothing."""

_NEARLY_ALWAYS: Final = 0.95
_WELL_ABOVE: Final = 1.05


class Binding(str, Enum):
    """What is odd about a limit."""

    NEVER = "it never binds"
    BELOW_FLOOR = "it is below the floor"


def binding(limit_w: float, reasons: Iterable[int], mean_w: float | None) -> Binding | None:
    """From NVML's reasons for lower clocks, looked at now and then, and the power meanwhile.

    None where the limit does its work, or too little was seen under load.
    """
    loaded = [bits for bits in reasons if not bits & IDLE]
    if len(loaded) < ENOUGH:
        return None
    capped = sum(bool(bits & CAPPED) for bits in loaded) / len(loaded)
    if capped == 0:
        return Binding.NEVER
    above = mean_w is not None and mean_w > _WELL_ABOVE * limit_w
    return Binding.BELOW_FLOOR if capped >= _NEARLY_ALWAYS and above else None
