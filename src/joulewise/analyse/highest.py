"""The highest reading of any windows, however they overlap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def highest_between(
    stretch_w: NDArray[np.float64],
    reading_w: NDArray[np.float64],
    start: NDArray[np.intp],
    end: NDArray[np.intp],
) -> NDArray[np.float64]:
    """The highest from time ``start`` to time ``end``.

    ``stretch_w[i]`` is the highest from time ``i`` up to the next; ``reading_w[i]`` is that at
    ``i``. Windows are looked up in tables of stretches of 1, 2, 4 ... times.
    """
    highest = reading_w[end].copy()
    length = end - start
    table, size = stretch_w, 1
    while True:
        fits = (length >= size) & (length < 2 * size)
        both = np.maximum(table[start[fits]], table[end[fits] - size])
        highest[fits] = np.maximum(highest[fits], both)
        size *= 2
        if not (length >= size).any():
            return np.asarray(highest)
        table = np.maximum(table[: -(size // 2)], table[size // 2 :])
