"""What is asked of every device before it is read: whether samples are kept, and its settings.

All devices are asked beside each other, a thread each: a driver of eight GPUs may take seconds.

Asking devices for the rest of what they have, beside the recording.

A device is opened with what joules come from alone, so that a slow driver delays no command. Its
limits, clocks, memory and PCIe link are asked for meanwhile, by a thread for each device.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from time import monotonic, monotonic_ns

from joulewise.data import (
    DeviceInfo,
    Kind,
    Knob,
    KnobInfo,
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
# Whether samples are kept is two calls of a driver, as many as a reading takes. It answers one in
# about 0.1 to 2 ms. Chosen: ten times that and more. Eight GPUs that are as slow cannot be read one
# after the other within the usual period of 0.4 s; with twice as much, they miss every second one.
_SLOW_NS = 60 * NS_PER_MS
# Chosen: what a command waits at most for a driver that hangs. Its counter and power are read
# without this answer; twice as long delays such a command by as much.
_PATIENCE_S = 1.0


@dataclass(frozen=True)
class InventoryEntry:
    """A device, what run.json says of it, and how it answered.

    ``has_buffer``: its driver keeps samples of power. ``is_slow``: others must not wait for it.
    ``fault`` is why it is not known whether there are samples; empty where it is.
    """

    device: Device
    recorded: RecordedDevice
    has_buffer: bool
    is_slow: bool
    fault: str = ""


Settings = Mapping[str, Mapping[str, float]]
"""What was set for a run, by the key of the device and the name of the setting."""


def take_inventory(
    devices: Iterable[Device],
    environ: Mapping[str, str],
    turned: Settings | None = None,
    patience_s: float = _PATIENCE_S,
) -> tuple[InventoryEntry, ...]:
    """Ask them all at once; in the order of ``devices``.

    One that does not answer within ``patience_s`` is slow, and has no samples.
    """
    askings = [_Asking(device, environ, turned) for device in devices]
    for asking in askings:
        asking.start()
    end_s = monotonic() + patience_s
    return tuple(asking.entry(end_s) for asking in askings)


class _Asking(threading.Thread):
    """One device being asked; what it raises is its own fault."""

    def __init__(self, device: Device, environ: Mapping[str, str], turned: Settings | None) -> None:
        super().__init__(name=f"inventory {device.info.key}", daemon=True)
        self._device = device
        self._recorded = recorded_device(device, environ, turned)
        self._entry: InventoryEntry | None = None
        self._fault = "its driver had not answered when the recording began"

    def run(self) -> None:
        try:
            start_ns = monotonic_ns()
            keeps_samples = has_buffer(self._device)
            is_slow = monotonic_ns() - start_ns > _SLOW_NS
            recorded = with_settings(self._recorded, self._device)
            self._entry = InventoryEntry(self._device, recorded, keeps_samples, is_slow)
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
    turned: Settings | None = None,
) -> RecordedDevice:
    """What is known of the device without asking it.

    ``turned`` is what was set for this run, by key: not every device tells its settings.
    """
    sensors = [device.sensors.get(quantity) for quantity in (Quantity.POWER, Quantity.ENERGY)]
    known = [sensor for sensor in sensors if isinstance(sensor, SensorInfo)]
    refused = [sensor for sensor in sensors if isinstance(sensor, Unavailable)]
    limit = device.knobs.get(Knob.POWER_LIMIT)
    return RecordedDevice(
        info=device.info,
        sources={sensor.quantity.value: sensor.source for sensor in known},
        card=sensor_profile_for(device, environ),
        settings=(turned or {}).get(device.info.key, {}),
        maximum_w=_maximum_w(device.info, limit),
        default_limit_w=limit.default if isinstance(limit, KnobInfo) else None,
        unavailable=refused[0] if refused and not known else None,
        asleep_ns=monotonic_ns() if getattr(device, "asleep", False) else None,
    )


def _maximum_w(info: DeviceInfo, limit: KnobInfo | Unavailable | None) -> float | None:
    """The most that its power can be: a GPU's own limit does not bound its module."""
    if info.power_scope is PowerScope.MODULE and info.limit_scope is not PowerScope.MODULE:
        return info.module_limit_w
    return limit.maximum if isinstance(limit, KnobInfo) else None


def with_settings(recorded: RecordedDevice, device: Device) -> RecordedDevice:
    """The same with what the device is set to, for which it is asked."""
    return replace(recorded, settings={**recorded.settings, **_settings(device)})


def unanswered_devices(discovery: Discovery) -> tuple[RecordedDevice, ...]:
    """One for each vendor whose driver is there and does not answer: its GPUs are missing."""
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


def _settings(device: Device) -> dict[str, float]:
    settings = {}
    for knob, info in device.knobs.items():
        if isinstance(info, KnobInfo) and info.readable:
            value = device.get(knob)
            if not isinstance(value, Unavailable):
                settings[knob.value] = value
    return settings


class DeviceCompletion:
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
