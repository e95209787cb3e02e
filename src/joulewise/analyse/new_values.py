"""Which readings of a sensor are new: those that differ from the reading before."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def mark_new_values(values: NDArray[Any], last: float = math.nan) -> NDArray[np.bool_]:
    """Which of these readings differ from the last one that could be read before them.

    ``last`` is that of the rows before these, NaN where there is none. The first reading of a
    stream is not new: new values are counted over the time between readings, and before the first
    there is none. So there are never more new values than readings in any time. A reading that
    failed (NaN) is not new, and neither is the old value after it.
    """
    is_new = np.zeros(len(values), bool)
    if not len(values):
        return is_new
    if np.isnan(values.sum(dtype=np.float64)):
        is_read = ~np.isnan(values)
        is_new[is_read] = mark_new_values(values[is_read], last)
        return is_new
    np.not_equal(values[1:], values[:-1], out=is_new[1:])
    is_new[0] = not math.isnan(last) and values[0] != last
    return is_new


def last_reading(values: NDArray[Any], before: float = math.nan) -> float:
    """The last value that could be read, else the one from ``before`` these."""
    if len(values) and not math.isnan(values[-1]):  # as a rule: no search
        return float(values[-1])
    is_read = np.flatnonzero(~np.isnan(values))
    return float(values[is_read[-1]]) if len(is_read) else before
