"""Which settings no other beats in both time and energy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.metrics.ratios import Ratios, means

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_AT_ONCE: Final = 4_000_000
_ROUNDING: Final = 1e-9


def front(time: Ratios, energy: Ratios) -> NDArray[np.bool_]:
    """True unless some other setting takes less time and less energy, both beyond noise.

    Settings are compared by the blocks that they share; where these are fewer than two, by how
    each stands to the reference.
    """
    known = (time.means.n > 0) & (energy.means.n > 0)
    count, columns = time.plain.shape
    step = max(1, _AT_ONCE // max(1, count * columns))
    beaten = np.zeros(count, dtype=bool)
    for first in range(0, count, step):
        rows = np.arange(first, min(first + step, count))
        beaten[rows] = (_above(time, rows) & _above(energy, rows)).any(axis=1)
    return known & ~beaten


def _above(of: Ratios, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each of these rows lies above each of all, beyond noise."""
    shape = len(rows), len(of.plain)
    apart = of.plain[rows, None] - of.plain[None]
    floors = np.hypot(of.floors[rows, None], of.floors[None])
    pairs = shape[0] * shape[1], of.plain.shape[1]
    shared = means(apart.reshape(pairs), floors.reshape(pairs))
    mean, half = shared.mean.reshape(shape), shared.half.reshape(shape)
    alone = np.isnan(half)
    if alone.any():
        single = of.means
        by_reference = single.mean[rows, None] - single.mean[None]
        doubt = np.hypot(single.half[rows, None], single.half[None])
        meter = np.hypot(single.floor[rows, None], single.floor[None])
        mean = np.where(alone, by_reference, mean)
        half = np.where(alone, np.where(np.isnan(doubt), meter, doubt), half)
    with np.errstate(invalid="ignore"):
        return np.asarray(mean > half + _ROUNDING)
