"""Which CPUs the machine has, from /proc/cpuinfo."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from joulewise.data import Unavailable
from joulewise.devices.host import read_int, read_text

_VENDORS: Final = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD", "HygonGenuine": "Hygon"}
GRACE_CORES: Final = "Arm Neoverse V2"
"""The name of the cores that an NVIDIA Grace has."""
# Arm, "Neoverse V2 Core Technical Reference Manual", MIDR_EL1.
_ARM_CORES: Final = {("0x41", "0xd4f"): GRACE_CORES}
_NOISE: Final = re.compile(r"\((R|TM|r|tm)\)|\bCPU\b|\bProcessor\b|\d+-Core\b|@.*")


@dataclass(frozen=True)
class CpuInfo:
    """``packages`` maps a package to its logical CPUs, ``cores`` to how many cores they share."""

    name: str = "unknown CPU"
    vendor: str = "unknown"
    virtual: bool = False
    packages: dict[int, tuple[int, ...]] = field(default_factory=dict)
    cores: dict[int, int] = field(default_factory=dict)


def read_cpuinfo(proc: Path, topology: Path | None = None) -> CpuInfo:
    """Never fails: what the file does not say stays unknown (ARM gives no name, for one).

    ``topology`` is the kernel's folder of CPUs, which tells the packages where the file does not.
    """
    text = read_text(proc / "cpuinfo")
    blocks = [] if isinstance(text, Unavailable) else [_fields(b) for b in text.split("\n\n")]
    blocks = [block for block in blocks if block.get("processor", "").isdigit()]
    if not blocks:
        return CpuInfo()
    threads: dict[int, list[int]] = defaultdict(list)
    cores: dict[int, set[str]] = defaultdict(set)
    packages = {} if any("physical id" in b for b in blocks) else _packages(blocks, topology)
    for block in blocks:
        package = packages.get(block["processor"], int(block.get("physical id", "0")))
        threads[package].append(int(block["processor"]))
        cores[package].add(block.get("core id", block["processor"]))
    first = blocks[0]
    return CpuInfo(
        name=_plain(first.get("model name", "")) or _arm_name(first) or CpuInfo.name,
        vendor=_VENDORS.get(first.get("vendor_id", ""), CpuInfo.vendor),
        virtual="hypervisor" in first.get("flags", "").split(),
        packages={package: tuple(cpus) for package, cpus in threads.items()},
        cores={package: len(ids) for package, ids in cores.items()},
    )


def _packages(blocks: Sequence[Mapping[str, str]], topology: Path | None) -> dict[str, int]:
    """Which package each CPU is in, by its number; none where the kernel does not say.

    Firmware of ARM machines numbers packages as it likes: they are counted in that order here.
    """
    if topology is None:
        return {}
    ids = {
        cpu: package
        for cpu in (block["processor"] for block in blocks)
        if not isinstance(
            package := read_int(topology / f"cpu{cpu}" / "topology/physical_package_id"),
            Unavailable,
        )
    }
    order = {package: number for number, package in enumerate(sorted(set(ids.values())))}
    return {cpu: order[package] for cpu, package in ids.items()}


def _arm_name(block: Mapping[str, str]) -> str:
    """ARM cores are told by numbers (MIDR_EL1: implementer and part)."""
    return _ARM_CORES.get((block.get("CPU implementer", ""), block.get("CPU part", "")), "")


def _fields(block: str) -> dict[str, str]:
    pairs = (line.split(":", 1) for line in block.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _plain(name: str) -> str:
    return " ".join(_NOISE.sub(" ", name).split())
