"""What a simulated GPU did: power that is constant between changes, so that energy is exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

PIECE = np.dtype(
    [
        ("t_ns", np.int64),
        ("energy_j", np.float64),
        ("power_w", np.float32),
        ("sm_mhz", np.float32),
        ("memory_mhz", np.float32),
        ("busy", np.float32),
        ("memory_busy", np.float32),
        ("temperature_c", np.float32),
        ("throttle", np.uint32),
        ("pstate", np.uint32),
    ]
)
"""One stretch of constant power: from ``t_ns`` to the next piece's. 48 bytes, as ``layout.h``.

``energy_j`` is the exact energy drawn from the unit's beginning up to ``t_ns``.
"""


@dataclass(frozen=True)
class Timeline:
    """Pieces in order of time, and where the last of them ends."""

    pieces: NDArray[np.void]
    end_ns: int

    def energy_at(self, t_ns: ArrayLike) -> NDArray[np.float64]:
        """Exact cumulative energy; outside the timeline the first and last power go on."""
        raise NotImplementedError
