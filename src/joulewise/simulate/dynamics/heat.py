"""How warm a board is: one resistance and one time constant, brought up to date now and then."""

from __future__ import annotations

import math
from dataclasses import dataclass

from joulewise.simulate.model import Thermal
from joulewise.units import NS_PER_S

_STRETCH_C = 0.2
_LONGEST_S = 60.0
_FELT_C = 0.1


@dataclass(frozen=True)
class Heat:
    """The temperature at ``t_ns``, when ``energy_j`` had been drawn.

    Between two such moments power counts by its mean. ``felt_c`` is what leakage and governor go
    by: it follows in steps, so that a settled load is the same from one step to the next.
    """

    t_ns: int
    energy_j: float
    temperature_c: float
    felt_c: float

    def after(self, thermal: Thermal, t_ns: int, energy_j: float) -> Heat:
        lasting_s = (t_ns - self.t_ns) / NS_PER_S
        if lasting_s <= 0.0:
            return self
        end_c = settled_c(thermal, (energy_j - self.energy_j) / lasting_s)
        decay = math.exp(-lasting_s / thermal.time_constant_s)
        now_c = end_c + (self.temperature_c - end_c) * decay
        felt_c = self.felt_c if abs(now_c - self.felt_c) < _FELT_C else now_c
        return Heat(t_ns, energy_j, now_c, felt_c)

    def due_ns(self, thermal: Thermal, power_w: float) -> int:
        """When to look again, if ``power_w`` is drawn from here: before it is felt twice."""
        away_c = abs(settled_c(thermal, power_w) - self.temperature_c)
        lasting_s = thermal.time_constant_s * _STRETCH_C / max(away_c, 1e-9)
        return self.t_ns + round(min(lasting_s, _LONGEST_S) * NS_PER_S)


def settled_c(thermal: Thermal, power_w: float) -> float:
    """The temperature that a constant power comes to in the end."""
    return thermal.ambient_c + thermal.resistance_c_per_w * power_w
