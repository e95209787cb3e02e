"""How much of a machine a run could use: its cores and its RAM, and what is allowed of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_B_PER_KIB: Final = 1024


@dataclass(frozen=True)
class Machine:
    """What cannot be read is None, and so is a limit that nobody set.

    ``cores_allowed`` is what affinity and the cgroup's quota leave of the logical cores: a quota
    of half a core is 0.5. ``ram_limit_b`` is the lowest limit of the cgroups around the process.
    """

    cores_physical: int | None = None
    cores_logical: int | None = None
    cores_allowed: float | None = None
    ram_b: int | None = None
    ram_limit_b: int | None = None


def read_machine(root: Path = Path("/")) -> Machine:
    ram_b = _ram_b(root)
    return Machine(
        cores_physical=_cores_physical(root),
        cores_logical=os.cpu_count(),
        cores_allowed=_cores_allowed(root),
        ram_b=ram_b,
        ram_limit_b=_ram_limit_b(root, ram_b),
    )


def _cores_physical(root: Path) -> int | None:
    """Logical cores that share a physical one list the same siblings."""
    files = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/topology/thread_siblings_list")
    return len({text for text in map(_text, files) if text}) or None


def _cores_allowed(root: Path) -> float | None:
    limits = list(_quotas(root))
    if hasattr(os, "sched_getaffinity"):
        limits.append(float(len(os.sched_getaffinity(0))))
    return min(limits, default=None)


def _quotas(root: Path) -> Iterator[float]:
    """In cores, of every cgroup around this process: the lowest is the one in force."""
    for folder in _cgroups(root, "cpu"):
        quota_us, _, period_us = _text(folder / "cpu.max").partition(" ")  # version 2
        if not quota_us:
            quota_us = _text(folder / "cpu.cfs_quota_us")  # version 1, -1 where there is none
            period_us = _text(folder / "cpu.cfs_period_us")
        if quota_us.isdigit() and period_us.isdigit() and int(period_us):
            yield int(quota_us) / int(period_us)


def _ram_b(root: Path) -> int | None:
    total = re.search(r"^MemTotal:\s+(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE)
    return int(total[1]) * _B_PER_KIB if total else None


def _ram_limit_b(root: Path, ram_b: int | None) -> int | None:
    limits = [
        int(text)
        for folder in _cgroups(root, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")  # versions 2 and 1
        if (text := _text(folder / name)).isdigit()
    ]
    # Version 1 writes "no limit" as a number larger than any machine.
    lowest = min(limits, default=None)
    return None if lowest is None or (ram_b is not None and lowest >= ram_b) else lowest


def _cgroups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's cgroup and those above it, of either version.

    In a container the path may be the host's, of which only the top is mounted: that is among them.
    """
    mount = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, named = line.partition(":")
        controllers, _, path = named.partition(":")
        if number == "0" and not controllers:
            top = mount
        elif controller in controllers.split(","):
            top = mount / controller
        else:
            continue
        folder = top / path.strip("/")
        yield from (each for each in (folder, *folder.parents) if each.is_relative_to(top))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
