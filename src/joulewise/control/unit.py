"""The service's unit for systemd, with the path of this installation."""

from __future__ import annotations

import os
import stat
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Final

from joulewise.errors import UsageError

_UNIT: Final = "joulewise-guard.service"
_PLACE: Final = "@joulewise@"


def systemd_unit() -> str:
    """The text of the unit; it starts the joulewise of this Python."""
    program = _program()
    if not program.exists():
        raise UsageError(
            f"there is no {program}", "install joulewise with pip, which puts its program there"
        )
    text = (files(__package__) / _UNIT).read_text(encoding="utf-8")
    return text.replace(_PLACE, str(program).replace("%", "%%").replace(" ", "\\x20"))


def changeable_by_others(paths: Iterable[Path] | None = None) -> Path | None:
    """The first file or folder through which users other than root can change what root would run.

    Looked at are the program of this installation, its Python and its package, or ``paths``: each
    with the folders that lead to it, and with what links lead to. None where only root can.
    """
    if paths is None:
        paths = (_program(), Path(sys.executable), Path(__file__))
    steps = (step for path in paths for step in _steps(path))
    return next((step for step in steps if _is_changeable(step)), None)


def _program() -> Path:
    return Path(sysconfig.get_path("scripts")) / "joulewise"


def _steps(path: Path) -> Iterator[Path]:
    """Every file and folder on the way to ``path``, and on the way to what links lead to."""
    path = Path(os.path.abspath(path))  # noqa: PTH100  # links matter, too
    for step in (*reversed(path.parents), path):
        yield step
        if step.is_symlink():
            yield from _steps(step.parent / step.readlink())


def _is_changeable(path: Path) -> bool:
    """Whether another user than root owns it, or may write it.

    In a folder with the sticky bit, such as /tmp, nobody replaces what belongs to root.
    """
    try:
        told = path.lstat()
    except OSError:
        return True  # whoever makes it says what root runs
    if told.st_uid != 0:
        return True
    if stat.S_ISLNK(told.st_mode) or (stat.S_ISDIR(told.st_mode) and told.st_mode & stat.S_ISVTX):
        return False
    by_group = told.st_mode & stat.S_IWGRP and told.st_gid != 0
    return bool(by_group or told.st_mode & stat.S_IWOTH)
