"""CPU power modelled from load, for machines that do not measure it; and /proc/cpuinfo.

P = TDP · (a + b · load). Over any time that is E = TDP · (a · t + b · busy time / CPUs), and the
kernel counts busy time: the model needs no sampling between two readings.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from joulewise.data import DeviceInfo, Kind, Quantity, Reading, SensorInfo, Source, Unavailable
from joulewise.devices.device import Options
from joulewise.devices.host.base import HostDevice, read_int, read_text
from joulewise.units import NS_PER_S

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_VENDORS: Final = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD", "HygonGenuine": "Hygon"}
GRACE_CORES: Final = "Arm Neoverse V2"
"""The name of the cores that an NVIDIA Grace has."""
# Arm, "Neoverse V2 Core Technical Reference Manual", MIDR_EL1.
_ARM_CORES: Final = {("0x41", "0xd4f"): GRACE_CORES}
_DECORATION: Final = re.compile(r"\((R|TM|r|tm)\)|\bCPU\b|\bProcessor\b|\d+-Core\b|@.*")


@dataclass(frozen=True)
class CpuInfo:
    """The CPUs of a machine.

    ``packages`` maps a package to its logical CPUs, ``cores`` to the number of its cores.
    """

    name: str = "unknown CPU"
    vendor: str = "unknown"
    virtual: bool = False
    packages: dict[int, tuple[int, ...]] = field(default_factory=dict)
    cores: dict[int, int] = field(default_factory=dict)


def read_cpuinfo(proc: Path, topology: Path | None = None) -> CpuInfo:
    """Read /proc/cpuinfo. Never fails: what it lacks stays unknown, such as the name on ARM.

    ``topology`` is the kernel's folder of CPUs, which has the packages where the file does not.
    """
    text = read_text(proc / "cpuinfo")
    blocks = [] if isinstance(text, Unavailable) else [_fields(b) for b in text.split("\n\n")]
    blocks = [block for block in blocks if block.get("processor", "").isdigit()]
    if not blocks:
        return CpuInfo()
    threads: dict[int, list[int]] = defaultdict(list)
    cores: dict[int, set[str]] = defaultdict(set)
    packages = (
        {} if any("physical id" in b for b in blocks) else _topology_packages(blocks, topology)
    )
    for block in blocks:
        package = packages.get(block["processor"], int(block.get("physical id", "0")))
        threads[package].append(int(block["processor"]))
        cores[package].add(block.get("core id", block["processor"]))
    first = blocks[0]
    return CpuInfo(
        name=_clean_name(first.get("model name", "")) or _arm_name(first) or CpuInfo.name,
        vendor=_VENDORS.get(first.get("vendor_id", ""), CpuInfo.vendor),
        virtual="hypervisor" in first.get("flags", "").split(),
        packages={package: tuple(cpus) for package, cpus in threads.items()},
        cores={package: len(ids) for package, ids in cores.items()},
    )


def _topology_packages(
    blocks: Sequence[Mapping[str, str]], topology: Path | None
) -> dict[str, int]:
    """The package of each CPU by its number; empty where the kernel does not say.

    Firmware of ARM machines numbers packages freely: here they are renumbered from 0 on.
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
    """The name of ARM cores, which report numbers only (MIDR_EL1: implementer and part)."""
    return _ARM_CORES.get((block.get("CPU implementer", ""), block.get("CPU part", "")), "")


def _fields(block: str) -> dict[str, str]:
    pairs = (line.split(":", 1) for line in block.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _clean_name(name: str) -> str:
    return " ".join(_DECORATION.sub(" ", name).split())


# The mean of two lines: one through the shares of TDP that Teads published for its servers (12 %
# idle, 32, 75 and 102 % at a load of 10, 50 and 100 %), one through the 96 points that CodeCarbon
# recorded of four CPUs against RAPL. 85 % of those points are within a factor of 2 of it. Doubled,
# modelled energy doubles at idle (IDLE) or in its part that grows with load (BUSY).
IDLE_SHARE: Final = 0.15
BUSY_SHARE: Final = 0.77
ERROR: Final = "right within a factor of 2"

# Assumed for an unknown CPU, as Green Algorithms does; the CPUs that it knows have 4 to 24.
UNKNOWN_W_PER_CORE: Final = 12.0

WINDOW_S: Final = 0.1  # chosen: ten ticks of the kernel's clock
_IDLE_FIELDS: Final = (3, 4)  # idle, iowait
_FIELDS: Final = 7  # user, nice, system, idle, iowait, irq, softirq; then stolen time, and guests


@dataclass(frozen=True)
class Rating:
    """The TDP of the model, and where it comes from."""

    tdp_w: float
    reason: str


class ModelledCpu(HostDevice):
    """Logical CPUs that share a TDP, with a power that follows from their load."""

    def __init__(
        self, info: DeviceInfo, rating: Rating, cpus: tuple[int, ...], options: Options
    ) -> None:
        self._tdp_w = rating.tdp_w
        self._cpus = cpus
        self._stat = options.proc / "stat"
        self.now_ns = options.now_ns
        self._busy_s: dict[int, float] = {}
        self._last_ns: int | None = None
        self._total_j = 0.0
        share = f"{IDLE_SHARE:g} + {BUSY_SHARE:g} x load"
        model = f"{rating.reason}; power = {rating.tdp_w:g} W x ({share}), {ERROR}"
        sensors = {
            quantity: SensorInfo(
                quantity, Source.MODELLED, WINDOW_S, None if total else WINDOW_S, note=model
            )
            for quantity, total in ((Quantity.ENERGY, True), (Quantity.POWER, False))
        }
        sensors[Quantity.LOAD] = SensorInfo(
            Quantity.LOAD, Source.MEASURED, WINDOW_S, WINDOW_S, note="busy time in /proc/stat"
        )
        super().__init__(info, sensors, window_s=WINDOW_S, sleep=options.sleep)
        self._observe()

    @property
    def tdp_w(self) -> float:
        return self._tdp_w

    def _energy(self) -> Reading | Unavailable:
        t_ns = self.now_ns()
        busy_s = _busy_s(self._stat)
        if isinstance(busy_s, Unavailable):
            return busy_s
        if self._last_ns is not None:
            # A CPU that is new (hot-plugged) counts from its second reading on.
            steps = (busy_s[c] - self._busy_s[c] for c in self._cpus if c in busy_s)
            busy = sum(max(0.0, step) for step in steps) / len(self._cpus)
            elapsed_s = (t_ns - self._last_ns) / NS_PER_S
            self._total_j += self._tdp_w * (IDLE_SHARE * elapsed_s + BUSY_SHARE * busy)
        self._busy_s = dict.fromkeys(self._cpus, math.inf) | self._busy_s | busy_s
        self._last_ns = t_ns
        return Reading(self._total_j, t_ns)

    def _derive(self, quantity: Quantity) -> Reading | Unavailable:
        power = self._power()
        if quantity is not Quantity.LOAD or isinstance(power, Unavailable):
            return power
        load = (power.value / self._tdp_w - IDLE_SHARE) / BUSY_SHARE
        return Reading(100 * min(1.0, max(0.0, load)), power.t_ns)


def find(options: Options) -> list[ModelledCpu] | Unavailable:
    """One device per package; one in all on a virtual machine, whose packages are not real."""
    info = read_cpuinfo(options.proc, options.cpus)
    packages = _packages(info, options)
    if isinstance(packages, Unavailable):
        return packages
    x86 = info.vendor != CpuInfo.vendor
    no_counter = Unavailable(
        f"measuring needs a RAPL counter, and {options.powercap} has none",
        "sudo modprobe intel_rapl_msr" if x86 and not info.virtual else "",
    )
    devices = []
    for package, cpus in sorted(packages.items()):
        rating = (
            _rating_from_options(options)
            or _rating_from_table(info, cpus)
            or _rating_by_cores(info, package, cpus)
        )
        if isinstance(rating, Unavailable):
            return rating
        device = DeviceInfo(
            key=f"cpu{package}",
            kind=Kind.CPU,
            name=info.name,
            uid=f"cpu{package}",
            vendor=info.vendor,
            driver="model",
            better=no_counter,
        )
        devices.append(ModelledCpu(device, rating, cpus, options))
    return devices


def packages_by_key(options: Options) -> dict[str, tuple[int, ...]]:
    """The logical CPUs of each package by its device's key; empty where they are unknown."""
    packages = _packages(read_cpuinfo(options.proc, options.cpus), options)
    if isinstance(packages, Unavailable):
        return {}
    return {f"cpu{package}": cpus for package, cpus in sorted(packages.items())}


def _packages(info: CpuInfo, options: Options) -> dict[int, tuple[int, ...]] | Unavailable:
    busy_s = _busy_s(options.proc / "stat")
    if isinstance(busy_s, Unavailable):
        return busy_s
    packages = info.packages or {0: tuple(sorted(busy_s))}
    if info.virtual:
        return {0: tuple(cpu for cpus in packages.values() for cpu in cpus)}
    return packages


def model_of(package: int, options: Options) -> ModelledCpu | None:
    """The model of one package, for machines whose counter cannot be read."""
    models = find(options)
    if isinstance(models, Unavailable):
        return None
    return next((model for model in models if model.info.key == f"cpu{package}"), None)


def _rating_from_options(options: Options) -> Rating | Unavailable | None:
    text = options.environ.get("JOULEWISE_CPU_TDP", "")
    try:
        tdp_w = float(text) if options.cpu_tdp_w is None and text else options.cpu_tdp_w
    except ValueError:
        tdp_w = math.nan
    if tdp_w is None:
        return None
    if not 0 < tdp_w < math.inf:
        value = text if options.cpu_tdp_w is None else options.cpu_tdp_w
        return Unavailable(f"a CPU's TDP cannot be {value!r}", "give it in watts, such as 150")
    return Rating(tdp_w, "TDP as given")


def _rating_from_table(info: CpuInfo, cpus: tuple[int, ...]) -> Rating | None:
    table = tomllib.loads(Path(__file__).with_name("cpus.toml").read_text(encoding="utf-8"))
    known = {name: row for maker in table.values() for name, row in maker["cpus"].items()}
    names = [name for name in known if f" {name} " in f" {info.name} "]
    if not names:
        return None
    name = max(names, key=len)
    tdp_w, threads = known[name]["tdp_w"], known[name]["threads"]
    if info.virtual:
        share = f"{len(cpus)} of {threads} threads of a {name} ({tdp_w} W)"
        return Rating(tdp_w * len(cpus) / threads, share)
    return Rating(tdp_w, f"TDP of the {name}")


def _rating_by_cores(info: CpuInfo, package: int, cpus: tuple[int, ...]) -> Rating:
    # A cloud's CPU is a thread, of which a core has two.
    cores = len(cpus) / 2 if info.virtual else info.cores.get(package, len(cpus))
    which = "a core" if cores == 1 else f"each of {cores:g} cores"
    assumed = f"{UNKNOWN_W_PER_CORE:g} W assumed for {which} (known CPUs have 4 to 24 W)"
    return Rating(UNKNOWN_W_PER_CORE * cores, f"the TDP is not known, {assumed}")


def _busy_s(stat: Path) -> dict[int, float] | Unavailable:
    """How long (s) each logical CPU has been busy since boot."""
    text = read_text(stat)
    if isinstance(text, Unavailable):
        return text
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    busy: dict[int, float] = {}
    for line in text.splitlines():
        if not line.startswith("cpu"):
            break  # CPUs come first; the next line is very long (all interrupts)
        name, *fields = line.split()
        number = name.removeprefix("cpu")
        if number.isdigit():
            ticks = fields[:_FIELDS]
            if len(ticks) < _FIELDS or not all(tick.isdigit() for tick in ticks):
                return Unavailable(f"{stat} holds {line[:40]!r}, which is not a count")
            busy_ticks = (int(t) for i, t in enumerate(ticks) if i not in _IDLE_FIELDS)
            busy[int(number)] = sum(busy_ticks) / ticks_per_s
    return busy or Unavailable(f"{stat} lists no CPU")
