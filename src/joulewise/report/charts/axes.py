"""Axes with their units; records are in joules and seconds, what is drawn is easy to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from joulewise.data.sweeps import POWER_LIMIT
from joulewise.units import digits

if TYPE_CHECKING:
    import altair as alt


@dataclass(frozen=True)
class Unit:
    """``of`` is how many of a record's unit make one of this."""

    name: str
    of: float = 1.0

    def expression(self, field: str) -> str:
        """For ``transform_calculate``."""
        return f"datum['{field}'] / {self.of!r}"

    def said(self, value: float) -> str:
        return digits(value / self.of)


def energy_unit(most_j: float) -> Unit:
    return _prefixed(most_j, "J")


def time_unit(most_s: float) -> Unit:
    for name, of in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if most_s >= 3 * of:
            return Unit(name, of)
    return Unit("s")


def product_unit(most_j_s: float) -> Unit:
    """Of the energy-delay product."""
    return _prefixed(most_j_s, "J s")


def limit_axis() -> alt.X:
    import altair as alt

    scale = alt.Scale(zero=False, nice=False, padding=14)
    return alt.X(f"{POWER_LIMIT}:Q").title("power limit (W)").scale(scale).axis(tickCount=4)


WATTS: Final = f"datum['{POWER_LIMIT}'] + ' W'"
"""The text of a limit."""


def _prefixed(most: float, unit: str) -> Unit:
    for prefix, of in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if most >= 2 * of:
            return Unit(f"{prefix}{unit}", of)
    return Unit(unit)
