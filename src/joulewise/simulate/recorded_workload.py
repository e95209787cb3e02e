"""A workload fitted to recorded runs: the figures of a load, from the time and energy of its steps.

A run shows how long its steps take, what they draw, at which clock, and how long they wait for the
host. How much of a step scales with the clock, and how its power splits into the cores' and the
rest, shows only between runs at several limits. So the figures come from a least-squares fit with a
prior: the median of the published networks on that board. The runs outweigh the prior wherever they
carry information.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.errors import JoulewiseError
from joulewise.simulate.model import Board, ControlSettings, Load, Workload
from joulewise.simulate.physics import steady_state
from joulewise.simulate.workloads import (
    NETWORKS,
    RUN_NOISE,
    WARMUP_STEPS,
    Profile,
    profile_of,
    step_phases,
    transfer,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# Expected relative error of a run's figures (of ``busy`` absolute), which weighs them against each
# other and the prior. Chosen: time is exact but for the run's noise; power has a sensor's error
# besides; the clock is polled; utilisation is a sensor's coarse estimate. With one of them doubled,
# that figure has a quarter of its weight.
TIME_ERROR: Final = 0.003
POWER_ERROR: Final = 0.01
CLOCK_ERROR: Final = 0.01
BUSY_ERROR: Final = 0.02

# The shares of a step that a workload may have: near 0 and 1 the fit has no gradient.
STALL: Final = (0.005, 0.95)
COMPUTE: Final = (0.02, 0.98)
_LOWEST: Final = (-np.inf, STALL[0], COMPUTE[0], -np.inf, -np.inf)
_HIGHEST: Final = (np.inf, STALL[1], COMPUTE[1], np.inf, np.inf)


@dataclass(frozen=True)
class RecordedSteps:
    """Figures of a settled step of a run at some control settings, of the GPU alone.

    ``busy`` is the share of time in which a kernel ran. ``clock_mhz`` and ``busy`` are None where
    they were not recorded.
    """

    controls: ControlSettings
    step_s: float
    power_w: float
    clock_mhz: float | None = None
    busy: float | None = None


@dataclass(frozen=True)
class TrainingShape:
    """How a training is made up of steps, each of one batch of ``batch_size``.

    ``first_s`` is the extra time of the first steps, all together.
    """

    name: str
    steps: int
    epochs: int = 1
    batch_size: int = 1
    validation_s: float = 0.0
    epoch_end_s: float = 0.0
    first_s: float = 0.0
    memory_b: int = 0


def fit_workload(
    shape: TrainingShape, runs: Sequence[RecordedSteps], recorded: Board, board: Board
) -> Workload:
    """The training on ``board``, from its runs on the board ``recorded``."""
    profile = fit_profile(runs, recorded)
    source = _describe_source(runs, recorded)
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
        warmup_steps=WARMUP_STEPS,
        warmup_factor=1 + max(shape.first_s, 0.0) / (WARMUP_STEPS * profile.step_s),
        epoch_end_s=max(shape.epoch_end_s, 0.0),
        run_noise=RUN_NOISE,
        source=source,
    )


def fit_profile(runs: Sequence[RecordedSteps], board: Board) -> Profile:
    """The load that explains the runs, near the prior in what they leave open (needs scipy)."""
    try:
        from scipy.optimize import least_squares
    except ModuleNotFoundError:
        raise JoulewiseError(
            "a workload like a run needs scipy", "pip install 'joulewise[search]'"
        ) from None

    prior = _prior(board)
    centre = prior.centre
    fastest = min(runs, key=lambda run: run.step_s)
    busy = [run.busy for run in runs if run.busy is not None]
    stall = np.clip(1 - np.mean(busy), *_interior(STALL)) if busy else centre.stall
    start = [math.log(fastest.step_s), stall, centre.compute, math.log(centre.core_w), 0.0]

    def profile(x: Array) -> Profile:
        step_s, core_w = math.exp(x[0]), math.exp(x[3])
        return Profile(step_s, x[1], x[2], core_w, core_w * math.exp(x[4]) * _ratio(centre))

    def residuals(x: Array) -> list[float]:
        trial = profile(x)
        errors = [error for run in runs for error in _residuals(run, trial, board)]
        return [*errors, (trial.compute - centre.compute) / prior.compute, x[4] / prior.ratio]

    fit = least_squares(residuals, start, bounds=(_LOWEST, _HIGHEST), x_scale="jac")
    return profile(fit.x)


def _residuals(run: RecordedSteps, profile: Profile, board: Board) -> list[float]:
    """How far the load is from a run's figures, in units of their expected errors."""
    load = Load(step_phases(profile))
    temperature_c = steady_state.steady_c(board, load, run.controls)
    clock_mhz = steady_state.equilibrium_clock(board, load, run.controls, temperature_c)
    time_s, energy_j = map(float, steady_state.step_at(board, load, clock_mhz, temperature_c))
    errors = [math.log(time_s / run.step_s) / TIME_ERROR]
    errors.append(math.log(energy_j / time_s / run.power_w) / POWER_ERROR)
    if run.clock_mhz is not None:
        errors.append(math.log(float(clock_mhz) / run.clock_mhz) / CLOCK_ERROR)
    if run.busy is not None:
        waits_s = profile.step_s * profile.stall
        errors.append((1 - waits_s / time_s - run.busy) / BUSY_ERROR)
    return errors


@dataclass(frozen=True)
class _Prior:
    """The median load, and how far others are from it (root mean square) in two figures.

    ``ratio`` is of fixed to core power, as a logarithm.
    """

    centre: Profile
    compute: float
    ratio: float


def _prior(board: Board) -> _Prior:
    """The prior from the published networks on a board."""
    profiles = [profile_of(name, board) for name in NETWORKS]
    table = np.array([list(vars(profile).values()) for profile in profiles])
    centre = Profile(*np.median(table, axis=0).tolist())
    ratios = np.log([_ratio(profile) / _ratio(centre) for profile in profiles])
    compute = np.array([profile.compute for profile in profiles]) - centre.compute
    return _Prior(centre, *(float(np.sqrt(np.mean(off**2))) for off in (compute, ratios)))


def _ratio(profile: Profile) -> float:
    return profile.fixed_w / profile.core_w


def _interior(limits: tuple[float, float]) -> tuple[float, float]:
    """A range that is narrower by 1 % at both ends: a fit must not start at a bound."""
    low, high = limits
    return low + 0.01 * (high - low), high - 0.01 * (high - low)


def _describe_source(runs: Sequence[RecordedSteps], board: Board) -> str:
    settings = {run.controls for run in runs}
    if len(settings) > 1:
        return f"fitted to {len(runs)} runs at {len(settings)} settings"
    return (
        f"taken from a run on {board.key}; how its time and power depend on the clock is assumed, "
        "as for the published networks"
    )
