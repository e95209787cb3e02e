"""What a reader must know of one device's figures.

Whether a power limit that somebody has lowered did anything in a run.

A GPU that counts and does little: idle all along, or waiting for data step after step.

The driver tells once a second for which part of the last moment anything ran. That alone decides
where it is low; where it is only middling, the power within the steps has to fall to idle, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from joulewise.analyse.arrays import Bools, Floats, Ints
from joulewise.analyse.attribution import (
    Sighting,
    faults_of,
    has_recorder_ended,
    reason_unread,
    strangers,
)
from joulewise.analyse.baseline import IdleState
from joulewise.analyse.chunks import OpenStream
from joulewise.analyse.device_energy import MeasuredDevice
from joulewise.analyse.energy.gaps import ASLEEP_MAX_W, LONG_S, unread_start_s
from joulewise.analyse.energy.windows import window_energy
from joulewise.analyse.time_intervals import Stretch
from joulewise.data import Caution, Kind, Knob, PowerScope, Quantity, RunWarning
from joulewise.data.throttling import throttle_names
from joulewise.devices.nvidia.throttling import Binding, binding
from joulewise.store.layout import StreamKind
from joulewise.store.manifest import Manifest, RecordedDevice
from joulewise.store.spans import SpanTable
from joulewise.units import NS_PER_S

_SAME_W: Final = 0.5


def is_limited_by_run(manifest: Manifest, key: str) -> bool:
    """Whether this run itself has set the device's power limit."""
    return Knob.POWER_LIMIT.value in manifest.options.get("settings", {}).get(key, {})


def _limited_mean_w(measured: MeasuredDevice, run: Stretch) -> float | None:
    """The mean power of what the limit holds: of a module, the GPU, unless the limit is its own."""
    info = measured.device.info
    if info.power_scope is not PowerScope.MODULE or info.limit_scope is PowerScope.MODULE:
        return measured.uses[0].mean_w
    power_w = measured.slow.get(Quantity.GPU_POWER.value)
    if power_w is None:
        return None
    within_w = power_w[run.holds(measured.slow["t_ns"]) & np.isfinite(power_w)]
    return float(within_w.mean()) if len(within_w) else None


def odd_cap(measured: MeasuredDevice, manifest: Manifest, run: Stretch) -> Iterator[RunWarning]:
    device, slow = measured.device, measured.slow
    key, mean_w = device.info.key, _limited_mean_w(measured, run)
    reasons = slow.get(Quantity.THROTTLE.value)
    limits_w = slow.get(Quantity.ENFORCED_LIMIT.value)
    if reasons is None or limits_w is None or device.info.vendor != "nvidia":
        return
    seen = run.holds(slow["t_ns"]) & np.isfinite(reasons) & np.isfinite(limits_w)
    if not seen.any() or np.ptp(limits_w[seen]) > _SAME_W:  # who turned it meanwhile is told apart
        return
    limit_w = float(limits_w[seen][0])
    turned = is_limited_by_run(manifest, key)
    lowered = device.default_limit_w is not None and limit_w < device.default_limit_w - _SAME_W
    if not turned and not lowered:
        return
    found = binding(limit_w, reasons[seen].astype(np.int64).tolist(), mean_w)
    if found is Binding.NEVER:
        yield RunWarning(
            Caution.CAP_NEVER_BINDS,
            f"its limit of {limit_w:g} W never held it back",
            "lower the limit, or lock the SM clock: --sm-clock",
            key,
        )
    elif found is Binding.BELOW_FLOOR:
        yield RunWarning(
            Caution.CAP_BELOW_FLOOR,
            f"it drew {mean_w:.0f} W on average under a limit of {limit_w:g} W, "
            "which its lowest clocks cannot hold",
            "take a limit above what it draws: this one costs time and saves no more",
            key,
        )


_ESTIMATED_GAP_S: Final = 1.0  # what is modelled counts on by itself
_GAP_ROWS: Final = 3
_THROTTLED: Final = 0.01
_MOST_CHANGES: Final = 3
_LONG_S: Final = 2.0
_LOAD_CHANGES_PCT: Final = 50.0
# A GPU that is idle, or runs as it was told to, is not throttled.
_NOT_THROTTLED: Final = {"idle", "application clocks", "sync boost", "display clocks"}


def cautions(
    measured: MeasuredDevice, manifest: Manifest, sightings: Sequence[Sighting], run: Stretch
) -> Iterator[RunWarning]:
    yield from gap(measured, manifest, run)
    yield from stuck(measured, run)
    yield from stood_still(measured, run)
    yield from counter(measured)
    yield from throttled(measured, manifest, run)
    yield from odd_cap(measured, manifest, run)
    yield from setting_changed(measured, run)
    yield from other_processes(measured, sightings, run)


def read_in_part(
    measured: MeasuredDevice, manifest: Manifest, run: Stretch
) -> Iterator[RunWarning]:
    """The energy of a device is a lower bound: since when, or up to when, it was read, and why.

    That the recorder was gone is a warning of its own, for all devices.
    """
    read, device = measured.read, measured.device
    why, hint = reason_unread(manifest, device)
    is_own = bool(faults_of(manifest, device.info.key)) or device.unavailable is not None
    if read is None or (has_recorder_ended(manifest) and not is_own):
        return
    edges = []
    if read.start_ns > run.start_ns:
        edges.append(f"from {run.after_s(read.start_ns):.1f} s after the start on")
    if read.end_ns < run.end_ns:
        edges.append(f"up to {run.after_s(read.end_ns):.1f} s after the start")
    part = f"it was read in {read.time_s:.1f} s of {run.time_s:.1f} s only, {' and '.join(edges)}"
    message = f"{': '.join(filter(None, [part, why]))}; it drew more than that"
    yield RunWarning(Caution.UNAVAILABLE, message, hint, device.info.key)


def silent_at_first(
    device: RecordedDevice, run: Stretch, *, is_bound: bool = False
) -> Iterator[RunWarning]:
    """The device slept, or was not read, when the run began.

    ``is_bound``: its energy is a lower bound, and :func:`read_in_part` says that it was not read.
    """
    window_ns = np.array([[run.start_ns, run.end_ns]])
    silent_s, asleep_s = (float(time_s[0]) for time_s in unread_start_s(window_ns, device))
    if asleep_s > 0:
        yield RunWarning(
            Caution.GAP,
            f"it slept for the first {asleep_s:.1f} s, for which 0 to {ASLEEP_MAX_W:g} W are "
            "assumed",
            "a GPU that sleeps is not read, since that would wake it",
            device.info.key,
        )
    if silent_s > asleep_s and not is_bound:
        after = "then" if asleep_s else "at first"
        why = f" ({device.unavailable.reason})" if device.unavailable and not asleep_s else ""
        most = "" if device.maximum_w is None else f"; 0 to {device.maximum_w:g} W are assumed"
        yield RunWarning(
            Caution.GAP,
            f"it was not read for {silent_s - asleep_s:.1f} s {after}{why}{most}",
            "measure again: the error is as wide as what it may have drawn unseen",
            device.info.key,
        )


def gap(measured: MeasuredDevice, manifest: Manifest, run: Stretch) -> Iterator[RunWarning]:
    """Time in which a device was not read, the reason that it gave, and what tells of it instead.

    Not of a lower bound: :func:`read_in_part` says of one that it was not read.
    """
    if measured.read is not None:
        return
    odd, key = measured.oddities, measured.device.info.key
    noted = faults_of(manifest, key)
    faults = [one for one in noted if run.start_ns <= int(one["t_ns"]) <= run.end_ns]
    reasons = dict.fromkeys(fault.get("message", "") for fault in noted)
    why = f": {', '.join(reasons)}" if reasons else ""
    estimated = not measured.device.has_sensor
    least_s = max(_ESTIMATED_GAP_S if estimated else LONG_S, _GAP_ROWS / manifest.rate_hz)
    of = f"s of {run.time_s:.1f} s, first about"
    is_sampled = not odd.gap.time_s > least_s
    hint = _bridge(is_sampled=is_sampled, has_counter=odd.has_counter and not estimated)
    if odd.unread.time_s > least_s:
        first_ns = odd.unread.first_ns
        what = f"{_unread(noted)} for {odd.unread.time_s:.1f} {of}"
    elif (
        odd.gap.time_s > least_s and not estimated
    ):  # polls went on, at a lower rate than the driver's samples
        first_ns = odd.gap.first_ns
        what = f"its driver told no samples of power for {odd.gap.time_s:.1f} {of}"
    elif faults:
        first_ns = int(faults[0]["t_ns"])
        what, hint = "it could not be polled for a moment,", "that is too short to matter"
    else:
        return
    after = f"{run.after_s(first_ns):.0f} s after the start"
    yield RunWarning(Caution.GAP, f"{what} {after}{why}", hint, key)


def _unread(faults: Sequence[Mapping[str, str]]) -> str:
    """What could not be read, by the quantities that the recorder noted."""
    quantities = {fault.get("quantity", "") for fault in faults}
    if quantities == {Quantity.POWER.value}:
        return "its power could not be polled"
    if quantities == {Quantity.ENERGY.value}:
        return "its energy counter could not be read"
    return "it was not read"


def _bridge(*, is_sampled: bool, has_counter: bool) -> str:
    """What tells of a time in which a device was not polled, and what is less sure for it."""
    if has_counter:
        return (
            "its energy counter ran on and gives the energy of that time; only when in it that was "
            "drawn is less sure"
        )
    wider = "and the error is wider by what may have been"
    if is_sampled:
        return f"what else was read of its power tells of that time, {wider}"
    return f"what was read around it stands in, {wider}"


def stuck(measured: MeasuredDevice, run: Stretch) -> Iterator[RunWarning]:
    still, device = measured.oddities.still, measured.device
    if not device.has_sensor:
        return
    if still.time_s > 0:
        when = (
            f"for about {still.time_s:.0f} s, first {run.after_s(still.first_ns):.0f} s after "
            "the start"
        )
    elif _never_moved(measured, run):
        when = "in the whole run, while its utilisation did"
    else:
        return
    counter = measured.uses[0].counter_j is not None
    yield RunWarning(
        Caution.STUCK,
        f"its power reading did not move {when}",
        "the energy rests on its counter, peak watts may be missing"
        if counter
        else "the energy of that time is not known; see joulewise doctor",
        device.info.key,
    )


def _never_moved(measured: MeasuredDevice, run: Stretch) -> bool:
    """A sensor of whole watts may repeat itself for long, but not from idle to full load."""
    use, percent = measured.uses[0], measured.slow.get(Quantity.GPU_UTILISATION.value)
    if percent is None or use.mean_w is None or use.peak_w is None or run.time_s < _LONG_S:
        return False
    used = percent[run.holds(measured.slow["t_ns"]) & np.isfinite(percent)]
    same = math.isclose(use.mean_w, use.peak_w, rel_tol=1e-6)
    return same and len(used) > 1 and float(np.ptp(used)) > _LOAD_CHANGES_PCT


def stood_still(measured: MeasuredDevice, run: Stretch) -> Iterator[RunWarning]:
    frozen = measured.oddities.frozen
    if frozen:
        yield RunWarning(
            Caution.FROZEN,
            f"its energy counter did not move for {frozen.time_s:.1f} s, "
            f"from {run.after_s(frozen.start_ns):.0f} s after the start",
            "what it drew then rests on its power readings, if those are not old too; "
            "see joulewise doctor",
            measured.device.info.key,
        )


def counter(measured: MeasuredDevice) -> Iterator[RunWarning]:
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


def throttled(measured: MeasuredDevice, manifest: Manifest, run: Stretch) -> Iterator[RunWarning]:
    """The share of the run's time in which something held the clocks down.

    A power limit that was set for this very run does what it was set for, which is no news.
    """
    device, reasons = measured.device, measured.slow.get(Quantity.THROTTLE.value)
    if reasons is None or device.info.vendor != "nvidia":
        return
    within = run.holds(measured.slow["t_ns"]) & np.isfinite(reasons)
    bits, counts = np.unique(reasons[within].astype(np.int64), return_counts=True)
    shares: dict[str, float] = {}
    for each, count in zip(bits.tolist(), counts.tolist(), strict=True):
        for name in throttle_names(each):
            shares[name] = shares.get(name, 0.0) + count / within.sum()
    wanted = {"power cap"} if is_limited_by_run(manifest, device.info.key) else set()
    expected = _NOT_THROTTLED | wanted
    told = {n: s for n, s in shares.items() if n not in expected and s >= _THROTTLED}
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


def setting_changed(measured: MeasuredDevice, run: Stretch) -> Iterator[RunWarning]:
    """A power limit that was not the same all the time, whoever has changed it."""
    limits_w = measured.slow.get(Quantity.ENFORCED_LIMIT.value)
    if limits_w is None:
        return
    within = run.holds(measured.slow["t_ns"]) & np.isfinite(limits_w)
    t_ns, limits_w = measured.slow["t_ns"][within], limits_w[within]
    changed = 1 + np.flatnonzero(np.abs(np.diff(limits_w)) > _SAME_W)
    if changed.size:
        told = [
            f"to {limits_w[at]:g} W {run.after_s(int(t_ns[at])):.0f} s after the start"
            for at in changed[:_MOST_CHANGES]
        ]
        more = changed.size - len(told)
        told += [f"and {more} times more"] if more else []
        yield RunWarning(
            Caution.SETTING_CHANGED,
            f"its power limit changed during the run: from {limits_w[0]:g} W {', '.join(told)}",
            "the figures are of no single setting; measure again while nobody changes it",
            measured.device.info.key,
        )


def other_processes(
    measured: MeasuredDevice, sightings: Sequence[Sighting], run: Stretch
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


_LOOKS: Final = 20  # fewer say nothing: a short run is start and end
_IDLE_S: Final = 60.0
_USED_PCT: Final = 1.0
_NEVER: Final = 0.02
_LITTLE: Final = 0.6
_MIDDLING: Final = 0.85
_AT_WORK: Final = 0.8  # of its highest power above idle: whatever the driver says, it works
_STEPS: Final = 64
_PIECES: Final = (4, 16)  # of a step, each as long as two updates of the sensor
_NEAR_IDLE: Final = 0.25
_WAITS: Final = 0.3
_TRY: Final = (
    "if it waits for data, try more workers, prefetching, pinned memory or a faster disk; "
    "if its kernels are short, a larger batch"
)


def waiting(
    measured: MeasuredDevice, spans: SpanTable, open_stream: OpenStream, run: Stretch
) -> Iterator[RunWarning]:
    """At most one warning, of a GPU whose utilisation was looked at often enough."""
    slow, key = measured.slow, measured.device.info.key
    used_pct = slow.get(Quantity.GPU_UTILISATION.value)
    if measured.device.info.kind is not Kind.GPU or used_pct is None:
        return
    seen = run.holds(slow["t_ns"]) & np.isfinite(used_pct)
    if seen.sum() < _LOOKS:
        return
    if np.mean(used_pct[seen] >= _USED_PCT) < _NEVER:
        if run.time_s >= _IDLE_S:
            yield RunWarning(
                Caution.GPU_WAITED,
                f"it counts, and did nothing: busy {used_pct[seen].mean():.1f} % of the time",
                "see that the program uses it, or leave it to others: CUDA_VISIBLE_DEVICES",
                key,
            )
        return
    training = used_pct[seen & _in_training(spans, slow["t_ns"], used_pct)]
    busy = float(training.mean()) / 100 if len(training) >= _LOOKS else 1.0
    if busy >= _MIDDLING or _is_at_work(measured):
        return
    waits = _waits_in_steps(measured, spans, open_stream)
    if busy < _LITTLE or (waits or 0.0) >= _WAITS:
        falls = (
            f", and its power falls to idle for {100 * waits:.0f} % of each step" if waits else ""
        )
        yield RunWarning(
            Caution.GPU_WAITED,
            f"it was busy {100 * busy:.0f} % of the training's time{falls}",
            _TRY,
            key,
        )


def _in_training(spans: SpanTable, t_ns: Ints, used_pct: Floats) -> Bools:
    """The looks of all trainings; without any, from the first at which it worked to the last.

    A look tells of the time before it: the first of a training is not of it.
    """
    training = spans.named("training")
    if not len(training):
        at_work_ns = t_ns[used_pct >= _USED_PCT]
        return Stretch(int(at_work_ns[0]), int(at_work_ns[-1])).holds(t_ns)
    inside = np.zeros(len(t_ns), bool)
    for start_ns, end_ns in zip(training.start_ns, training.end_ns, strict=True):
        inside |= (t_ns >= start_ns + NS_PER_S) & (t_ns <= end_ns)
    return inside


def _idle_w(measured: MeasuredDevice) -> float | None:
    """What it draws between two pieces of work: its clocks stay up where they are that close."""
    idle = measured.idle.get(IdleState.CLOCKS_UP) or measured.baseline
    return idle.power_w if idle else None


def _is_at_work(measured: MeasuredDevice) -> bool:
    """Power near its highest all along cannot be of a device that waits."""
    idle_w, use = _idle_w(measured), measured.uses[0]
    if idle_w is None or use.mean_w is None or use.peak_w is None:
        return False
    return use.mean_w - idle_w > _AT_WORK * (use.peak_w - idle_w)


def _waits_in_steps(
    measured: MeasuredDevice, spans: SpanTable, open_stream: OpenStream
) -> float | None:
    """The share of the steps in which power is near idle; None where steps are too short to tell.

    It is a sawtooth only where most steps have it: one long pause is none.
    """
    device, idle_w = measured.device, _idle_w(measured)
    steps = spans.where(spans.closed).named("step")
    if idle_w is None or not len(steps):
        return None
    some = steps.where(np.arange(len(steps))[max(len(steps) - _STEPS, 0) // 2 :][:_STEPS])
    times_s = (some.end_ns - some.start_ns) / NS_PER_S
    fewest, most = _PIECES
    pieces = int(min(np.median(times_s) / (2 * (device.card.update_period_s or 0.1)), most))
    if pieces < fewest:
        return None
    parts = np.arange(pieces + 1) / pieces
    edges_ns = some.start_ns[:, None] + np.outer(some.end_ns - some.start_ns, parts).astype(
        np.int64
    )
    windows_ns = np.stack([edges_ns[:, :-1], edges_ns[:, 1:]], axis=-1).reshape(-1, 2)
    fast, buffer = (
        open_stream(device.info.key, stream) for stream in (StreamKind.FAST, StreamKind.BUFFER)
    )
    marks_ns = np.concatenate([spans.start_ns, spans.end_ns])
    energy = window_energy(device, fast, buffer, windows_ns, marks_ns)
    power_w = energy.mean_w.reshape(-1, pieces)
    power_w = power_w[np.isfinite(power_w).all(axis=1)]
    if not len(power_w):
        return None
    high_w = float(np.percentile(power_w, 90))
    near = power_w < idle_w + _NEAR_IDLE * (high_w - idle_w)
    return float(near.mean()) if np.mean(near.any(axis=1)) > 0.5 else None
