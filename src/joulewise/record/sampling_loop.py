"""A thread that serves its channels at every deadline, and a watchdog over such threads.

A missed deadline is skipped, never made up for. The watchdog sees to it that one device that hangs
does not delay the others.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from time import monotonic_ns
from typing import Final, Protocol, runtime_checkable

from joulewise.process.linux import IS_LINUX, Timer
from joulewise.record.schedule import Deadlines, EdgeTiming, EventTimer, KernelTimer
from joulewise.units import NS_PER_MS, NS_PER_S

# Quick rounds after which a channel that was parted from the others joins them again (chosen).
# Twice as many leave a driver that recovered in a thread of its own for twice as long.
_QUICK: Final = 50
_NEVER: Final = 0  # disarms a timer (timerfd_settime(2))


class Channel(Protocol):
    """What a loop serves at a deadline: one device, read in one way."""

    @property
    def name(self) -> str: ...

    def serve(self, deadline_ns: int) -> None: ...

    def skip(self, missed: int) -> None: ...


@runtime_checkable
class EdgeChannel(Channel, Protocol):
    """A channel whose device shows the start and end of a load only after its sensor's update."""

    @property
    def edge(self) -> EdgeTiming: ...

    def serve_extra(self) -> None:
        """Read once more, at no deadline."""
        ...

    def is_settled(self, end_ns: int) -> bool:
        """Whether the sensor has shown all that was drawn up to then."""
        ...


class LoopEvents(Protocol):
    """Receives what goes wrong in a loop."""

    def on_missed(
        self, loop: str, channels: Sequence[Channel], deadline_ns: int, missed: int
    ) -> None: ...

    def on_failed(self, channel: Channel, error: Exception) -> None: ...


class SamplingLoop:
    """A thread that serves its channels one after the other, at every deadline.

    A channel that takes too long (a driver that hangs) keeps this thread: ``part`` moves the others
    to a loop of their own, and this one goes on with that channel alone until it has been quick for
    a while. Then it joins the others, and this loop is over. ``alarm`` goes off where parting may
    be due. Channels of which ``once_more`` is true are served at the end, too, until they are
    settled. With ``is_awaited`` a command does not start before they were served once. After so
    many ``ticks`` the loop ends by itself.
    """

    def __init__(
        self,
        name: str,
        channels: Sequence[Channel],
        deadlines: Deadlines,
        events: LoopEvents,
        *,
        once_more: Callable[[Channel], bool] = lambda _: False,
        is_awaited: bool = False,
        ticks: int | None = None,
    ) -> None:
        self.name = name
        self.channels = tuple(channels)
        self.deadlines = deadlines
        self._events = events
        self._once_more = once_more
        self._is_awaited = is_awaited
        self._left = ticks
        self._served = threading.Event()
        self.alarm = Timer() if IS_LINUX else None
        self._patience_ns = max(10 * NS_PER_MS, min(deadlines.period_ns // 2, 250 * NS_PER_MS))
        self._timer = KernelTimer() if IS_LINUX else EventTimer()
        self._lock = threading.Lock()
        self._serving: Channel | None = None
        self._since_ns = 0
        self._others: SamplingLoop | None = None
        self._joining: list[tuple[int, Channel]] = []
        self._quick = 0
        self._over = False
        self._dense_until_ns = 0
        self._step_ns = min((edge.step_ns for edge in self._edges() if edge.lead_ns), default=0)
        self._extra_ns = 0
        self._took_ns = 0
        self._end_ns = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_for_first(self, timeout_s: float) -> None:
        """Where a first reading is needed, wait until it has been made."""
        if self._is_awaited:
            self._served.wait(timeout_s)

    @property
    def leads(self) -> bool:
        """Whether there is something to be read densely before a command starts."""
        return self._step_ns > 0

    def lead(self, start_ns: int) -> int:
        """Begin dense readings, for twice as long as a command waits; until when it has to wait."""
        lead_ns = max((edge.lead_ns for edge in self._edges()), default=0)
        self._dense_until_ns = start_ns + 2 * lead_ns
        return start_ns + lead_ns

    def end_lead(self) -> None:
        """End the dense readings."""
        self._dense_until_ns = 0

    def end(self, end_ns: int) -> None:
        """The command ended at ``end_ns``: read what its sensors have still to show, and end."""
        self._end_ns = end_ns
        self._over = True
        self._timer.end()

    def join(self, timeout_s: float) -> bool:
        """Wait for its end; False where it goes on, because a driver hangs."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def served_since(self) -> tuple[str, int]:
        """The name of the channel that is being served, and since when (ns); else empty and 0."""
        with self._lock:
            return (self._serving.name, self._since_ns) if self._serving else ("", 0)

    @property
    def is_done(self) -> bool:
        """Whether its channel has joined the others."""
        return not (self.channels or self._thread.is_alive())

    def close(self) -> None:
        """Close its timers, once it is done."""
        self._timer.close()
        if self.alarm:
            self.alarm.close()

    def part(self, now_ns: int) -> SamplingLoop | None:
        """A loop for all other channels where one has taken too long; None where none has."""
        with self._lock:
            stuck = self._serving
            others = [channel for channel in self.channels if channel is not stuck]
            if stuck is None or not others or now_ns - self._since_ns < self._patience_ns:
                self._set_alarm(now_ns)
                return None
            loop = SamplingLoop(
                self.name,
                others,
                replace(self.deadlines),
                self._events,
                once_more=self._once_more,
                is_awaited=self._is_awaited,
                ticks=self._left,
            )
            for served_ns, channel in self._joining:
                loop.take_in(channel, served_ns)
            self.channels, self._joining, self._others = (stuck,), [], loop
            self._quick = 0
            self._set_alarm(now_ns)
            return loop

    def take_in(self, channel: Channel, served_ns: int) -> None:
        """Serve one more channel, from the first deadline after ``served_ns``."""
        with self._lock:
            if self._others is None:
                self._joining.append((served_ns, channel))
                return
        self._others.take_in(channel, served_ns)

    def _run(self) -> None:
        while not (self._over or self._joined_others() or self._is_spent()):
            self._set_alarm(self.deadlines.next_ns)
            self._timer.wait(self._due_ns())
            now_ns = monotonic_ns()
            if now_ns >= self.deadlines.next_ns:
                self._tick(*self.deadlines.take_due(now_ns))
                self._served.set()
            elif not self._over:
                self._serve(self.channels, None)
            self._extra_ns = monotonic_ns() + self._step_ns
        if self._over:
            self._read_tail()

    def _due_ns(self) -> int:
        """The time of the next deadline, or of a dense reading that ends before it."""
        next_ns = self.deadlines.next_ns
        dense = self._served.is_set() and self._extra_ns < self._dense_until_ns
        return self._extra_ns if dense and self._extra_ns + self._took_ns < next_ns else next_ns

    def _read_tail(self) -> None:
        """Serve ``once_more`` channels, and again those whose sensor has not shown the end yet."""
        self._set_alarm(monotonic_ns())
        last = tuple(filter(self._once_more, self._merged(monotonic_ns())))
        self._serve(last, None)
        while waiting := self._unsettled(last, monotonic_ns()):
            time.sleep(min(channel.edge.step_ns for channel in waiting) / NS_PER_S)
            self._set_alarm(monotonic_ns())
            self._serve(waiting, None)

    def _unsettled(self, last: Sequence[Channel], now_ns: int) -> tuple[EdgeChannel, ...]:
        """Those of ``last`` that were not parted, and whose sensor has not shown the end yet."""
        return tuple(
            channel
            for channel in self.channels
            if channel in last
            and isinstance(channel, EdgeChannel)
            and now_ns < self._end_ns + channel.edge.tail_ns
            and not channel.is_settled(self._end_ns)
        )

    def _edges(self) -> Sequence[EdgeTiming]:
        return [each.edge for each in self.channels if isinstance(each, EdgeChannel)]

    def _tick(self, deadline_ns: int, missed: int) -> None:
        began_ns = monotonic_ns()
        channels = self._merged(deadline_ns)
        if missed:
            for channel in channels:
                channel.skip(missed)
            self._events.on_missed(self.name, channels, deadline_ns, missed)
        self._serve(channels, deadline_ns)
        if self._left:
            self._left -= 1
        self._quick = self._quick + 1 if monotonic_ns() - began_ns < self._patience_ns // 2 else 0

    def _serve(self, channels: Sequence[Channel], deadline_ns: int | None) -> None:
        """Serve channels one after the other; ``deadline_ns`` is None for an extra reading.

        Once one of them has been parted from the others, the rest is left to the other loop.
        """
        began_ns, all_channels = monotonic_ns(), self.channels
        for channel in channels:
            with self._lock:
                if self.channels is not all_channels:
                    break
                self._serving, self._since_ns = channel, monotonic_ns()
            try:
                if deadline_ns is not None:
                    channel.serve(deadline_ns)
                elif isinstance(channel, EdgeChannel):
                    channel.serve_extra()
                else:
                    channel.serve(monotonic_ns())
            except Exception as error:  # noqa: BLE001  # a bug in one must not end the others
                self._events.on_failed(channel, error)
        with self._lock:
            self._serving = None
        self._took_ns = monotonic_ns() - began_ns

    def _merged(self, deadline_ns: int) -> tuple[Channel, ...]:
        """The channels, now with those that join and were not served at this deadline yet."""
        with self._lock:
            if self._joining:
                ready = [channel for served_ns, channel in self._joining if served_ns < deadline_ns]
                self._joining = [each for each in self._joining if each[0] >= deadline_ns]
                self.channels = (*self.channels, *ready)
            return self.channels

    def _joined_others(self) -> bool:
        if self._others is None or self._quick < _QUICK:
            return False
        served_ns = self.deadlines.last_ns
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


_APART_NS: Final = 3 * NS_PER_MS  # between deadlines of loops: one ends before the next (chosen)
_FIRST_S: Final = 1.0  # how long a command waits at most for first readings (chosen)
# A driver hangs if one call lasts longer than this. Chosen: counter and power of a driver that
# takes 1 s for each, and a half more. Twice as long delays the end of a run with such a driver.
_HANGS_NS: Final = 3 * NS_PER_S


class LoopWatchdog:
    """Runs loops, and parts one whose alarm goes off because it did not re-arm it in time."""

    def __init__(self) -> None:
        self._loops: list[SamplingLoop] = []
        self._lock = threading.Lock()
        self._ending = False
        self._end_ns = 0
        self._lead_over_ns = 0
        self._first_until_ns = 0
        self._over = False
        self._changed, self._notify = os.pipe()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self, loops: Iterable[SamplingLoop]) -> None:
        """Start loops, and return when the awaited ones have been served once."""
        if IS_LINUX:  # other systems have no alarms to wait for
            self._thread.start()
        loops, start_ns = list(loops), monotonic_ns()
        self._first_until_ns = start_ns + round(_FIRST_S * NS_PER_S)
        self._lead_over_ns = max((loop.lead(start_ns) for loop in loops), default=start_ns)
        self.add(loops)
        self.wait_for_first()

    def wait_for_first(self) -> None:
        """Wait until all awaited loops have been served once, for 1 s in all."""
        for loop in self._each_loop():
            loop.wait_for_first(_left_s(self._first_until_ns))

    def wait_for_lead(self) -> None:
        """Wait until sensors have been read densely for about one of their updates."""
        time.sleep(_left_s(self._lead_over_ns))

    def end_lead(self) -> None:
        """The command has started: end the dense readings."""
        for loop in self._loops:
            loop.end_lead()

    def add(self, loops: Iterable[SamplingLoop]) -> None:
        """Start more loops, a moment apart: one after the other they find the caches warm."""
        start_ns = monotonic_ns()
        for index, loop in enumerate(loops):
            loop.deadlines.first_ns = start_ns + index * _APART_NS
            self._start(loop)

    def end(self, timeout_s: float, end_ns: int | None = None) -> list[str]:
        """End every loop; the names of the channels whose driver does not return.

        ``end_ns`` is when the command ended (CLOCK_MONOTONIC); now, where it is not given.
        """
        now_ns = monotonic_ns()
        deadline_ns = now_ns + round(timeout_s * NS_PER_S)
        hanging = self._hanging_devices(now_ns)
        with self._lock:
            self._ending = True
            self._end_ns = monotonic_ns() if end_ns is None else end_ns
            for loop in self._loops:
                loop.end(self._end_ns)
        names = [
            channel.name
            for loop in self._each_loop()
            if not loop.join(
                _left_s(now_ns if _key(loop.served_since()[0]) in hanging else deadline_ns)
            )
            for channel in loop.channels
        ]
        self._over = True
        os.write(self._notify, b"x")
        if IS_LINUX:
            self._thread.join()
        return names

    def _hanging_devices(self, now_ns: int) -> set[str]:
        """The devices whose driver has not returned for seconds; nobody waits for their loops."""
        served = [loop.served_since() for loop in self._each_loop()]
        return {_key(name) for name, since_ns in served if name and now_ns - since_ns > _HANGS_NS}

    def _each_loop(self) -> Iterable[SamplingLoop]:
        """All loops, also those that are added during the iteration."""
        index = 0
        while index < len(self._loops):
            yield self._loops[index]
            index += 1

    def _start(self, loop: SamplingLoop) -> None:
        with self._lock:
            self._loops.append(loop)
            if self._ending:
                loop.end(self._end_ns)
        loop.start()
        os.write(self._notify, b"x")

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._changed, select.POLLIN)
        watched: dict[int, SamplingLoop] = {}
        while not self._over:
            for descriptor, _ in poller.poll():
                if descriptor == self._changed:
                    os.read(self._changed, 1)
                    self._update_watched(poller, watched)
                elif descriptor in watched:
                    others = watched[descriptor].part(monotonic_ns())
                    if others:
                        self._start(others)

    def _update_watched(self, poller: select.poll, watched: dict[int, SamplingLoop]) -> None:
        """Watch the alarms of new loops, and drop loops that are done."""
        with self._lock:
            loops = list(self._loops)
            done = [] if self._ending else [loop for loop in loops if loop.is_done]
            self._loops = [loop for loop in loops if loop not in done]
        for loop in done:
            if loop.alarm and watched.pop(loop.alarm.fileno(), None):
                poller.unregister(loop.alarm)
            loop.close()
        for loop in self._loops:
            if loop.alarm and loop.alarm.fileno() not in watched:
                watched[loop.alarm.fileno()] = loop
                poller.register(loop.alarm, select.POLLIN)


def _key(channel_name: str) -> str:
    """The key of a channel's device."""
    return channel_name.partition(".")[0]


def _left_s(until_ns: int) -> float:
    return max(0, until_ns - monotonic_ns()) / NS_PER_S
