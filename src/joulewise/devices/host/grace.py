"""NVIDIA Grace CPUs, measured by the power meters that their firmware provides through ACPI.

Linux shows each as ``/sys/class/hwmon/hwmonN/device/power1_average`` in microwatts, named by
``power1_oem_info``, such as "Grace Power Socket 0" (NVIDIA, Grace Performance Tuning Guide, "Power
Telemetry"). The firmware averages over 50 ms or 1 s (``power1_average_interval``, in ms). What each
contains (the same, and Alumet's plugin for Grace Hopper):

- "Module Power Socket": all of a Grace Hopper module, GPU, HBM and losses included;
- "Grace Power Socket": the CPU side of it, its memory (LPDDR5X) and losses included;
- "CPU Power Socket", "SysIO Power Socket": two rails, which are inside the one before.

The socket's meter is read here. There is no energy counter, and no RAPL.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from joulewise.data import DeviceInfo, Kind, Quantity, Reading, SensorInfo, Source, Unavailable
from joulewise.devices.device import BaseDevice, Options
from joulewise.devices.host.base import EVERY_PROCESS, read_int, read_text
from joulewise.devices.host.cpu_model import GRACE_CORES, ModelledCpu, model_of, read_cpuinfo
from joulewise.devices.host.powercap import counter_source
from joulewise.units import UW_PER_W

_SOCKET: Final = re.compile(r"grace power socket (\d+)", re.IGNORECASE)
_MS_PER_S: Final = 1000
# The shorter of the two intervals that the firmware has (50 ms and 1 s), where it does not say.
_INTERVAL_S: Final = 0.05


class GraceCpu(BaseDevice):
    """A Grace CPU with its memory, whose power is measured; its load is what the kernel counts."""

    def __init__(self, folder: Path, info: DeviceInfo, model: ModelledCpu, source: Source) -> None:
        self.info = info
        self._path = folder / "power1_average"
        self._model = model
        interval_ms = read_int(folder / "power1_average_interval")
        window_s = interval_ms / _MS_PER_S if isinstance(interval_ms, int) else _INTERVAL_S
        self.sensors = {
            Quantity.POWER: SensorInfo(
                Quantity.POWER, source, window_s, window_s, note="CPU and its memory (LPDDR5X)"
            ),
            Quantity.LOAD: model.sensors[Quantity.LOAD],
        }
        self.controls = {}

    def _read(self, quantity: Quantity) -> Reading | Unavailable:
        if quantity is Quantity.LOAD:
            return self._model.read(quantity)
        t_ns = self._model.now_ns()
        power_uw = read_int(self._path)
        if isinstance(power_uw, Unavailable):
            return power_uw
        if not power_uw:  # a CPU that is on draws some power: 0 stands for no reading
            return Unavailable(f"{self._path} holds 0")
        return Reading(power_uw / UW_PER_W, t_ns)

    def _processes(self) -> Unavailable:
        return EVERY_PROCESS


def find(options: Options) -> list[GraceCpu]:
    """A device for each socket that can be read; none on machines without a Grace."""
    devices = []
    for number, folder in sorted(_sockets(options.hwmon).items()):
        model = model_of(number, options)
        if model is None or isinstance(read_int(folder / "power1_average"), Unavailable):
            continue
        info = replace(
            model.info,
            kind=Kind.CPU,
            name="NVIDIA Grace",
            uid=f"grace{number}",
            vendor="NVIDIA",
            driver="acpi_power_meter",
            # Where memory is assumed, it is one device, dram0, a part of which belongs to each CPU.
            contains=tuple(dict.fromkeys((f"dram{number}", "dram0"))),
            better=None,
        )
        devices.append(GraceCpu(folder, info, model, counter_source(options.hwmon)))
    return devices


def has_grace(options: Options) -> bool:
    """Whether the CPU is a Grace: by its meters or its cores.

    Amazon's Graviton4 and Google's Axion have the same cores, and no NVIDIA GPU beside them.
    """
    name = read_cpuinfo(options.proc, options.cpus).name
    return name == GRACE_CORES or bool(_sockets(options.hwmon))


def _sockets(hwmon: Path) -> dict[int, Path]:
    """The folder of each socket's meter, by the number of the socket."""
    meters: dict[int, Path] = {}
    for folder in sorted(hwmon.glob("hwmon*/device")):
        name = read_text(folder / "power1_oem_info")
        if isinstance(name, str) and (socket := _SOCKET.fullmatch(name)):
            meters.setdefault(int(socket[1]), folder)
    return meters
