"""Something done at every deadline of a clock, and nothing done twice to catch up."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic_ns
from typing import Final, Protocol

from joulewise.command.linux import HERE, Timer
from joulewise.units import NS_PER_MS, NS_PER_S

_AT_ONCE: Final = 1
_TIMER_B: Final = 8


@dataclass
class Deadlines:
    """Every ``period_ns``, counted from the first: one that is late does not move the next."""

    next_ns: int
    period_ns: int

    def reach(self, now_ns: int) -> tuple[int, int]:
        """The newest deadline that has passed, and how many before it went by unserved."""
        missed = (now_ns - self.next_ns) // self.period_ns
        deadline_ns = self.next_ns + missed * self.period_ns
        self.next_ns = deadline_ns + self.period_ns
        return deadline_ns, missed


class Channel(Protocol):
    """What is served at a deadline: one device, read in one way."""

    @property
    def name(self) -> str: ...

    def serve(self, deadline_ns: int) -> None: ...

    def skip(self, missed: int) -> None: ...


OnMissed = Callable[[str, Sequence[Channel], int, int], None]


class Loop:
    """A thread that serves its channels one after the other, at every deadline.

    A channel that takes too long (a driver that hangs) keeps the thread to itself: ``part`` hands
    the others back, for a loop of their own, and this one goes on with that channel alone.
    ``alarm`` goes off where that may be due. With ``once_more`` they are served at the end, too.
    """

    def __init__(
        self,
        name: str,
        channels: Sequence[Channel],
        deadlines: Deadlines,
        on_missed: OnMissed,
        *,
        once_more: bool = False,
    ) -> None:
        self.name = name
        self.channels = tuple(channels)
        self.deadlines = deadlines
        self.on_missed = on_missed
        self.once_more = once_more
        self.served = threading.Event()
        self.alarm = Timer() if HERE else None
        self._patience_ns = max(10 * NS_PER_MS, min(deadlines.period_ns // 2, 50 * NS_PER_MS))
        self._ticks = _Ticks() if HERE else _CoarseTicks()
        self._lock = threading.Lock()
        self._serving: Channel | None = None
        self._since_ns = 0
        self._over = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._over = True
        self._ticks.end()

    def join(self, timeout_s: float) -> bool:
        """Whether it has ended, which it does not while a driver hangs."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def part(self, now_ns: int) -> tuple[Channel, ...]:
        """Give away all channels but the one that has held up the rest for too long, if one has."""
        with self._lock:
            stuck = self._serving
            if stuck is None or now_ns - self._since_ns < self._patience_ns:
                self._set_alarm(now_ns)
                return ()
            others = tuple(channel for channel in self.channels if channel is not stuck)
            self.channels = (stuck,)
            if self.alarm:
                self.alarm.set(0)
            return others

    def _run(self) -> None:
        self._ticks.start(self.deadlines)
        while not self._over:
            self._set_alarm(self.deadlines.next_ns)
            self._ticks.wait(self.deadlines)
            now_ns = monotonic_ns()
            if now_ns >= self.deadlines.next_ns:
                self._tick(*self.deadlines.reach(now_ns))
                self.served.set()
        if self.once_more:
            self._set_alarm(monotonic_ns())
            self._tick(monotonic_ns(), 0)

    def _tick(self, deadline_ns: int, missed: int) -> None:
        channels = self.channels
        if missed:
            for channel in channels:
                channel.skip(missed)
            self.on_missed(self.name, channels, deadline_ns, missed)
        for channel in channels:
            with self._lock:
                if self.channels is not channels:
                    break
                self._serving, self._since_ns = channel, monotonic_ns()
            channel.serve(deadline_ns)
        with self._lock:
            self._serving = None

    def _set_alarm(self, from_ns: int) -> None:
        if self.alarm and len(self.channels) > 1:
            self.alarm.set(from_ns + self._patience_ns)


class _Ticks:
    """Waits on a timer of the kernel that goes off at every deadline, whoever is late."""

    def __init__(self) -> None:
        self._timer = Timer()
        os.set_blocking(self._timer.fileno(), True)

    def start(self, deadlines: Deadlines) -> None:
        self._timer.set(deadlines.next_ns, deadlines.period_ns)

    def wait(self, _deadlines: Deadlines) -> None:
        os.read(self._timer.fileno(), _TIMER_B)

    def end(self) -> None:
        self._timer.set(_AT_ONCE, NS_PER_MS)


class _CoarseTicks:
    """The same with what every system has, as exact as it gets there."""

    def __init__(self) -> None:
        self._over = threading.Event()

    def start(self, deadlines: Deadlines) -> None:
        """Nothing to do before the first wait."""

    def wait(self, deadlines: Deadlines) -> None:
        self._over.wait(max(0.0, (deadlines.next_ns - monotonic_ns()) / NS_PER_S))

    def end(self) -> None:
        self._over.set()
