"""A thread that does something at every deadline, and nothing twice to catch up."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from time import monotonic_ns
from typing import Final, Protocol

from joulewise.command.linux import HERE, Timer
from joulewise.record.deadlines import CoarseTicks, Deadlines, Ticks
from joulewise.units import NS_PER_MS

_QUICK: Final = 50
_NEVER: Final = 0


class Channel(Protocol):
    """What is served at a deadline: one device, read in one way."""

    @property
    def name(self) -> str: ...

    def serve(self, deadline_ns: int) -> None: ...

    def skip(self, missed: int) -> None: ...


class Events(Protocol):
    """Who is told of what goes wrong in a loop."""

    def on_missed(
        self, loop: str, channels: Sequence[Channel], deadline_ns: int, missed: int
    ) -> None: ...

    def on_failed(self, channel: Channel, error: Exception) -> None: ...


class Loop:
    """A thread that serves its channels one after the other, at every deadline.

    A channel that takes too long (a driver that hangs) keeps the thread to itself: ``part`` moves
    the others to a loop of their own, and this one goes on with that channel alone, until it has
    been quick for a while: then it joins the others, and this loop is over. ``alarm`` goes off
    where parting may be due. With ``once_more`` channels are served at the end, too; after so many
    ``ticks`` it is over by itself.
    """

    def __init__(
        self,
        name: str,
        channels: Sequence[Channel],
        deadlines: Deadlines,
        events: Events,
        *,
        once_more: bool = False,
        ticks: int | None = None,
    ) -> None:
        self.name = name
        self.channels = tuple(channels)
        self.deadlines = deadlines
        self._events = events
        self._once_more = once_more
        self._left = ticks
        self._served = threading.Event()
        self.alarm = Timer() if HERE else None
        self._patience_ns = max(10 * NS_PER_MS, min(deadlines.period_ns // 2, 250 * NS_PER_MS))
        self._ticks = Ticks() if HERE else CoarseTicks()
        self._lock = threading.Lock()
        self._serving: Channel | None = None
        self._since_ns = 0
        self._others: Loop | None = None
        self._joining: list[tuple[int, Channel]] = []
        self._quick = 0
        self._over = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_for_first(self, timeout_s: float) -> None:
        """Where a first reading is needed, wait until it has been made."""
        if self._once_more:
            self._served.wait(timeout_s)

    def end(self) -> None:
        self._over = True
        self._ticks.end()

    def join(self, timeout_s: float) -> bool:
        """Whether it has ended, which it does not while a driver hangs."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def is_done(self) -> bool:
        """Whether its channel has joined the others."""
        return not (self.channels or self._thread.is_alive())

    def close(self) -> None:
        """Let go of what the kernel holds for it, once it is done."""
        self._ticks.close()
        if self.alarm:
            self.alarm.close()

    def part(self, now_ns: int) -> Loop | None:
        """A loop for all channels but the one that has held them up for too long, if one has."""
        with self._lock:
            stuck = self._serving
            others = [channel for channel in self.channels if channel is not stuck]
            if stuck is None or not others or now_ns - self._since_ns < self._patience_ns:
                self._set_alarm(now_ns)
                return None
            deadlines = Deadlines(self.deadlines.next_ns, self.deadlines.period_ns)
            loop = Loop(
                self.name,
                others,
                deadlines,
                self._events,
                once_more=self._once_more,
                ticks=self._left,
            )
            for served_ns, channel in self._joining:
                loop.take_in(channel, served_ns)
            self.channels, self._joining, self._others = (stuck,), [], loop
            self._quick = 0
            self._set_alarm(now_ns)
            return loop

    def take_in(self, channel: Channel, served_ns: int) -> None:
        """Serve one more channel, from the first deadline after ``served_ns`` on."""
        with self._lock:
            if self._others is None:
                self._joining.append((served_ns, channel))
                return
        self._others.take_in(channel, served_ns)

    def _run(self) -> None:
        self._ticks.start(self.deadlines)
        while not (self._over or self._joined_others() or self._is_spent()):
            self._set_alarm(self.deadlines.next_ns)
            self._ticks.wait(self.deadlines)
            now_ns = monotonic_ns()
            if now_ns >= self.deadlines.next_ns:
                self._tick(*self.deadlines.reach(now_ns))
                self._served.set()
        if self._over and self._once_more:
            self._set_alarm(monotonic_ns())
            self._tick(monotonic_ns(), 0)

    def _tick(self, deadline_ns: int, missed: int) -> None:
        began_ns = monotonic_ns()
        channels = self._merged(deadline_ns)
        if missed:
            for channel in channels:
                channel.skip(missed)
            self._events.on_missed(self.name, channels, deadline_ns, missed)
        for channel in channels:
            with self._lock:
                if self.channels is not channels:
                    break
                self._serving, self._since_ns = channel, monotonic_ns()
            try:
                channel.serve(deadline_ns)
            except Exception as error:  # noqa: BLE001  # a bug in one must not end the others
                self._events.on_failed(channel, error)
        with self._lock:
            self._serving = None
        if self._left:
            self._left -= 1
        self._quick = self._quick + 1 if monotonic_ns() - began_ns < self._patience_ns // 2 else 0

    def _merged(self, deadline_ns: int) -> tuple[Channel, ...]:
        """The channels, with those that join and were not served at this deadline already."""
        with self._lock:
            if self._joining:
                ready = [channel for served_ns, channel in self._joining if served_ns < deadline_ns]
                self._joining = [each for each in self._joining if each[0] >= deadline_ns]
                self.channels = (*self.channels, *ready)
            return self.channels

    def _joined_others(self) -> bool:
        if self._others is None or self._quick < _QUICK:
            return False
        served_ns = self.deadlines.next_ns - self.deadlines.period_ns
        for channel in self.channels:
            self._others.take_in(channel, served_ns)
        self.channels = ()
        return True

    def _is_spent(self) -> bool:
        if self._left == 0:
            with self._lock:
                self.channels = ()
            return True
        return False

    def _set_alarm(self, from_ns: int) -> None:
        if self.alarm:
            self.alarm.set(from_ns + self._patience_ns if len(self.channels) > 1 else _NEVER)
