"""Whether a process is still the one it was: its number is used again, its start is not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

FIRST_NAMESPACE: Final = "pid:[4026531836]"  # the machine's own, a constant of the kernel
_PROC: Final = Path("/proc")
_STATE, _PARENT, _STARTED = 0, 1, 19  # of /proc/PID/stat, after the name in parentheses


def boot_id(proc: Path = _PROC) -> str:
    """Which boot of the machine this is; empty where the kernel does not tell."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def pid_namespace(proc: Path = _PROC) -> str:
    """In which process ids mean what they mean to us; empty where the kernel does not tell."""
    try:
        return str((proc / "self/ns/pid").readlink())
    except OSError:
        return ""


def started_ticks(pid: int, proc: Path = _PROC) -> int:
    """When a process began, in ticks since boot; 0 where there is none."""
    fields = stat_fields(pid, proc)
    return int(fields[_STARTED]) if fields and fields[_STATE] != "Z" else 0


def is_alive(pid: int, ticks: int, proc: Path = _PROC) -> bool:
    return ticks != 0 and started_ticks(pid, proc) == ticks


def is_gone(pid: int, ticks: int, proc: Path = _PROC) -> bool:
    """Whether it has ended for certain: /proc may hide the processes of other users."""
    started = started_ticks(pid, proc)
    if started:
        return started != ticks
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, PermissionError)
    return True  # all that is left of it is for its parent to collect


def parent(pid: int, proc: Path = _PROC) -> int:
    """The parent of a process; 0 where it is gone."""
    fields = stat_fields(pid, proc)
    return int(fields[_PARENT]) if fields else 0


def stat_fields(pid: int, proc: Path = _PROC) -> list[str]:
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
