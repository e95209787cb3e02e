"""What each device has, asked before and while it is read.

Before: whether its driver buffers samples of power, and its settings. All devices are asked in
parallel, each in a thread, because a driver of eight GPUs may take seconds. While it is read: its
limits, clocks, memory and PCIe link. A device is opened only with what energy comes from, so that a
slow driver delays no command, and ``DeviceCompletion`` asks for the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from time import monotonic, monotonic_ns

from joulewise.data import (
    ControlInfo,
    ControlKind,
    DeviceInfo,
    Kind,
    PowerScope,
    Quantity,
    SensorInfo,
    Unavailable,
)
from joulewise.devices import Device, Discovery, nvidia
from joulewise.devices.device import PartlyOpened, ScopeChecked
from joulewise.record.driver_samples import has_buffer
from joulewise.record.sensor_profiles import sensor_profile_for
from joulewise.store.manifest import RecordedDevice
from joulewise.units import NS_PER_MS

_GPU_FAMILIES = ("nvidia", "amd")
# A device is slow, and read by a thread of its own, if asking for samples takes longer than this.
# That is two calls of a driver, as many as a reading takes, of about 0.1 to 2 ms each. Chosen:
# eight GPUs that are as slow cannot be read one after the other within the default period of
# 0.4 s; with twice as much they miss every second deadline.
_SLOW_NS = 60 * NS_PER_MS
# How long a command's start waits at most for a driver that hangs (chosen). Its counter and power
# are read without this answer; twice as long delays such a command by 1 s more.
_PATIENCE_S = 1.0


@dataclass(frozen=True)
class InventoryEntry:
    """A device, what run.json says of it, and how it answered.

    ``has_buffer``: its driver buffers samples of power. ``is_slow``: others must not wait for it.
    ``fault`` is why it is not known whether there are samples; empty where it is known.
    """

    device: Device
    recorded: RecordedDevice
    has_buffer: bool
    is_slow: bool
    fault: str = ""


Settings = Mapping[str, Mapping[str, float]]
"""Values that were set for a run, by the key of the device and the name of the control."""


def take_inventory(
    devices: Iterable[Device],
    environ: Mapping[str, str],
    applied: Settings | None = None,
    patience_s: float = _PATIENCE_S,
) -> tuple[InventoryEntry, ...]:
    """Ask all devices at once; the entries are in the order of ``devices``.

    One that does not answer within ``patience_s`` counts as slow and without samples.
    """
    queries = [_DeviceQuery(device, environ, applied) for device in devices]
    for query in queries:
        query.start()
    end_s = monotonic() + patience_s
    return tuple(query.entry(end_s) for query in queries)


class _DeviceQuery(threading.Thread):
    """Asks one device; what it raises becomes the fault of its entry."""

    def __init__(
        self, device: Device, environ: Mapping[str, str], applied: Settings | None
    ) -> None:
        super().__init__(name=f"inventory {device.info.key}", daemon=True)
        self._device = device
        self._recorded = recorded_device(device, environ, applied)
        self._entry: InventoryEntry | None = None
        self._fault = "its driver had not answered when the recording began"

    def run(self) -> None:
        try:
            start_ns = monotonic_ns()
            buffers_samples = has_buffer(self._device)
            is_slow = monotonic_ns() - start_ns > _SLOW_NS
            recorded = with_settings(self._recorded, self._device)
            self._entry = InventoryEntry(self._device, recorded, buffers_samples, is_slow)
        except Exception as error:  # noqa: BLE001  # a bug must not cost the other devices
            self._fault = f"unexpected {type(error).__name__}: {error}"

    def entry(self, end_s: float) -> InventoryEntry:
        self.join(max(0.0, end_s - monotonic()))
        unanswered = InventoryEntry(
            self._device, self._recorded, has_buffer=False, is_slow=True, fault=self._fault
        )
        return self._entry or unanswered


def recorded_device(
    device: Device,
    environ: Mapping[str, str],
    applied: Settings | None = None,
) -> RecordedDevice:
    """What is known of a device without asking it.

    ``applied`` is what was set for this run: not every device shows its settings.
    """
    sensors = [device.sensors.get(quantity) for quantity in (Quantity.POWER, Quantity.ENERGY)]
    known = [sensor for sensor in sensors if isinstance(sensor, SensorInfo)]
    refused = [sensor for sensor in sensors if isinstance(sensor, Unavailable)]
    limit = device.controls.get(ControlKind.POWER_LIMIT)
    return RecordedDevice(
        info=device.info,
        sources={sensor.quantity.value: sensor.source for sensor in known},
        card=sensor_profile_for(device, environ),
        settings=(applied or {}).get(device.info.key, {}),
        maximum_w=_maximum_w(device.info, limit),
        default_limit_w=limit.default if isinstance(limit, ControlInfo) else None,
        unavailable=refused[0] if refused and not known else None,
        asleep_ns=monotonic_ns() if getattr(device, "asleep", False) else None,
    )


def _maximum_w(info: DeviceInfo, limit: ControlInfo | Unavailable | None) -> float | None:
    """The most that a device can draw, in W; a GPU's own limit does not bound its module."""
    if info.power_scope is PowerScope.MODULE and info.limit_scope is not PowerScope.MODULE:
        return info.module_limit_w
    return limit.maximum if isinstance(limit, ControlInfo) else None


def with_settings(recorded: RecordedDevice, device: Device) -> RecordedDevice:
    """The record with the settings that the device shows; this calls the driver."""
    settings = dict(recorded.settings)
    for control, info in device.controls.items():
        if isinstance(info, ControlInfo) and info.readable:
            value = device.get(control)
            if not isinstance(value, Unavailable):
                settings[control.value] = value
    return replace(recorded, settings=settings)


def unanswered_devices(discovery: Discovery) -> tuple[RecordedDevice, ...]:
    """A record for each vendor whose driver exists and does not answer: its GPUs are missing."""
    return tuple(
        RecordedDevice(
            DeviceInfo(
                *(family, Kind.GPU, f"GPUs of the {family} driver", family, family),
                is_simulated=family == "nvidia" and nvidia.is_simulated(),
            ),
            unavailable=discovery.missing[family],
        )
        for family in discovery.unanswered
        if family in _GPU_FAMILIES
    )


class DeviceCompletion:
    """Asks devices for the rest of what they have, each in a thread.

    ``on_complete`` is called there, or ``on_failed`` with what the device unexpectedly raised.
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
        """Ask the devices that are not complete yet."""
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
        """Wait until all are complete, but no longer than ``timeout_s``."""
        end_s = monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, end_s - monotonic()))

    def _complete(self, entry: InventoryEntry, device: PartlyOpened) -> None:
        try:
            device.complete()
            self._on_complete(entry)
            # Last, because it takes two seconds and rarely changes anything.
            if isinstance(device, ScopeChecked) and device.check_scope():
                self._on_complete(entry)
        except Exception as error:  # noqa: BLE001  # its energy is read nevertheless
            self._on_failed(entry, error)
