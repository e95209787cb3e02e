"""Warnings about one device: gaps, stuck sensors, limits without effect, others' use, waiting.

Each function yields the warnings of one kind; `find_warnings` puts together those that need no
spans.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from joulewise.analyse.attribution import (
    Sighting,
    faults_of,
    find_other_processes,
    has_recorder_ended,
    reason_unread,
)
from joulewise.analyse.baseline import IdleState
from joulewise.analyse.chunks import Bools, Floats, Ints, OpenStream
from joulewise.analyse.device_energy import MeasuredDevice
from joulewise.analyse.energy.gaps import ASLEEP_MAX_W, LONG_S, unread_start_s
from joulewise.analyse.energy.windows import window_energy
from joulewise.analyse.time_intervals import TimeInterval
from joulewise.data import ControlKind, Kind, PowerScope, QualityWarning, Quantity, WarningCode
from joulewise.data.devices import throttle_names
from joulewise.data.sweeps import POWER_LIMIT
from joulewise.data.tuning import Tuning
from joulewise.devices.nvidia.throttling import Binding, judge_limit
from joulewise.store.layout import StreamKind
from joulewise.store.manifest import Manifest, RecordedDevice
from joulewise.store.spans import SpanTable
from joulewise.units import NS_PER_S

# Power limits that differ by less are the same: drivers round them to tenths of a watt or less.
_SAME_W: Final = 0.5
# All of these are chosen. Modelled power is warned of later than measured power, since it has no
# sensor that could fail; a gap is at least so many polls.
_MODELLED_GAP_S: Final = 1.0
_MIN_GAP_POLLS: Final = 3
# Clocks that were held down for less than this share of the time are not worth a warning.
_MIN_THROTTLED_SHARE: Final = 0.01
# Changes of a setting, and other processes, that a warning lists one by one.
_MAX_LISTED: Final = 3
# A sensor of whole watts may show one value for long at one load. In a run of this length whose
# utilisation changed by so much it cannot.
_MIN_CHANGING_S: Final = 2.0
_LOAD_CHANGES_PCT: Final = 50.0
# A GPU that is idle, or runs as it was set to, is not throttled.
_NOT_THROTTLED: Final = {"idle", "application clocks", "sync boost", "display clocks"}


# A change of a limit is the tuner's own where one of its phases had that value within so many
# seconds of it: its clock starts some seconds after the command, and limits are read once a second.
# Chosen; doubled, somebody else's change to a value that was tried is taken for the tuner's more
# often.
_TUNER_CHANGE_S: Final = 10.0


def is_limited_by_run(manifest: Manifest, key: str) -> bool:
    """Whether this run itself has set the device's power limit."""
    return ControlKind.POWER_LIMIT.value in manifest.options.get("settings", {}).get(key, {})


def _limited_mean_w(measured: MeasuredDevice, run: TimeInterval) -> float | None:
    """The mean power of what the limit holds: of a module, the GPU, unless the limit is its own."""
    info = measured.device.info
    if info.power_scope is not PowerScope.MODULE or info.limit_scope is PowerScope.MODULE:
        return measured.uses[0].mean_w
    power_w = measured.slow.get(Quantity.GPU_POWER.value)
    if power_w is None:
        return None
    within_w = power_w[run.holds(measured.slow["t_ns"]) & np.isfinite(power_w)]
    return float(within_w.mean()) if len(within_w) else None


def limit_without_effect(
    measured: MeasuredDevice, manifest: Manifest, run: TimeInterval
) -> Iterator[QualityWarning]:
    """A lowered power limit that never held the clocks down, or that they cannot hold."""
    device, slow = measured.device, measured.slow
    key, mean_w = device.info.key, _limited_mean_w(measured, run)
    reasons = slow.get(Quantity.THROTTLE.value)
    limits_w = slow.get(Quantity.ENFORCED_LIMIT.value)
    if reasons is None or limits_w is None or device.info.vendor != "nvidia":
        return
    seen = run.holds(slow["t_ns"]) & np.isfinite(reasons) & np.isfinite(limits_w)
    if not seen.any() or np.ptp(limits_w[seen]) > _SAME_W:  # another warning
        return
    limit_w = float(limits_w[seen][0])
    is_set = is_limited_by_run(manifest, key)
    is_lowered = device.default_limit_w is not None and limit_w < device.default_limit_w - _SAME_W
    if not is_set and not is_lowered:
        return
    effect = judge_limit(limit_w, reasons[seen].astype(np.int64).tolist(), mean_w)
    if effect is Binding.NEVER:
        yield QualityWarning(
            WarningCode.CAP_NEVER_BINDS,
            f"its limit of {limit_w:g} W never held it back",
            "lower the limit, or lock the SM clock: --sm-clock",
            key,
        )
    elif effect is Binding.BELOW_FLOOR:
        yield QualityWarning(
            WarningCode.CAP_BELOW_FLOOR,
            f"it drew {mean_w:.0f} W on average under a limit of {limit_w:g} W, "
            "which its lowest clocks cannot hold",
            "choose a limit above what it draws: this one costs time and saves no more",
            key,
        )


def find_warnings(
    measured: MeasuredDevice,
    manifest: Manifest,
    sightings: Sequence[Sighting],
    run: TimeInterval,
    tuning: Tuning | None = None,
) -> Iterator[QualityWarning]:
    """Warnings of one device; ``tuning`` is that of the run, where it was tuned."""
    yield from gap(measured, manifest, run)
    yield from stuck(measured, run)
    yield from frozen_counter(measured, run)
    yield from counter(measured)
    yield from throttled(measured, manifest, run, tuning)
    yield from limit_without_effect(measured, manifest, run)
    yield from setting_changed(measured, run, tuning)
    yield from used_by_others(measured, sightings, run)


def read_in_part(
    measured: MeasuredDevice, manifest: Manifest, run: TimeInterval
) -> Iterator[QualityWarning]:
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
    part = f"read for only {read.time_s:.1f} of {run.time_s:.1f} s, {' and '.join(edges)}"
    message = f"{': '.join(filter(None, [part, why]))}; its energy is a lower bound"
    yield QualityWarning(WarningCode.UNAVAILABLE, message, hint, device.info.key)


def silent_at_first(
    device: RecordedDevice, run: TimeInterval, *, is_bound: bool = False
) -> Iterator[QualityWarning]:
    """The device slept, or was not read, when the run began.

    ``is_bound``: its energy is a lower bound, and :func:`read_in_part` says that it was not read.
    """
    window_ns = np.array([[run.start_ns, run.end_ns]])
    silent_s, asleep_s = (float(time_s[0]) for time_s in unread_start_s(window_ns, device))
    if asleep_s > 0:
        yield QualityWarning(
            WarningCode.GAP,
            f"it slept for the first {asleep_s:.1f} s, for which 0 to {ASLEEP_MAX_W:g} W are "
            "assumed",
            "a GPU that sleeps is not read, since that would wake it",
            device.info.key,
        )
    if silent_s > asleep_s and not is_bound:
        after = "then" if asleep_s else "at first"
        why = f" ({device.unavailable.reason})" if device.unavailable and not asleep_s else ""
        most = "" if device.maximum_w is None else f"; 0 to {device.maximum_w:g} W are assumed"
        yield QualityWarning(
            WarningCode.GAP,
            f"it was not read for {silent_s - asleep_s:.1f} s {after}{why}{most}",
            "measure again: the error is as wide as what it may have drawn unseen",
            device.info.key,
        )


def gap(
    measured: MeasuredDevice, manifest: Manifest, run: TimeInterval
) -> Iterator[QualityWarning]:
    """Time in which a device was not read, the reason, and what stands in for its readings.

    Not for a lower bound, of which :func:`read_in_part` says that it was not read.
    """
    if measured.read is not None:
        return
    fault, key = measured.faults, measured.device.info.key
    noted = faults_of(manifest, key)
    faults = [one for one in noted if run.start_ns <= int(one["t_ns"]) <= run.end_ns]
    reasons = dict.fromkeys(fault.get("message", "") for fault in noted)
    why = f": {', '.join(reasons)}" if reasons else ""
    is_modelled = not measured.device.has_sensor
    min_s = max(_MODELLED_GAP_S if is_modelled else LONG_S, _MIN_GAP_POLLS / manifest.rate_hz)
    of = f"s of {run.time_s:.1f} s, first about"
    is_sampled = not fault.gap.time_s > min_s
    hint = _stand_in(is_sampled=is_sampled, has_counter=fault.has_counter and not is_modelled)
    if fault.unread.time_s > min_s:
        first_ns = fault.unread.first_ns
        what = f"{_unread(noted)} for {fault.unread.time_s:.1f} {of}"
    elif fault.gap.time_s > min_s and not is_modelled:
        # Polls went on, at a lower rate than the driver's samples.
        first_ns = fault.gap.first_ns
        what = f"its driver gave no samples of power for {fault.gap.time_s:.1f} {of}"
    elif faults:
        first_ns = int(faults[0]["t_ns"])
        what, hint = "it could not be polled for a moment,", "that is too short to matter"
    else:
        return
    after = f"{run.after_s(first_ns):.0f} s after the start"
    yield QualityWarning(WarningCode.GAP, f"{what} {after}{why}", hint, key)


def _unread(faults: Sequence[Mapping[str, str]]) -> str:
    """What could not be read, by the quantities that the recorder noted."""
    quantities = {fault.get("quantity", "") for fault in faults}
    if quantities == {Quantity.POWER.value}:
        return "its power could not be polled"
    if quantities == {Quantity.ENERGY.value}:
        return "its energy counter could not be read"
    return "it was not read"


def _stand_in(*, is_sampled: bool, has_counter: bool) -> str:
    """What stands in for a time in which a device was not polled, and what is less certain."""
    if has_counter:
        return (
            "its energy counter ran on and gives the energy of that time; only when it was drawn "
            "is less certain"
        )
    wider = "and the error is wider by what it may have drawn"
    if is_sampled:
        return f"other readings of its power cover that time, {wider}"
    return f"the mean of the readings before and after it is taken, {wider}"


def stuck(measured: MeasuredDevice, run: TimeInterval) -> Iterator[QualityWarning]:
    stuck_time, device = measured.faults.stuck, measured.device
    if not device.has_sensor:
        return
    if stuck_time.time_s > 0:
        first_s = run.after_s(stuck_time.first_ns)
        when = f"for about {stuck_time.time_s:.0f} s, first {first_s:.0f} s after the start"
    elif _never_moved(measured, run):
        when = "in the whole run, while its utilisation did"
    else:
        return
    counter = measured.uses[0].counter_j is not None
    yield QualityWarning(
        WarningCode.STUCK,
        f"its power reading did not move {when}",
        "the energy comes from its counter; peak watts may be missing"
        if counter
        else "the energy of that time is not known; see joulewise doctor",
        device.info.key,
    )


def _never_moved(measured: MeasuredDevice, run: TimeInterval) -> bool:
    """A sensor of whole watts may repeat itself for long, but not from idle to full load."""
    use, percent = measured.uses[0], measured.slow.get(Quantity.GPU_UTILISATION.value)
    if percent is None or use.mean_w is None or use.peak_w is None or run.time_s < _MIN_CHANGING_S:
        return False
    used = percent[run.holds(measured.slow["t_ns"]) & np.isfinite(percent)]
    same = math.isclose(use.mean_w, use.peak_w, rel_tol=1e-6)
    return same and len(used) > 1 and float(np.ptp(used)) > _LOAD_CHANGES_PCT


def frozen_counter(measured: MeasuredDevice, run: TimeInterval) -> Iterator[QualityWarning]:
    frozen = measured.faults.frozen
    if frozen:
        yield QualityWarning(
            WarningCode.FROZEN,
            f"its energy counter did not move for {frozen.time_s:.1f} s, "
            f"from {run.after_s(frozen.start_ns):.0f} s after the start",
            "what it drew then comes from its power readings, if those are not old too; "
            "see joulewise doctor",
            measured.device.info.key,
        )


def counter(measured: MeasuredDevice) -> Iterator[QualityWarning]:
    """The counter went back, or does not agree with the readings of power."""
    fault, use, key = measured.faults, measured.uses[0], measured.device.info.key
    if fault.counter_broken:
        yield QualityWarning(
            WarningCode.COUNTER_RESET,
            "its energy counter was reset or jumped during the run",
            "that moment is bridged by the readings of power, and the error is wider by it",
            key,
        )
    if fault.disagree and use.energy and use.counter_j is not None and use.integral_j is not None:
        yield QualityWarning(
            WarningCode.DISAGREEMENT,
            f"counter and power readings disagree: {use.counter_j:.4g} J and "
            f"{use.integral_j:.4g} J",
            "the error spans both; joulewise calibrate finds what this board's sensor does",
            key,
        )


def throttled(
    measured: MeasuredDevice,
    manifest: Manifest,
    run: TimeInterval,
    tuning: Tuning | None = None,
) -> Iterator[QualityWarning]:
    """The share of the run's time in which something held the clocks down.

    A power limit that was set for this very run does what it was set for, and is not warned of.
    """
    device, reasons = measured.device, measured.slow.get(Quantity.THROTTLE.value)
    if reasons is None or device.info.vendor != "nvidia":
        return
    within = run.holds(measured.slow["t_ns"]) & np.isfinite(reasons)
    bits, counts = np.unique(reasons[within].astype(np.int64), return_counts=True)
    shares: dict[str, float] = {}
    for code, count in zip(bits.tolist(), counts.tolist(), strict=True):
        for name in throttle_names(code):
            shares[name] = shares.get(name, 0.0) + count / within.sum()
    key = device.info.key
    is_wanted = is_limited_by_run(manifest, key) or is_tuned(tuning, key)
    wanted = {"power cap"} if is_wanted else set()
    expected = _NOT_THROTTLED | wanted
    throttles = {
        name: share
        for name, share in shares.items()
        if name not in expected and share >= _MIN_THROTTLED_SHARE
    }
    if throttles:
        listed = (f"{name} {100 * share:.0f} %" for name, share in throttles.items())
        limit_w = device.settings.get("power_limit_w")
        at = f" (its limit is {limit_w:g} W)" if limit_w and "power cap" in throttles else ""
        yield QualityWarning(
            WarningCode.THROTTLED,
            f"clocks were held down for part of the time: {', '.join(listed)}{at}",
            "compare runs only under the same limits, and with the board as warm",
            device.info.key,
        )


def is_tuned(tuning: Tuning | None, key: str) -> bool:
    """Whether the run's tuner has set the device's power limit."""
    return tuning is not None and key in tuning.devices and POWER_LIMIT in tuning.axes


def _is_change_of_tuner(tuning: Tuning, limit_w: float, at_s: float) -> bool:
    for phase in tuning.phases:
        if phase.start_s - _TUNER_CHANGE_S <= at_s <= phase.end_s + _TUNER_CHANGE_S:
            set_w = dict((phase.settings or tuning.reference).values).get(POWER_LIMIT)
            if isinstance(set_w, float) and abs(set_w - limit_w) <= _SAME_W:
                return True
    return False


def setting_changed(
    measured: MeasuredDevice, run: TimeInterval, tuning: Tuning | None
) -> Iterator[QualityWarning]:
    """A power limit that was not the same all the time, unless the run's own tuner changed it."""
    limits_w = measured.slow.get(Quantity.ENFORCED_LIMIT.value)
    if limits_w is None:
        return
    within = run.holds(measured.slow["t_ns"]) & np.isfinite(limits_w)
    t_ns, limits_w = measured.slow["t_ns"][within], limits_w[within]
    changed = 1 + np.flatnonzero(np.abs(np.diff(limits_w)) > _SAME_W)
    if tuning is not None and is_tuned(tuning, measured.device.info.key):
        is_foreign = [
            not _is_change_of_tuner(tuning, float(limits_w[at]), run.after_s(int(t_ns[at])))
            for at in changed
        ]
        changed = changed[np.array(is_foreign, dtype=bool)]
    if changed.size:
        changes = [
            f"to {limits_w[at]:g} W {run.after_s(int(t_ns[at])):.0f} s after the start"
            for at in changed[:_MAX_LISTED]
        ]
        before_w = limits_w[changed[0] - 1]
        more = changed.size - len(changes)
        changes += [f"and {more} times more"] if more else []
        yield QualityWarning(
            WarningCode.SETTING_CHANGED,
            f"its power limit changed during the run: from {before_w:g} W {', '.join(changes)}",
            "the figures belong to no single setting; measure again while it stays the same",
            measured.device.info.key,
        )


def used_by_others(
    measured: MeasuredDevice, sightings: Sequence[Sighting], run: TimeInterval
) -> Iterator[QualityWarning]:
    key = measured.device.info.key
    others = find_other_processes(sightings, key, run.start_ns, run.end_ns)
    if others:
        names = [f"{other.name or 'unknown'} ({other.pid})" for other in others]
        more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
        yield QualityWarning(
            WarningCode.OTHER_PROCESSES,
            f"other processes used it too: {', '.join(names[:_MAX_LISTED])}{more}",
            "its energy includes theirs; measure while only the command uses the GPU",
            key,
        )


# A GPU that counts and does little: idle all along, or waiting for data step after step. The driver
# reads once a second for which part of the last moment anything ran. That alone decides where it is
# low; where it is in between, the power within the steps has to fall to idle, too. All are chosen.
#
# With fewer polls nothing can be said: a short run is start and end.
_MIN_POLLS: Final = 20
# A GPU is unused if it was used (at this utilisation or more) in less than this share of the polls,
# in a run of at least this length.
_MIN_UNUSED_S: Final = 60.0
_USED_PCT: Final = 1.0
_UNUSED_SHARE: Final = 0.02
# Mean utilisation in the training: below the first it waits, from the second on it does not.
_WAITING_SHARE: Final = 0.6
_BUSY_SHARE: Final = 0.85
# With a mean power above this share of its highest, both above idle, it works, whatever the driver
# says of its utilisation.
_AT_WORK_SHARE: Final = 0.8
# So many steps are looked at, in pieces that are each as long as two updates of the sensor. Power
# is near idle below this share of its range; a step waits if that is so for this share of it.
_MAX_STEPS: Final = 64
_STEP_PIECES: Final = (4, 16)
_NEAR_IDLE_SHARE: Final = 0.25
_STEP_WAITS_SHARE: Final = 0.3
_TRY: Final = (
    "if it waits for data, try more workers, prefetching, pinned memory or a faster disk; "
    "if its kernels are short, a larger batch"
)


def waiting(
    measured: MeasuredDevice, spans: SpanTable, open_stream: OpenStream, run: TimeInterval
) -> Iterator[QualityWarning]:
    """At most one warning, of a GPU whose utilisation was read often enough."""
    slow, key = measured.slow, measured.device.info.key
    used_pct = slow.get(Quantity.GPU_UTILISATION.value)
    if measured.device.info.kind is not Kind.GPU or used_pct is None:
        return
    seen = run.holds(slow["t_ns"]) & np.isfinite(used_pct)
    if seen.sum() < _MIN_POLLS:
        return
    if np.mean(used_pct[seen] >= _USED_PCT) < _UNUSED_SHARE:
        if run.time_s >= _MIN_UNUSED_S:
            yield QualityWarning(
                WarningCode.GPU_WAITED,
                f"it is counted but was idle: busy {used_pct[seen].mean():.1f} % of the time",
                "check that the program uses it, or hide it from the program: CUDA_VISIBLE_DEVICES",
                key,
            )
        return
    training = used_pct[seen & _in_training(spans, slow["t_ns"], used_pct)]
    busy = float(training.mean()) / 100 if len(training) >= _MIN_POLLS else 1.0
    if busy >= _BUSY_SHARE or _is_at_work(measured):
        return
    waits = _waits_in_steps(measured, spans, open_stream)
    if busy < _WAITING_SHARE or (waits or 0.0) >= _STEP_WAITS_SHARE:
        falls = (
            f", and its power falls to idle for {100 * waits:.0f} % of each step" if waits else ""
        )
        yield QualityWarning(
            WarningCode.GPU_WAITED,
            f"it was busy {100 * busy:.0f} % of the training's time{falls}",
            _TRY,
            key,
        )


def _in_training(spans: SpanTable, t_ns: Ints, used_pct: Floats) -> Bools:
    """The polls of all trainings; without any, from the first at which it worked to the last.

    A poll tells of the time before it: the first of a training is not of it.
    """
    training = spans.named("training")
    if not len(training):
        at_work_ns = t_ns[used_pct >= _USED_PCT]
        return TimeInterval(int(at_work_ns[0]), int(at_work_ns[-1])).holds(t_ns)
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
    return use.mean_w - idle_w > _AT_WORK_SHARE * (use.peak_w - idle_w)


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
    middle = steps.where(np.arange(len(steps))[max(len(steps) - _MAX_STEPS, 0) // 2 :][:_MAX_STEPS])
    times_s = (middle.end_ns - middle.start_ns) / NS_PER_S
    fewest, most = _STEP_PIECES
    pieces = int(min(np.median(times_s) / (2 * (device.card.update_period_s or 0.1)), most))
    if pieces < fewest:
        return None
    parts = np.arange(pieces + 1) / pieces
    into_ns = np.outer(middle.end_ns - middle.start_ns, parts).astype(np.int64)
    edges_ns = middle.start_ns[:, None] + into_ns
    windows_ns = np.stack([edges_ns[:, :-1], edges_ns[:, 1:]], axis=-1).reshape(-1, 2)
    fast, buffer = (
        open_stream(device.info.key, kind) for kind in (StreamKind.FAST, StreamKind.BUFFER)
    )
    marks_ns = np.concatenate([spans.start_ns, spans.end_ns])
    energy = window_energy(device, fast, buffer, windows_ns, marks_ns)
    power_w = energy.mean_w.reshape(-1, pieces)
    power_w = power_w[np.isfinite(power_w).all(axis=1)]
    if not len(power_w):
        return None
    high_w = float(np.percentile(power_w, 90))
    near = power_w < idle_w + _NEAR_IDLE_SHARE * (high_w - idle_w)
    return float(near.mean()) if np.mean(near.any(axis=1)) > 0.5 else None
