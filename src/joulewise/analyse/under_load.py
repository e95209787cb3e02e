"""How a GPU did while it worked: its clock, its heat, and whether its power limit held it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.data import Quantity
from joulewise.devices.nvidia.binding import CAPPED, ENOUGH, IDLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from joulewise.analyse.stretch import Stretch

_BUSY_PCT: Final = 1.0


def under_load(
    slow: Mapping[str, NDArray[Any]], run: Stretch, vendor: str
) -> dict[str, float | None]:
    """Means over the looks at which it was not idle; None where there were too few.

    ``capped`` is the share of them at which the power limit held the clocks down.
    """
    if "t_ns" not in slow:
        return dict.fromkeys(("capped", "sm_clock_mhz", "temperature_c"))
    reasons = _reasons(slow, vendor)
    is_known = np.isfinite(reasons)
    bits = np.where(is_known, reasons, 0.0).astype(np.int64)
    looks = run.holds(slow["t_ns"]) & (is_working(slow, vendor) == 1.0)
    capped = np.where(is_known, bits & CAPPED != 0, np.nan)
    return {
        "capped": _mean(capped[looks]),
        "sm_clock_mhz": _mean(_column(slow, Quantity.SM_CLOCK)[looks]),
        "temperature_c": _mean(_column(slow, Quantity.TEMPERATURE)[looks]),
    }


def is_working(slow: Mapping[str, NDArray[Any]], vendor: str) -> NDArray[np.float64]:
    """Of each look whether the GPU worked (1) or was idle (0); NaN where nothing tells."""
    reasons, utilisation = _reasons(slow, vendor), _column(slow, Quantity.GPU_UTILISATION)
    is_known = np.isfinite(reasons)
    bits = np.where(is_known, reasons, 0.0).astype(np.int64)
    # A driver that gives no reasons may still say how busy the GPU was.
    by_use = np.where(np.isnan(utilisation), np.nan, utilisation > _BUSY_PCT)
    return np.asarray(np.where(is_known, bits & IDLE == 0, by_use))


def _reasons(slow: Mapping[str, NDArray[Any]], vendor: str) -> NDArray[np.float64]:
    """NVML's reasons for lower clocks; NaN of other makers, who do not say why."""
    reasons = _column(slow, Quantity.THROTTLE)
    return reasons if vendor == "nvidia" else np.full(len(reasons), np.nan)


def _column(slow: Mapping[str, NDArray[Any]], quantity: Quantity) -> NDArray[np.float64]:
    found = slow.get(quantity.value)
    return np.full(len(slow["t_ns"]), np.nan) if found is None else np.array(found, np.float64)


def _mean(values: NDArray[np.float64]) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) >= ENOUGH else None
