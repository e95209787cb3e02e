"""Whether a try ended because its batch does not fit in memory; inferred, since nobody reports it.

Three signs: the error that ended the program, which our hooks in Python note; the same words in the
last lines of its standard error, where these can be read; and the kernel, which kills with SIGKILL
and counts that it did.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

from joulewise.hooks.out_of_memory import SUFFIX, find_words
from joulewise.store.files import read_regular
from joulewise.store.layout import MARKS

_VMSTAT: Final = Path("/proc/vmstat")
_KILLED: Final = 128 + signal.SIGKILL


def infer_out_of_memory(exit_status: int, last_words: str, kills: int) -> str:
    """Why a program that failed seems to have run out of memory; empty where nothing says so.

    ``last_words`` are the last lines of its standard error, or its uncaught error. ``kills`` is how
    many processes the kernel killed for lack of memory while it ran.
    """
    if exit_status == 0:
        return ""
    found = find_words(last_words)
    if found:
        return f"it ended with status {exit_status} after writing {found!r}"
    if exit_status == _KILLED and kills > 0:
        return "it was killed while the kernel killed a process for lack of memory"
    return ""


def count_oom_kills(vmstat: Path = _VMSTAT) -> int:
    """How many processes the kernel has killed for lack of memory since boot; 0 where unknown."""
    try:
        lines = vmstat.read_text(encoding="ascii").splitlines()
        counts = [line.split()[1] for line in lines if line.startswith("oom_kill ")]
        return int(counts[0]) if counts else 0
    except (OSError, ValueError):
        return 0


def read_noted_error(run: Path) -> str:
    """The error for lack of memory by which a Python program of the run ended; mostly empty."""
    for path in sorted((run / MARKS).glob(f"*{SUFFIX}")):
        with suppress(OSError, ValueError):
            return str(read_regular(path))
    return ""
