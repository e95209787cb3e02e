"""Memory that is not measured: a power assumed for each module."""

from __future__ import annotations

import math
import re
from typing import Final

from joulewise.data import DeviceInfo, Kind, Quantity, Reading, SensorInfo, Source, Unavailable
from joulewise.devices.device import Device, Options
from joulewise.devices.host import rapl
from joulewise.devices.host.base import HostDevice, read_text
from joulewise.units import NS_PER_S

# Crucial plans 5 W a module for power supplies and stated 3 W for 8 GB earlier; modules that were
# added and left idle drew 0.4 W each at the wall. Doubled, memory counts twice as much.
W_PER_MODULE: Final = 3.0
SPREAD: Final = "a module draws from 0.4 W (idle) to 5 W (at work)"

GIB_PER_MODULE: Final = 16  # chosen: a common size, where the modules cannot be counted
_KIB_PER_GIB: Final = 1 << 20

_MEMORY_DEVICE: Final = 17  # the type of a structure, and where its size is (SMBIOS 3, 7.18)
_SIZE_AT: Final = slice(0x0C, 0x0E)


class AssumedRam(HostDevice):
    """A constant power, from the moment at which the device was opened."""

    def __init__(
        self, modules: int, counted: str, options: Options, better: Unavailable | None
    ) -> None:
        self._power_w = modules * W_PER_MODULE
        self._now_ns = options.now_ns
        self._opened_ns = options.now_ns()
        why = f"{W_PER_MODULE:g} W assumed for each of {modules} modules ({counted}); {SPREAD}"
        info = DeviceInfo(
            key="dram0",
            kind=Kind.DRAM,
            name="memory",
            uid="dram0",
            vendor="unknown",
            driver="assumption",
            note=why,
            better=better,
        )
        sensors = {
            quantity: SensorInfo(quantity, Source.ASSUMED, note=why)
            for quantity in (Quantity.ENERGY, Quantity.POWER)
        }
        super().__init__(info, sensors, window_s=0.0, sleep=options.sleep)

    def _energy(self) -> Reading | Unavailable:
        t_ns = self._now_ns()
        return Reading(self._power_w * (t_ns - self._opened_ns) / NS_PER_S, t_ns)

    def _power(self) -> Reading | Unavailable:
        return Reading(self._power_w, self._now_ns())


def find(options: Options) -> list[Device] | Unavailable:
    """The machine's memory; none where RAPL counts it: then it comes with the CPUs."""
    is_counted = rapl.counts_dram(options)
    if is_counted is True:
        return []
    better = is_counted or None
    modules = _count_modules(options)
    if modules:
        return [AssumedRam(modules, "counted in the DMI table", options, better)]
    meminfo = read_text(options.proc / "meminfo")
    if isinstance(meminfo, Unavailable):
        return meminfo
    total = re.search(r"^MemTotal:\s+(\d+) kB$", meminfo, re.MULTILINE)
    if not total:
        return Unavailable(f"{options.proc / 'meminfo'} does not say how much memory there is")
    # The kernel keeps a part to itself, so that its figure is always a little short.
    modules = math.ceil(int(total[1]) / _KIB_PER_GIB / GIB_PER_MODULE)
    return [AssumedRam(modules, f"assumed to have {GIB_PER_MODULE} GiB each", options, better)]


def _count_modules(options: Options) -> int:
    """The number of memory modules by the firmware's table; 0 where that cannot be read.

    The table is a sequence of structures: type, length, handle, fields, then texts that end with
    two zero bytes (SMBIOS 3, 6.1.2 and 7.18).
    """
    try:
        table = options.dmi.read_bytes()
    except OSError:
        return 0
    modules = at = 0
    while at + 4 <= len(table) and table[at + 1] >= 4:
        fields = table[at : at + table[at + 1]]
        size = fields[_SIZE_AT]
        modules += table[at] == _MEMORY_DEVICE and len(size) == 2 and size != b"\0\0"
        end = table.find(b"\0\0", at + table[at + 1])
        at = len(table) if end < 0 else end + 2
    return modules
