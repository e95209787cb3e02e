"""Memory for what is reckoned of one chunk after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray


class Room:
    """Arrays by name, to be written over: to get fresh ones costs as much as to fill them."""

    def __init__(self) -> None:
        self._kept: dict[str, NDArray[Any]] = {}

    def of(self, name: str, rows: int, dtype: DTypeLike) -> NDArray[Any]:
        """The same memory as before under that name, as far as it is large enough."""
        kept = self._kept.get(name)
        if kept is None or len(kept) < rows or kept.dtype != dtype:
            kept = self._kept[name] = np.empty(rows, dtype)
        return kept[:rows]
