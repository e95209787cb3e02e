"""The first line of result.json: what a run came to, without its spans and details."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from joulewise.data.contract import RESULT_FORMAT, check_types
from joulewise.record.files import open_regular
from joulewise.record.layout import RESULT


def read_summary(run: Path) -> dict[str, Any] | None:
    """The stored result without spans and details, in its documented form.

    None where there is none that this version can read.
    """
    try:
        return load_summary(run)
    except OSError:
        return None


def load_summary(run: Path) -> dict[str, Any] | None:
    """The same, but that a file which is there and cannot be read is an OSError."""
    try:
        with open_regular(run / RESULT) as file:
            told = json.loads(file.readline().decode("utf-8").rstrip(",\n") + "}")
        if not isinstance(told, dict) or told.get("format") != RESULT_FORMAT:
            return None
        check_types(told)
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    return told
