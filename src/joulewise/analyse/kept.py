"""result.json: what a run came to, kept so that ``ls`` and ``show`` need not compute it again.

It is one JSON object. Its first line holds all but the spans and the details, so that whoever lists
runs reads one line of each (:mod:`joulewise.record.result_summary`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from joulewise.data import RunResult
from joulewise.data.contract import as_json, from_json
from joulewise.data.migration import name_simulated_result
from joulewise.record.checksums import DamagedJsonError, read_checked_json, with_checksum
from joulewise.record.files import read_regular, read_regular_bytes, replace_file
from joulewise.record.layout import LIVE, RESULT
from joulewise.record.result_summary import with_head_checksum

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
