"""The first line of result.json: what a run came to, without its spans and details."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path
from typing import Any, Final

from joulewise.data.contract import RESULT_FORMAT, check_types
from joulewise.record.checksums import DamagedJsonError, read_checked_json
from joulewise.record.files import open_regular
from joulewise.record.layout import RESULT

_HEAD_KEY: Final = "head_crc32"
_HEAD_ENDING: Final = re.compile(rb', "head_crc32": "([0-9a-f]{8})",\n\Z')


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
            told = _read_head(file.readline())
        if not isinstance(told, dict) or told.get("format") != RESULT_FORMAT:
            return None
        check_types(told)
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    return told


def with_head_checksum(first: str) -> str:
    """The first line, from the text of its object: ``ls`` reads no more than that."""
    body = first.removesuffix("}")
    return f'{body}, "{_HEAD_KEY}": "{zlib.crc32(body.encode()):08x}",'


def _read_head(line: bytes) -> Any:
    """What the first line says; a ValueError where it is damaged."""
    ending = _HEAD_ENDING.search(line)
    if ending is None:  # of a version that wrote none
        return read_checked_json(line.rstrip(b",\n") + b"}")
    body = line[: ending.start()]
    if zlib.crc32(body) != int(ending.group(1), 16):
        raise DamagedJsonError("its first line does not match its checksum")
    return json.loads(body + b"}")
