"""Runs that need not be made: those that must be too slow, and those that are beaten already."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from joulewise.data.energy import Energy
from joulewise.data.sweeps import (
    CONFIRMING,
    WARM_UP,
    Planned,
    Setting,
    Sweep,
    Trial,
    TrialState,
    Value,
)


def too_slow(planned: Planned, sweep: Sweep, most: float) -> str:
    """Why the run must take over ``most`` times as long as the reference; empty where it need not.

    With a knob lower and none higher nothing gets faster, so a setting is no faster than one that
    was seen to be too slow. That one is itself repeated like all others: on its mean all depends.
    """
    if not _counts(planned) or planned.setting == sweep.reference:
        return ""
    done = _done(sweep.trials)
    for setting, runs in done.items():
        if _is_lower(planned.setting, setting):
            slowdown = _slowdown(runs, done.get(sweep.reference, ()))
            if slowdown is not None and slowdown > most:
                return f"no faster than {setting}, which took {slowdown:.3g} times as long"
    return ""


def is_beaten(planned: Planned, time_s: float, joules: Mapping[str, float], sweep: Sweep) -> bool:
    """Whether another setting has finished with less time and less energy than this run's so far.

    Both only grow. The reference is never given up: everything is compared with it. Nor is a run
    that confirms a choice: between settings that are about as good, noise would stop it.
    """
    is_needed = planned.setting == sweep.reference or planned.block >= CONFIRMING
    if is_needed or not _counts(planned):
        return False
    return any(
        _are_less(runs, time_s, joules)
        for setting, runs in _done(sweep.trials).items()
        if setting != planned.setting
    )


class _Run(NamedTuple):
    block: int
    gpu: str
    time_s: float
    energy: Mapping[str, Energy]


def _done(trials: Iterable[Trial]) -> dict[Setting, list[_Run]]:
    """Whole runs by their setting; a look at some steps has no time to compare."""
    found: dict[Setting, list[_Run]] = {}
    for trial in trials:
        if trial.state is TrialState.DONE and trial.time_s is not None and _counts(trial):
            run = _Run(trial.block, trial.gpu, trial.time_s, trial.energy)
            found.setdefault(trial.setting, []).append(run)
    return found


def _counts(one: Planned | Trial) -> bool:
    return one.block != WARM_UP and one.look_s is None


def _is_lower(one: Setting, other: Setting) -> bool:
    """In a knob at least, and in none higher, with the command the same."""
    heights = [(_height(one.get(name)), _height(other.get(name))) for name in other.knobs]
    return (
        one != other
        and one.words == other.words
        and all(mine <= theirs for mine, theirs in heights)
    )


def _height(value: Value) -> float:
    """A knob that is left alone is at its highest."""
    return value if isinstance(value, float | int) else math.inf


def _slowdown(runs: Iterable[_Run], references: Iterable[_Run]) -> float | None:
    """Over the blocks in which the reference ran on the same board; None where it never did."""
    its_s = {(run.block, run.gpu): run.time_s for run in references}
    paired = [run for run in runs if (run.block, run.gpu) in its_s]
    if not paired:
        return None
    return fmean(run.time_s for run in paired) / fmean(its_s[run.block, run.gpu] for run in paired)


def _are_less(runs: Sequence[_Run], time_s: float, joules: Mapping[str, float]) -> bool:
    """On the mean, in time and in all energies that are known of them."""
    names = set.intersection(*(set(run.energy) for run in runs))
    return (
        bool(names)
        and fmean(run.time_s for run in runs) < time_s
        and all(
            fmean(run.energy[name].value for run in runs) < joules.get(name, 0.0) for name in names
        )
    )
