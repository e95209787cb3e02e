"""Whether somebody set the wall clock, and whether the machine slept."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

from joulewise.data import Caution
from joulewise.record.driver_clock import STEP_NS, wall_lag_ns
from joulewise.units import NS_PER_S


def boot_ns() -> int:
    """The clock that goes on while the machine is suspended; where there is none, ours."""
    linux = sys.platform == "linux"
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) if linux else time.monotonic_ns()


class Clocks:
    """Compares our clock, which stands still in a suspension, with the two that do not."""

    def __init__(
        self,
        now_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
        awake_or_not_ns: Callable[[], int] = boot_ns,
    ) -> None:
        self._now_ns = now_ns
        self._wall_ns = wall_ns
        self._boot_ns = awake_or_not_ns
        self._wall_lag_ns, self._boot_lag_ns = self._lags_ns()

    def news(self) -> Iterator[tuple[Caution, str]]:
        """What happened since the last time, and in words."""
        wall_lag_ns, boot_lag_ns = self._lags_ns()
        slept_ns = self._boot_lag_ns - boot_lag_ns
        set_by_ns = self._wall_lag_ns - wall_lag_ns
        if slept_ns > STEP_NS:
            self._boot_lag_ns = boot_lag_ns
            self._wall_lag_ns -= slept_ns
            set_by_ns -= slept_ns
            yield Caution.SUSPENDED, f"the machine was suspended for {slept_ns / NS_PER_S:.1f} s"
        if abs(set_by_ns) > STEP_NS:
            self._wall_lag_ns = wall_lag_ns
            yield Caution.CLOCK_SET, f"the wall clock was set by {set_by_ns / NS_PER_S:+.3f} s"

    def _lags_ns(self) -> tuple[int, int]:
        return wall_lag_ns(self._now_ns, self._wall_ns), wall_lag_ns(self._now_ns, self._boot_ns)
