"""From a run directory to its result: the joules of the run and its spans on every device."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.activity import UTILISATION_NS, activity
from joulewise.analyse.asleep import silent_at_first
from joulewise.analyse.cautions import cautions
from joulewise.analyse.cpu_share import cpu_share
from joulewise.analyse.damage import FileDamage, ImplausibleReadings, SoundLanes
from joulewise.analyse.details import details
from joulewise.analyse.device_cautions import read_in_part
from joulewise.analyse.kept import read_outlook
from joulewise.analyse.lanes import OpenLane
from joulewise.analyse.load_marks import load_marks
from joulewise.analyse.measured import MeasuredDevice, measure
from joulewise.analyse.open_spans import end_open_spans, is_cut_off, spans_until
from joulewise.analyse.sensor_summary import sensor_details, times_by_name
from joulewise.analyse.sound_spans import read_sound_spans
from joulewise.analyse.stretch import Stretch
from joulewise.analyse.summary import by_name, names_in_order, steps_by_epoch
from joulewise.analyse.touched import choose, merge_parts, read_sightings
from joulewise.analyse.unmarked import unmarked
from joulewise.data import (
    Caution,
    Energy,
    PowerScope,
    Quantity,
    RunResult,
    RunWarning,
    Span,
    SpanResult,
    Use,
    total,
)
from joulewise.record.frameworks import read_framework_uses
from joulewise.record.layout import Lane
from joulewise.record.manifest import Manifest, read_manifest
from joulewise.record.marks import SpanTable
from joulewise.record.store import ENDED_IN_ORDER, RECORDING, status
from joulewise.units import NS_PER_S

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
        lane = lanes(device.info.key, Lane.FAST)
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
