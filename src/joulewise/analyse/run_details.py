"""What stands beside the energies of a result: what was run, where, and how it was measured."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from joulewise.analyse.chunks import OpenStream
from joulewise.analyse.device_energy import CpuShare, MeasuredDevice, measure_parts
from joulewise.analyse.sensor_summary import Rates, sensor_rates, under_load
from joulewise.analyse.time_intervals import TimeInterval
from joulewise.data import Kind
from joulewise.data.codec import encode
from joulewise.data.machine import MachineResources
from joulewise.data.run_result_json import encode_energy
from joulewise.store.manifest import Manifest, RecordedDevice
from joulewise.units import NS_PER_S


def run_details(
    manifest: Manifest,
    measured: Mapping[str, MeasuredDevice],
    cpu: CpuShare,
    run: TimeInterval,
    open_stream: OpenStream,
) -> dict[str, Any]:
    """Everything but the figures of spans and sensors, by the names of docs/reference."""
    rates = {
        key: sensor_rates(open_stream, one.device, one.slow, run) for key, one in measured.items()
    }
    return {
        "about": about(manifest),
        "environment": environment(manifest),
        "cpu": vars(cpu),
        "rate_hz": manifest.rate_hz,
        "rates": {key: manifest.options.get(key) for key in ("price_per_kwh", "gco2_per_kwh")},
        "devices": {
            device.info.key: _device(device, rates.get(device.info.key, {}))
            for device in manifest.devices
        },
        "parts": {
            key: {name: encode_energy(energy) for name, energy in parts.items()}
            for key, one in measured.items()
            if (parts := measure_parts(open_stream, one.device, run))
        },
        "sensor_rates": rates,
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


def environment(manifest: Manifest) -> dict[str, Any]:
    """Where it ran, as numbers and words; what is not known is null."""
    machine, container = manifest.machine or MachineResources(), manifest.container
    return {
        "container": encode(container),
        "cores": {
            "physical": machine.cores_physical,
            "logical": machine.cores_logical,
            "allowed": machine.cores_allowed,
        },
        "ram_b": {"total": machine.ram_b, "limit": machine.ram_limit_b},
        "gpu_memory_b": {
            device.info.key: device.info.memory_b
            for device in manifest.devices
            if device.info.kind is Kind.GPU
        },
        "frameworks": {name: dict(parts) for name, parts in manifest.frameworks.items()},
    }


def _device(device: RecordedDevice, rates: Mapping[str, Mapping[str, Rates]]) -> dict[str, Any]:
    return {
        "name": device.info.name,
        "uid": device.info.uid,
        "sources": {quantity: source.value for quantity, source in device.sources.items()},
        "is_simulated": device.is_simulated,
        "power_scope": device.info.power_scope and device.info.power_scope.value,
        "contains": list(device.info.contains),
        "limit_scope": device.info.limit_scope and device.info.limit_scope.value,
        "effective_hz": _effective_hz(rates),
        "gain": {"sigma": device.card.gain_sigma, "origin": device.card.origin},
        "settings": dict(device.settings),
    }


def _effective_hz(rates: Mapping[str, Mapping[str, Rates]]) -> dict[str, float | None]:
    """New values a second over the run, of the first quantity of each stream."""
    effective_hz: dict[str, float | None] = {}
    for by_stream in rates.values():
        for stream, stream_rates in by_stream.items():
            of_run = stream_rates["run"]
            effective_hz.setdefault(stream, None if of_run is None else of_run["new_hz"])
    return effective_hz


def _is_gpu(measured: MeasuredDevice) -> bool:
    return measured.device.info.kind is Kind.GPU


def _baseline(measured: MeasuredDevice) -> dict[str, Any]:
    baseline = measured.baseline
    if baseline is None:
        return {"kind": None, "reason": measured.no_baseline, "kinds": {}}
    return {
        "kind": baseline.kind.value,
        "power_w": baseline.power_w,
        "error_w": baseline.error_w,
        "kinds": {
            kind.value: {"power_w": one.power_w, "error_w": one.error_w, "time_s": one.time_s}
            for kind, one in measured.idle.items()
        },
    }
