"""The offset of the energy counter from the power curve, estimated at each poll of the counter.

Up to a time t the device has drawn ``E(t) = C(t) + D(t)``: what the power curve integrates to, and
the *offset* of the counter from it. At a poll the offset is known, but for the time of the tick of
the counter; between polls it strays as far as the readings miss what they do not average.

Model: a random walk along the curve's variance clock, observed at the polls with noise (a *local
level model*). With a the variance of the walk between two polls and b that of the noise at each,
the differences d(i) of the offset from poll to poll have E[d²] = a + 2b and E[d(i)·d(i+1)] = -b: a
random walk makes neighbours independent, noise makes them go opposite ways. These two moments give
a and b (A. C. Harvey, Forecasting, Structural Time Series Models and the Kalman Filter, 1989). The
offset is then estimated by a Kalman filter and a Rauch-Tung-Striebel smoother (H. E. Rauch,
F. Tung, C. T. Striebel, AIAA Journal 3, 1965).

Before that, jumps of the counter are found, in which the readings stand in for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from joulewise.analyse.chunks import Bools, Floats
from joulewise.analyse.energy.counter_timing import CELL_SHARE, Placement, Polls
from joulewise.analyse.energy.load_steps import sum_between
from joulewise.analyse.energy.power_integral import SEEN_AT_LEAST_SHARE
from joulewise.analyse.energy.sensor_timing import ReadingTiming
from joulewise.units import Z95

QUANTUM_J: Final = 0.001
"""A counter counts whole millijoules."""

# All constants below were chosen on simulated boards of seeds that no benchmark judges with
# (benchmarks/truth.py); doubling one makes the stated errors too wide or too narrow there.
#
# How much counter and curve differ locally is judged by so many intervals on either side, together
# with so many more that differ as the model says, each for no more than this many times its
# expected square, so that one outlier stays one.
_LOCAL_INTERVALS: Final = 6
_LOCAL_PRIOR_INTERVALS: Final = 4
_MAX_LOCAL_SQUARE: Final = 16.0
# At most this share of the differences is taken for noise of single polls.
_MAX_NOISE_SHARE: Final = 0.5
# Differences are never taken to be smaller than this, in units of the curve's variance clock.
_MIN_SCATTER2: Final = 0.05**2
# By so much of it a difference is cut (winsorised): at twice the square that nine of ten are below.
_CUT_QUANTILE: Final = 0.9
_CUT_FACTOR: Final = 2.0
# A counter that moved by less than half as much as the readings, in so many periods, had stopped.
_STOPPED_SHARE: Final = 0.5
_STOPPED_PERIODS: Final = 4
# One that moved by less or more than the readings, by so many standard deviations and by more than
# its cells are likely to hide, and did not make up for it in the next poll, has lost or invented
# energy.
_JUMP_SIGMAS: Final = 10.0
_HIDDEN_FACTOR: Final = 1.3
# The scatter for that is the mean square of all differences, each for no more than this many times
# its expected square, and at least this much of it.
_MAX_JUMP_SQUARE: Final = 9.0
_MIN_JUMP_SCALE: Final = 0.1
# A neighbour makes up for a jump where less than this share of it is left of both together.
_LEFT_SHARE: Final = 0.5
# What looks lost by so many may be so: it is in the error, since readings can have seen too much.
_LOST_SIGMAS: Final = 6.0
# The error has what was lost, and so many standard deviations more, as it was seen through noise.
_LOST_MARGIN_SIGMAS: Final = 2.0
# If more than this share of the intervals are jumps, counter and readings simply disagree.
_MAX_JUMP_SHARE: Final = 0.05
# So many are no sign of that, however short the run is.
_ALWAYS_RARE: Final = 3
# The moments need so many differences, and the products of neighbours more.
_MIN_DIFFERENCES: Final = 2
_MIN_NEIGHBOURS: Final = 4
# A part of what the sensor shows after a jump was drawn before it: this share of the jump remains
# in the error.
_BRIDGED_SHARE: Final = 0.05
# The least variance (J²) of the curve between two polls: that of a counter's millijoule.
_MIN_CLOCK_J2: Final = 1e-6
# "Unknown" as a variance: large beside any energy, and still finite in the filter's arithmetic.
_MAX_WALK_J2: Final = 1e18


@dataclass(frozen=True)
class CounterBreaks:
    """Jumps of the counter, bridged by the readings.

    ``is_broken`` marks the poll after each jump, ``total_j`` is the count without jumps, and
    ``jump_j2`` the variance that each poll's jump, or suspected loss, leaves.
    """

    is_broken: Bools
    total_j: Floats
    jump_j2: Floats


@dataclass(frozen=True)
class CounterOffset:
    """The estimated offset at each poll: ``mean_j`` and its variance ``variance_j2``.

    ``gains`` are those of the smoother, ``log_gains`` their cumulative logarithms. ``walk_j2`` is
    the variance of the random walk between polls, ``poll_j2`` that of the noise at each.
    ``noise_share`` is the part of the readings' variance that this noise is, and ``local`` by which
    factor counter and curve differ more than usual around each interval.
    """

    mean_j: Floats
    variance_j2: Floats
    gains: Floats
    log_gains: Floats
    walk_j2: Floats
    poll_j2: Floats
    noise_share: float
    local: Floats


@dataclass(frozen=True)
class OffsetModel:
    """The polls, and where they are placed in time on the curve of the readings.

    ``range_w`` is the least and the most that the device draws; without readings
    (``has_readings``) the curve is that of the counter itself, and tells nothing of it.
    """

    polls: Polls
    placement: Placement
    timing: ReadingTiming
    range_w: tuple[float, float]
    has_readings: bool

    def find_breaks(self, is_broken: Bools) -> CounterBreaks:
        """Find jumps, besides those that are known already (``is_broken``)."""
        polls, curve, t_s = self.polls, self.placement.curve, self.placement.t_s
        rise_j = np.diff(polls.count_j)
        read_j = np.diff(curve.energy_j(t_s))
        off_j = rise_j - read_j
        lost_j = np.zeros(len(off_j))
        if self.has_readings and len(off_j) > 1:
            is_read = np.diff(curve.unread_s(t_s)) <= 0
            jumps, lost_j = self._find_jumps(off_j)
            lost_j = np.where(is_read & polls.joined[1:], lost_j, 0.0)
            is_new = self._has_stopped(rise_j, read_j) | (jumps & is_read)
            is_broken = is_broken | np.append(False, is_new & polls.joined[1:])
        else:
            is_broken = is_broken.copy()
        is_broken[0] = False
        is_broken &= np.append(False, np.diff(polls.t_s) > 0)
        jump_j = np.where(is_broken[1:], off_j, 0.0)
        total_j = polls.count_j - np.append(0.0, np.cumsum(jump_j))
        clock_j2 = np.diff(curve.clock_j2(t_s))
        one_second_j = self.range_w[1]
        left_j2 = clock_j2 + (_BRIDGED_SHARE * np.minimum(np.abs(jump_j), one_second_j)) ** 2
        left_j2 = np.where(is_broken[1:], left_j2, np.square(lost_j / Z95))
        return CounterBreaks(is_broken, total_j, np.append(0.0, left_j2))

    def estimate(self, breaks: CounterBreaks) -> CounterOffset:
        """The offset at each poll, given all of them."""
        offset_j = breaks.total_j - self.placement.curve.energy_j(self.placement.t_s)
        walk_j2, poll_j2, noise_share, local = self._estimate_noise(offset_j, breaks.is_broken)
        is_linked = self.polls.joined[1:] | breaks.is_broken[1:]
        linked_j2 = np.minimum(np.where(is_linked, walk_j2, np.inf), _MAX_WALK_J2)
        mean_j, variance_j2, gains = _smooth(offset_j, linked_j2, poll_j2)
        log_gains = np.append(0.0, np.cumsum(np.log(np.maximum(gains[:-1], 1e-12))))
        return CounterOffset(
            mean_j, variance_j2, gains, log_gains, walk_j2, poll_j2, noise_share, local
        )

    def _scales(self) -> tuple[Floats, Floats, Floats]:
        """Variances (J²): of the clock between polls, of a cell and of the timing at each poll."""
        placement = self.placement
        curve, t_s = placement.curve, placement.t_s
        clock_j2 = np.maximum(np.diff(curve.clock_j2(t_s)), _MIN_CLOCK_J2)
        cell_j2 = curve.variance_w2(t_s) * self.timing.step_s**2
        return clock_j2, cell_j2, curve.power_w(t_s) ** 2 * placement.variance_s2

    def _has_stopped(self, rise_j: Floats, read_j: Floats) -> Bools:
        long_s = _STOPPED_PERIODS * max(self.timing.counter_s, self.timing.poll_s)
        is_long = np.diff(self.polls.t_s) > long_s
        return np.asarray(is_long & (rise_j < _STOPPED_SHARE * read_j))

    def _find_jumps(self, off_j: Floats) -> tuple[Bools, Floats]:
        """Intervals in which energy was lost or invented that the neighbours do not make up for.

        The second array has the joules that may have been lost, where they are too few to be sure.
        """
        if self.timing.counter_s <= 0:  # a modelled counter: its power follows from its count
            return np.zeros(len(off_j), bool), np.zeros(len(off_j))
        clock_j2, cell_j2, timing_j2 = self._scales()
        expected_j2 = clock_j2 + CELL_SHARE * (cell_j2[1:] + cell_j2[:-1])
        expected_j2 = expected_j2 + timing_j2[1:] + timing_j2[:-1]
        squares = off_j**2 / expected_j2
        sound = self.polls.joined[1:]
        cut = np.minimum(squares[sound], _MAX_JUMP_SQUARE)
        scale = max(float(np.mean(cut)), _MIN_JUMP_SCALE) if sound.any() else 1.0
        unseen = 1 - min(SEEN_AT_LEAST_SHARE * self.timing.seen, 1.0)
        cells = np.maximum(np.diff(self.polls.t_s) / self.timing.step_s, 1.0)
        cell_j = (self.range_w[1] - self.range_w[0]) * self.timing.step_s
        hidden_j = _HIDDEN_FACTOR * unseen * cell_j * np.sqrt(cells)
        sigma_j = np.sqrt(scale * expected_j2)
        bound_j = np.maximum(_JUMP_SIGMAS * sigma_j, hidden_j)
        beside_j = np.concatenate([[0.0], off_j, [0.0]])
        left_j = np.minimum(np.abs(off_j + beside_j[:-2]), np.abs(off_j + beside_j[2:]))
        jumps = (np.abs(off_j) > bound_j) & (left_j > _LEFT_SHARE * bound_j)
        # What happens all the time is no jump: counter and readings disagree.
        is_rare = np.count_nonzero(jumps) <= max(_MAX_JUMP_SHARE * len(off_j), _ALWAYS_RARE)
        is_lost = (
            (off_j < -_LOST_SIGMAS * sigma_j) & (left_j > _LEFT_SHARE * np.abs(off_j)) & ~jumps
        )
        lost_j = np.where(is_lost & is_rare, np.abs(off_j) + _LOST_MARGIN_SIGMAS * sigma_j, 0.0)
        return np.asarray(jumps & is_rare), lost_j

    def _estimate_noise(
        self, offset_j: Floats, is_broken: Bools
    ) -> tuple[Floats, Floats, float, Floats]:
        """Walk and noise variances (J²), the share of the noise, and the local factors.

        By the moments of the differences from poll to poll, in units of what the curve expects;
        then scaled locally, where counter and curve differ more or less than on average.
        """
        clock_j2, cell_j2, timing_j2 = self._scales()
        both_j2 = cell_j2[1:] + cell_j2[:-1]
        off_j = np.diff(offset_j)
        unread_s = np.diff(self.placement.curve.unread_s(self.placement.t_s))
        # Unread, a device may have drawn anything in its range: a uniform distribution.
        unread_j2 = np.square((self.range_w[1] - self.range_w[0]) / 12**0.5 * unread_s)
        sound = self.polls.joined[1:] & ~is_broken[1:] & (unread_s <= 0)
        number = int(sound.sum())
        if number < _MIN_DIFFERENCES:
            local = np.ones(len(clock_j2))
            return clock_j2 + unread_j2, timing_j2 + QUANTUM_J**2, 0.0, local
        scale_j = np.sqrt(clock_j2 + CELL_SHARE * both_j2)
        z = np.where(sound, off_j / scale_j, 0.0)
        largest = _CUT_FACTOR * float(np.quantile(z[sound] ** 2, _CUT_QUANTILE)) + 1e-9
        z = np.clip(z, -(largest**0.5), largest**0.5)
        mean = float((z**2).sum() / number)
        clock_share = float((clock_j2 / scale_j**2)[sound].mean())
        both_share = float((both_j2 / scale_j**2)[sound].mean())
        neighbours = float((cell_j2[1:-1] / (scale_j[1:] * scale_j[:-1])).sum())
        is_enough = number >= _MIN_NEIGHBOURS
        noise = -float((z[1:] * z[:-1]).sum()) / max(neighbours, 1e-12) if is_enough else 0.0
        noise = min(max(noise, 0.0), _MAX_NOISE_SHARE * mean / both_share)
        walk = max(mean - noise * both_share, (1 - _MAX_NOISE_SHARE) * mean)
        walk = (walk + _MIN_SCATTER2) / clock_share
        expected_j2 = walk * clock_j2 + noise * both_j2
        squares = np.where(sound, np.minimum(off_j**2 / expected_j2, _MAX_LOCAL_SQUARE), 0.0)
        row = np.arange(len(squares))
        low = np.maximum(row - _LOCAL_INTERVALS, 0)
        high = np.minimum(row + _LOCAL_INTERVALS + 1, len(row))
        local = _LOCAL_PRIOR_INTERVALS + sum_between(squares, low, high)
        local /= _LOCAL_PRIOR_INTERVALS + sum_between(sound.astype(np.float64), low, high)
        at_poll = np.concatenate([local[:1], (local[1:] + local[:-1]) / 2, local[-1:]])
        poll_j2 = noise * cell_j2 * at_poll + timing_j2 + QUANTUM_J**2
        return walk * clock_j2 * local + unread_j2, poll_j2, noise, local


def _smooth(offset_j: Floats, walk_j2: Floats, poll_j2: Floats) -> tuple[Floats, Floats, Floats]:
    """Kalman filter forward, Rauch-Tung-Striebel smoother back: means, variances and gains.

    With one state and a few thousand polls, plain floats are faster than arrays of one element.
    """
    observed, walk, noise = offset_j.tolist(), walk_j2.tolist(), poll_j2.tolist()
    last = len(observed) - 1
    mean, variance = [observed[0]], [noise[0]]
    for i in range(last):
        predicted = variance[i] + walk[i]
        gain = predicted / (predicted + noise[i + 1])
        mean.append(mean[i] + gain * (observed[i + 1] - mean[i]))
        variance.append(gain * noise[i + 1])  # (1 - gain) * predicted, without cancellation
    gains = [0.0] * (last + 1)
    for i in range(last - 1, -1, -1):
        predicted = variance[i] + walk[i]
        gain = gains[i] = variance[i] / predicted
        mean[i] += gain * (mean[i + 1] - mean[i])
        variance[i] += gain * gain * (variance[i + 1] - predicted)
    return np.array(mean), np.array(variance), np.array(gains)
