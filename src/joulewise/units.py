"""Factors between units, named after what they do: ``NS_PER_S`` nanoseconds in a second."""

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
Z95: Final = 1.96
"""Standard deviations in the half-width that holds 95 % of a normal distribution."""
