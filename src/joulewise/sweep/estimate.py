"""What a sweep will take, told before it starts: from physics, or from runs that were made.

What runs on a simulated board take, from its physics alone: no noise, no settling.

What runs of a command take, from those that are in the store already.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from joulewise.data import Kind
from joulewise.data.sweeps import CPU_LIMIT, KNOBS, POWER_LIMIT, SM_CLOCK, Setting
from joulewise.store.manifest import Manifest
from joulewise.store.runs import Skipped, read_summary, readable
from joulewise.sweep.runners.cool_down import parse_cool_down
from joulewise.sweep.space import Space
from joulewise.sweep.spec import SimulationSpec, SweepSpec
from joulewise.sweep.validate import render
from joulewise.units import J_PER_KWH


@dataclass(frozen=True)
class RunEstimate:
    """One run; its energy is None where nobody knows it."""

    time_s: float
    energy_j: float | None


@dataclass(frozen=True)
class EstimateBasis:
    """What a run of a setting takes, for some settings or none, and where that is from.

    ``counted`` says what the energy is of.
    """

    amounts: Mapping[Setting, RunEstimate] = field(default_factory=dict)
    source: str = ""
    counted: str = ""


@dataclass(frozen=True)
class SweepEstimate:
    """What all runs take together; None where nobody can know.

    ``time_s`` is from the first run's start to the last one's end; settings that ``basis`` does
    not have are taken to be like those it has. Where only the timeout is known, ``most_s`` bounds
    it. ``left_out`` says what is not in either. ``price`` is in the currency of a kWh's.
    """

    runs: int
    lanes: int
    basis: EstimateBasis
    time_s: float | None = None
    most_s: float | None = None
    energy_j: float | None = None
    price: float | None = None
    left_out: str = ""


def estimate(
    asked: SweepSpec,
    space: Space,
    store: Path,
    *,
    lanes: int = 1,
    runs: int | None = None,
    price_per_kwh: float | None = None,
) -> SweepEstimate:
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
        return SweepEstimate(runs, lanes, basis, most_s=most_s, left_out=left_out)
    usual = _usual(list(basis.amounts.values()))
    energy_j = None if usual.energy_j is None else runs * usual.energy_j
    return SweepEstimate(
        runs,
        lanes,
        basis,
        time_s=in_turn * usual.time_s + waiting_s,
        energy_j=energy_j,
        price=None
        if energy_j is None or price_per_kwh is None
        else energy_j / J_PER_KWH * price_per_kwh,
        left_out=left_out,
    )


def _basis(asked: SweepSpec, space: Space, store: Path) -> EstimateBasis:
    if asked.simulated:
        return from_physics(asked.simulated, space, store)

    return from_runs(asked, space, store)


def _runs(asked: SweepSpec, space: Space, lanes: int) -> tuple[int, int]:
    """Of a grid in all, and one after the other in the lane that has most."""
    block, used = len(space.points), min(lanes, asked.repeat)
    in_turn = ceil(asked.repeat / lanes) * block + asked.warm_up
    return asked.repeat * block + used * asked.warm_up, in_turn


def _usual(amounts: Sequence[RunEstimate]) -> RunEstimate:
    known = [each.energy_j for each in amounts if each.energy_j is not None]
    return RunEstimate(
        sum(each.time_s for each in amounts) / len(amounts),
        sum(known) / len(known) if known else None,
    )


_Alike = tuple[float | None, tuple[tuple[str, str], ...]]
"""An SM clock, and what the workload is given: the physics takes many limits at once."""


def from_physics(simulated: SimulationSpec, space: Space, store: Path) -> EstimateBasis:
    import numpy as np

    from joulewise.simulate.boards import load_board
    from joulewise.simulate.model import Knobs
    from joulewise.simulate.physics.steady_state import run
    from joulewise.sweep.workload import load

    board = load_board(simulated.gpu)
    alike: dict[_Alike, list[Setting]] = {}
    for setting in space.points:
        key = setting.knobs.get(SM_CLOCK), tuple(setting.words.items())
        alike.setdefault(key, []).append(setting)
    amounts = {}
    for (clock_mhz, words), settings in alike.items():
        workload = load(simulated, dict(words), board, store)
        limits_w: Any = np.array(
            [setting.knobs.get(POWER_LIMIT) or board.limits.default_w for setting in settings]
        )
        lock = None if clock_mhz is None else (clock_mhz, clock_mhz)
        time_s, energy_j = run(board, workload, Knobs(limits_w, lock))
        for setting, each_s, each_j in zip(settings, time_s, energy_j, strict=True):
            amounts[setting] = RunEstimate(float(each_s), float(each_j))
    source = f"in virtual time, by the physics of the simulated {simulated.gpu}"
    return EstimateBasis(amounts, source, "the GPU")


_Command = tuple[str, tuple[str, ...]]
"""Where it runs, and its words."""

_SAME: Final = 0.5  # W or MHz


@dataclass(frozen=True)
class _Earlier:
    knobs: Mapping[str, float | None]
    amount: RunEstimate


def from_runs(asked: SweepSpec, space: Space, store: Path) -> EstimateBasis:
    """Of the same command on such a board; at the same limits and clocks if there are any."""
    wanted = {setting: _command(asked, setting) for setting in space.points}
    found: dict[_Command, list[_Earlier]] = {}
    for command, run in _earlier(store, set(wanted.values()), space):
        found.setdefault(command, []).append(run)
    amounts, exact, used = {}, 0, set()
    for setting, command in wanted.items():
        runs = found.get(command, [])
        same = [run for run in runs if _is_at(setting, run)]
        if runs:
            amounts[setting] = _mean(same or runs)
            exact += bool(same)
            used |= {id(run) for run in same or runs}
    if not amounts:
        return EstimateBasis(source="no earlier run of this command is in the store")
    at = f", at {exact} of the {len(space.points)} settings" if exact < len(space.points) else ""
    return EstimateBasis(
        amounts,
        f"{len(used)} earlier run{'s' if len(used) > 1 else ''} of this command{at}",
        "what those runs counted",
    )


def _command(asked: SweepSpec, setting: Setting) -> _Command:
    words = setting.words
    folder = os.path.abspath(render(asked.cwd, words) or os.curdir)  # noqa: PTH100  # as it was told
    return folder, tuple(render(word, words) for word in asked.command)


def _earlier(
    store: Path, wanted: set[_Command], space: Space
) -> Iterator[tuple[_Command, _Earlier]]:
    for found in readable(store):
        if isinstance(found, Skipped):
            continue
        path, manifest = found
        command = (manifest.cwd, manifest.commands[0].arguments) if manifest.commands else None
        is_whole = manifest.state == "complete" and manifest.exit_code == 0
        if command not in wanted or not is_whole or not _is_board(manifest, space):
            continue
        summary = read_summary(path) or {}
        time_s = summary.get("time_s")
        if time_s is not None:
            energy = (summary.get("energy_j") or {}).get("total") or {}
            energy_j = None if energy.get("at_least") else energy.get("value")
            yield command, _Earlier(_knobs(manifest), RunEstimate(time_s, energy_j))


def _is_board(manifest: Manifest, space: Space) -> bool:
    """Whether it ran on boards like ours; where it knew of none, it needs none."""
    names = {each.info.name for each in manifest.devices if each.info.kind is Kind.GPU}
    return not names or space.board is None or space.board.name in names


def _knobs(manifest: Manifest) -> dict[str, float | None]:
    told: dict[str, float | None] = dict.fromkeys(KNOBS)
    for device in reversed(manifest.devices):  # of several GPUs the first
        if device.info.kind is Kind.GPU:
            told |= {name: value for name, value in device.settings.items() if name in KNOBS}
        elif device.info.kind is Kind.CPU:
            told[CPU_LIMIT] = device.settings.get(POWER_LIMIT)
    return told


def _is_at(setting: Setting, run: _Earlier) -> bool:
    return all(_is_same(name, value, run.knobs[name]) for name, value in setting.knobs.items())


def _is_same(name: str, wanted: float | None, had: float | None) -> bool:
    if wanted is None:
        return name == CPU_LIMIT or had is None  # a package always has one; a clock when locked
    return had is not None and abs(wanted - had) <= _SAME


def _mean(runs: list[_Earlier]) -> RunEstimate:
    known = [run.amount.energy_j for run in runs if run.amount.energy_j is not None]
    return RunEstimate(fmean(run.amount.time_s for run in runs), fmean(known) if known else None)
