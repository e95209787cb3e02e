"""Seeing to it that one device that hangs does not hold up the others."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Iterable
from time import monotonic_ns
from typing import Final

from joulewise.command.linux import HERE
from joulewise.record.loops import Loop
from joulewise.units import NS_PER_MS, NS_PER_S

_APART_NS: Final = 3 * NS_PER_MS
_FIRST_S: Final = 1.0
# Chosen: a reading of the counter and the power of a driver that takes 1 s for each, and a half.
_HANGS_NS: Final = 3 * NS_PER_S


class Watch:
    """Runs loops, and parts one whose alarm goes off: the loop re-arms it while all is well."""

    def __init__(self) -> None:
        self._loops: list[Loop] = []
        self._lock = threading.Lock()
        self._ending = False
        self._end_ns = 0
        self._lead_over_ns = 0
        self._first_until_ns = 0
        self._over = False
        self._news, self._tell = os.pipe()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self, loops: Iterable[Loop]) -> None:
        """Begin, and return when what is awaited has been served once."""
        if HERE:  # elsewhere there are no alarms to wait for
            self._thread.start()
        loops, start_ns = list(loops), monotonic_ns()
        self._first_until_ns = start_ns + round(_FIRST_S * NS_PER_S)
        self._lead_over_ns = max((loop.lead(start_ns) for loop in loops), default=start_ns)
        self.add(loops)
        self.wait_for_first()

    def wait_for_first(self) -> None:
        """Until all loops that a command waits for have been served once, for 1 s in all."""
        for loop in self._each_loop():
            loop.wait_for_first(_left_s(self._first_until_ns))

    def wait_for_lead(self) -> None:
        """Until sensors have been read densely for about one of their updates."""
        time.sleep(_left_s(self._lead_over_ns))

    def end_lead(self) -> None:
        """The command has started: from here on, deadlines are all."""
        for loop in self._loops:
            loop.end_lead()

    def add(self, loops: Iterable[Loop]) -> None:
        """Run more loops, a moment apart: one after the other they find the caches warm."""
        start_ns = monotonic_ns()
        for index, loop in enumerate(loops):
            loop.deadlines.first_ns = start_ns + index * _APART_NS
            self._start(loop)

    def end(self, timeout_s: float, end_ns: int | None = None) -> list[str]:
        """End every loop; the names of those channels whose driver does not come back.

        ``end_ns`` is when what was measured ended, now where that is not said.
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
            if not loop.join(_left_s(now_ns if _device(loop) in hanging else deadline_ns))
            for channel in loop.channels
        ]
        self._over = True
        os.write(self._tell, b"x")
        if HERE:
            self._thread.join()
        return names

    def _hanging_devices(self, now_ns: int) -> set[str]:
        """Whose driver has kept a loop for seconds: none of their loops is worth waiting for."""
        served = [loop.served_since() for loop in self._each_loop()]
        return {_key(name) for name, since_ns in served if name and now_ns - since_ns > _HANGS_NS}

    def _each_loop(self) -> Iterable[Loop]:
        """Also those that come while the others are being ended."""
        index = 0
        while index < len(self._loops):
            yield self._loops[index]
            index += 1

    def _start(self, loop: Loop) -> None:
        with self._lock:
            self._loops.append(loop)
            if self._ending:
                loop.end(self._end_ns)
        loop.start()
        os.write(self._tell, b"x")

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._news, select.POLLIN)
        watched: dict[int, Loop] = {}
        while not self._over:
            for descriptor, _ in poller.poll():
                if descriptor == self._news:
                    os.read(self._news, 1)
                    self._look_through(poller, watched)
                elif descriptor in watched:
                    others = watched[descriptor].part(monotonic_ns())
                    if others:
                        self._start(others)

    def _look_through(self, poller: select.poll, watched: dict[int, Loop]) -> None:
        """Listen to the alarms of new loops, and let go of those that are done."""
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


def _device(loop: Loop) -> str:
    """The key of the device that a loop is reading now; empty where it waits."""
    name, _ = loop.served_since()
    return _key(name)


def _key(channel_name: str) -> str:
    return channel_name.partition(".")[0]


def _left_s(until_ns: int) -> float:
    return max(0, until_ns - monotonic_ns()) / NS_PER_S
