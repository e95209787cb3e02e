"""What the user asked of a tuning, and what the sensor needs."""

from __future__ import annotations

from dataclasses import dataclass

from joulewise.data.tuning import StepSource
from joulewise.optimise.live.savings import MAX_BLOCKS


@dataclass(frozen=True)
class TuningOptions:
    """What the user asked for, and what the sensor needs.

    - ``shortest_block_s``: the least time of a block that the sensor measures well enough
    - ``settle_s``: what the sensor's averaging window and the governor need after a change
    - ``max_slowdown``: the bound on the time of a step over the reference's, which is kept
    - ``keep_checking``: the share of steps at the reference while holding
    - ``proof_block_s``: the least time of a block of the proof. Longer ones let heat settle, which
      otherwise is the largest part of the error
    - ``proof_target``: the half-width at which the proof ends, as a share
    """

    shortest_block_s: float = 1.0
    settle_s: float = 0.5
    max_slowdown: float | None = None
    overhead_w: float = 0.0
    max_power_w: float | None = None
    max_exploration_s: float = 60.0
    max_exploration_steps: int = 90
    prove: bool = False
    proof_target: float = 0.01
    proof_block_s: float = 8.0
    most_proof_blocks: int = MAX_BLOCKS
    keep_checking: float = 0.0
    boundary: str = "gpu"
    devices: tuple[str, ...] = ()
    step_source: StepSource | None = None
