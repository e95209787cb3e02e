"""What runs of a command take, from those that are in the store already."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

from joulewise.data import Kind
from joulewise.data.sweeps import CPU_LIMIT, KNOBS, POWER_LIMIT, Setting
from joulewise.record.manifest import Manifest
from joulewise.record.result_summary import read_summary
from joulewise.record.store import Skipped, readable
from joulewise.sweep.asked import Asked
from joulewise.sweep.estimate import Amount, Basis
from joulewise.sweep.space import Space
from joulewise.sweep.template import render

_Command = tuple[str, tuple[str, ...]]
"""Where it runs, and its words."""

_SAME: Final = 0.5  # W or MHz


@dataclass(frozen=True)
class _Earlier:
    knobs: Mapping[str, float | None]
    amount: Amount


def from_runs(asked: Asked, space: Space, store: Path) -> Basis:
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
        return Basis(source="no earlier run of this command is in the store")
    at = f", at {exact} of the {len(space.points)} settings" if exact < len(space.points) else ""
    return Basis(
        amounts,
        f"{len(used)} earlier run{'s' if len(used) > 1 else ''} of this command{at}",
        "what those runs counted",
    )


def _command(asked: Asked, setting: Setting) -> _Command:
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
            yield command, _Earlier(_knobs(manifest), Amount(time_s, energy_j))


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


def _mean(runs: list[_Earlier]) -> Amount:
    known = [run.amount.energy_j for run in runs if run.amount.energy_j is not None]
    return Amount(fmean(run.amount.time_s for run in runs), fmean(known) if known else None)
