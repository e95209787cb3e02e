"""The environment in which every Python process of a command loads the hooks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SITE = Path(__file__).parent / "site"


def environment(
    base: Mapping[str, str], marks: Path, run_id: str, *, hooks: bool = True
) -> dict[str, str]:
    """Return ``base`` with the variables for a command whose marks go to the folder ``marks``.

    Without ``hooks`` there are only the marks of the program itself (``joulewise.span``).
    """
    environ = dict(base)
    environ["JOULEWISE_MARKS"] = str(marks.absolute())
    environ["JOULEWISE_RUN"] = run_id
    entries = [
        entry for entry in base.get("PYTHONPATH", "").split(os.pathsep) if entry != str(SITE)
    ]
    if hooks and os.pathsep not in str(SITE):
        entries = [str(SITE), *(entries if any(entries) else ())]
    if any(entries):
        environ["PYTHONPATH"] = os.pathsep.join(entries)
    else:
        environ.pop("PYTHONPATH", None)
    return environ
