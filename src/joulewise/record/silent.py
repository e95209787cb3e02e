"""A device that says nothing, asleep or lost: looked at now and then, never woken."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from joulewise.devices import Device


class Silent:
    """Asks the device whether it can be opened by now, and hands on what was opened, once.

    With it goes the moment up to which it is known to have slept, None where it was just lost.
    """

    def __init__(self, device: Any, on_reopened: Callable[[Device, int | None], None]) -> None:
        self.name = f"{device.info.key}.silent"
        self._device = device
        self._on_reopened = on_reopened
        self._sleeps: bool = device.asleep
        self._asleep_ns = monotonic_ns() if self._sleeps else None
        self._done = False

    def serve(self, _deadline_ns: int) -> None:
        if self._done:
            return
        now_ns, found = monotonic_ns(), self._device.reopened()
        self._sleeps &= self._device.asleep
        if self._sleeps:
            self._asleep_ns = now_ns
        if found is not None:
            self._done = True
            self._on_reopened(found, self._asleep_ns)

    def skip(self, missed: int) -> None:
        """It is looked at the next time."""
