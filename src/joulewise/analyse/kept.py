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
from joulewise.record.files import read_regular, replace_file
from joulewise.record.layout import LIVE, RESULT

_LONG: Final = ("spans", "details")


def write_result(run: Path, result: RunResult, *, durable: bool = True) -> None:
    """Replace the kept result as a whole; an OSError is the caller's to tell of."""
    told = as_json(result)
    long = {key: told.pop(key) for key in _LONG}
    first, rest = (json.dumps(part, allow_nan=False) for part in (told, long))
    replace_file(run / RESULT, f"{first[:-1]},\n{rest[1:]}\n", durable=durable)


def read_result(run: Path) -> RunResult | None:
    """The kept result; None where there is none that this version can read."""
    try:
        told = json.loads(read_regular(run / RESULT))
    except (OSError, ValueError):
        return None
    if not isinstance(told, dict):
        return None
    name_simulated_result(told)
    try:
        return from_json(told)
    except ValueError:
        return None


def read_outlook(run: Path) -> dict[str, Any] | None:
    """What the recorder says of the run's epochs and of its end, while it goes on."""
    try:
        told = json.loads(read_regular(run / LIVE))
        return {"epochs": told["epochs"], **told["outlook"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None
