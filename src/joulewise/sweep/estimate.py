"""Estimates of a sweep's time and energy before it starts.

- :func:`from_physics`: for a simulated board, by its steady state, without noise
- :func:`from_runs`: for a command, by its earlier runs in the store
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from joulewise.data import Kind
from joulewise.data.sweeps import CONTROL_AXES, CPU_LIMIT, POWER_LIMIT, SM_CLOCK, Setting
from joulewise.store.manifest import Manifest
from joulewise.store.runs import Skipped, read_summary, readable
from joulewise.sweep.runners.cool_down import parse_cool_down
from joulewise.sweep.space import Space
from joulewise.sweep.spec import SimulationSpec, SweepSpec, render
from joulewise.units import J_PER_KWH


@dataclass(frozen=True)
class RunEstimate:
    """Time and energy of one run; the energy is None where it is unknown."""

    time_s: float
    energy_j: float | None


@dataclass(frozen=True)
class EstimateBasis:
    """Estimates of single runs, by setting, and where they come from.

    Settings may be missing. ``counted`` says in words what the energy includes.
    """

    amounts: Mapping[Setting, RunEstimate] = field(default_factory=dict)
    source: str = ""
    counted: str = ""


@dataclass(frozen=True)
class SweepEstimate:
    """Time and energy of all runs together; None where they are unknown.

    ``time_s`` is from the start of the first run to the end of the last; settings that ``basis``
    lacks count with the mean of the others. ``most_s`` is an upper bound where only the timeout is
    known. ``left_out`` says in words what neither includes. ``price`` is in the currency of
    ``price_per_kwh``.
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
    spec: SweepSpec,
    space: Space,
    store: Path,
    *,
    lanes: int = 1,
    runs: int | None = None,
    price_per_kwh: float | None = None,
) -> SweepEstimate:
    """Estimate a sweep in ``lanes`` GPU slots; ``runs`` is a search's guess, None for a grid."""
    if spec.simulated:
        basis = from_physics(spec.simulated, space, store)
    else:
        basis = from_runs(spec, space, store)
    cool_down = parse_cool_down("" if spec.simulated else spec.cool_down)
    left_out = (
        "" if cool_down.below_c is None else f"the time to cool down to {cool_down.below_c:g} °C"
    )
    runs, in_turn = _count_runs(spec, space, lanes) if runs is None else (runs, ceil(runs / lanes))
    waiting_s = max(in_turn - 1, 0) * cool_down.wait_s
    if not basis.amounts:
        # A run that the timeout ends is attempted once more.
        most_s = 2 * in_turn * spec.timeout_s + waiting_s if spec.timeout_s else None
        return SweepEstimate(runs, lanes, basis, most_s=most_s, left_out=left_out)
    mean = _mean(basis.amounts.values())
    energy_j = None if mean.energy_j is None else runs * mean.energy_j
    return SweepEstimate(
        runs,
        lanes,
        basis,
        time_s=in_turn * mean.time_s + waiting_s,
        energy_j=energy_j,
        price=None
        if energy_j is None or price_per_kwh is None
        else energy_j / J_PER_KWH * price_per_kwh,
        left_out=left_out,
    )


def _count_runs(spec: SweepSpec, space: Space, lanes: int) -> tuple[int, int]:
    """The runs of a grid in all, and one after the other in the slot that has most."""
    block, used = len(space.points), min(lanes, spec.repeat)
    in_turn = ceil(spec.repeat / lanes) * block + spec.warm_up
    return spec.repeat * block + used * spec.warm_up, in_turn


def _mean(amounts: Iterable[RunEstimate]) -> RunEstimate:
    amounts = list(amounts)
    known = [amount.energy_j for amount in amounts if amount.energy_j is not None]
    return RunEstimate(fmean(amount.time_s for amount in amounts), fmean(known) if known else None)


def from_physics(simulated: SimulationSpec, space: Space, store: Path) -> EstimateBasis:
    """Estimate runs on a simulated board by the steady state of its physics."""
    import numpy as np

    from joulewise.simulate.boards import load_board
    from joulewise.simulate.model import ControlSettings
    from joulewise.simulate.physics.steady_state import steady_run
    from joulewise.sweep.workload import load

    board = load_board(simulated.gpu)
    # The physics takes many power limits at once, for one clock and one workload.
    groups: dict[tuple[float | None, tuple[tuple[str, str], ...]], list[Setting]] = {}
    for setting in space.points:
        key = setting.controls.get(SM_CLOCK), tuple(setting.words.items())
        groups.setdefault(key, []).append(setting)
    amounts = {}
    for (clock_mhz, words), settings in groups.items():
        workload = load(simulated, dict(words), board, store)
        limits_w: Any = np.array(
            [setting.controls.get(POWER_LIMIT) or board.limits.default_w for setting in settings]
        )
        lock = None if clock_mhz is None else (clock_mhz, clock_mhz)
        time_s, energy_j = steady_run(board, workload, ControlSettings(limits_w, lock))
        for setting, run_s, run_j in zip(settings, time_s, energy_j, strict=True):
            amounts[setting] = RunEstimate(float(run_s), float(run_j))
    source = f"from the physical model of the simulated {simulated.gpu}"
    return EstimateBasis(amounts, source, "the GPU")


_Command = tuple[str, tuple[str, ...]]
"""The working directory and the words of a command."""

_EarlierRun = tuple[Mapping[str, float | None], RunEstimate]
"""The controls of an earlier run, and what it took."""

# By how much, in W or MHz, a control may differ and count as the same. Chosen: drivers round to
# whole watts and MHz.
_SAME: Final = 0.5


def from_runs(spec: SweepSpec, space: Space, store: Path) -> EstimateBasis:
    """Estimate runs by earlier ones of the same command on such a board.

    Those with the same limits and clocks count, or all where there are none.
    """
    commands = {setting: _command(spec, setting) for setting in space.points}
    runs_by_command: dict[_Command, list[_EarlierRun]] = {}
    for command, run in _earlier_runs(store, set(commands.values()), space):
        runs_by_command.setdefault(command, []).append(run)
    amounts, exact, used = {}, 0, set()
    for setting, command in commands.items():
        runs = runs_by_command.get(command, [])
        same = [run for run in runs if _has_controls(run, setting)]
        if runs:
            amounts[setting] = _mean(amount for _, amount in same or runs)
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


def _command(spec: SweepSpec, setting: Setting) -> _Command:
    words = setting.words
    folder = os.path.abspath(render(spec.cwd, words) or os.curdir)  # noqa: PTH100  # symbolic links stay
    return folder, tuple(render(word, words) for word in spec.command)


def _earlier_runs(
    store: Path, wanted: set[_Command], space: Space
) -> Iterator[tuple[_Command, _EarlierRun]]:
    """Complete runs of these commands on boards like the sweep's."""
    for entry in readable(store):
        if isinstance(entry, Skipped):
            continue
        path, manifest = entry
        command = (manifest.cwd, manifest.commands[0].arguments) if manifest.commands else None
        is_whole = manifest.state == "complete" and manifest.exit_code == 0
        if command not in wanted or not is_whole or not _is_board(manifest, space):
            continue
        summary = read_summary(path) or {}
        time_s = summary.get("time_s")
        if time_s is not None:
            energy = (summary.get("energy_j") or {}).get("total") or {}
            energy_j = None if energy.get("at_least") else energy.get("value")
            yield command, (_read_controls(manifest), RunEstimate(time_s, energy_j))


def _is_board(manifest: Manifest, space: Space) -> bool:
    """Whether a run was on boards like the sweep's; one without GPUs needs none."""
    names = {device.info.name for device in manifest.devices if device.info.kind is Kind.GPU}
    return not names or space.board is None or space.board.name in names


def _read_controls(manifest: Manifest) -> dict[str, float | None]:
    controls: dict[str, float | None] = dict.fromkeys(CONTROL_AXES)
    for device in reversed(manifest.devices):  # of several GPUs the first
        if device.info.kind is Kind.GPU:
            controls |= {
                name: value for name, value in device.settings.items() if name in CONTROL_AXES
            }
        elif device.info.kind is Kind.CPU:
            controls[CPU_LIMIT] = device.settings.get(POWER_LIMIT)
    return controls


def _has_controls(run: _EarlierRun, setting: Setting) -> bool:
    controls, _ = run
    return all(_is_same(name, value, controls[name]) for name, value in setting.controls.items())


def _is_same(name: str, wanted: float | None, had: float | None) -> bool:
    if wanted is None:
        return name == CPU_LIMIT or had is None  # a package always has one; a clock when locked
    return had is not None and abs(wanted - had) <= _SAME
