"""The CPU and its memory on the module of a simulated superchip, in real time.

They draw with the load of this machine's own CPUs: the command runs there, since only the GPU is
simulated.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.simulate.model import Module
from joulewise.units import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

PERIOD_NS: Final = 50 * NS_PER_MS
"""How often the load is looked at. Chosen: five ticks of the kernel's clock, and half a sensor's
period; with twice as much, the power follows the load later by as much."""

# A new power holds from a little later on, so that whoever reads up to now never reads a future
# that changes. Chosen: more than a busy machine takes to come back to the engine, as a rule.
_LEAD_NS: Final = 50 * NS_PER_MS
_IDLE_FIELDS: Final = (3, 4)  # idle, iowait
_FIELDS: Final = 8  # with stolen time; guests are in user time already

Publish = Callable[[int, float, float], None]
"""Is told from when on (ns), the power (W), and the energy drawn before (J)."""


class MachineLoad:
    """The share of its CPUs' time that this machine was busy, from one call to the next."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._last = self._ticks()
        self._load = 0.0

    def load(self) -> float:
        """From 0 to 1; as before where the kernel's clock has not ticked."""
        busy, total = self._ticks()
        last_busy, last_total = self._last
        if total > last_total:
            self._load = min(1.0, max(0.0, (busy - last_busy) / (total - last_total)))
            self._last = busy, total
        return self._load

    def _ticks(self) -> tuple[int, int]:
        words = self._stat.read_text("ascii").split("\n", 1)[0].split()[1 : _FIELDS + 1]
        ticks = [int(word) for word in words]
        return sum(t for i, t in enumerate(ticks) if i not in _IDLE_FIELDS), sum(ticks)


class HostChip:
    """What the CPU and the memory of one module draw: constant power from change to change."""

    def __init__(self, module: Module, start_ns: int, publish: Publish) -> None:
        self._module = module
        self._publish = publish
        self._pieces = [(start_ns, 0.0, module.host_power_w(0.0))]
        publish(start_ns, module.host_power_w(0.0), 0.0)

    def set_load(self, load: float, now_ns: int) -> None:
        """From a little later than now on it draws as at this load."""
        power_w = self._module.host_power_w(load)
        t_ns = max(now_ns + _LEAD_NS, self._pieces[-1][0])
        energy_j = float(self.energy_at([t_ns])[0])
        self._pieces.append((t_ns, energy_j, power_w))
        self._publish(t_ns, power_w, energy_j)

    def energy_at(self, t_ns: ArrayLike) -> NDArray[np.float64]:
        """Cumulative energy in J, exact from what was not forgotten on."""
        starts_ns, energy_j, power_w = (
            np.array(column) for column in zip(*self._pieces, strict=True)
        )
        times_ns = np.asarray(t_ns, np.int64)
        at = np.maximum(np.searchsorted(starts_ns, times_ns, side="right") - 1, 0)
        return np.asarray(energy_j[at] + power_w[at] * (times_ns - starts_ns[at]) / NS_PER_S)

    def changes_ns(self) -> NDArray[np.int64]:
        """When its power changed or will, as far as that was not forgotten."""
        return np.array([t_ns for t_ns, _, _ in self._pieces], np.int64)

    def forget(self, until_ns: int) -> None:
        """Nobody will ask for what was before."""
        later = [i for i, piece in enumerate(self._pieces) if piece[0] <= until_ns][-1:]
        self._pieces = self._pieces[later[0] if later else 0 :]
