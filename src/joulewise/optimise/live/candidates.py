"""The settings that may be tried on the GPUs of a job: those that all of them can be set to.

A limit holds the highest clock whose power is within it, so that limits and SM clocks that lead to
one clock are alike: both axes are two lines of candidates, the limits at a free clock, and the
clocks at the highest limit. Nearly everything that the grid of both holds is on them. The memory
clock is an axis of its own, and multiplies them.

No limit is tried above the one in force before: who lowered it may not have the power or the
cooling for more.

The reference, the setting before, is one of the candidates: a power limit is named by its value,
an unlocked clock is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Final

from joulewise.data.sweeps import MEM_CLOCK, POWER_LIMIT, SM_CLOCK, Setting
from joulewise.errors import DeviceError, UsageError

if TYPE_CHECKING:
    from joulewise.optimise.live.policy.response_model import TuningCandidate
    from joulewise.session.gpu_discovery import DiscoveredGpu

AXES: Final = {"power-limit": POWER_LIMIT, "sm-clock": SM_CLOCK, "mem-clock": MEM_CLOCK}
"""The axes by their names on the command line, and their keys in settings."""

DEFAULT_AXES: Final = (POWER_LIMIT, SM_CLOCK)
"""Tuned where none is named, as far as the GPUs have them and they may be set."""

# Chosen: energy is so flat around its least that half a step costs below 0.1 %. Steps twice as wide
# cost up to 0.3 % at the lowest limits. At a bound of the slowdown every step counts.
_LIMIT_STEP_W: Final = 5.0
_MOST_LIMITS: Final = 80  # of one axis, on boards with a range of several hundred watts
_MOST_CLOCKS: Final = 80  # likewise; at 30, a tuning at a bound ends 1 % off the best more often
# Clocks below this share of the highest are left out. Chosen: the least energy is at 40 to 90 % of
# the highest clock on every published board, and at a tenth a single look takes minutes.
_LEAST_CLOCK_SHARE: Final = 0.3


def parse_axes(names: Sequence[str]) -> tuple[str, ...]:
    """The keys of the axes with these names; UsageError where there is none of that name."""
    for name in names:
        if name not in AXES:
            raise UsageError(f"there is no axis {name!r}", f"choose from: {', '.join(AXES)}")
    return tuple(key for name, key in AXES.items() if name in names)


def available_axes(gpus: Sequence[DiscoveredGpu], axes: Sequence[str]) -> tuple[str, ...]:
    """Those of the axes on which all GPUs have values to choose from, at least two.

    Without ``axes``, those of ``DEFAULT_AXES``. Raises DeviceError where one that is named cannot
    be tuned, where there is none, and where a GPU is shared in slices (MIG).
    """
    for gpu in gpus:
        if gpu.is_partitioned:
            raise DeviceError(
                f"{gpu.key} is shared in MIG slices, whose settings cannot differ",
                "tuning needs a GPU that is not partitioned",
            )
    wanted = axes or DEFAULT_AXES
    found = tuple(axis for axis in wanted if _values(gpus, axis))
    keys = ", ".join(gpu.key for gpu in gpus)
    for axis in axes:
        if axis not in found:
            raise DeviceError(f"{keys} cannot be tuned by {_name(axis)}", "name another --axis")
    if not found:
        raise DeviceError(f"{keys} has neither a power limit nor a clock to set", "use another GPU")
    return found


def make_candidates(
    gpus: Sequence[DiscoveredGpu], axes: Sequence[str]
) -> tuple[tuple[TuningCandidate, ...], int]:
    """The candidates on these axes, and the index of the reference among them."""
    from joulewise.optimise.live.policy.response_model import TuningCandidate

    reference = TuningCandidate(power_limit_w=_limit_before(gpus) if POWER_LIMIT in axes else None)
    limits = _values(gpus, POWER_LIMIT) if POWER_LIMIT in axes else []
    highest_w = max(limits, default=None)
    lines = {TuningCandidate(power_limit_w=limit_w) for limit_w in limits} | {reference}
    for clock_mhz in _values(gpus, SM_CLOCK) if SM_CLOCK in axes else []:
        lines.add(TuningCandidate(highest_w, clock_mhz))
    memory = [*_values(gpus, MEM_CLOCK), None] if MEM_CLOCK in axes else [None]
    found = {replace(one, mem_clock_mhz=clock_mhz) for one in lines for clock_mhz in memory}
    candidates = sorted(found, key=_order)
    return tuple(candidates), candidates.index(reference)


def as_setting(candidate: TuningCandidate, axes: Sequence[str]) -> Setting:
    """The candidate as it is shown and stored: a value for each axis."""
    return Setting.of({axis: getattr(candidate, axis) for axis in axes})


def _order(candidate: TuningCandidate) -> tuple[float, ...]:
    """Unlocked clocks last, as the highest."""
    values = (candidate.power_limit_w, candidate.sm_clock_mhz, candidate.mem_clock_mhz)
    return tuple(float("inf") if value is None else value for value in values)


def _name(axis: str) -> str:
    (name,) = (name for name, key in AXES.items() if key == axis)
    return name


def _limit_before(gpus: Sequence[DiscoveredGpu]) -> float | None:
    """The limit that all GPUs have now; None where they differ: it is left as it is."""
    limits = {gpu.now_w for gpu in gpus}
    return limits.pop() if len(limits) == 1 else None


def _values(gpus: Sequence[DiscoveredGpu], axis: str) -> list[float]:
    """The values on an axis besides the one before, ascending; none where there is no choice."""
    if axis == POWER_LIMIT:
        return _limits(gpus)
    clocks = (gpu.sm_clocks_mhz if axis == SM_CLOCK else gpu.mem_clocks_mhz for gpu in gpus)
    common = sorted(set.intersection(*map(set, clocks)))
    usable = [clock for clock in common if clock >= _LEAST_CLOCK_SHARE * common[-1]]
    # The highest is what an unlocked clock reaches: as a lock, it would be the same setting twice.
    return _thinned(usable[:-1], _MOST_CLOCKS)


def _limits(gpus: Sequence[DiscoveredGpu]) -> list[float]:
    if any(gpu.default_w is None for gpu in gpus):
        return []
    low = max(gpu.lowest_w for gpu in gpus)
    now_w = [gpu.now_w for gpu in gpus if gpu.now_w is not None]
    high = min([*(gpu.highest_w for gpu in gpus), *now_w])
    first = ceil(low / _LIMIT_STEP_W) * _LIMIT_STEP_W
    count = int((high - first) // _LIMIT_STEP_W) + 1
    limits = {low, high, *(first + number * _LIMIT_STEP_W for number in range(count))}
    return _thinned(sorted(limits), _MOST_LIMITS) if high > low else []


def _thinned(values: Sequence[float], most: int) -> list[float]:
    """At most so many of the values, evenly spread, with the first and the last."""
    if len(values) <= most:
        return list(values)
    return [values[round(index * (len(values) - 1) / (most - 1))] for index in range(most)]
