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
    reasons = _column(slow, Quantity.THROTTLE)
    if vendor != "nvidia":  # others do not say why
        reasons[:] = np.nan
    utilisation = _column(slow, Quantity.GPU_UTILISATION)
    told = np.isfinite(reasons)
    bits = np.where(told, reasons, 0.0).astype(np.int64)
    # A driver that tells no reasons may still tell how busy it was.
    working = np.where(told, bits & IDLE == 0, utilisation > _BUSY_PCT)
    looks = run.holds(slow["t_ns"]) & working
    capped = np.where(told, bits & CAPPED != 0, np.nan)
    return {
        "capped": _mean(capped[looks]),
        "sm_clock_mhz": _mean(_column(slow, Quantity.SM_CLOCK)[looks]),
        "temperature_c": _mean(_column(slow, Quantity.TEMPERATURE)[looks]),
    }


def _column(slow: Mapping[str, NDArray[Any]], quantity: Quantity) -> NDArray[np.float64]:
    found = slow.get(quantity.value)
    return np.full(len(slow["t_ns"]), np.nan) if found is None else np.array(found, np.float64)


def _mean(values: NDArray[np.float64]) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) >= ENOUGH else None
