"""CPUs that are not there: what they draw, and how a power limit holds them back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

WINDOW_S: Final = 28.0
"""Over which the long-term limit holds the mean; the short-term one holds at once."""


@dataclass(frozen=True)
class Package:
    """What a package draws, idle and at full load, and the limits that its firmware sets.

    Without ``limits_w`` (long term, short term) it shows no constraint, as AMD's do not. With
    ``dies`` above 1 it shows its one counter once for each of them.
    """

    idle_w: float
    full_w: float
    limits_w: tuple[float, float] | None = None
    rated_w: float = 0.0
    dram_w: tuple[float, float] | None = None
    dies: int = 1


@dataclass(frozen=True)
class Machine:
    """Packages and how their counters are shown.

    ``inside`` are zones within each package and their share of its power. ``platform_w`` is what
    the platform draws besides; None where there is no psys. ``mmio`` adds the second door.
    """

    name: str
    vendor_id: str
    packages: tuple[Package, ...]
    inside: Mapping[str, float]
    range_uj: int
    dram_range_uj: int = 65_712_999_613
    platform_w: float | None = None
    mmio: bool = False


XEON: Final = Machine(
    name="Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz",
    vendor_id="GenuineIntel",
    packages=(Package(42.0, 190.0, (150.0, 180.0), rated_w=150.0, dram_w=(9.0, 31.0)),) * 2,
    inside={},
    range_uj=262_143_328_850,
)
LAPTOP: Final = Machine(
    name="12th Gen Intel(R) Core(TM) i7-12700H",
    vendor_id="GenuineIntel",
    packages=(Package(4.0, 110.0, (45.0, 115.0), rated_w=45.0, dram_w=(0.5, 3.0)),),
    inside={"core": 0.8, "uncore": 0.05},
    range_uj=262_143_328_850,
    platform_w=7.0,
    mmio=True,
)
THREADRIPPER: Final = Machine(
    name="AMD Ryzen Threadripper 1950X 16-Core Processor",
    vendor_id="AuthenticAMD",
    packages=(Package(22.0, 180.0, dies=2),),
    inside={"core": 0.6},
    range_uj=65_532_610_987,
)
MACHINES: Final = {"xeon": XEON, "laptop": LAPTOP, "threadripper": THREADRIPPER}


class Socket:
    """The energy of a package and its DRAM, and the running mean that its limit looks at."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self.energy_j = 0.0
        self.dram_j = 0.0
        self._mean_w = package.idle_w

    def run(self, seconds: float, load: float, long_w: float, short_w: float) -> float:
        package = self.package
        demand_w = package.idle_w + load * (package.full_w - package.idle_w)
        done_s = 0.0
        for power_w, step_s in self._steps(seconds, demand_w, long_w, short_w):
            self.energy_j += power_w * step_s
            held_back = power_w < demand_w
            share = (power_w - package.idle_w) / (demand_w - package.idle_w) if held_back else 1.0
            done_s += step_s * share ** (1 / 3)  # clock and voltage fall together
        if package.dram_w:
            idle_w, full_w = package.dram_w
            share = load * done_s / seconds if seconds else 0.0
            self.dram_j += (idle_w + share * (full_w - idle_w)) * seconds
        return done_s

    def _steps(
        self, left_s: float, demand_w: float, long_w: float, short_w: float
    ) -> Iterator[tuple[float, float]]:
        """Stretches of constant power: up to the short limit until the mean is at the long one."""
        burst_w = max(self.package.idle_w, min(demand_w, short_w))
        if burst_w > long_w > self._mean_w:
            until_s = WINDOW_S * math.log((burst_w - self._mean_w) / (burst_w - long_w))
            step_s = min(left_s, until_s)
            yield burst_w, step_s
            self._mean_w = burst_w + (self._mean_w - burst_w) * math.exp(-step_s / WINDOW_S)
            left_s -= step_s
            if left_s <= 0:
                return
            self._mean_w = long_w
        held_w = max(self.package.idle_w, min(burst_w, long_w))
        yield held_w, left_s
        self._mean_w = held_w + (self._mean_w - held_w) * math.exp(-left_s / WINDOW_S)
