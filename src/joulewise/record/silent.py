"""A device that says nothing, asleep or lost: looked at now and then, never woken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from joulewise.devices import Device


class Silent:
    """Asks the device whether it can be opened by now, and hands on what was opened, once."""

    def __init__(self, device: Any, on_reopened: Callable[[Device], None]) -> None:
        self.name = f"{device.info.key}.silent"
        self._reopened: Callable[[], Device | None] = device.reopened
        self._on_reopened = on_reopened
        self._done = False

    def serve(self, _deadline_ns: int) -> None:
        found = None if self._done else self._reopened()
        if found is not None:
            self._done = True
            self._on_reopened(found)

    def skip(self, missed: int) -> None:
        """It is looked at the next time."""
