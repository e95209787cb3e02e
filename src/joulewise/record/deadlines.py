"""Something done at every deadline of a clock, and nothing done twice to catch up."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic_ns
from typing import Final, Protocol

from joulewise.command.linux import Timer
from joulewise.units import NS_PER_MS

_AT_ONCE: Final = 1


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


class Loop:
    """A thread that serves its channels one after the other, at every deadline.

    A channel that takes too long (a driver that hangs) keeps the thread to itself: ``part`` hands
    the others back, for a loop of their own, and this one goes on with that channel alone.
    """

    def __init__(
        self,
        name: str,
        channels: Sequence[Channel],
        deadlines: Deadlines,
        on_missed: Callable[[str, Sequence[Channel], int, int], None],
    ) -> None:
        self.name = name
        self.channels = tuple(channels)
        self.deadlines = deadlines
        self.alarm = Timer()
        self.patience_ns = max(10 * NS_PER_MS, min(deadlines.period_ns // 2, 50 * NS_PER_MS))
        self.on_missed = on_missed
        self._timer = Timer()
        self._lock = threading.Lock()
        self._serving: Channel | None = None
        self._since_ns = 0
        self._over = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._over = True
        self._timer.set(_AT_ONCE)

    def join(self, timeout_s: float) -> bool:
        """Whether it has ended, which it does not while a driver hangs."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def part(self, now_ns: int) -> tuple[Channel, ...]:
        """Give away all channels but the one that has held up the rest for too long, if one has."""
        with self._lock:
            stuck = self._serving
            if stuck is None or now_ns - self._since_ns < self.patience_ns:
                self.alarm.set(now_ns + self.patience_ns)
                return ()
            others = tuple(channel for channel in self.channels if channel is not stuck)
            self.channels = (stuck,)
            self.alarm.set(0)
            return others

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._timer, select.POLLIN)
        while not self._over:
            self._timer.set(self.deadlines.next_ns)
            if len(self.channels) > 1:
                self.alarm.set(self.deadlines.next_ns + self.patience_ns)
            poller.poll()
            now_ns = monotonic_ns()
            if now_ns >= self.deadlines.next_ns:
                self._tick(now_ns)

    def _tick(self, now_ns: int) -> None:
        deadline_ns, missed = self.deadlines.reach(now_ns)
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
