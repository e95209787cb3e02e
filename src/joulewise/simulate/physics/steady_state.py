"""Power and time of a settled board under a load, for many clocks, caps or boards at once.

Every argument broadcasts as numpy does, and so do the figures inside a phase or a board: the fit of
the workloads puts arrays there, to evaluate all its trial values in one call.
:mod:`joulewise.simulate.physics.governor` has the same formulas for one value at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.simulate.model import Board, ClockRange, ControlSettings, Load, Phase, Workload

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

# Chosen: Newton's method doubles the correct digits at each step, so that these reach the last bits
# of a double. Twice as many change energies by less than 1e-15 (computed likewise).
_NEWTON_STEPS: Final = 7
# Chosen: each iteration leaves a few percent of the error in temperature before it. Twice as many
# change no energy by more than 3e-6 (computed for all workloads on all boards, 20 caps each).
_HEAT_STEPS: Final = 3


def voltage(clocks: ClockRange, f_mhz: ArrayLike) -> NDArray[np.float64]:
    """Core voltage, relative to 1 at the highest clock (see :class:`ClockRange`)."""
    rise = (np.asarray(f_mhz) - clocks.ridge_mhz) / (clocks.sm_max_mhz - clocks.ridge_mhz)
    return np.asarray(clocks.floor_v + (1 - clocks.floor_v) * np.maximum(rise, 0) ** 2)


def core_share(clocks: ClockRange, f_mhz: ArrayLike) -> NDArray[np.float64]:
    """Core power relative to that at the highest clock: clock times voltage squared."""
    return np.asarray(f_mhz) / clocks.sm_max_mhz * voltage(clocks, f_mhz) ** 2


def clock_for(clocks: ClockRange, share: ArrayLike) -> NDArray[np.float64]:
    """The clock (MHz) at which core power is ``share`` of that at the highest, by Newton's method.

    Core power is convex in the clock, so that from above no iterate passes the root.
    """
    share = np.clip(share, 0, 1)
    ridge, floor = clocks.ridge_mhz / clocks.sm_max_mhz, np.asarray(clocks.floor_v)
    span = 1 - ridge
    ratio = np.minimum(share / floor**2, 1) + 0 * ridge
    for _ in range(_NEWTON_STEPS):
        rise = np.maximum(ratio - ridge, 0) / span
        volt = floor + (1 - floor) * rise**2
        slope = volt * (volt + 4 * ratio * (1 - floor) * rise / span)
        ratio = ratio - (ratio * volt**2 - share) / slope
    return np.asarray(ratio * clocks.sm_max_mhz)


def standing_w(board: Board, temperature_c: ArrayLike) -> NDArray[np.float64]:
    """What is drawn with clocks up whatever runs: idle power with clocks up, and leakage."""
    thermal = board.thermal
    warmer = np.asarray(temperature_c) - thermal.reference_c
    return np.asarray(board.idle.clocks_up_w + thermal.leak_w_per_c * warmer)


def phase_power(
    board: Board, phase: Phase, f_mhz: ArrayLike, temperature_c: ArrayLike
) -> NDArray[np.float64]:
    core_w = phase.core_w * core_share(board.clocks, f_mhz)
    return standing_w(board, temperature_c) + phase.fixed_w + core_w


def phase_time(board: Board, phase: Phase, f_mhz: ArrayLike) -> NDArray[np.float64]:
    slower = board.clocks.sm_max_mhz / np.asarray(f_mhz)
    return np.asarray(phase.time_s * (1 - phase.compute + phase.compute * slower))


def equilibrium_clock(
    board: Board, load: Load, controls: ControlSettings | ArrayLike, temperature_c: ArrayLike
) -> NDArray[np.float64]:
    """The highest clock (MHz) that the lock allows and at which every phase keeps to the cap.

    ``controls`` may be caps (W) alone. A cap goes below a lock, as on a real board. At the lowest
    clock a cap that is lower still is exceeded.
    """
    clocks = board.clocks
    lock, cap_w = None, controls
    if isinstance(controls, ControlSettings):
        lock, cap_w = controls.sm_lock_mhz, controls.limit_w
    headroom_w = np.asarray(cap_w) - standing_w(board, temperature_c)
    share = np.asarray(1.0)
    for phase in load.phases:
        spare_w, core_w = headroom_w - phase.fixed_w, np.asarray(phase.core_w)
        held = np.divide(spare_w, core_w, where=core_w > 0, out=np.ones_like(spare_w + core_w))
        share = np.minimum(share, held)
    highest = np.clip(lock[1] if lock else np.inf, clocks.sm_min_mhz, clocks.sm_max_mhz)
    return np.asarray(np.clip(clock_for(clocks, share), clocks.sm_min_mhz, highest))


def step_at(
    board: Board, load: Load, f_mhz: ArrayLike, temperature_c: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Time (s) and energy (J) of one step at a clock."""
    time_s = energy_j = np.asarray(0.0)
    for phase in load.phases:
        phase_s = phase_time(board, phase, f_mhz)
        time_s = time_s + phase_s
        energy_j = energy_j + phase_s * phase_power(board, phase, f_mhz, temperature_c)
    return time_s, energy_j


def steady(
    board: Board, load: Load, cap_w: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Time (s), energy (J) and clock (MHz) of a step once the temperature has settled."""
    temperature_c = steady_c(board, load, cap_w)
    clock = equilibrium_clock(board, load, cap_w, temperature_c)
    return *step_at(board, load, clock, temperature_c), clock


def steady_c(board: Board, load: Load, cap_w: ControlSettings | ArrayLike) -> NDArray[np.float64]:
    """The temperature that the board settles at under this load, by fixed-point iteration."""
    thermal = board.thermal
    temperature_c = np.asarray(thermal.reference_c)
    for _ in range(_HEAT_STEPS):
        clock = equilibrium_clock(board, load, cap_w, temperature_c)
        time_s, energy_j = step_at(board, load, clock, temperature_c)
        temperature_c = thermal.ambient_c + thermal.resistance_c_per_w * energy_j / time_s
    return temperature_c


def steady_run(
    board: Board, workload: Workload, cap_w: ControlSettings | ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Time and energy of a whole training on a warm board, without noise or settling."""
    steps = np.ceil(np.asarray(workload.samples) / workload.batch_size)
    temperature_c = steady_c(board, workload.step, cap_w)
    wait_s = np.asarray(workload.epochs * workload.epoch_end_s)
    for phase in workload.step.phases:
        wait_s = wait_s + workload.warmup_steps * (workload.warmup_factor - 1) * phase.time_s
    time_s, energy_j = wait_s, wait_s * standing_w(board, temperature_c)
    for count, load in ((steps, workload.step), (workload.validation_steps, workload.validation)):
        clock = equilibrium_clock(board, load, cap_w, temperature_c)
        step_s, step_j = step_at(board, load, clock, temperature_c)
        time_s = time_s + workload.epochs * count * step_s
        energy_j = energy_j + workload.epochs * count * step_j
    return time_s, energy_j
