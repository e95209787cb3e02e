"""The command that starts this installation of joulewise, to be pasted after ``sudo``."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def installed_command() -> str:
    """Path of this environment's ``joulewise``, quoted for a shell: sudo has a PATH of its own."""
    beside = Path(sys.executable).with_name("joulewise")
    path = str(beside) if beside.exists() else shutil.which("joulewise")
    return shlex.quote(path) if path else f"{shlex.quote(sys.executable)} -m joulewise"
