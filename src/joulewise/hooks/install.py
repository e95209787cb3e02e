"""The environment in which every Python process of a command marks its spans."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SITE = Path(__file__).parent / "site"


def environment(
    base: Mapping[str, str], marks: Path, run_id: str, *, hooks: bool = True
) -> dict[str, str]:
    """``base`` for a command whose marks go to ``marks``.

    Without ``hooks`` only what the program marks itself is kept (``joulewise.span``).
    """
    environ = dict(base)
    environ["JOULEWISE_MARKS"] = str(marks.absolute())
    environ["JOULEWISE_RUN"] = run_id
    rest = [entry for entry in base.get("PYTHONPATH", "").split(os.pathsep) if entry != str(SITE)]
    if not hooks or os.pathsep in str(SITE):
        entries = rest
    else:
        entries = [str(SITE), *rest] if any(rest) else [str(SITE)]
    if any(entries):
        environ["PYTHONPATH"] = os.pathsep.join(entries)
    else:
        environ.pop("PYTHONPATH", None)
    return environ
