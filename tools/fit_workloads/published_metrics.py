"""The metrics of the published study (Krzywaniak, Czarnul, Proficz) over power caps.

They are energy (``min_e``), energy-delay product (``min_edp``) and energy-delay sum
(``min_eds_K``), each minimised over caps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

METRICS: Final = ("min_e", "min_edp", "min_eds_2.0", "min_eds_1.5")
BANDS: Final = {
    ("rtx6000", "min_edp"): (120.0, 255.0),
    ("rtx6000", "min_eds_1.5"): (160.0, 255.0),
    ("rtx6000", "min_eds_2.0"): (140.0, 255.0),
    ("v100", "min_eds_1.5"): (210.0, 295.0),
    ("v100", "min_eds_2.0"): (150.0, 295.0),
}
"""The range of caps (W) that beat the default for most networks, as the paper's text says."""

_STEP_W: Final = 5.0  # the authors' distance between two caps


def grid_w(minimum_w: float, maximum_w: float) -> NDArray[np.float64]:
    """The caps (W) that the authors tried."""
    return np.arange(minimum_w, maximum_w + _STEP_W / 2, _STEP_W)


def scores(
    time_s: NDArray[np.float64], energy_j: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    """Each metric over the caps (last axis), relative to the default cap, which comes last."""
    time, energy = time_s / time_s[..., -1:], energy_j / energy_j[..., -1:]
    return {
        "min_e": energy,
        "min_edp": energy * time,
        "min_eds_2.0": _eds(time, energy, 2.0),
        "min_eds_1.5": _eds(time, energy, 1.5),
    }


def _eds(time: NDArray[np.float64], energy: NDArray[np.float64], k: float) -> NDArray[np.float64]:
    return np.asarray((k - 1) / k * energy + time / k)
