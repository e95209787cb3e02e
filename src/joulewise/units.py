"""Factors between units (``NS_PER_S`` nanoseconds in a second), and figures with a prefix."""

from __future__ import annotations

from typing import Final

NS_PER_S: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000
NS_PER_US: Final = 1_000
MW_PER_W: Final = 1_000
MJ_PER_J: Final = 1_000
UJ_PER_J: Final = 1_000_000
UW_PER_W: Final = 1_000_000
B_PER_MIB: Final = 1 << 20
B_PER_GIB: Final = 1 << 30
Z95: Final = 1.96
"""Standard deviations in the half-width that holds 95 % of a normal distribution."""
_PREFIXES: Final = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"))


def prefixed(value: float, unit: str) -> str:
    """``15.2 mJ``: by the largest that leaves a figure of at least 1, if there is one."""
    if value == 0:
        return f"0 {unit}"
    fitting = (pair for pair in _PREFIXES if abs(value) >= 0.9995 * pair[0])
    factor, prefix = next(fitting, _PREFIXES[-1])
    return f"{digits(value / factor)} {prefix}{unit}"


def digits(value: float) -> str:
    """Three that matter, or as many as the integer has."""
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{decimals}f}"
