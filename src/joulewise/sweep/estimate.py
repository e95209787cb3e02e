"""What a sweep will take, told before it starts: from physics, or from runs that were made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Final

from joulewise.data.sweeps import Setting
from joulewise.sweep.asked import Asked
from joulewise.sweep.cooling import parse_cool_down
from joulewise.sweep.space import Space

_J_PER_KWH: Final = 3_600_000


@dataclass(frozen=True)
class Amount:
    """One run; its energy is None where nobody knows it."""

    time_s: float
    energy_j: float | None


@dataclass(frozen=True)
class Basis:
    """What a run of a setting takes, for some settings or none, and where that is from.

    ``counted`` says what the energy is of.
    """

    amounts: Mapping[Setting, Amount] = field(default_factory=dict)
    source: str = ""
    counted: str = ""


@dataclass(frozen=True)
class Estimate:
    """What all runs take together; None where nobody can know.

    ``time_s`` is from the first run's start to the last one's end; settings that ``basis`` does
    not have are taken to be like those it has. Where only the timeout is known, ``most_s`` bounds
    it. ``left_out`` says what is not in either. ``price`` is in the currency of a kWh's.
    """

    runs: int
    lanes: int
    basis: Basis
    time_s: float | None = None
    most_s: float | None = None
    energy_j: float | None = None
    price: float | None = None
    left_out: str = ""


def estimate(
    asked: Asked,
    space: Space,
    store: Path,
    *,
    lanes: int = 1,
    runs: int | None = None,
    price_per_kwh: float | None = None,
) -> Estimate:
    """``runs`` are as many as a search will make by its own guess; without, it is the grid."""
    basis = _basis(asked, space, store)
    cool_down = parse_cool_down("" if asked.simulated else asked.cool_down)
    left_out = (
        "" if cool_down.below_c is None else f"the time to cool down to {cool_down.below_c:g} °C"
    )
    runs, in_turn = _runs(asked, space, lanes) if runs is None else (runs, ceil(runs / lanes))
    waiting_s = max(in_turn - 1, 0) * cool_down.wait_s
    if not basis.amounts:
        # One that is ended by the timeout is tried once more.
        most_s = 2 * in_turn * asked.timeout_s + waiting_s if asked.timeout_s else None
        return Estimate(runs, lanes, basis, most_s=most_s, left_out=left_out)
    usual = _usual(list(basis.amounts.values()))
    energy_j = None if usual.energy_j is None else runs * usual.energy_j
    return Estimate(
        runs,
        lanes,
        basis,
        time_s=in_turn * usual.time_s + waiting_s,
        energy_j=energy_j,
        price=None
        if energy_j is None or price_per_kwh is None
        else energy_j / _J_PER_KWH * price_per_kwh,
        left_out=left_out,
    )


def _basis(asked: Asked, space: Space, store: Path) -> Basis:
    if asked.simulated:
        from joulewise.sweep.estimate_physics import from_physics

        return from_physics(asked.simulated, space, store)
    from joulewise.sweep.estimate_runs import from_runs

    return from_runs(asked, space, store)


def _runs(asked: Asked, space: Space, lanes: int) -> tuple[int, int]:
    """Of a grid in all, and one after the other in the lane that has most."""
    block, used = len(space.points), min(lanes, asked.repeat)
    in_turn = ceil(asked.repeat / lanes) * block + asked.warm_up
    return asked.repeat * block + used * asked.warm_up, in_turn


def _usual(amounts: Sequence[Amount]) -> Amount:
    known = [each.energy_j for each in amounts if each.energy_j is not None]
    return Amount(
        sum(each.time_s for each in amounts) / len(amounts),
        sum(known) / len(known) if known else None,
    )
