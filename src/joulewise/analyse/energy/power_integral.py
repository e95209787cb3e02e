"""The integral of the power readings between any two of some times, and the error of it.

Method: the *right rectangle rule*. A reading is the mean over the time before it, so that reading
P(i) at t(i) stands for the interval since the one before: E = Σ P(i) · (t(i) - t(i-1)). A value
that is shown again is held by that rule for as long as it was shown, however often it was polled.
Across a gap the mean of both sides stands in (the trapezoidal rule), and the time counts as unread.

A stream is read once, chunk by chunk, and the sums up to each time are kept (`CumulativePower`);
any window is then a difference of two of them (`PowerIntegral`).

The local noise of the readings is a trimmed mean of squared differences of neighbours.

The few readings of a short window may happen to lie close together, so their own differences
understate the noise. Those of up to 32 readings on either side of its edges are taken as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from joulewise.analyse.chunks import (
    Array,
    Block,
    Bools,
    ChunkReader,
    Floats,
    Indices,
    Ints,
    ScratchArrays,
    blocks,
    near,
    readable,
)
from joulewise.analyse.energy.gaps import UNCHECKED_SHARE, StuckIntervals, UnreadIntervals
from joulewise.analyse.energy.sensor_timing import ReadingTiming
from joulewise.analyse.student_t import student_of_many
from joulewise.units import NS_PER_S, Z95

READINGS: Final = 32
"""Readings on either side that are averaged. Chosen: the mean of 32 squares of normal deviates is
known within 25 %; with 64 the noise of one load would enter that of the next."""

# Bounds the work where a slow sensor is polled fast, and each value is repeated many times.
_MAX_ROWS: Final = 512
# The mean of the smaller three quarters of squares knows nothing of jumps of the load. For squares
# of normal deviates it is 0.368 times the mean of all: the partial expectation of a chi-squared
# variable with one degree of freedom up to its third quartile q = 1.323, over 0.75.
_KEPT_SHARE: Final = 0.75
_KEPT_MEAN_RATIO: Final = 0.368
# Two sides whose noise differs by more than this factor do not do so by chance (with 32 readings
# each, one pair in fifty): a load begins or ends there. Chosen.
_DIFFERENT_RATIO: Final = 3.0


def rows_around(step_ns: float, period_ns: float) -> int:
    """The number of rows that hold ``READINGS`` new values, if each is repeated until the next.

    ``step_ns`` is the time between rows, ``period_ns`` that between new values.
    """
    repeats = np.ceil(period_ns / max(step_ns, 1))
    return int(np.clip(READINGS * repeats, READINGS, _MAX_ROWS))


def typical_squared_step(power_w: Array, rows: Indices, reach: int) -> Floats:
    """The typical squared difference (W²) of neighbouring readings around each of these rows.

    Up to ``reach`` rows on either side are looked at. Where the two sides differ, a load begins or
    ends: the quieter side counts, since a window in the other shows its noise by itself.
    """
    if not len(rows):
        return np.zeros(0)
    rows, which = np.unique(rows, return_inverse=True)
    before = np.flatnonzero(near(rows, len(power_w), reach)[:-1])
    steps_w = power_w[before + 1] - power_w[before]
    changed = np.flatnonzero(steps_w)
    before, step_w2 = before[changed], np.append(np.square(steps_w[changed], dtype=np.float64), 0.0)
    low, at, high = (np.searchsorted(before, rows + side) for side in (-reach, 0, reach))
    sides = (np.clip(first, low, np.maximum(high - READINGS, low)) for first in (at - READINGS, at))
    noise = [_trimmed_mean(step_w2, first, np.minimum(first + READINGS, high)) for first in sides]
    less, more = np.minimum(*noise), np.maximum(*noise)
    return np.asarray(np.where(more > _DIFFERENT_RATIO * less, less, (less + more) / 2)[which])


def _trimmed_mean(step_w2: Floats, low: Indices, high: Indices) -> Floats:
    """The mean of the smaller squares from ``low`` to ``high``, scaled to that of all.

    It is no more than the plain mean, which it would exceed where all squares are alike.
    """
    number = high - low
    at = low[:, None] + np.arange(READINGS)
    exists = at < high[:, None]
    part = np.where(exists, step_w2[np.minimum(at, len(step_w2) - 1)], np.inf)
    part.sort(axis=1)
    number_kept = np.ceil(_KEPT_SHARE * number)
    smaller = part.sum(axis=1, where=np.arange(READINGS) < number_kept[:, None])
    mean = part.sum(axis=1, where=exists) / np.maximum(number, 1)
    return np.asarray(np.minimum(smaller / np.maximum(number_kept, 1) / _KEPT_MEAN_RATIO, mean))


MISSED_READINGS: Final = 2.5
"""A gap is longer than this many steps. Polls come late now and then: one that is missing is no gap
yet. Doubled, a sensor that answers every third poll would pass for one without gaps."""

# A sensor that shows the very same value for so many periods, and for so long, is stuck. Chosen: a
# board at constant load repeats whole watts for some periods; doubled, stops below 2 s are missed.
_STUCK_PERIODS: Final = 20
_MIN_STUCK_NS: Final = NS_PER_S
# Up to so many pieces each is counted by count_nonzero, which need not widen the booleans as
# reduceat does. It changes nothing but the time that it takes (chosen).
_FEW_PIECES: Final = 256
# The range of power around an edge is looked for in two periods, but in no more rows than this.
_MAX_RANGE_ROWS: Final = 64
# A window is stuck as a whole if less than 1 % of it is not: its edges lie between readings.
_WHOLE_SHARE: Final = 0.99
# A sensor's averaging window may be a third shorter, relative to its period, than the tables say.
SEEN_AT_LEAST_SHARE: Final = 0.67
# Squared differences of neighbours are correlated: n readings tell their variance about as well as
# 2/3 n independent ones (von Neumann's ratio: the variance of the one estimate is 3 s⁴/n, of
# the other 2 s⁴/n).
_DOF_PER_READING: Final = 2 / 3


@dataclass(frozen=True)
class CumulativePower:
    """Sums of the readings from the first one up to each time, and what is known around it.

    Before the first reading and after the last, these are taken to go on, and the time is a gap.

    - ``energy_j``: the integral
    - ``sum_squared_steps``: of differences (W²) from reading to reading; ``new_values`` counts
      those that are not 0
    - ``typical_squared_step``: such a difference (W²) around the time, as a rule
    - ``gap_s``, ``gap_j``: seconds without a reading, and the joules that stand in for them
    - ``stuck_s``, ``stuck_j``: the same of a sensor that can move and did not
    - ``reading_w``: the reading that the time belongs to; ``peak_w``: the highest from there up to
      that of the next time
    - ``detrended_range_w``: the range of the readings around the time, less their linear trend
    - ``lowest_w``, ``highest_w``: of all readings; ``read_s``: from the first to the last of them
    """

    energy_j: Floats
    sum_squared_steps: Floats
    new_values: Ints
    typical_squared_step: Floats
    gap_s: Floats
    gap_j: Floats
    stuck_s: Floats
    stuck_j: Floats
    reading_w: Floats
    peak_w: Floats
    detrended_range_w: Floats
    lowest_w: float
    highest_w: float
    read_s: float


def min_stuck_ns(step_ns: float) -> float:
    """How long a sensor with a new value every ``step_ns`` may repeat it before it is stuck."""
    return max(step_ns * _STUCK_PERIODS, _MIN_STUCK_NS)


def accumulate_power(
    stream: ChunkReader, times_ns: Ints, *, step_ns: float, period_ns: float
) -> CumulativePower | None:
    """The sums at these times, which ascend; None for a stream without a reading.

    ``step_ns`` is the time between rows, ``period_ns`` that between new values.
    """
    accumulator = _Accumulator(times_ns, step_ns, period_ns)
    chunks = readable(stream.chunks(("t_ns", "power_w")), "power_w")
    for block in blocks(chunks, accumulator.reach):
        accumulator.take(block)
    return accumulator.result()


def assume_constant_power(times_ns: Ints, power_w: float) -> CumulativePower:
    """The sums of a device whose power was never read, if it were constant; all of it is a gap."""
    passed_s = (times_ns - times_ns[0]) / NS_PER_S
    zero, same = np.zeros(len(times_ns)), np.full(len(times_ns), power_w)
    no_values = np.zeros(len(times_ns), np.int64)
    energy_j = passed_s * power_w
    return CumulativePower(
        *(energy_j, zero, no_values, zero, passed_s, energy_j, zero, zero),
        *(same, same, zero, power_w, 2 * power_w, 0.0),
    )


class _Accumulator:
    """Adds up a stream block by block, and notes the sums where the times lie.

    Times before the first reading are filled in when it comes, those after the last one at the
    end. In between, each block adds the rows that no block before it had.
    """

    def __init__(self, times_ns: Ints, step_ns: float, period_ns: float) -> None:
        size = len(times_ns)
        longest_ns = max(step_ns, period_ns)
        self._times_ns = times_ns
        self._range_rows = int(
            np.clip(np.ceil(2 * period_ns / max(step_ns, 1)), 2, _MAX_RANGE_ROWS)
        )
        self._noise_rows = rows_around(step_ns, period_ns)
        self.reach = max(self._range_rows, self._noise_rows) + 1
        self._gap_ns = longest_ns * MISSED_READINGS
        self._min_stuck_ns = min_stuck_ns(longest_ns)
        self._scratch = ScratchArrays()
        self._energy_wns = np.zeros(size)
        self._sum_squared_steps = np.zeros(size)
        self._new_values = np.zeros(size, np.int64)
        self._typical_squared_step = np.zeros(size)
        self._reading_w = np.zeros(size)
        self._peak_w = np.full(size, -np.inf)
        self._detrended_range_w = np.zeros(size)
        # Energy (W·ns), squared steps (W²) and new values of all rows so far.
        self._totals: tuple[float, float, int] = (0.0, 0.0, 0)
        self._range_w = (np.inf, -np.inf)
        self._gaps = UnreadIntervals()
        self._stuck = StuckIntervals(self._min_stuck_ns, 0)
        self._done = 0  # times of which the sums are known
        self._first: tuple[int, float] | None = None
        self._last: tuple[int, float] = (0, 0.0)

    def take(self, block: Block) -> None:
        t_ns, power_w = block.columns["t_ns"], block.columns["power_w"]
        if block.end <= block.first:
            return
        if self._first is None:
            self._begin(int(t_ns[0]), float(power_w[0]))
        start = max(block.first, 1)
        if block.end > start:
            self._add(t_ns[start - 1 : block.end], power_w, start)
        self._last = int(t_ns[block.end - 1]), float(power_w[block.end - 1])

    def result(self) -> CumulativePower | None:
        if self._first is None:
            return None
        last_ns, last_w = self._last
        late = slice(self._done, None)
        energy_wns, self._sum_squared_steps[late], self._new_values[late] = self._totals
        self._energy_wns[late] = energy_wns + (self._times_ns[late] - last_ns) * last_w
        self._reading_w[late] = self._peak_w[late] = last_w
        if self._done:
            self._peak_w[self._done - 1] = max(self._peak_w[self._done - 1], last_w)
        self._stuck.finish(last_ns, last_w)
        stuck = self._stuck if self._stuck.is_unusual else UnreadIntervals()
        return CumulativePower(
            self._energy_wns / NS_PER_S,
            self._sum_squared_steps,
            self._new_values,
            self._typical_squared_step,
            *self._gap_sums(),
            *stuck.up_to(self._times_ns),
            self._reading_w,
            self._peak_w,
            self._detrended_range_w,
            float(self._range_w[0]),
            float(self._range_w[1]),
            (last_ns - self._first[0]) / NS_PER_S,
        )

    def _begin(self, first_ns: int, first_w: float) -> None:
        self._first = first_ns, first_w
        self._range_w = first_w, first_w
        self._stuck = StuckIntervals(self._min_stuck_ns, first_ns)
        self._done = int(np.searchsorted(self._times_ns, first_ns, "right"))
        early = slice(0, self._done)
        self._energy_wns[early] = (self._times_ns[early] - first_ns) * first_w
        self._reading_w[early] = self._peak_w[early] = first_w

    def _add(self, t_ns: Ints, block_w: Array, start: int) -> None:
        """Add the rows of ``block_w`` from ``start`` on; ``t_ns`` begins with the row before them.

        The rows are cut at the times that lie among them. One ``reduceat`` sums each piece, and
        the cumulative sum of the pieces is what had come up to each time.
        """
        rows = len(t_ns) - 1
        power_w, before_w = block_w[start : start + rows], block_w[start - 1 : start + rows - 1]
        held_ns = np.subtract(t_ns[1:], t_ns[:-1], out=self._scratch.get("held", rows, np.int64))
        energy = np.multiply(power_w, held_ns, out=self._scratch.get("energy", rows, np.float64))
        if held_ns.max() > self._gap_ns:
            self._bridge_gaps(t_ns, block_w[start - 1 : start + rows], held_ns, energy)
        steps = np.subtract(power_w, before_w, out=self._scratch.get("steps", rows, power_w.dtype))
        changed = steps != 0
        self._stuck.take(t_ns, before_w, changed)

        here = slice(self._done, int(np.searchsorted(self._times_ns, t_ns[-1], "right")))
        self._done = here.stop
        times_ns = self._times_ns[here]
        at = np.searchsorted(t_ns[1:], times_ns, "left")  # the row that each time belongs to
        cuts, piece = np.unique(np.append(0, at), return_inverse=True)
        piece = piece.reshape(-1)[1:]  # the piece that begins at each time

        np.multiply(steps, steps, out=steps)
        sums = [
            np.add.reduceat(energy, cuts),
            np.add.reduceat(steps, cuts, dtype=np.float64),
            _count_true(changed, cuts),
        ]
        before = [np.cumsum(part) - part for part in sums]
        peaks = np.maximum.reduceat(power_w, cuts)
        energy_wns, squared_steps, new_values = self._totals

        into_ns = times_ns - t_ns[at]
        part_wns = into_ns * (energy[at] / np.maximum(held_ns[at], 1))
        self._energy_wns[here] = energy_wns + before[0][piece] + part_wns
        self._sum_squared_steps[here] = squared_steps + before[1][piece]
        self._new_values[here] = new_values + before[2][piece]
        self._reading_w[here] = power_w[at]
        self._put_peaks(here, at, peaks, piece, power_w)
        self._detrended_range_w[here] = _detrended_range(block_w, at + start, self._range_rows)
        self._typical_squared_step[here] = typical_squared_step(
            block_w, at + start, self._noise_rows
        )
        self._totals = (
            energy_wns + float(sums[0].sum()),
            squared_steps + float(sums[1].sum()),
            new_values + int(sums[2].sum()),
        )
        self._range_w = (
            min(self._range_w[0], float(power_w.min())),
            max(self._range_w[1], float(peaks.max())),
        )

    def _put_peaks(
        self, here: slice, at: Indices, peaks: Array, piece: Indices, power_w: Array
    ) -> None:
        # What comes before the first time of these rows belongs to the last time before them.
        if here.start and (not len(at) or at[0] > 0):
            self._peak_w[here.start - 1] = max(self._peak_w[here.start - 1], peaks[0])
        if len(at):
            same_row = np.append(at[1:] == at[:-1], False)
            self._peak_w[here] = np.where(same_row, power_w[at], peaks[piece])

    def _bridge_gaps(self, t_ns: Ints, power_w: Array, held_ns: Ints, energy: Floats) -> None:
        gaps = np.flatnonzero(held_ns > self._gap_ns)
        mean_w = (power_w[gaps] + power_w[gaps + 1]) / 2
        energy[gaps] = mean_w * held_ns[gaps]
        self._gaps.add(t_ns[gaps], t_ns[gaps + 1], mean_w)

    def _gap_sums(self) -> tuple[Floats, Floats]:
        """Unread seconds up to each time, and the joules that stand in for them."""
        first_ns, first_w = self._first or (0, 0.0)
        last_ns, last_w = self._last
        early_s = np.minimum(self._times_ns - first_ns, 0) / NS_PER_S
        late_s = np.maximum(self._times_ns - last_ns, 0) / NS_PER_S
        gap_s, gap_j = self._gaps.up_to(self._times_ns)
        return gap_s + early_s + late_s, gap_j + early_s * first_w + late_s * last_w


def _detrended_range(power_w: Array, rows: Indices, reach: int) -> Floats:
    """The range of the readings around each row, less their least-squares line."""
    offsets = np.arange(-reach, reach + 1)
    near = power_w[np.clip(rows[:, None] + offsets, 0, len(power_w) - 1)]
    slope = near @ offsets / (offsets @ offsets)
    near -= slope[:, None] * offsets
    return np.asarray(np.ptp(near, axis=1))


def _count_true(values: Bools, cuts: Indices) -> Ints:
    """How many are true in each piece between cuts."""
    if len(cuts) > _FEW_PIECES:
        return np.add.reduceat(values, cuts, dtype=np.int64)
    ends = np.append(cuts[1:], len(values))
    counts = [np.count_nonzero(values[a:b]) for a, b in zip(cuts, ends, strict=True)]
    return np.array(counts, np.int64)


def max_between(peak_w: Floats, reading_w: Floats, start: Indices, end: Indices) -> Floats:
    """The highest power of each window, from time ``start`` to time ``end`` (indices).

    ``peak_w[i]`` is the highest from time ``i`` up to the next, ``reading_w[i]`` that at ``i``.
    Method: a sparse table, which holds the highest of 1, 2, 4, … neighbours; two entries of it
    cover any window.
    """
    highest_w = reading_w[end].copy()
    length = end - start
    table, size = peak_w, 1
    while True:
        fits = (length >= size) & (length < 2 * size)
        both = np.maximum(table[start[fits]], table[end[fits] - size])
        highest_w[fits] = np.maximum(highest_w[fits], both)
        size *= 2
        if not (length >= size).any():
            return np.asarray(highest_w)
        table = np.maximum(table[: -(size // 2)], table[size // 2 :])


@dataclass(frozen=True)
class PowerIntegral:
    """Energies of windows by the power readings alone, with their errors.

    ``start`` and ``end`` of a window are indices into ``times_ns``. ``range_w`` is the least and
    the most that the device can draw at all.
    """

    times_ns: Ints
    sums: CumulativePower
    timing: ReadingTiming
    range_w: tuple[float, float]

    def index(self, times_ns: Ints) -> Indices:
        """The indices of times that are among ``times_ns``."""
        return np.searchsorted(self.times_ns, times_ns)

    def time_s(self, start: Indices, end: Indices) -> Floats:
        return np.asarray((self.times_ns[end] - self.times_ns[start]) / NS_PER_S)

    def energy_j(self, start: Indices, end: Indices) -> Floats:
        return _difference(self.sums.energy_j, start, end)

    def error_j(self, start: Indices, end: Indices) -> Floats:
        """The sampling error, a 95 % half-width.

        √(t² · S/2 · h² + 1.96² · (R₁² + R₂²) · s²) + U, where

        - S is the sum of squared differences of the readings (half of such a square is the variance
          of one reading), h how long a reading is held, and t Student's quantile for as many
          readings as S rests on. A short window's few readings may happen to lie close together:
          the typical difference around it counts as much as 32 readings more would (shrinkage);
        - R₁, R₂ are the ranges of power around the two edges, and s is how far an edge may be
          misplaced in time (one standard deviation);
        - U is what the device can have drawn more or less in unread time.
        """
        sums, timing = self.sums, self.timing
        new_values = np.maximum(_difference(sums.new_values, start, end), 1)
        time_s = self.time_s(start, end)
        held_s = timing.held_s or np.maximum(time_s / new_values, timing.step_s)
        squares = np.maximum(_difference(sums.sum_squared_steps, start, end), 0.0)
        typical = sums.typical_squared_step
        typical_squares = new_values * (typical[start] + typical[end]) / 2
        missing = np.maximum(typical_squares - squares, 0.0)
        squares += missing * READINGS / (READINGS + new_values)
        range_w2 = sums.detrended_range_w[start] ** 2 + sums.detrended_range_w[end] ** 2
        known_s = np.minimum(sums.read_s, np.maximum(time_s, 2 * READINGS * held_s))
        dof = np.maximum(_DOF_PER_READING * known_s / held_s, 2)
        noise_j2 = student_of_many(dof) ** 2 * squares / 2 * held_s**2
        seen_j = np.sqrt(noise_j2 + Z95**2 * range_w2 * timing.timing_sigma_s**2)
        return np.asarray(seen_j + self._possible_deviation_j(*self._unread(start, end)))

    def unchecked_j(self, start: Indices, end: Indices) -> Floats:
        """What a counter may be off by where no reading of power stands beside it."""
        return UNCHECKED_SHARE * self._unread(start, end)[1]

    def aliasing_j(self, start: Indices, end: Indices) -> Floats:
        """A bound on the aliasing error.

        The sensor averages only ``window / period`` of the time, so that a load in step with it
        may be mis-sampled by this much.
        """
        unseen = 1 - min(SEEN_AT_LEAST_SHARE * self.timing.seen, 1.0)
        time_s, energy_j = self.time_s(start, end), self.energy_j(start, end)
        return np.asarray(unseen * self._possible_deviation_j(time_s, energy_j))

    def gap_s(self, start: Indices, end: Indices) -> Floats:
        return _difference(self.sums.gap_s, start, end)

    def stuck_s(self, start: Indices, end: Indices) -> Floats:
        return _difference(self.sums.stuck_s, start, end)

    def peak_w(self, start: Indices, end: Indices) -> Floats:
        return max_between(self.sums.peak_w, self.sums.reading_w, start, end)

    def is_stuck(self, start: Indices, end: Indices) -> Bools:
        """Whether a sensor that has shown that it can move did not, in all of the window."""
        return np.asarray(self.stuck_s(start, end) > _WHOLE_SHARE * self.time_s(start, end))

    def _unread(self, start: Indices, end: Indices) -> tuple[Floats, Floats]:
        """Seconds without a new reading, and the joules that stand in for them."""
        sums = self.sums
        time_s = _difference(sums.gap_s + sums.stuck_s, start, end)
        return time_s, _difference(sums.gap_j + sums.stuck_j, start, end)

    def _possible_deviation_j(self, time_s: Floats, energy_j: Floats) -> Floats:
        """How far from ``energy_j`` the device can have been in that time."""
        low_w, high_w = self.range_w
        deviation_j = np.maximum(high_w * time_s - energy_j, energy_j - low_w * time_s)
        return np.asarray(np.maximum(deviation_j, 0.0) * (time_s > 0))


def _difference(sums: Array, start: Indices, end: Indices) -> Array:
    return np.asarray(sums[end] - sums[start])
