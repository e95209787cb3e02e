"""What a stored run came to, computed at most once.

result.json: what a run came to, kept so that ``ls`` and ``show`` need not compute it again.

It is one JSON object. Its first line holds all but the spans and the details, so that whoever lists
runs reads one line of each (:mod:`joulewise.store.runs`).
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from joulewise.data import Caution, RunResult, RunWarning
from joulewise.data.contract import as_json, from_json
from joulewise.data.migration import name_simulated_result
from joulewise.store.checksums import DamagedJsonError, read_checked_json, with_checksum
from joulewise.store.files import read_regular, read_regular_bytes, replace_file
from joulewise.store.layout import LIVE, RESULT
from joulewise.store.manifest import read_manifest
from joulewise.store.runs import RECORDING, with_head_checksum

_LONG: Final = ("spans", "details")


def write_result(run: Path, result: RunResult, *, durable: bool = True) -> None:
    """Replace the kept result as a whole; an OSError is the caller's to tell of."""
    told = as_json(result)
    long = {key: told.pop(key) for key in _LONG}
    first, rest = (json.dumps(part, allow_nan=False) for part in (told, long))
    text = f"{with_head_checksum(first)}\n{rest[1:]}"
    replace_file(run / RESULT, with_checksum(text), durable=durable)


def read_result(run: Path) -> RunResult | None:
    """The kept result; None where there is none that this version can read."""
    try:
        return read_undamaged_result(run)
    except DamagedJsonError:
        return None


def read_undamaged_result(run: Path) -> RunResult | None:
    """The kept result, None where there is none; a DamagedJsonError where it was damaged.

    A result of another version, in a form that is not known here, is as none.
    """
    try:
        told = read_checked_json(read_regular_bytes(run / RESULT))
    except OSError:
        return None
    if not isinstance(told, dict):
        raise DamagedJsonError("it is no object")
    name_simulated_result(told)
    try:
        return from_json(told)
    except ValueError:
        return None


def read_outlook(run: Path) -> dict[str, Any] | None:
    """What the recorder says of the run's epochs and of its end, while it goes on.

    ``at_s`` is when it said so, in seconds after the start: the trace may have grown since.
    """
    try:
        told = json.loads(read_regular(run / LIVE))
        return {"at_s": told["time_s"], "epochs": told["epochs"], **told["outlook"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None


_OF_FILES: Final = frozenset({Caution.DAMAGED, Caution.IMPLAUSIBLE})


def result_of(run: Path) -> RunResult:
    """The kept result where there is one that fits, else computed, and kept if the run is over.

    One that was computed from damaged files, or while a disk did not answer, fits as long as the
    same is wrong with them: a file that is put back from a copy has it computed again.
    """
    kept, damage = None, ""
    try:
        kept = read_undamaged_result(run)
    except DamagedJsonError as error:
        damage = str(error)
    if kept is not None and kept.state != RECORDING and _is_damage_unchanged(run, kept):
        return kept
    from joulewise.analyse.run_result import analyse

    result = analyse(run)
    if damage:
        result = replace(result, warnings=(_computed_again(damage), *result.warnings))
    if result.state != RECORDING:
        with suppress(OSError):  # a store that is only read is no reason to show nothing
            write_result(run, result)
    return result


def _is_damage_unchanged(run: Path, result: RunResult) -> bool:
    """Whether the files that a result says are damaged still are, and in the same way."""
    said = {
        each.message
        for each in result.warnings
        if each.code in _OF_FILES and not each.message.startswith(RESULT)
    }
    if not said:
        return True
    from joulewise.analyse.damage import SoundLanes

    found = SoundLanes(run, read_manifest(run)).find_warnings()
    return said == {each.message for each in found}


def _computed_again(damage: str) -> RunWarning:
    return RunWarning(
        Caution.DAMAGED,
        f"{RESULT} was damaged: {damage}; the figures were computed again from what was recorded",
        "nothing, where the rest of the run is whole; check the disk",
    )
