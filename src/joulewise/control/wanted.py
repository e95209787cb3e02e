"""What a holder asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from joulewise.data import Knob, KnobInfo


@dataclass(frozen=True)
class Wanted:
    """Settings of one device, which is named by its uid or its key (``gpu0``)."""

    device: str
    settings: Mapping[Knob, float]


def snapped(info: KnobInfo, value: float) -> float:
    """The value that the knob takes and that is nearest; of two as near, the lower."""
    if info.choices is None or not info.minimum <= value <= info.maximum:
        return value  # whether it is in range is for the knob to say
    return min(info.choices, key=lambda choice: (abs(choice - value), choice))
