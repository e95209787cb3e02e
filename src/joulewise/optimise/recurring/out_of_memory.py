"""Whether a try ended because its batch does not fit in memory; inferred, since nobody reports it.

Three signs: the error that ended the program, which our hooks in Python note; the same words in the
last lines of its standard error, where these can be read; and the kernel, which kills with SIGKILL
and counts that it did: in our control group where it has such (version 2), else on the whole host.
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
_CGROUP: Final = Path("/proc/self/cgroup")
_CGROUPS: Final = Path("/sys/fs/cgroup")
_EVENTS: Final = "memory.events"
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


def count_oom_kills(
    vmstat: Path = _VMSTAT, cgroup: Path = _CGROUP, cgroups: Path = _CGROUPS
) -> int:
    """How many processes the kernel has killed for lack of memory; 0 where unknown.

    In our control group, which the command shares; where it does not count them, on this host.
    """
    events = _own_group(cgroup, cgroups) / _EVENTS
    of_group = _read_kills(events)
    return (_read_kills(vmstat) or 0) if of_group is None else of_group


def _own_group(cgroup: Path, cgroups: Path) -> Path:
    """Our folder in the hierarchy of version 2, which has the number 0 and no controllers."""
    with suppress(OSError, ValueError):
        for line in cgroup.read_text(encoding="utf-8").splitlines():
            if line.startswith("0::/"):
                return cgroups / line.removeprefix("0::/")
    return cgroups


def _read_kills(path: Path) -> int | None:
    """The count in a file of lines with a name and a number; None where it has none."""
    with suppress(OSError, ValueError):
        for line in path.read_text(encoding="ascii").splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return None


def read_noted_error(run: Path) -> str:
    """The error for lack of memory by which a Python program of the run ended; mostly empty."""
    for path in sorted((run / MARKS).glob(f"*{SUFFIX}")):
        with suppress(OSError, ValueError):
            return str(read_regular(path))
    return ""
