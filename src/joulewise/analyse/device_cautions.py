"""What a reader must know of one device's figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from joulewise.analyse.measured import Measured
from joulewise.analyse.stretch import Stretch
from joulewise.analyse.touched import Sighting, strangers
from joulewise.data import Caution, Quantity, RunWarning, Source
from joulewise.devices.nvidia.throttle import throttle_names
from joulewise.record.manifest import Manifest
from joulewise.units import NS_PER_S

_GAP_S: Final = 0.3
_ESTIMATED_GAP_S: Final = 1.0  # what is modelled counts on by itself
_GAP_ROWS: Final = 3
_THROTTLED: Final = 0.01
# A GPU that is idle, or runs as it was told to, is not throttled.
_NOT_THROTTLED: Final = {"idle", "application clocks", "sync boost", "display clocks"}
_ENERGY: Final = {Quantity.POWER.value, Quantity.ENERGY.value}


def cautions(
    measured: Measured, manifest: Manifest, sightings: Sequence[Sighting], run: Stretch
) -> Iterator[RunWarning]:
    yield from gap(measured, manifest, run)
    yield from stuck(measured, run)
    yield from counter(measured)
    yield from throttled(measured, run)
    yield from other_processes(measured, sightings, run)


def gap(measured: Measured, manifest: Manifest, run: Stretch) -> Iterator[RunWarning]:
    """Time in which a device was not read, and the reason that it gave."""
    odd, key = measured.oddities, measured.device.info.key
    noted = _faults(manifest, key)
    faults = [one for one in noted if run.start_ns <= int(one["t_ns"]) <= run.end_ns]
    reasons = dict.fromkeys(fault.get("message", "") for fault in noted)
    why = f": {', '.join(reasons)}" if reasons else ""
    estimated = Source.MEASURED not in measured.device.sources.values()
    least_s = max(_ESTIMATED_GAP_S if estimated else _GAP_S, _GAP_ROWS / manifest.rate_hz)
    if odd.gap_s > least_s:
        # The first piece with so much of it ends that much after the gap began.
        ends_ns = odd.pieces_ns[odd.piece_gap_s >= min(least_s, odd.piece_gap_s.max()), 1]
        first_ns = int(ends_ns[0]) - round(least_s * NS_PER_S)
        what = f"no reading for {odd.gap_s:.1f} s of {run.time_s:.1f} s, first about"
        hint = "what was read around it stands in, and the error is wider by what may have been"
    elif faults:
        first_ns = int(faults[0]["t_ns"])
        what, hint = "it could not be polled for a while,", "the driver's own samples bridge that"
    else:
        return
    after = f"{run.after_s(first_ns):.0f} s after the start"
    yield RunWarning(Caution.GAP, f"{what} {after}{why}", hint, key)


def _faults(manifest: Manifest, key: str) -> list[Mapping[str, str]]:
    """What the recorder noted of this device's power and counter, or of all of it."""
    return [
        note
        for note in manifest.notes
        if note.get("code") == Caution.UNAVAILABLE.value
        and note.get("device") == key
        and note.get("quantity", Quantity.POWER.value) in _ENERGY
        and "t_ns" in note
    ]


def stuck(measured: Measured, run: Stretch) -> Iterator[RunWarning]:
    odd, device = measured.oddities, measured.device
    if not odd.stuck.any() or Source.MEASURED not in device.sources.values():
        return
    pieces = odd.pieces_ns[odd.stuck]
    since_ns = np.maximum(pieces[:, 0], np.append(pieces[0, 0], pieces[:-1, 1]))
    lasted_s = float((pieces[:, 1] - since_ns).sum()) / NS_PER_S
    counter = measured.uses[0].counter_j is not None
    yield RunWarning(
        Caution.STUCK,
        f"its power reading did not move for about {lasted_s:.0f} s, "
        f"first {run.after_s(int(pieces[0, 0])):.0f} s after the start",
        "the energy rests on its counter, peak watts may be missing"
        if counter
        else "the energy of that time is not known; see joulewise doctor",
        device.info.key,
    )


def counter(measured: Measured) -> Iterator[RunWarning]:
    """The counter went back, or does not agree with the readings of power."""
    odd, use, key = measured.oddities, measured.uses[0], measured.device.info.key
    if odd.counter_broken:
        yield RunWarning(
            Caution.COUNTER_RESET,
            "its energy counter began anew or jumped during the run",
            "that moment is bridged by the readings of power, and the error is wider by it",
            key,
        )
    if odd.disagree and use.energy and use.counter_j is not None and use.integral_j is not None:
        yield RunWarning(
            Caution.DISAGREEMENT,
            f"counter and power readings disagree: {use.counter_j:.4g} J and "
            f"{use.integral_j:.4g} J",
            "the error spans both; joulewise calibrate finds what this board's sensor does",
            key,
        )


def throttled(measured: Measured, run: Stretch) -> Iterator[RunWarning]:
    """The share of the run's time in which something held the clocks down."""
    device, reasons = measured.device, measured.slow.get(Quantity.THROTTLE.value)
    if reasons is None or device.info.vendor != "nvidia":
        return
    within = run.holds(measured.slow["t_ns"]) & np.isfinite(reasons)
    bits, counts = np.unique(reasons[within].astype(np.int64), return_counts=True)
    shares: dict[str, float] = {}
    for each, count in zip(bits.tolist(), counts.tolist(), strict=True):
        for name in throttle_names(each):
            shares[name] = shares.get(name, 0.0) + count / within.sum()
    told = {n: s for n, s in shares.items() if n not in _NOT_THROTTLED and s >= _THROTTLED}
    if told:
        listed = (f"{name} {100 * share:.0f} %" for name, share in told.items())
        limit_w = device.settings.get("power_limit_w")
        at = f" (its limit is {limit_w:g} W)" if limit_w and "power cap" in told else ""
        yield RunWarning(
            Caution.THROTTLED,
            f"clocks were held down for part of the time: {', '.join(listed)}{at}",
            "runs compare only under the same limits, and with the board as warm",
            device.info.key,
        )


def other_processes(
    measured: Measured, sightings: Sequence[Sighting], run: Stretch
) -> Iterator[RunWarning]:
    key = measured.device.info.key
    others = strangers(sightings, key, run.start_ns, run.end_ns)
    if others:
        names = [f"{other.name or 'unknown'} ({other.pid})" for other in others]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield RunWarning(
            Caution.OTHER_PROCESSES,
            f"others used it too: {', '.join(names[:3])}{more}",
            "its energy is theirs as well; measure with the GPU to yourself",
            key,
        )
