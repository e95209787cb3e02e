"""A GPU that counts and does little: idle all along, or waiting for data step after step.

The driver tells once a second for which part of the last moment anything ran. That alone decides
where it is low; where it is only middling, the power within the steps has to fall to idle, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.baseline import Idle
from joulewise.analyse.energy import window_energy
from joulewise.analyse.lanes import OpenLane
from joulewise.analyse.measured import MeasuredDevice
from joulewise.analyse.stretch import Stretch
from joulewise.data import Caution, Kind, Quantity, RunWarning
from joulewise.record.layout import Lane
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from joulewise.record.marks import SpanTable

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
    measured: MeasuredDevice, spans: SpanTable, lanes: OpenLane, run: Stretch
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
    waits = _waits_in_steps(measured, spans, lanes)
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


def _in_training(
    spans: SpanTable, t_ns: NDArray[np.int64], used_pct: NDArray[np.float64]
) -> NDArray[np.bool_]:
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
    idle = measured.idle.get(Idle.CLOCKS_UP) or measured.baseline
    return idle.power_w if idle else None


def _is_at_work(measured: MeasuredDevice) -> bool:
    """Power near its highest all along cannot be of a device that waits."""
    idle_w, use = _idle_w(measured), measured.uses[0]
    if idle_w is None or use.mean_w is None or use.peak_w is None:
        return False
    return use.mean_w - idle_w > _AT_WORK * (use.peak_w - idle_w)


def _waits_in_steps(measured: MeasuredDevice, spans: SpanTable, lanes: OpenLane) -> float | None:
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
    fast, buffer = (lanes(device.info.key, lane) for lane in (Lane.FAST, Lane.BUFFER))
    marks_ns = np.concatenate([spans.start_ns, spans.end_ns])
    energy = window_energy(device, fast, buffer, windows_ns, marks_ns)
    power_w = energy.mean_w.reshape(-1, pieces)
    power_w = power_w[np.isfinite(power_w).all(axis=1)]
    if not len(power_w):
        return None
    high_w = float(np.percentile(power_w, 90))
    near = power_w < idle_w + _NEAR_IDLE * (high_w - idle_w)
    return float(near.mean()) if np.mean(near.any(axis=1)) > 0.5 else None
