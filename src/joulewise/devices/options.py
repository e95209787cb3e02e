"""What the user or the environment says about the machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """Where to search for devices, and what to assume for what cannot be read.

    ``powercap`` is Linux's folder of energy counters; ``$JOULEWISE_POWERCAP`` names another, such
    as a simulated one. Likewise ``proc`` and ``$JOULEWISE_PROC``, ``dmi`` (the table of memory
    modules) and ``$JOULEWISE_DMI``, ``kfd`` (AMD's driver for compute) and ``$JOULEWISE_KFD``,
    ``hwmon`` (the kernel's power meters) and ``$JOULEWISE_HWMON``, ``cpus`` (the folder of a CPU's
    topology) and ``$JOULEWISE_CPUS``.
    ``cpu_tdp_w`` (or ``$JOULEWISE_CPU_TDP``) overrides the table behind the modelled CPU power.
    ``now_ns`` and ``sleep`` are the clock of the CPU and RAM. GPUs that are not numbered by NVML
    are numbered from ``first_gpu``, which discovery sets to the number of those that are. A family
    of devices that has not answered after ``deadline_s`` is missing. With ``energy_first`` a device
    is opened with its power and energy alone, where finding the rest takes time: see
    :class:`joulewise.devices.device.PartlyOpened`. With ``hidden_too`` GPUs that the variables of
    ``environ`` hide from programs are opened, too; see :func:`joulewise.devices.visible_gpus`.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    cpu_tdp_w: float | None = None
    first_gpu: int = 0
    deadline_s: float | None = None
    energy_first: bool = False
    hidden_too: bool = False
    now_ns: Callable[[], int] = time.monotonic_ns
    sleep: Callable[[float], None] = time.sleep

    @property
    def powercap(self) -> Path:
        return Path(self.environ.get("JOULEWISE_POWERCAP", "/sys/class/powercap"))

    @property
    def proc(self) -> Path:
        return Path(self.environ.get("JOULEWISE_PROC", "/proc"))

    @property
    def dmi(self) -> Path:
        return Path(self.environ.get("JOULEWISE_DMI", "/sys/firmware/dmi/tables/DMI"))

    @property
    def hwmon(self) -> Path:
        return Path(self.environ.get("JOULEWISE_HWMON", "/sys/class/hwmon"))

    @property
    def cpus(self) -> Path:
        return Path(self.environ.get("JOULEWISE_CPUS", "/sys/devices/system/cpu"))

    @property
    def kfd(self) -> Path:
        return Path(self.environ.get("JOULEWISE_KFD", "/dev/kfd"))
