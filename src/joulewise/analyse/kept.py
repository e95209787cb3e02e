"""result.json: what a run came to, kept so that ``ls`` and ``show`` need not compute it again."""

from __future__ import annotations

import json
from pathlib import Path

from joulewise.data import RunResult
from joulewise.data.contract import as_json, from_json
from joulewise.record.files import replace_file
from joulewise.record.layout import RESULT


def write_result(run: Path, result: RunResult) -> None:
    """Replace the kept result as a whole; an OSError is the caller's to tell of."""
    replace_file(run / RESULT, json.dumps(as_json(result), allow_nan=False) + "\n")


def read_result(run: Path) -> RunResult | None:
    """The kept result; None where there is none that this version can read."""
    try:
        return from_json(json.loads((run / RESULT).read_text("utf-8")))
    except (OSError, ValueError):
        return None
