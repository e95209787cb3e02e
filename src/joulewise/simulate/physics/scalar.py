"""The formulas of :mod:`joulewise.simulate.physics.steady_state` for one value at a time.

In plain floats they are ten times faster than numpy is on single values.
"""

from __future__ import annotations

from joulewise.simulate.model import Board, ClockRange, Phase


def core_share(clocks: ClockRange, clock_mhz: float) -> float:
    """Core power relative to that at the highest clock: clock times voltage squared."""
    rise = max(0.0, clock_mhz - clocks.ridge_mhz) / (clocks.sm_max_mhz - clocks.ridge_mhz)
    volt = clocks.floor_v + (1.0 - clocks.floor_v) * rise * rise
    return clock_mhz / clocks.sm_max_mhz * volt * volt


def clock_for(clocks: ClockRange, share: float) -> float:
    """The clock (MHz) at which core power is ``share`` of that at the highest clock.

    Below the ridge the relation is linear; above it Newton's method is used, from the highest clock
    down. Core power is convex in the clock there, so that no iterate passes the root.
    """
    if share >= 1.0:
        return clocks.sm_max_mhz
    clock = max(0.0, share) * clocks.sm_max_mhz / clocks.floor_v**2
    if clock <= clocks.ridge_mhz:
        return clock
    span = clocks.sm_max_mhz - clocks.ridge_mhz
    clock = clocks.sm_max_mhz
    while True:
        rise = (clock - clocks.ridge_mhz) / span
        volt = clocks.floor_v + (1.0 - clocks.floor_v) * rise * rise
        slope = volt * (volt + 4.0 * clock * (1.0 - clocks.floor_v) * rise / span)
        step = (clock * volt * volt - share * clocks.sm_max_mhz) / slope
        clock -= step
        if step < 1e-9 * clock:
            return clock


def stretch(board: Board, phase: Phase, clock_mhz: float) -> float:
    """How much longer a phase takes than at the highest clock."""
    return 1.0 - phase.compute + phase.compute * board.clocks.sm_max_mhz / clock_mhz


def standing_w(board: Board, temperature_c: float) -> float:
    """What is drawn with clocks up whatever runs: idle power with clocks up, and leakage."""
    thermal = board.thermal
    return board.idle.clocks_up_w + thermal.leak_w_per_c * (temperature_c - thermal.reference_c)
