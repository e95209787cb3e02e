"""Which CPUs the machine has, from /proc/cpuinfo."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from joulewise.data import Unavailable
from joulewise.devices.host import read_text

_VENDORS: Final = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD", "HygonGenuine": "Hygon"}
_NOISE: Final = re.compile(r"\((R|TM|r|tm)\)|\bCPU\b|\bProcessor\b|\d+-Core\b|@.*")


@dataclass(frozen=True)
class CpuInfo:
    """``packages`` maps a package to its logical CPUs, ``cores`` to how many cores they share."""

    name: str = "unknown CPU"
    vendor: str = "unknown"
    virtual: bool = False
    packages: dict[int, tuple[int, ...]] = field(default_factory=dict)
    cores: dict[int, int] = field(default_factory=dict)


def read_cpuinfo(proc: Path) -> CpuInfo:
    """Never fails: what the file does not say stays unknown (ARM gives no name, for one)."""
    text = read_text(proc / "cpuinfo")
    blocks = [] if isinstance(text, Unavailable) else [_fields(b) for b in text.split("\n\n")]
    blocks = [block for block in blocks if block.get("processor", "").isdigit()]
    if not blocks:
        return CpuInfo()
    threads: dict[int, list[int]] = defaultdict(list)
    cores: dict[int, set[str]] = defaultdict(set)
    for block in blocks:
        package = int(block.get("physical id", "0"))
        threads[package].append(int(block["processor"]))
        cores[package].add(block.get("core id", block["processor"]))
    first = blocks[0]
    return CpuInfo(
        name=_plain(first.get("model name", "")) or CpuInfo.name,
        vendor=_VENDORS.get(first.get("vendor_id", ""), CpuInfo.vendor),
        virtual="hypervisor" in first.get("flags", "").split(),
        packages={package: tuple(cpus) for package, cpus in threads.items()},
        cores={package: len(ids) for package, ids in cores.items()},
    )


def _fields(block: str) -> dict[str, str]:
    pairs = (line.split(":", 1) for line in block.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _plain(name: str) -> str:
    return " ".join(_NOISE.sub(" ", name).split())
