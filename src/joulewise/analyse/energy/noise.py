"""How far readings that follow each other lie apart around some moments, jumps left out.

The few readings of a short window may happen to lie close together; their neighbours know better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.analyse.chunks import near

if TYPE_CHECKING:
    from numpy.typing import NDArray

READINGS: Final = 32
_MOST_ROWS: Final = 512
# Of many squared normal deviations, the mean of the smaller three quarters beside that of all.
_KEPT: Final = 0.75
_OF_KEPT: Final = 0.368
# Sides that differ by more do not do so by chance.
_DIFFER: Final = 3.0


def rows_around(step_ns: float, period_ns: float) -> int:
    """The rows in which there are enough readings, each of which may be repeated."""
    repeats = np.ceil(period_ns / max(step_ns, 1))
    return int(np.clip(READINGS * repeats, READINGS, _MOST_ROWS))


def usual_w2(power_w: NDArray[Any], rows: NDArray[np.intp], reach: int) -> NDArray[np.float64]:
    """The mean squared step from reading to reading around each of these rows.

    Where its sides differ, a load begins or ends there: the quieter one counts, since the steps
    of a window in the other tell by themselves.
    """
    if not len(rows):
        return np.zeros(0)
    rows, which = np.unique(rows, return_inverse=True)
    before = np.flatnonzero(near(rows, len(power_w), reach)[:-1])
    steps_w = power_w[before + 1] - power_w[before]
    moved = np.flatnonzero(steps_w)
    before, step_w2 = before[moved], np.append(np.square(steps_w[moved], dtype=np.float64), 0.0)
    low, at, high = (np.searchsorted(before, rows + side) for side in (-reach, 0, reach))
    sides = (np.clip(first, low, np.maximum(high - READINGS, low)) for first in (at - READINGS, at))
    usual = [_usual(step_w2, first, np.minimum(first + READINGS, high)) for first in sides]
    less, more = np.minimum(*usual), np.maximum(*usual)
    return np.asarray(np.where(more > _DIFFER * less, less, (less + more) / 2)[which])


def _usual(
    step_w2: NDArray[np.float64], low: NDArray[np.intp], high: NDArray[np.intp]
) -> NDArray[np.float64]:
    """By the smaller ones, which know nothing of jumps; no more than the mean, if all are alike."""
    number = high - low
    at = low[:, None] + np.arange(READINGS)
    there = at < high[:, None]
    part = np.where(there, step_w2[np.minimum(at, len(step_w2) - 1)], np.inf)
    part.sort(axis=1)
    kept = np.ceil(_KEPT * number)
    smaller = part.sum(axis=1, where=np.arange(READINGS) < kept[:, None])
    mean = part.sum(axis=1, where=there) / np.maximum(number, 1)
    return np.asarray(np.minimum(smaller / np.maximum(kept, 1) / _OF_KEPT, mean))
