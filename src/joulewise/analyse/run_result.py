"""From a run directory to its result: the joules of the run and its spans on every device.

What stands beside a result: what was run, how it was measured, which idle was found.

Spans without a mark of their end: the program was killed in one, or is in it now.

Such a span lasts as long as its program may have: to the end of its command, or of the recording.

The spans of a run without those that damage has made up.

How often sensors had a new value: over the run, and apart while the GPU was idle and busy.

A sensor is read more often than it updates, and then repeats itself: a laptop's GPU that was
polled at 25 Hz gave 6 new values a second. Some update less often while the GPU is idle.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.analyse.activity import UTILISATION_NS, activity
from joulewise.analyse.attribution import choose, merge_parts, read_sightings
from joulewise.analyse.baseline import silent_at_first
from joulewise.analyse.chunks import (
    Columns,
    OpenLane,
    SensorStream,
    last_reading,
    mark_new_values,
    sensor_streams,
)
from joulewise.analyse.curves.downsample import show
from joulewise.analyse.damage import FileDamage, ImplausibleReadings, SoundLanes, time_bounds_ns
from joulewise.analyse.device_energy import (
    CpuShare,
    MeasuredDevice,
    bound_by_whole,
    cpu_share,
    measure,
    measure_parts,
)
from joulewise.analyse.energy.load_steps import load_marks
from joulewise.analyse.quality.devices import read_in_part
from joulewise.analyse.quality.run import cautions, unmarked
from joulewise.analyse.sensor_summary import is_working, sensor_details, times_by_name, under_load
from joulewise.analyse.span_summary import by_name, names_in_order, steps_by_epoch
from joulewise.analyse.stored_result import read_outlook
from joulewise.analyse.time_intervals import Stretch, TimeSet
from joulewise.data import (
    Caution,
    Energy,
    Kind,
    PowerScope,
    Quantity,
    RunResult,
    RunWarning,
    Span,
    SpanResult,
    Use,
    total,
)
from joulewise.data.contract import energy_json
from joulewise.data.machine import MachineResources
from joulewise.record.environment import read_framework_uses
from joulewise.store.layout import StreamKind
from joulewise.store.manifest import Manifest, RecordedDevice, read_manifest
from joulewise.store.runs import ENDED_IN_ORDER, KILLED, RECORDING, status
from joulewise.store.spans import SpanTable, read_spans
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from joulewise.store.manifest import RecordedDevice

Rates = dict[str, "dict[str, float] | None"]
"""Of the ``run``, and of the recording while the GPU was ``idle`` and under ``load``.

Each has ``time_s``, the time between readings that it rests on, ``read_hz``, readings a second,
and ``new_hz``, new values a second. None where there were no two readings.
"""


def sensor_rates(
    lanes: OpenLane, device: RecordedDevice, slow: Mapping[str, NDArray[Any]], run: Stretch
) -> dict[str, dict[str, Rates]]:
    """By quantity and by stream; ``slow`` are the looks at whether the GPU worked."""
    idle, load = activity_times(slow, device.info.vendor)
    whole = TimeSet(np.array([run.start_ns]), np.array([run.end_ns]))
    found: dict[str, dict[str, Rates]] = {}
    for stream in _streams(lanes, device.info.key):
        updates = _Updates(stream.quantity, {"run": whole, "idle": idle, "load": load})
        show(stream.rows, updates)
        found.setdefault(stream.quantity.value, {})[stream.name] = updates.rates()
    return found


def activity_times(slow: Mapping[str, NDArray[Any]], vendor: str) -> tuple[TimeSet, TimeSet]:
    """When the GPU was idle and when it worked; the rest of the time nobody can tell.

    A look tells of a short time before it. Between two looks that agree, it stayed as it was.
    """
    if "t_ns" not in slow:
        nothing = TimeSet(np.empty(0, np.int64), np.empty(0, np.int64))
        return nothing, nothing
    t_ns, works = slow["t_ns"], is_working(slow, vendor)
    is_alike = works[1:] == works[:-1]  # NaN is like nothing
    idle, load = (is_alike & (works[1:] == kind) for kind in (0.0, 1.0))
    return (
        TimeSet.union(t_ns[:-1][idle], t_ns[1:][idle]),
        TimeSet.union(t_ns[:-1][load], t_ns[1:][load]),
    )


def _streams(lanes: OpenLane, key: str) -> Iterator[SensorStream]:
    """Power in each stream, or the counter where nobody reads power, and the GPU's utilisation.

    Of what the driver samples itself, everything.
    """
    streams = list(sensor_streams(lanes, key))
    has_power = any(stream.quantity is Quantity.POWER for stream in streams)
    wanted = {Quantity.POWER if has_power else Quantity.ENERGY, Quantity.GPU_UTILISATION}
    driver = f"{key}.buffer"
    for stream in streams:
        if stream.quantity in wanted or stream.name.startswith(driver):
            yield stream


class _Updates:
    """Sees a stream chunk by chunk: readings and new values of one column in each set of times.

    They are counted from reading to reading within a stretch, so that there are as many intervals
    as readings that could have been new.
    """

    def __init__(self, quantity: Quantity, times: Mapping[str, TimeSet]) -> None:
        self.columns = (quantity.value,)
        self._times = times
        self._counts = {name: _Counts() for name in times}
        self._last_ns = np.empty(0, np.int64)
        self._last = math.nan

    def take(self, chunk: Columns) -> None:
        t_ns, values = chunk["t_ns"], chunk[self.columns[0]]
        is_read = ~np.isnan(values)
        if not is_read.all():
            t_ns, values = t_ns[is_read], values[is_read]
        if not len(t_ns):
            return
        # The last reading of the chunk before begins the first interval of this one.
        is_new = np.append(np.zeros(len(self._last_ns), bool), mark_new_values(values, self._last))
        t_ns = np.append(self._last_ns, t_ns)
        new_before = np.append(0, np.cumsum(is_new))
        for name, within in self._times.items():
            first = np.searchsorted(t_ns, within.start_ns)
            end = np.searchsorted(t_ns, within.end_ns, side="right")
            first, end = first[end - first > 1], end[end - first > 1]
            counts = self._counts[name]
            counts.intervals += int((end - first - 1).sum())
            counts.time_ns += int((t_ns[end - 1] - t_ns[first]).sum())
            counts.new += int((new_before[end] - new_before[first + 1]).sum())
        self._last_ns, self._last = t_ns[-1:], last_reading(values, self._last)

    def rates(self) -> Rates:
        return {name: counts.rates() for name, counts in self._counts.items()}


@dataclass
class _Counts:
    """Intervals between readings, how long they were, and at how many ends a new value stood."""

    time_ns: int = 0
    intervals: int = 0
    new: int = 0

    def rates(self) -> dict[str, float] | None:
        time_s = self.time_ns / NS_PER_S
        if not time_s:
            return None
        return {
            "time_s": time_s,
            "read_hz": self.intervals / time_s,
            "new_hz": self.new / time_s,
        }


def details(
    manifest: Manifest,
    measured: Mapping[str, MeasuredDevice],
    cpu: CpuShare,
    run: Stretch,
    lanes: OpenLane,
) -> dict[str, Any]:
    rates = {key: sensor_rates(lanes, one.device, one.slow, run) for key, one in measured.items()}
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
            key: {name: energy_json(energy) for name, energy in parts.items()}
            for key, one in measured.items()
            if (parts := measure_parts(lanes, one.device, run))
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
        "container": None if container is None else vars(container),
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
    """New values a second over the run, of the first quantity that is looked at in each stream."""
    found: dict[str, float | None] = {}
    for by_stream in rates.values():
        for stream, one in by_stream.items():
            of_run = one["run"]
            found.setdefault(stream, None if of_run is None else of_run["new_hz"])
    return found


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


if TYPE_CHECKING:
    from joulewise.store.manifest import Manifest
    from joulewise.store.spans import SpanTable


def end_open_spans(spans: SpanTable, manifest: Manifest, run: Stretch) -> SpanTable:
    """The same spans; those whose end was not marked last as long as their command, or the run."""
    is_open = ~spans.ended
    if not is_open.any():
        return spans
    end_ns = np.full(len(spans), run.end_ns)
    for command in manifest.commands:
        if command.end_ns is not None:
            end_ns[spans.pid == command.pid] = command.end_ns
    end_ns = np.where(is_open, np.maximum(end_ns, spans.end_ns), spans.end_ns)
    order = np.lexsort((-end_ns, spans.start_ns))  # an outer span before what it contains
    return replace(spans, end_ns=end_ns).where(order)


def spans_until(spans: SpanTable, end_ns: int) -> SpanTable:
    """The spans as they were at a moment: those that had begun, open where they ended later."""
    spans = spans.where(spans.start_ns < end_ns)
    is_later = spans.end_ns > end_ns
    if not is_later.any():
        return spans
    return replace(
        spans,
        end_ns=np.minimum(spans.end_ns, end_ns),
        closed=spans.closed & ~is_later,
        ended=spans.ended & ~is_later,
    )


def is_cut_off(manifest: Manifest, state: str) -> bool:
    """Whether the recording ended before a command did, so that open spans may have gone on."""
    return state == KILLED and any(command.end_ns is None for command in manifest.commands)


def read_sound_spans(run: Path, manifest: Manifest) -> SpanTable:
    """Every span of a run that lies within its recording; a warning tells of others."""
    spans = read_spans(run)
    low_ns, high_ns = time_bounds_ns(manifest)
    is_within = (spans.start_ns >= low_ns) & (spans.end_ns <= high_ns)
    if is_within.all():
        return spans
    outside = int((~is_within).sum())
    warning = RunWarning(
        Caution.SPANS_LOST,
        f"{outside} of {len(spans)} spans were lost: their times are outside the run",
        "the energy of the whole run is not affected",
    )
    return replace(spans.where(is_within), warnings=(*spans.warnings, warning))


if TYPE_CHECKING:
    from numpy.typing import NDArray

STEPS_KEPT: Final = 1_000
SPANS_KEPT: Final = 10_000
"""A result holds so many spans in all, those of the rarest names first, and no name in part.

Of the others it has a summary, and ``export`` has them all.
"""

NAMES_KEPT: Final = 500
"""So many names, in the order in which they appear, are told of."""

SAMPLED: Final = 20_000
"""So many of them, drawn at random, make the energies of a summary."""

_BUSY_PCT: Final = 5.0

# Five times what the writer waits between two rounds (record/writer.py): a busy machine delays it.
# Doubled, a GPU that fell silent would go unnoticed for so much longer while the run goes on.
_UNWRITTEN_S: Final = 5.0


def analyse(
    run: Path,
    manifest: Manifest | None = None,
    *,
    lanes: OpenLane | None = None,
    spans: SpanTable | None = None,
    few_steps: int | None = None,
) -> RunResult:
    """What the run came to, as far as it has been recorded.

    Who has just written them passes a manifest, lanes and spans that need not be read again. Who
    has hundreds of runs that are much the same throughout has only ``few_steps`` looked at, which
    follow each other, and none told one by one.
    """
    manifest = manifest or read_manifest(run)
    damage: tuple[FileDamage, ...] = ()
    implausible: tuple[ImplausibleReadings, ...] = ()
    if lanes is None:
        lanes = sound = SoundLanes(run, manifest)
        damage, implausible = sound.find_damage(), sound.find_implausible()
    damaged = {each.device for each in damage if each.is_of_energy}
    state = status(manifest)
    spans = read_sound_spans(run, manifest) if spans is None else spans
    sightings = read_sightings(run)
    holders = merge_parts(manifest, sightings)
    last_row_ns = None if state in ENDED_IN_ORDER else _last_row_ns(lanes, manifest)
    if state == RECORDING and (written_ns := _written_ns(lanes, manifest)) is not None:
        whole = _so_far(manifest, written_ns)
        spans = spans_until(spans, whole.end_ns)
    else:
        whole = _whole(manifest, spans, last_row_ns)
    spans = end_open_spans(spans, manifest, whole)
    codes = names_in_order(spans)
    steps_kept = STEPS_KEPT if few_steps is None else 0
    crowded, known = _crowded(spans, codes[:NAMES_KEPT], steps_kept)
    looked_at = _looked_at(crowded, known, few_steps)
    seen = spans.where(looked_at)
    windows_ns = np.concatenate(
        [[[whole.start_ns, whole.end_ns]], np.column_stack([seen.start_ns, seen.end_ns])]
    )
    kept = ~crowded[looked_at]
    wanted = np.flatnonzero(np.append(True, kept))
    marks_ns = load_marks(whole, spans if few_steps is None else seen)
    measured = {
        device.info.key: measure(
            lanes,
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
        busy=[key for key, one in measured.items() if _busy(one, whole)],
        unread=[key for key, one in measured.items() if one.uses[0].energy is None],
        damaged={each.device: each.reason for each in damage if each.device and each.is_of_energy},
        activity=lambda key, others: activity(lanes, key, whole, others, is_module=key in modules),
    )
    measured = bound_by_whole(measured, choice.counted)
    counted = [measured[key] for key in choice.counted if key not in choice.missing]
    cpu = cpu_share(counted, manifest, whole)
    energy_j, sampling_j = _sums(counted, len(seen), whole=not choice.missing)
    uses = {
        device.info.key: measured[device.info.key].uses if device.info.key in measured else ()
        for device in manifest.devices
    }
    told = [Span("run", None, whole.start_ns, whole.end_ns), *seen.where(kept)]
    results = [_result(span, i, uses, choice.counted) for i, span in enumerate(told)]
    if is_cut_off(manifest, state):  # the command may have gone on after the last row
        last = [i == 0 or not one.span.closed for i, one in enumerate(results)]
        results = [_as_bound(one) if cut else one for one, cut in zip(results, last, strict=True)]
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
        warnings=(
            *(each.warning for each in damage),
            *(each.warning for each in implausible),
            *(w for w in choice.warnings if not _tells_of_damage(w, damaged)),
            *spans.warnings,
            *unmarked(read_framework_uses(run), spans, manifest, whole),
            *(
                w
                for one in measured.values()
                if one.uses[0].energy
                for w in silent_at_first(one.device, whole, is_bound=one.read is not None)
            ),
            *(
                w
                for key, one in measured.items()
                if key not in damaged
                for w in read_in_part(one, manifest, whole)
            ),
            *cautions(
                manifest=manifest,
                state=state,
                run=whole,
                last_row_ns=last_row_ns,
                counted=counted,
                cpu=cpu,
                sightings=holders,
                spans=seen,
                energy_j=energy_j,
                sampling_j=sampling_j,
                lanes=lanes,
            ),
        ),
        details={
            **details(manifest, measured, cpu, whole, lanes),
            "sensors": sensor_details(manifest.devices, lanes, whole, times_by_name(spans, codes)),
            "spans": by_name(spans, seen, energy_j, codes[:NAMES_KEPT]),
            "more_names": len(codes[NAMES_KEPT:]),
            **({} if kept.all() else {"steps": steps_by_epoch(spans, seen, energy_j)}),
        },
        outlook=read_outlook(run) if state == RECORDING else None,
    )


def _tells_of_damage(warning: RunWarning, damaged: Collection[str | None]) -> bool:
    """That a device could not be read: that its file is damaged is a warning of its own."""
    return warning.code is Caution.UNAVAILABLE and warning.device in damaged


def _whole(manifest: Manifest, spans: SpanTable, last_row_ns: int | None) -> Stretch:
    """From the start of the first command to the end of the last, or to the last sign of life."""
    starts = [command.start_ns for command in manifest.commands]
    start_ns = min(starts, default=manifest.monotonic_start_ns)
    ends = [command.end_ns for command in manifest.commands]
    known = [end_ns for end_ns in ends if end_ns is not None]
    if known and len(known) == len(ends):
        return Stretch(start_ns, max(known))
    signs = [*known, start_ns, *(spans.end_ns.max(keepdims=True).tolist() if len(spans) else ())]
    signs += [sign for sign in (manifest.monotonic_end_ns, last_row_ns) if sign is not None]
    return Stretch(start_ns, max(signs))


def _so_far(manifest: Manifest, written_ns: int) -> Stretch:
    """From the start of the first command to the moment up to which a run is on disk."""
    starts = [command.start_ns for command in manifest.commands]
    start_ns = min(starts, default=manifest.monotonic_start_ns)
    ends = [command.end_ns for command in manifest.commands if command.end_ns is not None]
    if len(ends) == len(manifest.commands):
        written_ns = min(written_ns, max(ends, default=written_ns))
    return Stretch(start_ns, max(start_ns, written_ns))


def _last_row_ns(lanes: OpenLane, manifest: Manifest) -> int | None:
    return max(_last_rows_ns(lanes, manifest), default=None)


def _written_ns(lanes: OpenLane, manifest: Manifest) -> int | None:
    """Up to when every device of a run in progress is on disk; None where none is.

    Rows are written about every second, each device's in turn, and marks of spans at once: what
    lies behind that moment is not a gap, it is not yet written. A device that is ``_UNWRITTEN_S``
    behind the others has no readings, and does not hold up the moment.
    """
    last_ns = _last_rows_ns(lanes, manifest)
    least_ns = max(last_ns, default=0) - round(_UNWRITTEN_S * NS_PER_S)
    return min((each for each in last_ns if each >= least_ns), default=None)


def _last_rows_ns(lanes: OpenLane, manifest: Manifest) -> list[int]:
    """When each device that has rows has its last one."""
    last = []
    for device in manifest.devices:
        lane = lanes(device.info.key, StreamKind.FAST)
        chunks = lane.chunks(["t_ns"]) if lane else ()
        ends_ns = [int(chunk["t_ns"][-1]) for chunk in chunks if len(chunk["t_ns"])]
        last += [max(ends_ns)] if ends_ns else []
    return last


def _crowded(
    spans: SpanTable, codes: NDArray[np.int64], steps_kept: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which spans are too many to tell one by one, and which have a name that is told at all."""
    counts = np.bincount(spans.name, minlength=len(spans.names))
    few = [
        code for code in codes.tolist() if spans.names[code] != "step" or counts[code] <= steps_kept
    ]
    rarest = np.array(sorted(few, key=lambda code: counts[code]), np.int64)
    kept = rarest[np.cumsum(counts[rarest]) <= SPANS_KEPT]
    is_kept, is_known = np.zeros((2, len(spans.names)), bool)
    is_kept[kept], is_known[codes] = True, True
    return ~is_kept[spans.name], is_known[spans.name]


def _looked_at(
    crowded: NDArray[np.bool_], known: NDArray[np.bool_], few: int | None
) -> NDArray[np.int64]:
    """All that are told one by one, and of the others enough for a summary."""
    many = np.flatnonzero(crowded & known)
    if few is not None:
        many = many[max(len(many) - few, 0) // 2 :][:few]
    elif len(many) > SAMPLED:
        many = np.random.default_rng(0).choice(many, SAMPLED, replace=False)
    return np.sort(np.concatenate([np.flatnonzero(~crowded), many]))


def _busy(measured: MeasuredDevice, run: Stretch) -> bool:
    utilisation = measured.slow.get(Quantity.GPU_UTILISATION.value)
    if utilisation is None:
        return False
    t_ns = measured.slow["t_ns"]
    is_of_run = run.holds(t_ns) & (t_ns >= run.start_ns + UTILISATION_NS)
    within = utilisation[is_of_run & np.isfinite(utilisation)]
    return bool(len(within)) and float(within.mean()) > _BUSY_PCT


def _sums(
    counted: Sequence[MeasuredDevice], spans: int, *, whole: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Energy and sampling error of every span over the devices that count.

    NaN where there is none, or where one of them was not read.
    """
    if not counted or not whole:
        return np.full(spans, np.nan), np.full(spans, np.nan)
    energy_j = np.sum([one.energy_j[1:] for one in counted], axis=0)
    sampling_j = np.sqrt(np.sum([np.square(one.sampling_j[1:]) for one in counted], axis=0))
    return energy_j, sampling_j


def _result(
    span: Span, i: int, uses: Mapping[str, Sequence[Use]], counted: Sequence[str]
) -> SpanResult:
    devices = {key: mine[i] if mine else Use(None) for key, mine in uses.items()}
    return SpanResult(span, total(devices[key].energy for key in counted), devices)


def _as_bound(result: SpanResult) -> SpanResult:
    devices = {
        key: replace(use, energy=_at_least(use.energy), net=_at_least(use.net))
        for key, use in result.devices.items()
    }
    return SpanResult(result.span, _at_least(result.total), devices)


def _at_least(energy: Energy | None) -> Energy | None:
    return energy and replace(energy, at_least=True)
