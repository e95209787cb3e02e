"""Energy counters that start again at 0, continued over their wraps."""

from __future__ import annotations

from typing import Final

from joulewise.data import Reading, Unavailable
from joulewise.units import NS_PER_S, UJ_PER_J

# A step back is a wrap only where that needs less than ten times the most that the device can draw;
# else the counter was set back. The extra second is for counters that move in jumps. Chosen: with
# twice as much, a counter that was set back late in its range passes for a wrap more often.
_IMPOSSIBLE_FACTOR: Final = 10.0
_JUMP_S: Final = 1.0

# No counter of this kind fills within a minute. One that is read each second is read often enough.
_OFTEN_S: Final = 1.0


class WrappingCounter:
    """Undoes the wraps of a counter from 0 to ``range_uj`` of a device that draws ``maximum_w``.

    A wrap cannot be told from two, so readings must come within ``wrap_s``, the time to fill the
    counter at ``maximum_w``. Where one comes later, or the counter was set back, what was drawn in
    between is unknown: that reading is Unavailable, and the count restarts at 0, so that no
    difference across the gap passes for energy.
    """

    def __init__(self, first_uj: int, t_ns: int, *, range_uj: int, maximum_w: float) -> None:
        self.wrap_s = max(_OFTEN_S, range_uj / UJ_PER_J / maximum_w)
        self._maximum_w = maximum_w
        self._modulus_uj = range_uj + 1
        self._total_uj = self._last_uj = first_uj
        self._last_ns = t_ns

    def update(self, now_uj: int, t_ns: int) -> Reading | Unavailable:
        """The energy counted up to now, given what the counter shows at ``t_ns``."""
        if now_uj >= self._modulus_uj:
            return Unavailable(f"its counter shows {now_uj} uJ, beyond its own range")
        step_uj = (now_uj - self._last_uj) % self._modulus_uj
        elapsed_s = (t_ns - self._last_ns) / NS_PER_S
        wrapped = now_uj < self._last_uj
        self._last_uj, self._last_ns = now_uj, t_ns
        if elapsed_s > self.wrap_s:
            self._total_uj = 0
            return Unavailable(
                f"its counter was not read for {elapsed_s:.0f} s and may have wrapped twice: "
                f"it must be read every {self.wrap_s:.0f} s"
            )
        maximum_j = _IMPOSSIBLE_FACTOR * self._maximum_w * (elapsed_s + _JUMP_S)
        if wrapped and step_uj > maximum_j * UJ_PER_J:
            self._total_uj = 0
            return Unavailable("its counter was set back, as by a suspend")
        self._total_uj += step_uj
        return Reading(self._total_uj / UJ_PER_J, t_ns)
