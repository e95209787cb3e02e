"""From a run directory to its result: the joules of the run and its spans on every device.

The order of work in :func:`analyse`: the streams without what is damaged; the spans, and which of
them are measured; the energy of every device (`device_energy`); which devices count
(`attribution`); the totals; the warnings (`quality`); what stands beside the energies
(:func:`run_details`): what was run, where, and how it was measured.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import numpy as np

from joulewise.analyse.activity import UTILISATION_NS, activity
from joulewise.analyse.attribution import choose, merge_parts, read_sightings
from joulewise.analyse.chunks import Floats, OpenStream, bounds_ns
from joulewise.analyse.damage import FileDamage, ImplausibleReadings, SoundStreams
from joulewise.analyse.device_energy import (
    CpuShare,
    MeasuredDevice,
    bound_by_whole,
    cpu_share,
    measure,
    measure_parts,
)
from joulewise.analyse.energy.load_steps import load_marks
from joulewise.analyse.quality.devices import read_in_part, silent_at_first
from joulewise.analyse.quality.run import find_warnings, unmarked
from joulewise.analyse.run_spans import (
    by_name,
    end_open_spans,
    is_cut_off,
    names_in_order,
    read_sound_spans,
    select_spans,
    spans_until,
    steps_by_epoch,
)
from joulewise.analyse.sensor_summary import (
    Rates,
    sensor_details,
    sensor_rates,
    times_by_name,
    under_load,
)
from joulewise.analyse.stored_result import read_outlook
from joulewise.analyse.time_intervals import TimeInterval
from joulewise.data import (
    Energy,
    Kind,
    PowerScope,
    QualityWarning,
    Quantity,
    RunResult,
    Span,
    SpanResult,
    Use,
    WarningCode,
    total,
)
from joulewise.data.codec import encode
from joulewise.data.run_result_json import encode_energy
from joulewise.data.runs import MachineResources
from joulewise.record.environment import read_framework_uses
from joulewise.store.layout import StreamKind
from joulewise.store.manifest import Manifest, RecordedDevice, read_manifest
from joulewise.store.runs import ENDED_IN_ORDER, RECORDING, status
from joulewise.store.spans import SpanTable
from joulewise.store.tuning_file import read_tuning
from joulewise.units import NS_PER_S

# A GPU with a higher mean utilisation may be the command's although the driver names no process on
# it. Chosen; doubled, a command that mostly waits would be missed.
_BUSY_PCT: Final = 5.0
# Five times what the writer waits between two rounds (record/writer.py): a busy machine delays it.
# Doubled, a GPU that fell silent would go unnoticed for so much longer while the run goes on.
_UNWRITTEN_S: Final = 5.0


def analyse(
    run: Path,
    manifest: Manifest | None = None,
    *,
    open_stream: OpenStream | None = None,
    spans: SpanTable | None = None,
    few_steps: int | None = None,
) -> RunResult:
    """The result of a run, as far as it has been recorded.

    Whoever has just written a manifest, streams and spans passes them, so that they need not be
    read again. With ``few_steps``, for hundreds of similar runs, only so many steps are measured,
    which follow each other, and none is listed one by one.
    """
    manifest = manifest or read_manifest(run)
    damage: tuple[FileDamage, ...] = ()
    implausible: tuple[ImplausibleReadings, ...] = ()
    if open_stream is None:
        open_stream = sound = SoundStreams(run, manifest)
        damage, implausible = sound.find_damage(), sound.find_implausible()
    damaged = {one.device: one.reason for one in damage if one.device and one.is_of_energy}
    state = status(manifest)
    spans = read_sound_spans(run, manifest) if spans is None else spans
    sightings = read_sightings(run)
    holders = merge_parts(manifest, sightings)
    last_rows_ns = [] if state in ENDED_IN_ORDER else _last_rows_ns(open_stream, manifest)
    if state == RECORDING and last_rows_ns:
        whole = _interval_so_far(manifest, last_rows_ns)
        spans = spans_until(spans, whole.end_ns)
    else:
        whole = _interval_of_commands(manifest, spans, last_rows_ns)
    spans = end_open_spans(spans, manifest, whole)
    names = names_in_order(spans)
    selection = select_spans(spans, names, few_steps)
    seen = selection.measured
    windows_ns = np.concatenate(
        [[[whole.start_ns, whole.end_ns]], np.column_stack([seen.start_ns, seen.end_ns])]
    )
    wanted = np.flatnonzero(np.append(True, selection.is_listed))
    marks_ns = load_marks(whole, spans if few_steps is None else seen)
    measured = {
        device.info.key: measure(
            open_stream,
            device,
            windows_ns,
            wanted,
            holders,
            marks_ns=marks_ns,
            is_damaged=device.info.key in damaged,
        )
        for device in manifest.devices
        if device.sources
    }
    modules = {d.info.key for d in manifest.devices if d.info.power_scope is PowerScope.MODULE}
    choice = choose(
        manifest,
        sightings,
        whole.start_ns,
        whole.end_ns,
        busy=[key for key, one in measured.items() if _is_busy(one, whole)],
        unread=[key for key, one in measured.items() if one.uses[0].energy is None],
        damaged=damaged,
        activity=lambda key, others: activity(
            open_stream, key, whole, others, is_module=key in modules
        ),
    )
    measured = bound_by_whole(measured, choice.counted)
    counted = [measured[key] for key in choice.counted if key not in choice.missing]
    cpu = cpu_share(counted, manifest, whole)
    energy_j, sampling_j = _sum_devices(counted, len(seen), whole=not choice.missing)
    uses = {
        device.info.key: measured[device.info.key].uses if device.info.key in measured else ()
        for device in manifest.devices
    }
    listed = [Span("run", None, whole.start_ns, whole.end_ns), *selection.listed]
    results = [_span_result(span, i, uses, choice.counted) for i, span in enumerate(listed)]
    if is_cut_off(manifest, state):  # the command may have gone on after the last row
        results = [
            _as_lower_bound(result) if i == 0 or not result.span.closed else result
            for i, result in enumerate(results)
        ]

    def warnings() -> Iterator[QualityWarning]:
        yield from (one.warning for one in damage)
        yield from (one.warning for one in implausible)
        yield from (w for w in choice.warnings if not _is_about_damage(w, damaged))
        yield from spans.warnings
        yield from unmarked(read_framework_uses(run), spans, manifest, whole)
        for device in measured.values():
            if device.uses[0].energy:
                is_bound = device.read is not None
                yield from silent_at_first(device.device, whole, is_bound=is_bound)
        for key, device in measured.items():
            if key not in damaged:
                yield from read_in_part(device, manifest, whole)
        yield from find_warnings(
            manifest=manifest,
            state=state,
            run=whole,
            last_row_ns=max(last_rows_ns, default=None),
            counted=counted,
            cpu=cpu,
            sightings=holders,
            spans=seen,
            energy_j=energy_j,
            sampling_j=sampling_j,
            open_stream=open_stream,
            tuning=read_tuning(run),
        )

    return RunResult(
        id=manifest.id,
        exit_code=manifest.exit_code,
        state=state,
        start_monotonic_ns=whole.start_ns,
        start_wall_ns=manifest.wall_start_ns + whole.start_ns - manifest.monotonic_start_ns,
        run=results[0],
        spans=tuple(results[1:]),
        counted=choice.counted,
        excluded=choice.excluded,
        warnings=tuple(warnings()),
        details={
            **run_details(manifest, measured, cpu, whole, open_stream),
            "sensors": sensor_details(
                manifest.devices, open_stream, whole, times_by_name(spans, names)
            ),
            "spans": by_name(spans, seen, energy_j, selection.codes),
            "more_names": len(names) - len(selection.codes),
            **(
                {}
                if selection.is_listed.all()
                else {"steps": steps_by_epoch(spans, seen, energy_j)}
            ),
        },
        outlook=read_outlook(run) if state == RECORDING else None,
    )


def _is_about_damage(warning: QualityWarning, damaged: Collection[str]) -> bool:
    """Whether it is about a device whose file is damaged, of which another warning tells."""
    return warning.code is WarningCode.UNAVAILABLE and warning.device in damaged


def _start_ns(manifest: Manifest) -> int:
    """When the first command started."""
    starts_ns = [command.start_ns for command in manifest.commands]
    return min(starts_ns, default=manifest.monotonic_start_ns)


def _interval_of_commands(
    manifest: Manifest, spans: SpanTable, last_rows_ns: Sequence[int]
) -> TimeInterval:
    """From the start of the first command to the end of the last, or to the last sign of life."""
    start_ns = _start_ns(manifest)
    ends_ns = [command.end_ns for command in manifest.commands if command.end_ns is not None]
    if ends_ns and len(ends_ns) == len(manifest.commands):
        return TimeInterval(start_ns, max(ends_ns))
    signs_ns = [*ends_ns, start_ns, *last_rows_ns]
    if len(spans):
        signs_ns.append(int(spans.end_ns.max()))
    if manifest.monotonic_end_ns is not None:
        signs_ns.append(manifest.monotonic_end_ns)
    return TimeInterval(start_ns, max(signs_ns))


def _interval_so_far(manifest: Manifest, last_rows_ns: Sequence[int]) -> TimeInterval:
    """From the start of the first command to the time up to which a run in progress is on disk.

    Rows are written about every second, each device's in turn, and marks of spans at once: what
    lies after that time is not a gap, it is not yet written. A device that is ``_UNWRITTEN_S``
    behind the others has no readings, and does not hold up the time.
    """
    least_ns = max(last_rows_ns) - round(_UNWRITTEN_S * NS_PER_S)
    written_ns = min(t_ns for t_ns in last_rows_ns if t_ns >= least_ns)
    ends_ns = [command.end_ns for command in manifest.commands if command.end_ns is not None]
    if len(ends_ns) == len(manifest.commands):
        written_ns = min(written_ns, max(ends_ns, default=written_ns))
    start_ns = _start_ns(manifest)
    return TimeInterval(start_ns, max(start_ns, written_ns))


def _last_rows_ns(open_stream: OpenStream, manifest: Manifest) -> list[int]:
    """The time of the last row of each device that has one."""
    streams = (open_stream(device.info.key, StreamKind.FAST) for device in manifest.devices)
    last_ns = (bounds_ns(stream)[1] for stream in streams if stream)
    return [t_ns for t_ns in last_ns if t_ns]


def _is_busy(measured: MeasuredDevice, run: TimeInterval) -> bool:
    utilisation = measured.slow.get(Quantity.GPU_UTILISATION.value)
    if utilisation is None:
        return False
    t_ns = measured.slow["t_ns"]
    is_of_run = run.holds(t_ns) & (t_ns >= run.start_ns + UTILISATION_NS)
    within = utilisation[is_of_run & np.isfinite(utilisation)]
    return bool(len(within)) and float(within.mean()) > _BUSY_PCT


def _sum_devices(
    counted: Sequence[MeasuredDevice], spans: int, *, whole: bool
) -> tuple[Floats, Floats]:
    """Energy and sampling error of every span over the devices that count.

    NaN where there is none, or where one of them was not read.
    """
    if not counted or not whole:
        return np.full(spans, np.nan), np.full(spans, np.nan)
    energy_j = np.sum([one.energy_j[1:] for one in counted], axis=0)
    sampling_j = np.sqrt(np.sum([np.square(one.sampling_j[1:]) for one in counted], axis=0))
    return energy_j, sampling_j


def _span_result(
    span: Span, i: int, uses: Mapping[str, Sequence[Use]], counted: Sequence[str]
) -> SpanResult:
    devices = {key: by_span[i] if by_span else Use(None) for key, by_span in uses.items()}
    return SpanResult(span, total(devices[key].energy for key in counted), devices)


def _as_lower_bound(result: SpanResult) -> SpanResult:
    def at_least(energy: Energy | None) -> Energy | None:
        return energy and replace(energy, at_least=True)

    devices = {
        key: replace(use, energy=at_least(use.energy), net=at_least(use.net))
        for key, use in result.devices.items()
    }
    return SpanResult(result.span, at_least(result.total), devices)


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
