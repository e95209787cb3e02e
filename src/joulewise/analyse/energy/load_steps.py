"""Steps of power at marks: where a load begins or ends, between two readings of a sensor.

A program tells by marks (the edges of its spans) when its load may have changed. Two shapes are
looked for around them:

* A **step**: the readings before and after a mark lie on different levels, and the reading in
  between is what a change at just this moment would have given.
* A **pulse**: two marks so close that no averaging window lies between them, as around a short
  training step. What the readings that overlap it show above the levels on both sides was drawn
  between the marks.

The marks are the edges of the run and of its spans (`load_marks`). Between two readings of a
sensor, the energy is divided where a mark lies: all energies of one run have to be computed with
the same marks, or one span has several energies.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.chunks import Bools, Floats, Indices, Ints
from joulewise.analyse.time_intervals import TimeInterval
from joulewise.data import RunResult, Span

if TYPE_CHECKING:
    from joulewise.store.spans import SpanTable

# All of these were chosen on simulated boards of seeds that no benchmark judges with; doubling one
# makes the errors of spans too wide or too narrow there (benchmarks/truth.py).
#
# The level beside a step is the mean of the readings within this time: long enough for the noise
# of a 20 ms sensor, and one reading of a 100 ms one. Doubled, loads that ramp up are read high.
_LEVEL_S: Final = 0.1
# Its noise is judged by so many readings.
_LEVEL_READINGS: Final = 4
# A step is one where levels differ by this many standard deviations of the readings.
_STEP_SIGMAS: Final = 2.0
# The reading in between may differ by this many from what the step would have given.
_STRADDLE_SIGMAS: Final = 3.0
# A mark and its load are apart by a kernel launch or a system call.
_MARK_SIGMA_S: Final = 0.001
# Marks closer than this belong to one change: the end of a span and the start of the next.
TOGETHER_S: Final = 0.002
# How far a step may lie from its mark, as a share of the averaging window, by its unknown length.
_WINDOW_SIGMA_SHARE: Final = 0.06
# A sensor that averages nearly all of the time shows in its reading where the step was.
_AVERAGES_ALL_SHARE: Final = 0.7
# There the step is put so far on the way from its mark: readings and marks are both unsure.
_BY_READINGS_SHARE: Final = 0.5
# A side of a step is quiet if its readings vary by less than this share of the other's variance.
_QUIET_SHARE: Final = 0.1
# A level that differs from a quiet one by so many of its standard deviations has left it.
_LEAVES_QUIET_SIGMAS: Final = 8.0
# A load may begin or end with a power that differs from its level by this share of the step.
_MAX_ADJUSTED_SHARE: Final = 1.5
# Of the way from the mark to where the readings have the step, what counts as unsure.
_MOVED_SHARE: Final = 0.4
# The readings before and after a mark lie within so many cells of it: further away is a gap.
_MAX_APART_CELLS: Final = 2
# What is not known of a load's course right at a step, as a share of its height and one cell.
_STEP_SHAPE_SHARE: Final = 0.02
# So many readings may overlap a pulse, one fewer than lie from the one before it to the one after;
# from the begin of the one to the end of the other there are at most so many cells, and no gap.
_MAX_OVERLAPPING: Final = 2
_MAX_PULSE_CELLS: Final = 5
# Of a pulse, or of the window where that is shorter, readings must overlap at least this share.
_PULSE_SEEN_SHARE: Final = 0.3
# Where readings see less of it than this, it matters where they lie.
_PULSE_WHOLE_SHARE: Final = 0.98
# How far the unseen part of a pulse may differ from the seen one, as a share of its height.
_PULSE_SHAPE_SHARE: Final = 0.3
# The length of the averaging window may be off by this share (the tables are, by up to a fifth),
# and with it the energy of a pulse; not where windows follow each other without a hole.
_PULSE_WINDOW_SHARE: Final = 0.1


@dataclass(frozen=True)
class Sensed:
    """Readings, each the mean of power over ``window_s`` around ``centre_s``.

    ``cell_s`` is the time between two, ``delay_sigma_s`` how far the centres may all be off,
    ``range_w`` what the device may draw, ``noise_w2`` the variance of a constant power's readings.
    """

    centre_s: Floats
    power_w: Floats
    cell_s: float
    window_s: float
    delay_sigma_s: float
    range_w: tuple[float, float]
    noise_w2: float

    @property
    def averages_all(self) -> bool:
        """Whether the readings average nearly all of the time."""
        return self.window_s > _AVERAGES_ALL_SHARE * self.cell_s

    @property
    def opens_s(self) -> Floats:
        """When each averaging window begins."""
        return self.centre_s - self.window_s / 2

    @property
    def closes_s(self) -> Floats:
        """When each averaging window ends."""
        return self.centre_s + self.window_s / 2

    @property
    def timing_s2(self) -> float:
        """The variance of the time of a change, relative to the averaging windows."""
        window_s = _WINDOW_SIGMA_SHARE * self.window_s
        return self.delay_sigma_s**2 + window_s**2 + _MARK_SIGMA_S**2


@dataclass(frozen=True)
class LoadSteps:
    """The steps of power that were found at marks, in order.

    ``mark_s`` is the edge of a window, ``t_s`` where the step was put, between ``from_s`` and
    ``to_s``, which the readings ``before`` and ``after`` leave open. ``error_j2`` is the variance
    of the energy up to the mark that the step leaves.
    """

    mark_s: Floats
    t_s: Floats
    from_s: Floats
    to_s: Floats
    low_w: Floats
    high_w: Floats
    before: Indices
    after: Indices
    error_j2: Floats

    def take(self, rows: Indices | Bools) -> LoadSteps:
        return LoadSteps(*(getattr(self, field.name)[rows] for field in fields(self)))

    def error_at(self, t_s: Floats) -> Floats:
        """``error_j2`` of the step at each moment; NaN where there is none."""
        error_j2 = np.full(len(t_s), np.nan)
        if len(self.mark_s):
            after = np.minimum(np.searchsorted(self.mark_s, t_s), len(self.mark_s) - 1)
            for nearest in (np.maximum(after - 1, 0), after):
                is_near = np.abs(self.mark_s[nearest] - t_s) < TOGETHER_S
                error_j2 = np.where(is_near, self.error_j2[nearest], error_j2)
        return error_j2


@dataclass(frozen=True)
class _Sides:
    """The readings next to a change, before and after it, and the levels and variances there."""

    before: Indices
    after: Indices
    low_w: Floats
    high_w: Floats
    low_w2: Floats
    high_w2: Floats


def find_steps(sensed: Sensed, marks_s: Floats, total_j: tuple[Floats, Floats]) -> LoadSteps:
    """Steps and pulses at ``marks_s``, which ascend.

    ``total_j`` are the edges of the cells and the energy up to each, if power were constant in
    every cell.
    """
    steps, pulses = _single_steps(sensed, marks_s, total_j), _pulses(sensed, marks_s)
    is_apart = np.ones(len(steps.mark_s), bool)
    if len(pulses.mark_s):
        is_apart = np.isnan(pulses.error_at(steps.mark_s))
    steps = steps.take(is_apart)
    names = [field.name for field in fields(LoadSteps)]
    both = LoadSteps(*(np.append(getattr(steps, name), getattr(pulses, name)) for name in names))
    return _without_overlap(both.take(np.argsort(both.mark_s, kind="stable")))


def _single_steps(sensed: Sensed, marks_s: Floats, total_j: tuple[Floats, Floats]) -> LoadSteps:
    """Steps at single marks, with what each leaves unsure of the energy up to its mark."""
    rows, window_s, cell_s = len(sensed.power_w), sensed.window_s, sensed.cell_s
    opens_s, closes_s = sensed.opens_s, sensed.closes_s
    before = np.searchsorted(closes_s, marks_s, "right") - 1
    after = np.searchsorted(opens_s, marks_s, "left")
    near = (before >= 0) & (after < rows)
    near &= marks_s - closes_s[np.maximum(before, 0)] < _MAX_APART_CELLS * cell_s
    near &= opens_s[np.minimum(after, rows - 1)] - marks_s < _MAX_APART_CELLS * cell_s
    marks_s = marks_s[near]
    previous_s = np.append(-np.inf, marks_s[:-1])[: len(marks_s)]
    next_s = np.append(marks_s[1:], np.inf)[: len(marks_s)]
    sides = _sides(sensed, (before[near], after[near]), (previous_s, next_s))
    before, after, low_w, high_w = sides.before, sides.after, sides.low_w, sides.high_w
    low_w2, high_w2 = sides.low_w2, sides.high_w2
    noise_w2 = low_w2 + high_w2 + sensed.noise_w2
    height_w = high_w - low_w
    allowed_w2 = noise_w2 + height_w**2 * sensed.timing_s2 / window_s**2
    allowed_w2 *= _STRADDLE_SIGMAS**2
    at_mark = np.ones(len(marks_s), bool)
    for between, inside in _between(sides, rows):
        until_s = np.clip(marks_s - opens_s[between], 0.0, window_s)
        expected_w = (low_w * until_s + high_w * (window_s - until_s)) / window_s
        at_mark &= ~inside | ((sensed.power_w[between] - expected_w) ** 2 <= allowed_w2)
    from_s, to_s = closes_s[before], opens_s[after]
    drawn_j = np.interp(to_s, *total_j) - np.interp(from_s, *total_j)
    by_readings_s, possible = _step_by_readings((from_s, to_s), (low_w, high_w), drawn_j)
    possible &= sensed.averages_all
    by_readings_s = np.where(possible, by_readings_s, from_s)
    # Beside a quiet side, such as a pause, what does not fit belongs to the other: loads begin
    # and end with other power than their mean.
    is_quiet_before, is_quiet_after = (
        quiet_w2 < _QUIET_SHARE * loud_w2 + sensed.noise_w2
        for quiet_w2, loud_w2 in ((low_w2, high_w2), (high_w2, low_w2))
    )
    missing_j = drawn_j - low_w * (marks_s - from_s) - high_w * (to_s - marks_s)
    loud_s = np.where(is_quiet_after, marks_s - from_s, to_s - marks_s)
    is_plausible = np.abs(missing_j) <= _MAX_ADJUSTED_SHARE * np.abs(height_w) * loud_s
    anchored = (is_quiet_before | is_quiet_after) & is_plausible
    moved_s = _BY_READINGS_SHARE * (by_readings_s - marks_s)
    t_s = np.where(at_mark | anchored, marks_s, marks_s + moved_s)
    error_j2 = low_w2 * (t_s - from_s) ** 2 + high_w2 * (to_s - t_s) ** 2
    error_j2 += _edge_variance(height_w, cell_s)
    unsure_s = np.where(at_mark, 0.0, by_readings_s - marks_s)
    error_j2 += (_MOVED_SHARE * height_w * unsure_s) ** 2
    fits = sensed.averages_all
    low_w, high_w = _conserve_energy(
        (from_s, t_s, to_s),
        (low_w, high_w),
        drawn_j,
        (fits & is_quiet_after & ~is_quiet_before, fits & is_quiet_before & ~is_quiet_after),
        sensed.range_w,
    )
    quiet_w2 = np.minimum(low_w2, high_w2) + sensed.noise_w2
    is_step = height_w**2 > _STEP_SIGMAS**2 * noise_w2
    is_step |= anchored & fits & (height_w**2 > _LEAVES_QUIET_SIGMAS**2 * quiet_w2)
    is_step &= at_mark | possible | (anchored & fits)
    steps = LoadSteps(marks_s, t_s, from_s, to_s, low_w, high_w, before, after, error_j2)
    return _without_overlap(steps.take(is_step))


def _pulses(sensed: Sensed, marks_s: Floats) -> LoadSteps:
    """Pulses between two close marks: each is a step up and a step down, or the other way round."""
    rows, window_s = len(sensed.power_w), sensed.window_s
    apart = np.diff(marks_s) > TOGETHER_S
    first_s = marks_s[np.append(True, apart)[: len(marks_s)]]
    last_s = marks_s[np.append(apart, True)[: len(marks_s)]]
    start_s, end_s = last_s[:-1], first_s[1:]
    previous_s = np.append(-np.inf, last_s[:-2])[: len(start_s)]
    next_s = np.append(first_s[2:], np.inf)[: len(start_s)]
    opens_s, closes_s = sensed.opens_s, sensed.closes_s
    before = np.searchsorted(closes_s, start_s, "right") - 1
    after = np.searchsorted(opens_s, end_s, "left")
    is_found = (before >= 0) & (after < rows) & (after - before <= _MAX_OVERLAPPING + 1)
    before, after = np.clip(before, 0, rows - 1), np.clip(after, 0, rows - 1)
    # Levels on both sides are needed, and no gap between.
    is_found &= (opens_s[before] >= previous_s) & (closes_s[after] <= next_s)
    is_found &= closes_s[after] - opens_s[before] < _MAX_PULSE_CELLS * sensed.cell_s
    i = np.flatnonzero(is_found)
    start_s, end_s = start_s[i], end_s[i]
    sides = _sides(sensed, (before[i], after[i]), (previous_s[i], next_s[i]))
    excess_j, seen_s, number = (np.zeros(len(i)) for _ in range(3))
    for between, inside in _between(sides, rows):
        until_s = np.clip(start_s - opens_s[between], 0.0, window_s)
        since_s = np.clip(closes_s[between] - end_s, 0.0, window_s)
        beside_j = sides.low_w * until_s + sides.high_w * since_s
        excess_j += np.where(inside, sensed.power_w[between] * window_s - beside_j, 0.0)
        seen_s += np.where(inside, window_s - until_s - since_s, 0.0)
        number += inside
    duration_s = end_s - start_s
    is_seen = seen_s > _PULSE_SEEN_SHARE * np.minimum(duration_s, window_s)
    seen_s = np.where(is_seen, seen_s, window_s)
    pulse_w = np.clip(excess_j / seen_s, *sensed.range_w)
    height_w = pulse_w - (sides.low_w + sides.high_w) / 2
    noise_w2 = sides.low_w2 + sides.high_w2 + 2 * sensed.noise_w2
    is_pulse = is_seen & ((height_w * seen_s / window_s) ** 2 > _STEP_SIGMAS**2 * noise_w2)
    # Where no power that the device can draw between the marks gives what was read, the load did
    # not change at them: a program that waits for a CPU loads its GPU later than its mark says.
    allowed_j2 = _STRADDLE_SIGMAS**2 * (
        window_s**2 * sensed.noise_w2 * number
        + ((pulse_w - sides.low_w) ** 2 + (pulse_w - sides.high_w) ** 2) * sensed.timing_s2
    )
    is_pulse &= (excess_j - pulse_w * seen_s) ** 2 <= allowed_j2
    times = duration_s / seen_s
    error_j2 = (window_s * times) ** 2 * noise_w2 * number
    is_cut = seen_s < _PULSE_WHOLE_SHARE * duration_s
    error_j2 += np.where(is_cut, height_w**2 * sensed.timing_s2 * times**2, 0.0)
    error_j2 += (_PULSE_SHAPE_SHARE * height_w * np.maximum(duration_s - seen_s, 0.0)) ** 2
    if not sensed.averages_all:
        error_j2 += (_PULSE_WINDOW_SHARE * height_w * duration_s) ** 2
    # It is off in a span between the two marks, and by half of it in one that ends at either.
    error_j2 = error_j2 / 2 + _edge_variance(height_w, sensed.cell_s)
    middle_s = (start_s + end_s) / 2
    from_s, to_s = closes_s[sides.before], opens_s[sides.after]
    rises = LoadSteps(
        start_s,
        start_s,
        from_s,
        middle_s,
        sides.low_w,
        pulse_w,
        sides.before,
        sides.after,
        error_j2,
    )
    falls = LoadSteps(
        end_s, end_s, middle_s, to_s, pulse_w, sides.high_w, sides.before, sides.after, error_j2
    )
    pulses = np.flatnonzero(is_pulse)
    pulses = pulses[np.append(True, np.diff(i[pulses]) > 1)[: len(pulses)]]  # no two share a mark
    rises, falls = rises.take(pulses), falls.take(pulses)
    return LoadSteps(
        *(
            np.column_stack([getattr(steps, field.name) for steps in (rises, falls)]).ravel()
            for field in fields(LoadSteps)
        )
    )


def _sides(
    sensed: Sensed, readings: tuple[Indices, Indices], neighbours_s: tuple[Floats, Floats]
) -> _Sides:
    """Levels by the readings ``(before, after)`` and those beyond, up to the neighbouring marks."""
    before, after = readings
    previous_s, next_s = neighbours_s
    first = np.minimum(np.searchsorted(sensed.opens_s, previous_s), before)
    last = np.maximum(np.searchsorted(sensed.closes_s, next_s, "right") - 1, after)
    reach = max(1, round(_LEVEL_S / sensed.cell_s))
    power_w = sensed.power_w
    return _Sides(
        before,
        after,
        mean_between(power_w, np.maximum(before - reach + 1, first), before),
        mean_between(power_w, after, np.minimum(after + reach - 1, last)),
        _level_variance(power_w, np.maximum(before - _LEVEL_READINGS + 1, first), before),
        _level_variance(power_w, after, np.minimum(after + _LEVEL_READINGS - 1, last)),
    )


def _between(sides: _Sides, rows: int) -> list[tuple[Indices, Bools]]:
    """Of each of the readings between both sides: its row, and whether there is one."""
    return [
        (np.minimum(sides.before + offset, rows - 1), sides.before + offset < sides.after)
        for offset in range(1, _MAX_OVERLAPPING + 1)
    ]


def _level_variance(power_w: Floats, first: Indices, last: Indices) -> Floats:
    """Half the mean squared difference of neighbours among the readings ``first`` to ``last``.

    The median of all where there is only one reading.
    """
    differences_w2 = np.square(np.diff(power_w)) / 2
    if not len(differences_w2):
        return np.zeros(len(first))
    median_w2 = float(np.median(differences_w2))
    local_w2 = mean_between(differences_w2, first, np.maximum(last - 1, first))
    return np.where(last > first, local_w2, median_w2)


def _edge_variance(height_w: Floats, cell_s: float) -> Floats:
    return np.asarray(height_w**2 * (_MARK_SIGMA_S**2 + (_STEP_SHAPE_SHARE * cell_s) ** 2))


def _step_by_readings(
    open_s: tuple[Floats, Floats], levels_w: tuple[Floats, Floats], drawn_j: Floats
) -> tuple[Floats, Bools]:
    """When a step must be for the cells in between to keep their energy, and whether it can be."""
    (from_s, to_s), (low_w, high_w) = open_s, levels_w
    with np.errstate(divide="ignore", invalid="ignore"):
        t_s = (high_w * to_s - low_w * from_s - drawn_j) / (high_w - low_w)
    return t_s, (t_s >= from_s) & (t_s <= to_s)


def _conserve_energy(
    moments_s: tuple[Floats, Floats, Floats],
    levels_w: tuple[Floats, Floats],
    drawn_j: Floats,
    adjusts: tuple[Bools, Bools],
    range_w: tuple[float, float],
) -> tuple[Floats, Floats]:
    """The level before or after a step such that the cells in between keep their energy."""
    from_s, t_s, to_s = moments_s
    low_w, high_w = levels_w
    with np.errstate(divide="ignore", invalid="ignore"):
        before_w = (drawn_j - high_w * (to_s - t_s)) / (t_s - from_s)
        after_w = (drawn_j - low_w * (t_s - from_s)) / (to_s - t_s)
    before_ok, after_ok = (
        np.isfinite(level_w) & (level_w > range_w[0]) & (level_w < range_w[1])
        for level_w in (before_w, after_w)
    )
    return (
        np.where(adjusts[0] & before_ok, before_w, low_w),
        np.where(adjusts[1] & after_ok, after_w, high_w),
    )


def _without_overlap(steps: LoadSteps) -> LoadSteps:
    """Where two steps leave the same time open, each has its half of it."""
    if len(steps.t_s) < 2:
        return steps
    between_s = (steps.t_s[1:] + steps.t_s[:-1]) / 2
    to_s, from_s = steps.to_s.copy(), steps.from_s.copy()
    overlap = to_s[:-1] > from_s[1:]
    to_s[:-1] = np.where(overlap, np.maximum(between_s, steps.t_s[:-1]), to_s[:-1])
    from_s[1:] = np.where(overlap, to_s[:-1], from_s[1:])
    return replace(steps, to_s=to_s, from_s=from_s)


def sum_between(values: Floats, first: Indices, end: Indices) -> Floats:
    """The sum of the values from ``first`` to before ``end``."""
    sums = np.append(0.0, np.cumsum(values))
    return np.asarray(sums[end] - sums[first])


def mean_between(values: Floats, first: Indices, last: Indices) -> Floats:
    """The mean of the values from ``first`` to ``last``, both of them included."""
    last = np.minimum(last, len(values) - 1)
    first = np.minimum(first, last)
    return sum_between(values, first, last + 1) / (last + 1 - first)


def load_marks(run: TimeInterval | Span, spans: SpanTable) -> Ints:
    """The times, in nanoseconds and ascending, at which the load may have changed."""
    return np.unique(np.concatenate([[run.start_ns, run.end_ns], spans.start_ns, spans.end_ns]))


def load_marks_of_result(result: RunResult) -> Ints:
    """The same, of the spans that a result holds one by one."""
    spans = [result.run.span, *(one.span for one in result.spans)]
    return np.unique([[span.start_ns, span.end_ns] for span in spans])
