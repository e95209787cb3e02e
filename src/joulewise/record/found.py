"""What run.json keeps of a device, as it was found."""

from __future__ import annotations

from collections.abc import Mapping

from joulewise.data import Knob, KnobInfo, Quantity, SensorInfo, Unavailable
from joulewise.devices import Device
from joulewise.record.cards import card_for
from joulewise.record.manifest import RecordedDevice


def recorded_device(
    device: Device,
    environ: Mapping[str, str],
    turned: Mapping[str, Mapping[str, float]] | None = None,
) -> RecordedDevice:
    """``turned`` is what was set for this run, by key: not every device tells its settings."""
    sensors = [device.sensors.get(quantity) for quantity in (Quantity.POWER, Quantity.ENERGY)]
    known = [sensor for sensor in sensors if isinstance(sensor, SensorInfo)]
    refused = [sensor for sensor in sensors if isinstance(sensor, Unavailable)]
    limit = device.knobs.get(Knob.POWER_LIMIT)
    return RecordedDevice(
        info=device.info,
        sources={sensor.quantity.value: sensor.source for sensor in known},
        card=card_for(device, environ),
        settings={**(turned or {}).get(device.info.key, {}), **_settings(device)},
        maximum_w=limit.maximum if isinstance(limit, KnobInfo) else None,
        default_limit_w=limit.default if isinstance(limit, KnobInfo) else None,
        unavailable=refused[0] if refused and not known else None,
    )


def _settings(device: Device) -> dict[str, float]:
    settings = {}
    for knob, info in device.knobs.items():
        if isinstance(info, KnobInfo) and info.readable:
            value = device.get(knob)
            if not isinstance(value, Unavailable):
                settings[knob.value] = value
    return settings
