"""Why a file was not written, and what to do."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

from joulewise.errors import JoulewiseError, UsageError
from joulewise.record.files import is_folder

_FULL: Final = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your quota there is used up",
    errno.EFBIG: "no file may be so large",
}


def unwritten(path: Path, error: OSError, hint: str) -> JoulewiseError:
    """``hint`` is for whoever named a place that cannot be; a full disk is nobody's mistake."""
    full = _FULL.get(error.errno or 0)
    if full:
        return JoulewiseError(
            f"cannot write {path}: {full}", "make room there, or name a path with room"
        )
    if not is_folder(path.parent):
        return no_folder(path)
    return UsageError(f"cannot write {path}: {error.strerror or error}", hint)


def no_folder(path: Path) -> UsageError:
    return UsageError(
        f"cannot write {path}: there is no folder {path.parent}", "make it first, or name another"
    )
