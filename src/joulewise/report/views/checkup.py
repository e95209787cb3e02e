"""What ``doctor`` shows: every device with the state of its sensors and settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from joulewise.data import (
    ControlInfo,
    ControlKind,
    DeviceInfo,
    Quantity,
    SensorInfo,
    Source,
    Unavailable,
)
from joulewise.devices import Device, Discovery
from joulewise.record.sensor_profiles import CalibratedProfile, read_calibrated_profile
from joulewise.report.views import leases
from joulewise.report.views.leases import Leases

_SERVED: Final = Unavailable("the guard service sets it, within the limits of its configuration")


@dataclass(frozen=True)
class SensorState:
    """A sensor that was read: what is known of it, and its value now."""

    info: SensorInfo
    value: float


@dataclass(frozen=True)
class ControlState:
    """A control of a device; ``value`` is its setting, or why that cannot be read.

    ``by_service``: this process may not set it, but the guard service does so for it.
    """

    info: ControlInfo
    value: float | Unavailable
    by_service: bool = False


@dataclass(frozen=True)
class DeviceState:
    """A device; ``card`` is its calibration, or why the stored one cannot be used."""

    info: DeviceInfo
    sensors: Mapping[Quantity, SensorState | Unavailable]
    controls: Mapping[ControlKind, ControlState | Unavailable]
    card: CalibratedProfile | Unavailable | None = None

    def energy_source(self) -> tuple[Source, str] | Unavailable:
        """The source of its energy, and the kind of sensor."""
        for quantity, means in ((Quantity.ENERGY, "counter"), (Quantity.POWER, "power samples")):
            sensor = self.sensors.get(quantity)
            if isinstance(sensor, SensorState):
                return sensor.info.source, means
        states = [self.sensors.get(quantity) for quantity in (Quantity.ENERGY, Quantity.POWER)]
        reasons = (state for state in states if isinstance(state, Unavailable))
        return next(reasons, Unavailable("no sensor"))


@dataclass(frozen=True)
class Checkup:
    """All devices, the kinds of device that were not found with the reason, and the leases."""

    devices: tuple[DeviceState, ...]
    missing: Mapping[str, Unavailable]
    leases: Leases = field(default_factory=Leases)


def examine(discovery: Discovery, environ: Mapping[str, str] = os.environ) -> Checkup:
    """Read every sensor and control once, all devices in parallel, since some take a while."""
    held = leases.leases(environ)
    serves = isinstance(held.service, str)
    # One thread for each device: a reading may block for as long as the driver averages.
    with ThreadPoolExecutor(max(1, len(discovery.devices))) as pool:
        states = pool.map(partial(_state, environ, serves=serves), discovery.devices)
        return Checkup(tuple(states), dict(discovery.missing), held)


def as_json(checkup: Checkup) -> dict[str, Any]:
    """The documented form of ``doctor --json``."""
    return {
        "devices": [_device_json(device) for device in checkup.devices],
        "missing": {family: _why(reason) for family, reason in checkup.missing.items()},
        "leases": leases.as_json(checkup.leases),
    }


def _state(environ: Mapping[str, str], device: Device, *, serves: bool) -> DeviceState:
    return DeviceState(
        device.info,
        {quantity: _sensor(device, quantity) for quantity in device.sensors},
        {control: _control(device, control, serves=serves) for control in device.controls},
        read_calibrated_profile(device.info, environ),
    )


def _sensor(device: Device, quantity: Quantity) -> SensorState | Unavailable:
    info = device.sensors[quantity]
    if isinstance(info, Unavailable):
        return info
    reading = device.read(quantity)
    return reading if isinstance(reading, Unavailable) else SensorState(info, reading.value)


def _control(device: Device, control: ControlKind, *, serves: bool) -> ControlState | Unavailable:
    info = device.controls[control]
    if isinstance(info, Unavailable):
        return info
    return ControlState(info, device.get(control), serves and info.writable is not True)


def _device_json(device: DeviceState) -> dict[str, Any]:
    info = device.info
    return {
        "key": info.key,
        "kind": info.kind.value,
        "name": info.name,
        "uid": info.uid,
        "vendor": info.vendor,
        "driver": info.driver,
        "note": info.note,
        "better": _why(info.better) if info.better else None,
        "contains": list(info.contains),
        "power_scope": info.power_scope and info.power_scope.value,
        "limit_scope": info.limit_scope and info.limit_scope.value,
        "calibrated": _card_json(device.card),
        "sensors": {quantity.value: _sensor_json(s) for quantity, s in device.sensors.items()},
        "knobs": {
            control.value: _control_json(state) for control, state in device.controls.items()
        },
    }


def _card_json(card: CalibratedProfile | Unavailable | None) -> dict[str, str] | None:
    if isinstance(card, CalibratedProfile):
        return {"when": card.when, "how": card.how, "gain": card.gain_how or "not calibrated"}
    return None if card is None else {"when": "", **_why(card)}


def _sensor_json(sensor: SensorState | Unavailable) -> dict[str, Any]:
    if isinstance(sensor, Unavailable):
        return {"value": None, **_why(sensor)}
    return {
        "value": sensor.value,
        "source": sensor.info.source.value,
        "update_period_s": sensor.info.update_period_s,
        "window_s": sensor.info.window_s,
        "slow": sensor.info.slow,
        "note": sensor.info.note,
    }


def _control_json(control: ControlState | Unavailable) -> dict[str, Any]:
    if isinstance(control, Unavailable):
        return {"value": None, **_why(control)}
    info, value = control.info, control.value
    fields: dict[str, Any] = {
        "value": None if isinstance(value, Unavailable) else value,
        "minimum": info.minimum,
        "maximum": info.maximum,
        "default": info.default,
        "choices": None if info.choices is None else list(info.choices),
        "readable": info.readable,
        "writable": info.writable is True,
    }
    if isinstance(value, Unavailable) and info.readable:
        fields |= _why(value)
    if isinstance(info.writable, Unavailable):
        fields |= _why(_SERVED if control.by_service else info.writable)
    return fields


def _why(unavailable: Unavailable) -> dict[str, str]:
    return {"reason": unavailable.reason, "fix": unavailable.fix}
