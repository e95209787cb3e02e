"""Seeing to it that one device that hangs does not hold up the others."""

from __future__ import annotations

import os
import select
import threading
from time import monotonic_ns

from joulewise.record.deadlines import Channel, Deadlines, Loop


class Watch:
    """Starts loops, and parts one whose alarm goes off: it re-arms that alarm while all is well."""

    def __init__(self) -> None:
        self._loops: dict[int, Loop] = {}
        self._lock = threading.Lock()
        self._over = False
        self._news, self._tell = os.pipe()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self, loops: list[Loop]) -> None:
        for loop in loops:
            loop.deadlines.next_ns = monotonic_ns() + loop.deadlines.period_ns // 2
            self._add(loop)
        self._thread.start()

    def end(self, timeout_s: float) -> list[Loop]:
        """End every loop; those that did not, since a driver holds them."""
        self._over = True
        os.write(self._tell, b"x")
        self._thread.join()
        with self._lock:
            loops = list(self._loops.values())
        for loop in loops:
            loop.end()
        deadline_ns = monotonic_ns() + round(timeout_s * 1e9)
        return [
            loop for loop in loops if not loop.join(max(0.0, (deadline_ns - monotonic_ns()) / 1e9))
        ]

    def _add(self, loop: Loop) -> None:
        with self._lock:
            self._loops[loop.alarm.fileno()] = loop
        loop.start()

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._news, select.POLLIN)
        for descriptor in self._loops:
            poller.register(descriptor, select.POLLIN)
        while not self._over:
            for descriptor, _ in poller.poll():
                loop = self._loops.get(descriptor)
                others = loop.part(monotonic_ns()) if loop else ()
                if loop and others:
                    successor = self._succeed(loop, others)
                    self._add(successor)
                    poller.register(successor.alarm, select.POLLIN)

    @staticmethod
    def _succeed(loop: Loop, others: tuple[Channel, ...]) -> Loop:
        deadlines = Deadlines(loop.deadlines.next_ns, loop.deadlines.period_ns)
        return Loop(loop.name, others, deadlines, loop.on_missed)
