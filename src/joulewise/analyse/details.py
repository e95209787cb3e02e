"""What stands beside a result: what was run, how it was measured, which idle was found."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from joulewise.analyse.cpu_share import CpuShare
from joulewise.analyse.measured import MeasuredDevice
from joulewise.analyse.stretch import Stretch
from joulewise.analyse.under_load import under_load
from joulewise.data import Kind
from joulewise.record.manifest import Manifest
from joulewise.units import NS_PER_S


def details(
    manifest: Manifest, measured: Mapping[str, MeasuredDevice], cpu: CpuShare, run: Stretch
) -> dict[str, Any]:
    return {
        "about": about(manifest),
        "cpu": vars(cpu),
        "rate_hz": manifest.rate_hz,
        "rates": {key: manifest.options.get(key) for key in ("price_per_kwh", "gco2_per_kwh")},
        "devices": {
            device.info.key: _device(manifest, device.info.key) for device in manifest.devices
        },
        "baseline": {key: _baseline(one) for key, one in measured.items() if _is_gpu(one)},
        "under_load": {
            key: under_load(one.slow, run, one.device.info.vendor)
            for key, one in measured.items()
            if _is_gpu(one)
        },
    }


def about(manifest: Manifest) -> dict[str, Any]:
    """Which run this is, for a heading; the times are those of the machine's own zone."""
    started = datetime.fromtimestamp(manifest.wall_start_ns / NS_PER_S, timezone.utc).astimezone()
    first = manifest.commands[0].arguments if manifest.commands else ()
    return {
        "name": manifest.name,
        "tags": list(manifest.tags),
        "group": manifest.group,
        "command": shlex.join(first),
        "commands": len(manifest.commands),
        "started": started.isoformat(sep=" ", timespec="seconds"),
        "host": manifest.host.get("name", ""),
        "settings": dict(manifest.options.get("settings", {})),
    }


def _device(manifest: Manifest, key: str) -> dict[str, Any]:
    (device,) = [device for device in manifest.devices if device.info.key == key]
    lanes = manifest.recorder.lanes if manifest.recorder else {}
    mine = {name: lane for name, lane in lanes.items() if name.partition(".")[0] == key}
    return {
        "name": device.info.name,
        "uid": device.info.uid,
        "sources": {quantity: source.value for quantity, source in device.sources.items()},
        "effective_hz": {name: lane.get("effective_hz") for name, lane in mine.items()},
        "gain": {"sigma": device.card.gain_sigma, "origin": device.card.origin},
        "settings": dict(device.settings),
    }


def _is_gpu(measured: MeasuredDevice) -> bool:
    return measured.device.info.kind is Kind.GPU


def _baseline(measured: MeasuredDevice) -> dict[str, Any]:
    taken = measured.baseline
    if taken is None:
        return {"kind": None, "reason": measured.no_baseline, "kinds": {}}
    return {
        "kind": taken.kind.value,
        "power_w": taken.power_w,
        "error_w": taken.error_w,
        "kinds": {
            kind.value: {"power_w": one.power_w, "error_w": one.error_w, "time_s": one.time_s}
            for kind, one in measured.idle.items()
        },
    }
