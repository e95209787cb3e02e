"""How this installation is started, to be pasted after sudo, which looks in places of its own."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def program() -> str:
    """The joulewise of this environment by its path."""
    beside = Path(sys.executable).with_name("joulewise")
    found = str(beside) if beside.exists() else shutil.which("joulewise")
    return shlex.quote(found) if found else f"{shlex.quote(sys.executable)} -m joulewise"
