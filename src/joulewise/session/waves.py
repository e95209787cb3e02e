"""Square waves of load whose lengths are drawn: nothing about them beats with a sensor."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Burst:
    """A pause, then load."""

    off_s: float
    on_s: float


def draw_waves(
    seconds: float, shortest_s: float, longest_s: float, *, lead_s: float, seed: int
) -> list[Burst]:
    """Bursts for about ``seconds`` after a first pause of ``lead_s``; all scales as likely."""
    draw = random.Random(seed)  # noqa: S311  # the waves of one seed can be had again
    low, high = math.log(shortest_s), math.log(longest_s)
    bursts: list[Burst] = []
    left_s = seconds
    while left_s > 0:
        off_s, on_s = (math.exp(draw.uniform(low, high)) for _ in range(2))
        bursts.append(Burst(off_s if bursts else lead_s, on_s))
        left_s -= on_s + (off_s if len(bursts) > 1 else 0)
    return bursts
