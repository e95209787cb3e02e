"""Which GPUs are powered off by the kernel, found without waking them.

A laptop's GPU sleeps at a few milliwatts. ``nvmlInit`` leaves it so: NVML initialises a GPU when
its handle is asked for (NVML API Reference, nvmlInit_v2), and that wakes it. So what sleeps must
be known before any handle is taken, from sysfs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FIX = "wake it by using it, e.g. `nvidia-smi`, then try again"


@dataclass(frozen=True)
class Sleeper:
    """Which GPU sleeps; name and UUID are empty where the driver does not tell."""

    bus_id: str
    name: str
    uuid: str


def sleepers(root: Path, count: int) -> dict[int, Sleeper]:
    """The sleeping GPUs by NVML index, among ``count`` that NVML shows.

    NVML counts in the order of the bus. Where the kernel knows more GPUs than NVML shows (a
    container, say), the two cannot be matched, and none is taken for asleep.
    """
    folder = root / "sys/bus/pci/drivers/nvidia"
    try:
        found = sorted(path for path in folder.iterdir() if path.name.count(":") == 2)
    except OSError:
        return {}
    if len(found) != count:
        return {}
    return {
        index: _sleeper(root, path.name)
        for index, path in enumerate(found)
        if _text(path / "power/runtime_status").strip() == "suspended"
    }


def _sleeper(root: Path, bus_id: str) -> Sleeper:
    told = dict(
        line.split(":", 1)
        for line in _text(root / f"proc/driver/nvidia/gpus/{bus_id}/information").splitlines()
        if ":" in line
    )
    uuid = told.get("GPU UUID", "").strip()
    # The driver masks the UUID of a GPU that it has not initialised since it was loaded.
    return Sleeper(bus_id, told.get("Model", "").strip(), "" if "?" in uuid else uuid)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
