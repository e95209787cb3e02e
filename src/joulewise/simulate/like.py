"""A workload like one that was recorded: the figures of a load, from what its runs took.

A run tells how long its steps take, what they draw, at which clock, and how long they wait for
the host. How much of a step goes with the clock, and how its power splits into the cores' and the
rest, shows only between several limits: of a single run it is assumed to be as with the networks
of the published table on that board, more or less. Both come from one fit, in which the runs
outweigh what is assumed wherever they say something.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.errors import JoulewiseError
from joulewise.simulate.model import Board, Knobs, Load, Workload
from joulewise.simulate.physics import steady_state
from joulewise.simulate.workloads import (
    NETWORKS,
    RUN_NOISE,
    Profile,
    profile_of,
    step_phases,
    transfer,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

TIME: Final = 0.003
POWER: Final = 0.01
CLOCK: Final = 0.01
BUSY: Final = 0.02
"""How far a run's figures may be off; the clock is polled, and busy is a sensor's opinion."""

_WARMUP_STEPS: Final = 5
# The shares of a step that a workload may have: near 0 and 1 the fit has no gradient.
STALL: Final = (0.005, 0.95)
COMPUTE: Final = (0.02, 0.98)
_LOWEST: Final = (-np.inf, STALL[0], COMPUTE[0], -np.inf, -np.inf)
_HIGHEST: Final = (np.inf, STALL[1], COMPUTE[1], np.inf, np.inf)


@dataclass(frozen=True)
class RecordedSteps:
    """What a run at some knobs came to: figures of a step once it is steady, on the GPU.

    ``busy`` is the share of time in which a kernel ran. ``clock_mhz`` and ``busy`` are None where
    nobody looked.
    """

    knobs: Knobs
    step_s: float
    power_w: float
    clock_mhz: float | None = None
    busy: float | None = None


@dataclass(frozen=True)
class Shape:
    """How the training is made up of steps, of which each trains one batch of ``batch_size``.

    ``first_s`` is what the first steps took longer than others, all together.
    """

    name: str
    steps: int
    epochs: int = 1
    batch_size: int = 1
    validation_s: float = 0.0
    epoch_end_s: float = 0.0
    first_s: float = 0.0
    memory_b: int = 0


def workload_like(
    shape: Shape, seen: Sequence[RecordedSteps], recorded: Board, board: Board
) -> Workload:
    """The training on ``board``, where its runs were on ``recorded``."""
    profile = fit_profile(seen, recorded)
    source = _source(seen, recorded)
    if recorded.key != board.key:
        profile = transfer(profile, recorded, board)
        source = f"transferred from {recorded.key}, where it is {source}"
    phases = step_phases(profile)
    step, forward = Load(phases, shape.memory_b), Load(phases[:2], shape.memory_b)
    forward_s = sum(phase.time_s for phase in forward.phases)
    return Workload(
        name=shape.name,
        board=board.key,
        batch_size=shape.batch_size,
        samples=shape.steps * shape.batch_size,
        epochs=shape.epochs,
        step=step,
        validation=forward,
        validation_steps=round(shape.validation_s / forward_s),
        warmup_steps=_WARMUP_STEPS,
        warmup_factor=1 + max(shape.first_s, 0.0) / (_WARMUP_STEPS * profile.step_s),
        epoch_end_s=max(shape.epoch_end_s, 0.0),
        run_noise=RUN_NOISE,
        source=source,
    )


def fit_profile(seen: Sequence[RecordedSteps], board: Board) -> Profile:
    """The load that explains the runs, and is usual in what they leave open."""
    try:
        from scipy.optimize import least_squares
    except ModuleNotFoundError:
        raise JoulewiseError(
            "a workload like a run needs scipy", "pip install 'joulewise[search]'"
        ) from None

    usual = _usual(board)
    centre = usual.centre
    fastest = min(seen, key=lambda run: run.step_s)
    busy = [run.busy for run in seen if run.busy is not None]
    stall = np.clip(1 - np.mean(busy), *_inside(STALL)) if busy else centre.stall
    start = [math.log(fastest.step_s), stall, centre.compute, math.log(centre.core_w), 0.0]

    def profile(x: Array) -> Profile:
        step_s, core_w = math.exp(x[0]), math.exp(x[3])
        return Profile(step_s, x[1], x[2], core_w, core_w * math.exp(x[4]) * _ratio(centre))

    def residuals(x: Array) -> list[float]:
        one = profile(x)
        off = [each for run in seen for each in _off(run, one, board)]
        return [*off, (one.compute - centre.compute) / usual.compute, x[4] / usual.ratio]

    found = least_squares(residuals, start, bounds=(_LOWEST, _HIGHEST), x_scale="jac")
    return profile(found.x)


def _off(run: RecordedSteps, profile: Profile, board: Board) -> list[float]:
    """What of a run the load does not explain, in units of what it may be off by."""
    load = Load(step_phases(profile))
    temperature_c = steady_state.steady_c(board, load, run.knobs)
    clock_mhz = steady_state.equilibrium_clock(board, load, run.knobs, temperature_c)
    time_s, energy_j = (
        float(it) for it in steady_state.step_at(board, load, clock_mhz, temperature_c)
    )
    off = [math.log(time_s / run.step_s) / TIME]
    off.append(math.log(energy_j / time_s / run.power_w) / POWER)
    if run.clock_mhz is not None:
        off.append(math.log(float(clock_mhz) / run.clock_mhz) / CLOCK)
    if run.busy is not None:
        waits_s = profile.step_s * profile.stall
        off.append((1 - waits_s / time_s - run.busy) / BUSY)
    return off


@dataclass(frozen=True)
class _Usual:
    """How far loads are from ``centre`` in two figures, of the second as a logarithm."""

    centre: Profile
    compute: float
    ratio: float


def _usual(board: Board) -> _Usual:
    """The median of the published networks on a board."""
    known = [profile_of(name, board) for name in NETWORKS]
    table = np.array([list(vars(each).values()) for each in known])
    centre = Profile(*np.median(table, axis=0).tolist())
    ratios = np.log([_ratio(each) / _ratio(centre) for each in known])
    compute = np.array([each.compute for each in known]) - centre.compute
    return _Usual(centre, *(float(np.sqrt(np.mean(off**2))) for off in (compute, ratios)))


def _ratio(profile: Profile) -> float:
    return profile.fixed_w / profile.core_w


def _inside(limits: tuple[float, float]) -> tuple[float, float]:
    """A search sets out from within."""
    low, high = limits
    return low + 0.01 * (high - low), high - 0.01 * (high - low)


def _source(seen: Sequence[RecordedSteps], board: Board) -> str:
    limits = {run.knobs for run in seen}
    if len(limits) > 1:
        return f"fitted to {len(seen)} runs at {len(limits)} settings"
    return (
        f"taken from a run on {board.key}; how far its time goes with the clock and its power "
        "with the cores is assumed, as usual for the published networks"
    )
