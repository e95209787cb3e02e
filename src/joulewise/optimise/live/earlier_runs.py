"""What earlier tunings of the same command, on the same boards, took at each setting."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from joulewise.data.tuning import StepSource
from joulewise.errors import JoulewiseError
from joulewise.optimise.live.candidates import AXES
from joulewise.optimise.live.policy.choice import EarlierMean
from joulewise.optimise.live.policy.response_model import TuningCandidate
from joulewise.store.index.conditions import text_is
from joulewise.store.index.folder_index import ListPage, query_index
from joulewise.store.index.run_entry import (
    NEWEST_FIRST,
    READABLE,
    RUNS,
    RunEntry,
    select_runs,
)
from joulewise.store.manifest import Manifest, read_manifest
from joulewise.store.tuning_file import read_tuning

# Chosen: one run tells nearly all, a second and third whether it is typical. Of the newest runs of
# the command so many are opened at most, since not each of them was tuned.
_MOST_RUNS: Final = 3
# Steps by these are of another length, or no steps at all: a wave of the power, a unit of load.
_OF_THE_GPU: Final = frozenset({StepSource.POWER, StepSource.ACTIVITY})
_MOST_OPENED: Final = 20


def find_earlier_means(run: Path, keys: Sequence[str]) -> tuple[EarlierMean, ...]:
    """What the newest tuned runs beside this one took, where command, folder and GPUs are its own.

    ``keys`` are those of the GPUs that are tuned. Empty where nothing is known or can be read.
    """
    try:
        now = read_manifest(run)
        if not now.commands:
            return ()
        command = shlex.join(now.commands[0].arguments)
        entries = _newest_runs(run.parent, command)
    except (JoulewiseError, OSError):
        return ()
    means: list[EarlierMean] = []
    count = 0
    for entry in entries:
        if count == _MOST_RUNS:
            break
        found = () if entry.path == run else _means_of(entry.path, now, keys)
        means += found
        count += bool(found)
    return tuple(means)


def _newest_runs(store: Path, command: str) -> list[RunEntry]:
    condition = READABLE & text_is("command", command)
    page = ListPage(NEWEST_FIRST, limit=_MOST_OPENED)
    return query_index(store, RUNS, lambda index: select_runs(index, store, condition, page))


def _means_of(run: Path, now: Manifest, keys: Sequence[str]) -> tuple[EarlierMean, ...]:
    tuning = read_tuning(run)
    if tuning is None or not tuning.known or set(tuning.devices) != set(keys):
        return ()
    if tuning.step_source in _OF_THE_GPU:
        return ()
    try:
        before = read_manifest(run)
    except JoulewiseError:
        return ()
    is_same = before.cwd == now.cwd and _boards(before, keys) == _boards(now, keys)
    if not is_same:
        return ()
    axes = set(AXES.values())
    return tuple(
        EarlierMean(
            TuningCandidate(**dict(one.settings.values)),  # type: ignore[arg-type]
            one.log_time,
            one.log_energy,
            one.steps,
            before.id,
        )
        for one in tuning.known
        if axes.issuperset(one.settings)  # a later version may have others
    )


def _boards(manifest: Manifest, keys: Sequence[str]) -> dict[str, str]:
    return {
        device.info.key: device.info.uid for device in manifest.devices if device.info.key in keys
    }
