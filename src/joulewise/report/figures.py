"""Joules, seconds and errors with the digits that a person needs, and text that stays text."""

from __future__ import annotations

import math
from typing import Final

from joulewise.data import Energy

J_PER_KWH: Final = 3.6e6
_PREFIXES: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"))
_PLAIN: Final = {"±": "+/-", "µ": "u", "·": "-", "…": "...", "≥": ">=", "₂": "2"}


def joules(value: float) -> str:
    return _prefixed(value, "J")


def watts(value: float | None) -> str:
    return "-" if value is None else f"{_digits(value)} W"


def watt_hours(value_j: float) -> str:
    return _prefixed(value_j / 3600, "Wh")


def energy(value: Energy | None) -> str:
    """``12.3 kJ ± 1.2 %``."""
    return "unavailable" if value is None else f"{joules(value.value)} {error(value)}"


def error(value: Energy) -> str:
    return within(value.error, value.value)


def within(half_width: float, value: float) -> str:
    """A half-width as a share of its value; in joules where the share would say nothing."""
    if not math.isfinite(half_width):
        return "± unknown"
    share = 100 * half_width / abs(value) if value else math.inf
    if share >= 1000:
        return f"± {joules(half_width)}"
    if share == 0:
        return "± 0 %"
    if share < 0.1:
        return "± <0.1 %"
    return f"± {share:.1f} %" if share < 9.95 else f"± {share:.0f} %"


def seconds(value: float) -> str:
    """``840 µs``, ``23.1 ms``, ``12.4 s``, ``3 min 20 s``, ``2 h 05 min``."""
    if value < 0:
        return f"-{seconds(-value)}"
    if value < 59.95:
        return _prefixed(value, "s")
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(value / 60), 60)
    return f"{hours} h {minutes:02d} min"


def amount(value: float) -> str:
    """Three digits that matter of what has no prefixes, such as money; never an exponent."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:.0f}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def spread(mean: float | None, deviation: float | None, unit: str) -> str:
    """A mean and the standard deviation around it, in one unit: ``12.3 ± 0.2 s``."""
    if mean is None:
        return "-"
    if unit == "s" and mean >= 59.95:
        around = "" if deviation is None else f" ± {seconds(deviation)}"
        return seconds(mean) + around
    factor, prefix = _prefix(mean)
    number = _digits(mean / factor)
    decimals = len(number.partition(".")[2])
    around = "" if deviation is None else f" ± {deviation / factor:.{decimals}f}"
    return f"{number}{around} {prefix}{unit}"


def plain(text: str) -> str:
    """Text from elsewhere, which must not steer a terminal: what does not print is spelt out."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def fitting(text: str, encoding: str) -> str:
    """The same in signs that the encoding has."""
    for sign, instead in _PLAIN.items():
        if sign in text:
            try:
                sign.encode(encoding)
            except (UnicodeEncodeError, LookupError):
                text = text.replace(sign, instead)
    return text


def _prefixed(value: float, unit: str) -> str:
    if value == 0:
        return f"0 {unit}"
    factor, prefix = _prefix(value)
    return f"{_digits(value / factor)} {prefix}{unit}"


def _prefix(value: float) -> tuple[float, str]:
    """The largest that leaves a figure of at least 1; the smallest for what is smaller still."""
    fitting_ones = (pair for pair in _PREFIXES if abs(value) >= 0.9995 * pair[0])
    return next(fitting_ones, (1.0, "") if value == 0 else _PREFIXES[-1])


def _digits(value: float) -> str:
    """Three digits that matter, or as many as the integer has."""
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{decimals}f}"
