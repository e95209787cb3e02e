"""Units: factors between them, numbers written with a prefix, and amounts that somebody typed.

``parse_amount`` is the only reader of text such as ``250W``, ``60kJ``, ``1.5h`` or ``2 GiB``:
budgets, filters, conditions, axes of a sweep, cool-downs and injected faults all use it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

NS_PER_S: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000
NS_PER_US: Final = 1_000
MW_PER_W: Final = 1_000
MJ_PER_J: Final = 1_000
UJ_PER_J: Final = 1_000_000
UW_PER_W: Final = 1_000_000
J_PER_KWH: Final = 3.6e6
B_PER_MIB: Final = 1 << 20
B_PER_GIB: Final = 1 << 30
Z95: Final = 1.96
"""Standard deviations in the half-width that holds 95 % of a normal distribution."""
_PREFIXES: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"))


def prefixed(value: float, unit: str) -> str:
    """A number with the SI prefix that leaves at least 1 before the point: ``15.2 mJ``."""
    if value == 0:
        return f"0 {unit}"
    fitting = (pair for pair in _PREFIXES if abs(value) >= 0.9995 * pair[0])
    factor, prefix = next(fitting, _PREFIXES[-1])
    return f"{digits(value / factor)} {prefix}{unit}"


def digits(value: float) -> str:
    """A number with three significant digits, or with all those of its integer part."""
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{decimals}f}"


def _with_prefixes(unit: str, one: float = 1.0) -> dict[str, float]:
    return {f"{prefix}{unit}": one * factor for factor, prefix in reversed(_PREFIXES)}


UNITS: Final[Mapping[str, Mapping[str, float]]] = {
    "energy": _with_prefixes("J") | _with_prefixes("Wh", J_PER_KWH / 1e3),
    "time": {"µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0},
    "power": _with_prefixes("W"),
    "energy-delay product": _with_prefixes("Js"),
    "carbon": {"gCO2": 1.0, "kgCO2": 1e3, "tCO2": 1e6},
    "clock": {"MHz": 1.0, "GHz": 1e3},
    "temperature": {"C": 1.0, "°C": 1.0},
    "share": {"%": 1.0},
    "memory": {"B": 1, "KiB": 1 << 10, "MiB": B_PER_MIB, "GiB": B_PER_GIB},
}
"""The units that :func:`parse_amount` accepts, by kind, each in base units of its kind.

The base units are J, s, W, J·s, grams of CO2, MHz, °C, % and bytes.
"""

_NUMBER: Final = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_AMOUNT: Final = re.compile(rf"\s*({_NUMBER})\s*([^\s0-9]\S*)?\s*")
_MICRO: Final = re.compile("\u03bc|u(?=[JWs])")  # the Greek letter, and what keyboards have


class Amount(NamedTuple):
    """A number and its unit as somebody wrote them.

    ``number`` is the digits as written, for exact arithmetic. ``factor`` is what one ``unit`` is in
    the base unit of ``kind`` (see :data:`UNITS`).
    """

    number: str
    unit: str
    kind: str
    factor: float

    @property
    def value(self) -> float:
        """In the base unit of its kind."""
        return float(self.number) * self.factor


def parse_amount(text: str, *kinds: str, default_unit: str = "") -> Amount:
    """Read ``250W``, ``1.5 h`` or ``60kJ``; a ValueError says in a few words why it cannot be.

    ``kinds`` are keys of :data:`UNITS`. Upper and lower case are the same, except where they tell
    milli from mega (``mJ``, ``MJ``). A number without a unit is in ``default_unit``, and an error
    where that is empty. Signs and infinite numbers are errors, too.
    """
    units = {unit: kind for kind in kinds for unit in UNITS[kind]}
    form = _AMOUNT.fullmatch(_MICRO.sub("µ", text))
    if form is None:
        raise ValueError("it is not a number with a unit")
    if not math.isfinite(float(form[1])):
        raise ValueError("the number is too large")
    written = form[2] or default_unit
    if not written:
        raise ValueError(f"{form[1]} has no unit")
    same = [unit for unit in units if unit.lower() == written.lower()]
    if len(same) > 1 and written not in units:
        raise ValueError(f"{' or '.join(same)}?")
    if not same:
        raise ValueError(f"{written!r} is not a unit of {' or '.join(kinds)}")
    unit = written if written in units else same[0]
    return Amount(form[1], unit, units[unit], UNITS[units[unit]][unit])


def accepted_units(*kinds: str) -> str:
    """The units of these kinds for an error's hint: ``ms, s, min``."""
    return ", ".join(unit for kind in kinds for unit in UNITS[kind])
