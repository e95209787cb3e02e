"""What is counted: where the line around the hardware is drawn, and how much work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from joulewise.errors import UsageError

GPU: Final = "gpu"
NODE: Final = "node"
WALL: Final = "wall"
BOUNDARIES: Final = (GPU, NODE, WALL)
PER: Final = ("run", "epoch", "step", "sample")

ASSUMED_REST_W: Final = 112.0
"""What a node with one GPU draws besides it, where nobody measured or said."""

ASSUMED_PUE: Final = 1.58
"""What a data centre draws for each watt that its machines do, where nobody said."""


@dataclass(frozen=True)
class Training:
    """A full training: so many epochs of so many samples each.

    ``look_epochs`` and ``look_samples`` (in an epoch) are what the runs did, where neither their
    spans nor their settings tell it.
    """

    epochs: float
    samples: float | None = None
    look_epochs: float | None = None
    look_samples: float | None = None


@dataclass(frozen=True)
class View:
    """``per`` is what times and energies are of; a ``training`` is extrapolated from the runs.

    ``overhead_w`` is what the node draws besides the GPUs, ``pue`` what the wall adds.
    """

    boundary: str = GPU
    per: str = "run"
    overhead_w: float | None = None
    pue: float | None = None
    training: Training | None = None

    def __post_init__(self) -> None:
        if self.boundary not in BOUNDARIES:
            raise UsageError(
                f"{self.boundary!r} is no boundary", f"there are: {', '.join(BOUNDARIES)}"
            )
        if self.per not in PER:
            raise UsageError(f"nothing is counted per {self.per!r}", f"per: {', '.join(PER)}")
        if self.overhead_w is not None and not self.overhead_w >= 0:
            raise UsageError(
                "a node draws no less than 0 W besides its GPUs", "say --overhead-w 112"
            )
        if self.pue is not None and not self.pue >= 1:
            raise UsageError("a PUE is at least 1", "say --pue 1.3")
