"""Seeing to it that one device that hangs does not hold up the others."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterable
from time import monotonic_ns
from typing import Final

from joulewise.command.linux import HERE
from joulewise.record.loops import Loop
from joulewise.units import NS_PER_MS, NS_PER_S

_APART_NS: Final = 3 * NS_PER_MS
_FIRST_S: Final = 1.0


class Watch:
    """Runs loops, and parts one whose alarm goes off: the loop re-arms it while all is well."""

    def __init__(self) -> None:
        self._loops: list[Loop] = []
        self._lock = threading.Lock()
        self._ending = False
        self._over = False
        self._news, self._tell = os.pipe()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self, loops: Iterable[Loop]) -> None:
        """Begin, and return when what is served once more at the end has been served once."""
        if HERE:  # elsewhere there are no alarms to wait for
            self._thread.start()
        self.add(loops)
        for loop in self._loops:
            loop.wait_for_first(_FIRST_S)

    def add(self, loops: Iterable[Loop]) -> None:
        """Run more loops, a moment apart: one after the other they find the caches warm."""
        start_ns = monotonic_ns()
        for index, loop in enumerate(loops):
            loop.deadlines.next_ns = start_ns + index * _APART_NS
            self._start(loop)

    def end(self, timeout_s: float) -> list[str]:
        """End every loop; the names of those channels whose driver does not come back."""
        deadline_ns = monotonic_ns() + round(timeout_s * NS_PER_S)
        with self._lock:
            self._ending = True
            for loop in self._loops:
                loop.end()
        hanging = [
            channel.name
            for loop in self._each_loop()
            if not loop.join(max(0.0, (deadline_ns - monotonic_ns()) / NS_PER_S))
            for channel in loop.channels
        ]
        self._over = True
        os.write(self._tell, b"x")
        if HERE:
            self._thread.join()
        return hanging

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
                loop.end()
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
