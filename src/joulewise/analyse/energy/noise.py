"""Local noise of the power readings: a trimmed mean of squared differences of neighbours.

The few readings of a short window may happen to lie close together, so their own differences
understate the noise. Those of up to 32 readings on either side of its edges are taken as well.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from joulewise.analyse.arrays import Array, Floats, Indices
from joulewise.analyse.chunks import near

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
