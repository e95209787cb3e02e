"""result.json: what a run came to, kept so that ``ls`` and ``show`` need not compute it again."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from joulewise.data import RunResult
from joulewise.data.contract import as_json, from_json
from joulewise.record.layout import RESULT


def write_result(run: Path, result: RunResult) -> None:
    """Replace the kept result as a whole; an OSError is the caller's to tell of."""
    aside = run / f"{RESULT}.{os.getpid()}"
    try:
        with aside.open("w", encoding="utf-8") as file:
            json.dump(as_json(result), file, allow_nan=False)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(run / RESULT)
    except OSError:
        with suppress(OSError):
            aside.unlink()
        raise


def read_result(run: Path) -> RunResult | None:
    """The kept result; None where there is none that this version can read."""
    try:
        return from_json(json.loads((run / RESULT).read_text("utf-8")))
    except (OSError, ValueError):
        return None
