"""What stands beside the energies of a result: what was run, where, and how it was measured.

Also summaries of many spans: counts, means and quantiles by name, and the steps of each epoch.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, Final

import numpy as np

from joulewise.analyse.chunks import Floats, Indices, Ints, OpenStream
from joulewise.analyse.device_energy import CpuShare, MeasuredDevice, measure_parts
from joulewise.analyse.sensor_summary import Rates, sensor_rates, under_load
from joulewise.analyse.time_intervals import TimeInterval
from joulewise.data import Kind
from joulewise.data.codec import encode
from joulewise.data.run_result_json import encode_energy
from joulewise.data.runs import MachineResources
from joulewise.hooks.marks import NONE
from joulewise.store.manifest import Manifest, RecordedDevice
from joulewise.store.spans import SpanTable
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


TRAINING: Final = "training"

Figures = dict[str, "float | None"]


def names_in_order(spans: SpanTable) -> Ints:
    """The codes of the names, as they first appear."""
    codes, first = np.unique(spans.name, return_index=True)
    return np.asarray(codes[np.argsort(first)])


def by_name(
    spans: SpanTable, seen: SpanTable, energy_j: Floats, codes: Ints
) -> dict[str, dict[str, Any]]:
    """The summary of each of these names.

    Energies are of those in ``seen``, counts and times of all. A span that was cut off is none of
    its kind: it counts as unfinished and is in no figure.
    """
    summaries = {}
    trainings = spans.named(TRAINING)
    closed = np.flatnonzero(seen.closed)
    by_code = zip(
        codes.tolist(), _by_code(spans.name, codes), _by_code(seen.name[closed], codes), strict=True
    )
    for code, positions, measured in by_code:
        of_name = spans.where(positions)
        summaries[spans.names[code]] = {
            "count": int(of_name.closed.sum()),
            "announced": _announced(of_name, trainings),
            "unfinished": int((~of_name.closed).sum()),
            "time_s": figures(_times_s(of_name)[of_name.closed]),
            "energy_j": figures(energy_j[closed[measured]]),
        }
    return summaries


def _announced(of_name: SpanTable, trainings: SpanTable) -> int | None:
    """How many of them the program announced, in all its trainings; None where it did not.

    ``total`` is up to which index a training counts: one that goes on where another ended (Keras'
    ``initial_epoch``) announces only what is left. Outside of trainings, and where several have no
    marks of their own, one begins where the index does not grow.
    """
    if not (of_name.total != NONE).any():
        return None
    owner = _owners(of_name, trainings)
    order = np.lexsort((of_name.start_ns, owner, of_name.pid))
    pid, owner, index = of_name.pid[order], owner[order], of_name.index[order]
    begins = np.ones(len(order), bool)
    begins[1:] = (pid[1:] != pid[:-1]) | (owner[1:] != owner[:-1])
    begins[1:] |= (index[1:] <= index[:-1]) & (index[1:] != NONE)
    first = np.flatnonzero(begins)
    totals = np.maximum.reduceat(of_name.total[order], first)
    counts = np.diff(np.append(first, len(order)))
    up_to = np.where(index[first] == NONE, 0, index[first])
    return int(np.where(totals == NONE, counts, np.maximum(totals - up_to, 0)).sum())


def _owners(spans: SpanTable, trainings: SpanTable) -> Ints:
    """The position of the training of the same process in which each of them began; -1 is none."""
    owner = np.full(len(spans), -1, np.int64)
    for pid in np.unique(trainings.pid).tolist():
        theirs = np.flatnonzero(trainings.pid == pid)
        of_name = np.flatnonzero(spans.pid == pid)
        at = np.searchsorted(trainings.start_ns[theirs], spans.start_ns[of_name], side="right") - 1
        last = theirs[np.maximum(at, 0)]
        inside = (at >= 0) & (spans.start_ns[of_name] < trainings.end_ns[last])
        owner[of_name[inside]] = last[inside]
    return owner


def _by_code(names: Ints, codes: Ints) -> list[Indices]:
    """The positions of each code, found by one sort however many there are."""
    order = np.argsort(names, kind="stable")
    first = np.searchsorted(names[order], codes)
    end = np.searchsorted(names[order], codes, side="right")
    return [order[a:b] for a, b in zip(first.tolist(), end.tolist(), strict=True)]


def steps_by_epoch(spans: SpanTable, seen: SpanTable, energy_j: Floats) -> list[dict[str, Any]]:
    """The steps of each epoch; those of no epoch stand under a null index.

    Each training counts its epochs from 0, so it is named, too; null where there is no mark of it.
    """
    trainings = spans.named(TRAINING)
    epochs, steps = spans.named("epoch"), spans.where(spans.closed).named("step")
    seen, energy_j = seen.where(seen.closed), energy_j[seen.closed]
    times_s = _times_s(steps)
    all_by_epoch = _by_epoch(steps, epochs)
    is_step = seen.is_named("step")
    step_j, some_by_epoch = energy_j[is_step], _by_epoch(seen.where(is_step), epochs)
    owners = _owners(epochs, trainings)
    return [
        {
            "training": _index(trainings, int(owners[epoch]) if epoch >= 0 else -1),
            "epoch": _index(epochs, epoch),
            "count": len(of_name),
            "time_s": figures(times_s[of_name]),
            "energy_j": figures(step_j[some_by_epoch.get(epoch, [])]),
        }
        for epoch, of_name in all_by_epoch.items()
    ]


def _index(spans: SpanTable, position: int) -> int | None:
    """The index of a span, None where it has none."""
    return None if position < 0 or spans.index[position] == NONE else int(spans.index[position])


def figures(values: Floats) -> Figures:
    """Mean, standard deviation and quantiles of those values that there are."""
    values = values[np.isfinite(values)]
    if not len(values):
        return dict.fromkeys(("mean", "std", "min", "median", "p95", "max"))
    values = np.sort(values)
    # numpy's own quantiles cost more than all the rest where values are few.
    last = len(values) - 1
    median, high = np.interp([0.5 * last, 0.95 * last], np.arange(last + 1), values).tolist()
    deviation = float(values.std(ddof=1)) if len(values) > 1 else None
    return {
        "mean": float(values.mean()),
        "std": deviation,
        "min": float(values[0]),
        "median": median,
        "p95": high,
        "max": float(values[-1]),
    }


def _times_s(spans: SpanTable) -> Floats:
    return np.asarray((spans.end_ns - spans.start_ns) / NS_PER_S)


def _by_epoch(steps: SpanTable, epochs: SpanTable) -> dict[int, Indices]:
    """The positions of each epoch's steps, by that of the epoch; -1 is none."""
    if not len(steps):
        return {}
    middle_ns = (steps.start_ns + steps.end_ns) // 2
    owner = np.searchsorted(epochs.start_ns, middle_ns, side="right") - 1
    if len(epochs):
        owner[middle_ns > epochs.end_ns[owner]] = -1
    order = np.argsort(owner, kind="stable")
    owners, first = np.unique(owner[order], return_index=True)
    return dict(zip(owners.tolist(), np.split(order, first[1:]), strict=True))
