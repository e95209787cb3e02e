"""The service's unit for systemd, with the path of this installation."""

from __future__ import annotations

import sysconfig
from importlib.resources import files
from pathlib import Path
from typing import Final

from joulewise.errors import UsageError

_UNIT: Final = "joulewise-guard.service"
_PLACE: Final = "@joulewise@"


def systemd_unit() -> str:
    program = Path(sysconfig.get_path("scripts")) / "joulewise"
    if not program.exists():
        raise UsageError(
            f"there is no {program}", "install joulewise with pip, which puts its program there"
        )
    text = (files(__package__) / _UNIT).read_text(encoding="utf-8")
    return text.replace(_PLACE, str(program).replace("%", "%%").replace(" ", "\\x20"))
