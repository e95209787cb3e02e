"""Whether somebody set the wall clock, and whether the machine slept."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from joulewise.data import Caution
from joulewise.record.driver_clock import STEP_NS
from joulewise.units import NS_PER_S

# Of so many tries the quickest is the truest. Chosen: on a loaded machine one in a hundred readings
# is interrupted.
_TRIES: Final = 3


def boot_ns() -> int:
    """The clock that goes on while the machine is suspended; where there is none, ours."""
    linux = sys.platform == "linux"
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) if linux else time.monotonic_ns()


@dataclass(frozen=True)
class Lags:
    """Our clock less the wall clock and less the boot clock, read within ``took_ns``."""

    took_ns: int
    wall_ns: int
    boot_ns: int


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
        self._before: Lags | None = None
        self._known()

    def news(self) -> Iterator[tuple[Caution, str]]:
        """What happened since the last time, and in words."""
        before, now = self._before, self._known()
        if before is None or now is None:
            return
        slept_ns = before.boot_ns - now.boot_ns
        slept_ns = slept_ns if slept_ns > STEP_NS else 0
        set_by_ns = before.wall_ns - now.wall_ns - slept_ns
        if slept_ns:
            yield Caution.SUSPENDED, f"the machine was suspended for {slept_ns / NS_PER_S:.1f} s"
        if abs(set_by_ns) > STEP_NS:
            yield Caution.CLOCK_SET, f"the wall clock was set by {set_by_ns / NS_PER_S:+.3f} s"
        if not slept_ns and abs(set_by_ns) <= STEP_NS:
            self._before = before  # slow steps add up

    def _known(self) -> Lags | None:
        """How the clocks stand; None where this process did not come to read them at once."""
        lags = min((self._read() for _ in range(_TRIES)), key=lambda each: each.took_ns)
        if lags.took_ns > STEP_NS:
            return None
        self._before = lags
        return lags

    def _read(self) -> Lags:
        """Between the two looks at the boot clock this process, or the machine, may have stopped.

        Our own clock would not tell the one, and the wall clock may be set meanwhile.
        """
        start_ns = self._boot_ns()
        now_ns, wall_ns = self._now_ns(), self._wall_ns()
        end_ns = self._boot_ns()
        return Lags(end_ns - start_ns, now_ns - wall_ns, now_ns - (start_ns + end_ns) // 2)
