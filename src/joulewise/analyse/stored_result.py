"""The result of a stored run, computed at most once and kept in result.json.

The file is one JSON object. Its first line holds all but the spans and the details, so that listing
runs reads one line of each (:mod:`joulewise.store.runs`).
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from joulewise.data import QualityWarning, RunResult, WarningCode
from joulewise.data.codec import name_simulated_result
from joulewise.data.run_result_json import as_json, from_json
from joulewise.store.checksums import DamagedJsonError, read_checked_json, with_checksum
from joulewise.store.files import read_regular, read_regular_bytes, replace_file
from joulewise.store.layout import LIVE, RESULT
from joulewise.store.manifest import read_manifest
from joulewise.store.runs import RECORDING, with_head_checksum

_LONG: Final = ("spans", "details")


def write_result(run: Path, result: RunResult, *, durable: bool = True) -> None:
    """Replace result.json as a whole. Raises OSError where it cannot be written."""
    payload = as_json(result)
    long = {key: payload.pop(key) for key in _LONG}
    first, rest = (json.dumps(part, allow_nan=False) for part in (payload, long))
    text = f"{with_head_checksum(first)}\n{rest[1:]}"
    replace_file(run / RESULT, with_checksum(text), durable=durable)


def read_result(run: Path) -> RunResult | None:
    """The stored result; None where there is none that this version can read."""
    try:
        return read_undamaged_result(run)
    except DamagedJsonError:
        return None


def read_undamaged_result(run: Path) -> RunResult | None:
    """The stored result, None where there is none. Raises DamagedJsonError where it is damaged.

    A result of another version, in a form that is not known here, counts as none.
    """
    try:
        payload = read_checked_json(read_regular_bytes(run / RESULT))
    except OSError:
        return None
    if not isinstance(payload, dict):
        raise DamagedJsonError("it is no object")
    name_simulated_result(payload)
    try:
        return from_json(payload)
    except ValueError:
        return None


def read_outlook(run: Path) -> dict[str, Any] | None:
    """The recorder's forecast for a run that goes on; None where there is none.

    ``at_s`` is when it was made, in seconds after the start: the trace may have grown since.
    """
    try:
        payload = json.loads(read_regular(run / LIVE))
        return {"at_s": payload["time_s"], "epochs": payload["epochs"], **payload["outlook"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None


_OF_FILES: Final = frozenset({WarningCode.DAMAGED, WarningCode.IMPLAUSIBLE})


def load_or_compute_result(run: Path) -> RunResult:
    """The stored result if it still fits, else a new one, which is stored if the run is over.

    One that was computed from damaged files, or while a disk did not answer, fits as long as the
    same is wrong with them: after a file is restored from a copy it is computed again.
    """
    stored, damage = None, ""
    try:
        stored = read_undamaged_result(run)
    except DamagedJsonError as error:
        damage = str(error)
    if stored is not None and stored.state != RECORDING and _is_damage_unchanged(run, stored):
        return stored
    from joulewise.analyse.run_result import analyse

    result = analyse(run)
    if damage:
        result = replace(result, warnings=(_computed_again(damage), *result.warnings))
    if result.state != RECORDING:
        with suppress(OSError):  # a read-only store is no reason to show nothing
            write_result(run, result)
    return result


def _is_damage_unchanged(run: Path, result: RunResult) -> bool:
    """Whether the files that a result says are damaged still are, and in the same way."""
    messages = {
        warning.message
        for warning in result.warnings
        if warning.code in _OF_FILES and not warning.message.startswith(RESULT)
    }
    if not messages:
        return True
    from joulewise.analyse.damage import SoundStreams

    warnings = SoundStreams(run, read_manifest(run)).find_warnings()
    return messages == {warning.message for warning in warnings}


def _computed_again(damage: str) -> QualityWarning:
    return QualityWarning(
        WarningCode.DAMAGED,
        f"{RESULT} was damaged: {damage}; the result was computed again from the recording",
        "nothing if the rest of the run is intact; check the disk",
    )
