"""What NVML would show of a timeline: the specification, and its implementation on arrays.

The C library (``nvml/shim``) has the same formulas for one reading at a time. ``E(t)`` is
``Timeline.energy_at``; times are whole nanoseconds and every division of them rounds down; the rest
are doubles, and the operations stand in the order in which they are done, so that both get the same
bits.

The sensor and the counter update on grids of their own, sensor_phase_ns and period_ns, and
counter_phase_ns and counter_period_ns. Tick ``k`` of a grid is early or late by a deviate of its
own, so that the interval between two ticks has the coefficient of variation ``tick_jitter``::

    tick = phase + k * period + late(k)
    late = rint(z(seed, k, ch) * (tick_jitter * period / sqrt(2)))   within +-(period / 2 - 1)

with channel 2 for the sensor's ticks and 3 for the counter's. Since no tick is late by half a
period, ticks stay in order, and a poll at ``t`` sees the last tick at or before ``t``, which is
one of ``k - 1``, ``k`` and ``k + 1`` where ``k = (t - phase) / period``.

Power, of channel 0 (the plain call, field 186) or 1 (field 185; the plain call too where
``plain_is_average``)::

    end     = tick - lag_ns
    reading = (E(end) - E(end - window_ns)) / (window_ns * 1e-9) * gain + noise_w * z(seed, k, ch)
    reading = rint(max(reading, 0) / quantum_w) * quantum_w          in W, shown as rint(1000 W) mW

with ``window_s`` for channel 0, ``average_window_s`` for channel 1, the same ticks for both, and
halves rounded to even. A quantum of 0 means no rounding. Noise is the finaliser of SplitMix64
(Steele, Lea, Flood, OOPSLA 2014), modulo 2**64, and the sum of four uniform deviates::

    x = seed * 0x9E3779B97F4A7C15 + k * 0xBF58476D1CE4E5B9 + channel * 0x94D049BB133111EB
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9
    x = (x ^ x >> 27) * 0x94D049BB133111EB
    x = x ^ x >> 31
    z = (sum of the four 16-bit words of x / 65536 - 2 + 2 / 65536) * sqrt(3)

Energy counter, at its own ticks, from ``base_j`` drawn before it counted; ``counter_lag_ns`` is
the unit's::

    floor(gain * (E(tick - counter_lag_ns) - base_j) / counter_step_j) * counter_step_j

in J, shown as mJ; through NVML never below 0.

Utilisation, at ``sensor_phase_ns + k * utilisation_period_ns`` exactly: the mean of ``busy`` (or
``memory_busy``) over the period before, in percent, rounded. Clocks, temperature, performance
state and throttle reasons are those of the moment.

Each of the seven types of ``nvmlDeviceGetSamples`` has a buffer of the last ``buffer_samples``
values. Power is channel 0 at the sensor's ticks; utilisation of GPU and memory is what the plain
call shows, at its own period; encoder and decoder are at 0, since nothing simulated uses them.
Assumed, because no source says so: clocks are buffered at the power sensor's ticks, each that of
the tick's moment, and all buffers hold as many values.

The shim remembers the last ``JW_RING`` pieces. A reading that needs time before them is no data
(``NVML_ERROR_NO_DATA``), and the sample buffer begins with the first tick that can be read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.data import Quantity
from joulewise.simulate.model import BoardUnit
from joulewise.simulate.timeline import Timeline
from joulewise.units import MJ_PER_J, MW_PER_W, NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

# The channels of the noise function: each has deviates of its own. 4 is that of nvml/faults.py.
INSTANT: Final = 0  # power over ``window_s``: the plain call, field 186
AVERAGE: Final = 1  # power over ``average_window_s``: field 185
_POWER_TICK: Final = 2  # lateness of the power sensor's ticks
_COUNTER_TICK: Final = 3  # lateness of the energy counter's ticks


class SampleKind(IntEnum):
    """The types of samples that a driver buffers: NVML's nvmlSamplingType_t."""

    POWER = 0  # NVML_TOTAL_POWER_SAMPLES
    GPU_UTILISATION = 1  # NVML_GPU_UTILIZATION_SAMPLES
    MEMORY_UTILISATION = 2  # NVML_MEMORY_UTILIZATION_SAMPLES
    ENCODER_UTILISATION = 3  # NVML_ENC_UTILIZATION_SAMPLES
    DECODER_UTILISATION = 4  # NVML_DEC_UTILIZATION_SAMPLES
    SM_CLOCK = 5  # NVML_PROCESSOR_CLK_SAMPLES
    MEMORY_CLOCK = 6  # NVML_MEMORY_CLK_SAMPLES


# The column of a piece that each kind shows; None where nothing simulated uses the unit.
_SAMPLED_SHARES: Final[dict[SampleKind, str | None]] = {
    SampleKind.GPU_UTILISATION: "busy",
    SampleKind.MEMORY_UTILISATION: "memory_busy",
    SampleKind.ENCODER_UTILISATION: None,
    SampleKind.DECODER_UTILISATION: None,
}
_SAMPLED_CLOCKS: Final = {SampleKind.SM_CLOCK: "sm_mhz", SampleKind.MEMORY_CLOCK: "memory_mhz"}

# SplitMix64's increment and multipliers.
_SEED_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def plain_channel(unit: BoardUnit) -> int:
    """The channel that the plain power call shows."""
    return AVERAGE if unit.board.sensor.plain_is_average else INSTANT


def power_tick_ns(unit: BoardUnit, ticks: ArrayLike) -> NDArray[np.int64]:
    """The time (ns) of each tick of the power sensor."""
    return _tick_ns(_power_grid(unit), ticks)


def counter_tick_ns(unit: BoardUnit, ticks: ArrayLike) -> NDArray[np.int64]:
    """The time (ns) of each tick of the energy counter."""
    return _tick_ns(_counter_grid(unit), ticks)


def last_power_tick(unit: BoardUnit, t_ns: ArrayLike) -> NDArray[np.int64]:
    """The number of the power sensor's last tick at or before each moment."""
    return _last_tick(_power_grid(unit), t_ns)


def last_counter_tick(unit: BoardUnit, t_ns: ArrayLike) -> NDArray[np.int64]:
    """The number of the energy counter's last tick at or before each moment."""
    return _last_tick(_counter_grid(unit), t_ns)


def power_w(
    unit: BoardUnit, timeline: Timeline, t_ns: ArrayLike, channel: int
) -> NDArray[np.float64]:
    """The power (W) that a poll at each moment reads."""

    def read(ticks: NDArray[np.int64]) -> NDArray[np.float64]:
        return power_at_ticks(unit, timeline, ticks, channel)

    return _evaluate_once(last_power_tick(unit, t_ns), read)


def power_at_ticks(
    unit: BoardUnit, timeline: Timeline, ticks: NDArray[np.int64], channel: int
) -> NDArray[np.float64]:
    """The power (W) that the sensor shows from each tick to the next."""
    spec = unit.board.sensor
    window_ns = _ns(spec.average_window_s if channel == AVERAGE else spec.window_s)
    end_ns = power_tick_ns(unit, ticks) - _ns(spec.lag_s)
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
    return _round_to_thousandths(reading, MW_PER_W)


def counter_j(
    unit: BoardUnit, timeline: Timeline, t_ns: ArrayLike, base_j: float = 0.0
) -> NDArray[np.float64]:
    """The energy counter (J) that a poll at each moment reads."""
    step_j = unit.board.sensor.counter_step_j

    def read(ticks: NDArray[np.int64]) -> NDArray[np.float64]:
        count = timeline.energy_at(counter_tick_ns(unit, ticks) - unit.counter_lag_ns)
        count -= base_j
        count *= unit.gain
        count /= step_j
        np.floor(count, out=count)
        count *= step_j
        return _round_to_thousandths(count, MJ_PER_J)

    return _evaluate_once(last_counter_tick(unit, t_ns), read)


def utilisation_pct(
    unit: BoardUnit, timeline: Timeline, t_ns: ArrayLike, column: str = "busy"
) -> NDArray[np.float64]:
    """Utilisation in % of the GPU (or of ``memory_busy``) that a poll at each moment reads."""
    grid = _utilisation_grid(unit)
    period_ns = grid.period_ns
    ticks = _last_tick(grid, t_ns)
    first, count = _extent(ticks)
    if count < ticks.size:
        edges_ns = np.arange(first - 1, first + count) * period_ns + unit.sensor_phase_ns
        share = np.diff(timeline.busy_s_at(edges_ns, column)) / (period_ns * 1e-9)
        return np.rint(share * 100.0)[ticks - first]
    end_ns = ticks * period_ns + unit.sensor_phase_ns
    return np.rint(timeline.mean_busy(end_ns - period_ns, end_ns, column) * 100.0)


def samples(
    unit: BoardUnit, timeline: Timeline, t_ns: int, kind: SampleKind = SampleKind.POWER
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The content of a sample buffer: times (ns) and values (W, %, MHz), oldest first."""
    grid = _utilisation_grid(unit) if kind in _SAMPLED_SHARES else _power_grid(unit)
    last = int(_last_tick(grid, t_ns))
    ticks = np.arange(last - unit.board.sensor.buffer_samples + 1, last + 1)
    tick_ns = _tick_ns(grid, ticks)
    if kind is SampleKind.POWER:
        return tick_ns, power_at_ticks(unit, timeline, ticks, INSTANT)
    if kind in _SAMPLED_CLOCKS:
        clock_mhz = timeline.pieces[_SAMPLED_CLOCKS[kind]][timeline.index_at(tick_ns)]
        return tick_ns, np.floor(clock_mhz.astype(np.float64))
    column = _SAMPLED_SHARES[kind]
    if column is None:
        return tick_ns, np.zeros(len(ticks))
    return tick_ns, utilisation_pct(unit, timeline, tick_ns, column)


def noise(seed: int, ticks: ArrayLike, channel: int) -> NDArray[np.float64]:
    """Deviates of mean 0 and variance 1 that depend on seed, tick and channel alone."""
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


def _round_to_thousandths(value: NDArray[np.float64], scale: int) -> NDArray[np.float64]:
    """NVML shows whole mW and mJ; ``scale`` is how many are in the unit of ``value``."""
    value *= scale
    np.rint(value, out=value)
    value /= scale
    return value


def _evaluate_once(
    ticks: NDArray[np.int64], reading: Callable[[NDArray[np.int64]], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """The reading at each tick, computed once per tick where polls outnumber ticks."""
    first, count = _extent(ticks)
    if count < ticks.size:
        return reading(np.arange(first, first + count))[ticks - first]
    return reading(ticks.reshape(-1)).reshape(ticks.shape)


def _extent(ticks: NDArray[np.int64]) -> tuple[int, int]:
    """The lowest tick, and the number of ticks from it to the highest."""
    if ticks.size == 0:
        return 0, 0
    first = int(ticks.min())
    return first, int(ticks.max()) - first + 1


@dataclass(frozen=True)
class _Grid:
    """The times at which something updates: a regular grid with jitter.

    ``jitter_ns`` is the standard deviation of one tick, drawn from ``channel`` of the noise.
    """

    seed: int
    phase_ns: int
    period_ns: int
    jitter_ns: float
    channel: int


def tick_sigma_ns(tick_jitter: float, period_ns: int) -> float:
    """Standard deviation of one tick, where intervals vary by ``tick_jitter`` of the period."""
    return tick_jitter * period_ns / math.sqrt(2.0)


def _power_grid(unit: BoardUnit) -> _Grid:
    spec = unit.board.sensor
    return _jittered_grid(unit, unit.sensor_phase_ns, spec.period_s, _POWER_TICK)


def _counter_grid(unit: BoardUnit) -> _Grid:
    spec = unit.board.sensor
    return _jittered_grid(unit, unit.counter_phase_ns, spec.counter_period_s, _COUNTER_TICK)


def _jittered_grid(unit: BoardUnit, phase_ns: int, period_s: float, channel: int) -> _Grid:
    period_ns = _ns(period_s)
    jitter_ns = tick_sigma_ns(unit.board.sensor.tick_jitter, period_ns)
    return _Grid(unit.seed, phase_ns, period_ns, jitter_ns, channel)


def _utilisation_grid(unit: BoardUnit) -> _Grid:
    period_ns = _ns(unit.board.sensor.utilisation_period_s)
    return _Grid(unit.seed, unit.sensor_phase_ns, period_ns, 0.0, 0)


def _tick_ns(grid: _Grid, ticks: ArrayLike) -> NDArray[np.int64]:
    ticks = np.asarray(ticks, np.int64)
    tick_ns = ticks * grid.period_ns
    tick_ns += grid.phase_ns
    if grid.jitter_ns:
        late_ns = noise(grid.seed, ticks.reshape(-1), grid.channel)
        late_ns *= grid.jitter_ns
        np.rint(late_ns, out=late_ns)
        most_ns = grid.period_ns // 2 - 1
        np.clip(late_ns, -most_ns, most_ns, out=late_ns)
        tick_ns += late_ns.astype(np.int64).reshape(ticks.shape)
    return np.asarray(tick_ns)


def _last_tick(grid: _Grid, t_ns: ArrayLike) -> NDArray[np.int64]:
    t_ns = np.asarray(t_ns, np.int64)
    ticks = np.asarray((t_ns - grid.phase_ns) // grid.period_ns)
    if not grid.jitter_ns:
        return ticks
    first, count = _extent(ticks)
    if count < ticks.size:
        tick_ns = _tick_ns(grid, np.arange(first, first + count + 1))
        this_ns, next_ns = tick_ns[ticks - first], tick_ns[ticks - first + 1]
    else:
        this_ns, next_ns = _tick_ns(grid, ticks), _tick_ns(grid, ticks + 1)
    return np.asarray(ticks - (this_ns > t_ns) + (next_ns <= t_ns))


def _ns(time_s: float) -> int:
    return round(time_s * NS_PER_S)


POWER_AND_ENERGY: Final = (Quantity.POWER, Quantity.ENERGY)
_UTILISATION_COLUMNS: Final = {
    Quantity.GPU_UTILISATION: "busy",
    Quantity.MEMORY_UTILISATION: "memory_busy",
}
_PIECE_COLUMNS: Final = {
    Quantity.SM_CLOCK: "sm_mhz",
    Quantity.MEMORY_CLOCK: "memory_mhz",
    Quantity.TEMPERATURE: "temperature_c",
    Quantity.PERFORMANCE_STATE: "pstate",
    Quantity.THROTTLE: "throttle",
}
ALL_QUANTITIES: Final = (
    *POWER_AND_ENERGY,
    Quantity.POWER_AVERAGE,
    Quantity.POWER_INSTANT,
    *_UTILISATION_COLUMNS,
    *_PIECE_COLUMNS,
)


def poll(
    unit: BoardUnit,
    timeline: Timeline,
    t_ns: NDArray[np.int64],
    quantities: Collection[Quantity] = POWER_AND_ENERGY,
) -> dict[str, NDArray[Any]]:
    """What a program that polls NVML at ``t_ns`` reads, as columns.

    There is a column ``t_ns``, and one by the name of each quantity that the board has.
    """
    spec = unit.board.sensor
    columns: dict[str, NDArray[Any]] = {"t_ns": t_ns}
    channels = {Quantity.POWER: plain_channel(unit)}
    if spec.average_window_s:
        channels[Quantity.POWER_AVERAGE] = AVERAGE
        channels[Quantity.POWER_INSTANT] = INSTANT
    needed = {channels[quantity] for quantity in quantities if quantity in channels}
    powers_w = {channel: power_w(unit, timeline, t_ns, channel) for channel in needed}
    piece_index = timeline.index_at(t_ns) if set(_PIECE_COLUMNS) & set(quantities) else t_ns[:0]
    for quantity in quantities:
        name = quantity.value
        if quantity in channels:
            columns[name] = powers_w[channels[quantity]]
        elif quantity is Quantity.ENERGY and spec.counter_period_s:
            columns[name] = counter_j(unit, timeline, t_ns)
        elif quantity in _UTILISATION_COLUMNS:
            columns[name] = utilisation_pct(unit, timeline, t_ns, _UTILISATION_COLUMNS[quantity])
        elif quantity in _PIECE_COLUMNS:
            # NVML shows whole numbers, rounded down.
            whole = timeline.pieces[_PIECE_COLUMNS[quantity]].astype(np.int32)
            columns[name] = whole[piece_index]
    return columns
