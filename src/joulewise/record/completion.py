"""Asking devices for the rest of what they have, beside the recording.

A device is opened with what joules come from alone, so that a slow driver delays no command. Its
limits, clocks, memory and PCIe link are asked for meanwhile, by a thread for each device.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from time import monotonic

from joulewise.devices.protocol import PartlyOpened, ScopeChecked
from joulewise.record.inventory import InventoryEntry


class Completion:
    """Completes devices; ``on_complete`` is called in a thread of its own for each of them.

    ``on_failed`` is told what a device raised, which nobody expects.
    """

    def __init__(
        self,
        on_complete: Callable[[InventoryEntry], None],
        on_failed: Callable[[InventoryEntry, Exception], None],
    ) -> None:
        self._on_complete = on_complete
        self._on_failed = on_failed
        self._threads: list[threading.Thread] = []

    def begin(self, entries: Iterable[InventoryEntry]) -> None:
        """Ask those of them that are not complete yet."""
        for entry in entries:
            device = entry.device
            if isinstance(device, PartlyOpened) and not device.is_complete:
                thread = threading.Thread(
                    target=self._complete,
                    args=(entry, device),
                    name=f"complete {entry.device.info.key}",
                    daemon=True,
                )
                self._threads.append(thread)
                thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait until all are complete, but no longer than that."""
        end_s = monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, end_s - monotonic()))

    def _complete(self, entry: InventoryEntry, device: PartlyOpened) -> None:
        try:
            device.complete()
            self._on_complete(entry)
            # Not before the rest is read: it takes a while, and changes little.
            if isinstance(device, ScopeChecked) and device.check_scope():
                self._on_complete(entry)
        except Exception as error:  # noqa: BLE001  # its joules are read nevertheless
            self._on_failed(entry, error)
