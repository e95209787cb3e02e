"""What a command finds among simulated GPUs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

_NVML = Path(__file__).parents[1] / "nvml"
ABSENT = _NVML / "absent"


def environment(
    base: Mapping[str, str],
    *,
    library: Path,
    shared: Path,
    state: Path,
    cpu_w: float | None = None,
) -> dict[str, str]:
    """What the command finds: our library and ``nvidia-smi`` before any other.

    ``JOULEWISE_SIM_PID`` is this process, which drivers list on each GPU that ``--workload`` keeps
    busy: by it a program knows the simulation's own load. ``JOULEWISE_GUARD`` leads to no guard
    service unless the caller names one: the machine's own serves the real GPUs. ``cpu_w`` is what
    the CPU of a simulated superchip draws at most, which is what a model of it is given
    (``JOULEWISE_CPU_TDP``).
    """
    cpu = {} if cpu_w is None else {"JOULEWISE_CPU_TDP": f"{cpu_w:g}"}
    return {
        "JOULEWISE_GUARD": str(state / "guard.sock"),
        **cpu,
        **base,
        "LD_LIBRARY_PATH": _before(base.get("LD_LIBRARY_PATH"), library),
        "PATH": search_path(base),
        "JOULEWISE_SIM": str(shared),
        "JOULEWISE_SIM_PID": str(os.getpid()),
        "JOULEWISE_STATE": str(state),
        "JOULEWISE_PYTHON": sys.executable,
    }


def search_path(base: Mapping[str, str]) -> str:
    return _before(base.get("PATH", os.defpath), _NVML / "bin")


def _before(paths: str | None, first: Path) -> str:
    return f"{first}{os.pathsep}{paths}" if paths else str(first)
