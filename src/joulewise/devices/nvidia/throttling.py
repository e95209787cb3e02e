"""Whether a power limit has an effect, by NVML's reasons for lower clocks.

A limit above what the load needs never binds. A limit below the floor cannot be held: clocks can be
lowered only so far, and the power of a board at its lowest clock is the floor of that load.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final

IDLE: Final = 0x1  # nvmlClocksEventReasonGpuIdle
CAPPED: Final = 0x4  # nvmlClocksEventReasonSwPowerCap
MIN_LOADED_SAMPLES: Final = 5
"""Chosen: fewer samples under load are not judged. Doubled, shorter runs have no verdict."""

# A limit is below the floor where it holds the clock down in this share of the samples and the mean
# power still exceeds it by this factor. Chosen: a sensor's gain is off by up to 5 %; doubled,
# limits that are exceeded by less than 10 % would go unnoticed.
_NEARLY_ALWAYS: Final = 0.95
_EXCEEDED_FACTOR: Final = 1.05


class Binding(str, Enum):
    """Why a limit has no effect, or not the one that was wanted."""

    NEVER = "it never binds"
    BELOW_FLOOR = "it is below the floor"


def judge_limit(limit_w: float, reasons: Iterable[int], mean_w: float | None) -> Binding | None:
    """Judge a limit by samples of NVML's reasons for lower clocks, and the mean power (W).

    None where the limit has its effect, or there are too few samples under load.
    """
    loaded = [bits for bits in reasons if not bits & IDLE]
    if len(loaded) < MIN_LOADED_SAMPLES:
        return None
    capped = sum(bool(bits & CAPPED) for bits in loaded) / len(loaded)
    if capped == 0:
        return Binding.NEVER
    above = mean_w is not None and mean_w > _EXCEEDED_FACTOR * limit_w
    return Binding.BELOW_FLOOR if capped >= _NEARLY_ALWAYS and above else None
