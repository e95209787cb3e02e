"""What NVML would show of a timeline: the specification, and its form for whole arrays.

The C shim has the same formulas for one reading at a time. ``E(t)`` is ``Timeline.energy_at``;
times are whole nanoseconds and every division of them rounds down; the rest are doubles, and
the operations stand in the order in which they are done, so that both sides get the same bits.

Ticks of a period: tick ``k`` is at ``sensor_phase_ns + k * period_ns``; whoever asks at ``t``
sees tick ``k = (t - sensor_phase_ns) / period_ns``.

Power, of channel 0 (the plain call, field 186) or 1 (field 185; the plain call too where
``plain_is_average``)::

    end     = tick - lag_ns
    reading = (E(end) - E(end - window_ns)) / (window_ns * 1e-9) * gain + noise_w * z(seed, k, ch)
    reading = rint(max(reading, 0) / quantum_w) * quantum_w          in W, shown as rint(1000 W) mW

with ``window_s`` for channel 0, ``average_window_s`` for channel 1, the same ticks for both, and
halves rounded to even. No quantum (0), no rounding to it. Noise, modulo 2**64::

    x = seed * 0x9E3779B97F4A7C15 + k * 0xBF58476D1CE4E5B9 + channel * 0x94D049BB133111EB
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9
    x = (x ^ x >> 27) * 0x94D049BB133111EB
    x = x ^ x >> 31
    z = (sum of the four 16-bit words of x / 65536 - 2 + 2 / 65536) * sqrt(3)

Energy counter, at ticks of ``counter_period_s``, from ``base_j`` drawn before it counted::

    floor(gain * (E(tick) - base_j) / counter_step_j) * counter_step_j       in J, shown as mJ

Utilisation, at ticks of ``utilisation_period_s``: the mean of ``busy`` (or ``memory_busy``) over
the period before the tick, in percent, rounded. Clocks, temperature, performance state and
throttle reasons are those of the moment. The sample buffer holds channel 0 of the last
``buffer_samples`` ticks.

The shim remembers the last ``JW_RING`` pieces. A reading that needs time before them is no data
(``NVML_ERROR_NO_DATA``), and the sample buffer begins with the first tick that can be read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.simulate.model import Unit
from joulewise.simulate.timeline import Timeline
from joulewise.units import MJ_PER_J, MW_PER_W, NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

INSTANT: Final = 0
AVERAGE: Final = 1

_SEED_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def plain_channel(unit: Unit) -> int:
    """The channel that the plain power call shows."""
    return AVERAGE if unit.board.sensor.plain_is_average else INSTANT


def power_w(unit: Unit, timeline: Timeline, t_ns: ArrayLike, channel: int) -> NDArray[np.float64]:
    """The power that is read at each moment."""
    ticks = _ticks(unit, unit.board.sensor.period_s, t_ns)
    return _held(ticks, lambda some: power_at_ticks(unit, timeline, some, channel))


def power_at_ticks(
    unit: Unit, timeline: Timeline, ticks: NDArray[np.int64], channel: int
) -> NDArray[np.float64]:
    """The readings themselves."""
    spec = unit.board.sensor
    window_ns = _ns(spec.average_window_s if channel == AVERAGE else spec.window_s)
    end_ns = ticks * _ns(spec.period_s) + (unit.sensor_phase_ns - _ns(spec.lag_s))
    reading = timeline.energy_at(end_ns)
    reading -= timeline.energy_at(end_ns - window_ns)
    reading /= window_ns * 1e-9
    reading *= unit.gain
    if spec.noise_w:
        reading += spec.noise_w * noise(unit.seed, ticks, channel)
    np.maximum(reading, 0.0, out=reading)
    if spec.quantum_w:
        reading /= spec.quantum_w
        np.rint(reading, out=reading)
        reading *= spec.quantum_w
    return _shown(reading, MW_PER_W)


def counter_j(
    unit: Unit, timeline: Timeline, t_ns: ArrayLike, base_j: float = 0.0
) -> NDArray[np.float64]:
    """The energy counter as it is read at each moment."""
    spec = unit.board.sensor
    period_ns = _ns(spec.counter_period_s)

    def counted(ticks: NDArray[np.int64]) -> NDArray[np.float64]:
        count = timeline.energy_at(ticks * period_ns + unit.sensor_phase_ns)
        count -= base_j
        count *= unit.gain
        count /= spec.counter_step_j
        np.floor(count, out=count)
        count *= spec.counter_step_j
        return _shown(count, MJ_PER_J)

    return _held(_ticks(unit, spec.counter_period_s, t_ns), counted)


def utilisation_pct(
    unit: Unit, timeline: Timeline, t_ns: ArrayLike, column: str = "busy"
) -> NDArray[np.float64]:
    """How busy the GPU (or ``memory_busy``) is shown at each moment."""
    period_s = unit.board.sensor.utilisation_period_s
    period_ns = _ns(period_s)
    ticks = _ticks(unit, period_s, t_ns)
    first, count = _extent(ticks)
    if count < ticks.size:
        edges_ns = np.arange(first - 1, first + count) * period_ns + unit.sensor_phase_ns
        share = np.diff(timeline.busy_s_at(edges_ns, column)) / (period_ns * 1e-9)
        return np.rint(share * 100.0)[ticks - first]
    end_ns = ticks * period_ns + unit.sensor_phase_ns
    return np.rint(timeline.mean_busy(end_ns - period_ns, end_ns, column) * 100.0)


def samples(
    unit: Unit, timeline: Timeline, t_ns: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """What the sample buffer holds at a moment: times and power, oldest first."""
    spec = unit.board.sensor
    last = int(_ticks(unit, spec.period_s, t_ns))
    ticks = np.arange(last - spec.buffer_samples + 1, last + 1)
    tick_ns = ticks * _ns(spec.period_s) + unit.sensor_phase_ns
    return tick_ns, power_at_ticks(unit, timeline, ticks, INSTANT)


def noise(seed: int, ticks: ArrayLike, channel: int) -> NDArray[np.float64]:
    """Mean 0, variance 1, the same for whoever looks: a function of seed, tick and channel."""
    start = np.uint64((seed * int(_SEED_STEP) + channel * int(_MIX_2)) % (1 << 64))
    x = np.atleast_1d(ticks).astype(np.uint64)
    x *= _MIX_1
    x += start
    x ^= x >> np.uint64(30)
    x *= _MIX_1
    x ^= x >> np.uint64(27)
    x *= _MIX_2
    x ^= x >> np.uint64(31)
    words = x.view(np.uint16)
    z = words[::4].astype(np.float64)
    for word in (1, 2, 3):
        z += words[word::4]
    z /= 65536.0
    z += -2.0 + 2.0 / 65536.0  # both exact, so that their order does not matter
    z *= math.sqrt(3.0)
    return z


def _shown(value: NDArray[np.float64], scale: int) -> NDArray[np.float64]:
    """As NVML tells it, in whole thousandths."""
    value *= scale
    np.rint(value, out=value)
    value /= scale
    return value


def _held(
    ticks: NDArray[np.int64], reading: Callable[[NDArray[np.int64]], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """The reading at each tick; each is computed once where there are more polls than ticks."""
    first, count = _extent(ticks)
    if count < ticks.size:
        return reading(np.arange(first, first + count))[ticks - first]
    return reading(ticks.reshape(-1)).reshape(ticks.shape)


def _extent(ticks: NDArray[np.int64]) -> tuple[int, int]:
    """The first tick, and how many there are up to the last."""
    if ticks.size == 0:
        return 0, 0
    first = int(ticks.min())
    return first, int(ticks.max()) - first + 1


def _ticks(unit: Unit, period_s: float, t_ns: ArrayLike) -> NDArray[np.int64]:
    return (np.asarray(t_ns, np.int64) - unit.sensor_phase_ns) // _ns(period_s)


def _ns(time_s: float) -> int:
    return round(time_s * NS_PER_S)
