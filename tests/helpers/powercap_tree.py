"""Simulated CPUs: their power, what a power limit does to it, and Linux's powercap folder of them.

Set ``$JOULEWISE_POWERCAP`` to the folder, or use :attr:`PowercapTree.environ`, and it is read and
set like a real one. A file ``joulewise_simulated`` beside the zones marks it as simulated. Time
passes only by :meth:`PowercapTree.advance`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from joulewise.devices.host.powercap import SIMULATED_FILE
from joulewise.units import UJ_PER_J, UW_PER_W

WINDOW_S: Final = 28.0
"""Time constant of the running mean that the long-term limit bounds: Intel's usual default (PL1).
The short-term limit holds at once. Doubled, a burst above the long-term limit lasts twice as long.
"""


@dataclass(frozen=True)
class CpuPackage:
    """The power of a package, idle and at full load, and the limits that its firmware sets.

    ``limits_w`` are long and short term; None where it has no constraint, as AMD's do not.
    ``dram_w`` is the power of its memory, idle and at full load. With ``dies`` above 1 its one
    counter appears once for each of them.
    """

    idle_w: float
    full_w: float
    limits_w: tuple[float, float] | None = None
    rated_w: float = 0.0
    dram_w: tuple[float, float] | None = None
    dies: int = 1


@dataclass(frozen=True)
class SimulatedHost:
    """The packages of a machine, and how its powercap folder shows them.

    ``inside`` are zones within each package and their share of its power. ``platform_w`` is what
    the platform draws besides; None where there is no psys zone. ``mmio``: also expose the package
    through ``intel-rapl-mmio``, which reports the same counter twice. Counters wrap beyond
    ``range_uj``.
    """

    name: str
    vendor_id: str
    packages: tuple[CpuPackage, ...]
    inside: Mapping[str, float]
    range_uj: int
    dram_range_uj: int = 65_712_999_613
    platform_w: float | None = None
    mmio: bool = False


XEON: Final = SimulatedHost(
    name="Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz",
    vendor_id="GenuineIntel",
    packages=(CpuPackage(42.0, 190.0, (150.0, 180.0), rated_w=150.0, dram_w=(9.0, 31.0)),) * 2,
    inside={},
    range_uj=262_143_328_850,
)
LAPTOP: Final = SimulatedHost(
    name="12th Gen Intel(R) Core(TM) i7-12700H",
    vendor_id="GenuineIntel",
    packages=(CpuPackage(4.0, 110.0, (45.0, 115.0), rated_w=45.0, dram_w=(0.5, 3.0)),),
    inside={"core": 0.8, "uncore": 0.05},
    range_uj=262_143_328_850,
    platform_w=7.0,
    mmio=True,
)
THREADRIPPER: Final = SimulatedHost(
    name="AMD Ryzen Threadripper 1950X 16-Core Processor",
    vendor_id="AuthenticAMD",
    packages=(CpuPackage(22.0, 180.0, dies=2),),
    inside={"core": 0.6},
    range_uj=65_532_610_987,
)
MACHINES: Final = {"xeon": XEON, "laptop": LAPTOP, "threadripper": THREADRIPPER}


class Socket:
    """The energy of a package and its DRAM, and the running mean of its power."""

    def __init__(self, package: CpuPackage) -> None:
        self.package = package
        self.energy_j = 0.0
        self.dram_j = 0.0
        self._mean_w = package.idle_w

    def run(self, seconds: float, load: float, long_w: float, short_w: float) -> float:
        """Let time pass at a load of 0 to 1; the work done, in seconds at full speed."""
        package = self.package
        demand_w = package.idle_w + load * (package.full_w - package.idle_w)
        done_s = 0.0
        for power_w, step_s in self._steps(seconds, demand_w, long_w, short_w):
            self.energy_j += power_w * step_s
            held_back = power_w < demand_w
            share = (power_w - package.idle_w) / (demand_w - package.idle_w) if held_back else 1.0
            done_s += step_s * share ** (1 / 3)  # power goes with the cube of the clock
        if package.dram_w:
            idle_w, full_w = package.dram_w
            share = load * done_s / seconds if seconds else 0.0
            self.dram_j += (idle_w + share * (full_w - idle_w)) * seconds
        return done_s

    def _steps(
        self, left_s: float, demand_w: float, long_w: float, short_w: float
    ) -> Iterator[tuple[float, float]]:
        """(power, duration) of stretches of constant power.

        The short limit holds until the running mean, an exponential average, is at the long one.
        """
        burst_w = max(self.package.idle_w, min(demand_w, short_w))
        if burst_w > long_w > self._mean_w:
            until_s = WINDOW_S * math.log((burst_w - self._mean_w) / (burst_w - long_w))
            step_s = min(left_s, until_s)
            yield burst_w, step_s
            self._mean_w = burst_w + (self._mean_w - burst_w) * math.exp(-step_s / WINDOW_S)
            left_s -= step_s
            if left_s <= 0:
                return
            self._mean_w = long_w
        held_w = max(self.package.idle_w, min(burst_w, long_w))
        yield held_w, left_s
        self._mean_w = held_w + (self._mean_w - held_w) * math.exp(-left_s / WINDOW_S)


_WINDOWS_S: Final = {"long_term": WINDOW_S, "short_term": 0.00244}  # as Intel's kernel driver shows
# Between the starts of two counters, since no two have counted the same since boot. Chosen: a prime
# of about 1 kJ, so that no multiple of it is near another counter's start.
_START_DISTANCE_UJ: Final = 1_000_000_007


class PowercapTree:
    """A simulated machine's powercap folder under ``root``.

    Counters start at ``start_uj``, each at a value of its own where that is None. With
    ``readable=False`` only root may read them.
    """

    def __init__(
        self,
        root: Path,
        machine: SimulatedHost,
        *,
        start_uj: int | None = None,
        readable: bool = True,
    ) -> None:
        self.machine = machine
        self.path = root / "class/powercap"
        self.environ = {
            "JOULEWISE_POWERCAP": str(self.path),
            "JOULEWISE_PROC": str(root / "proc"),
            "JOULEWISE_DMI": str(root / "dmi"),
        }
        self._devices = root / "devices/virtual/powercap"
        self._mode = 0o444 if readable else 0o400
        self._start_uj = start_uj
        self._sockets = [Socket(package) for package in machine.packages]
        self._platform_j = 0.0
        self._package_zones: list[list[Path]] = [[] for _ in machine.packages]
        self._registers: dict[str, int] = {}
        self._counters: list[tuple[Path, Callable[[], float], int, int]] = []
        self._create_zones()
        (self.path / SIMULATED_FILE).write_text("1\n")
        self._write_proc(root / "proc")
        self._write_counters()

    @property
    def truth_j(self) -> dict[str, float]:
        """The exact energy (J) of each device since the start."""
        truth = {f"cpu{i}": socket.energy_j for i, socket in enumerate(self._sockets)}
        for i, socket in enumerate(self._sockets):
            if socket.package.dram_w:
                truth[f"dram{i}"] = socket.dram_j
        if self.machine.platform_w is not None:
            truth["node0"] = self._platform_total_j()
        return truth

    def advance(self, seconds: float, load: Sequence[float] = ()) -> list[float]:
        """Let time pass at a load of 0 to 1 on each package (idle where none is given).

        Returns how much of its load each has done, in seconds at full speed: less than ``seconds``
        where a limit holds it back.
        """
        loads = [*load, *([0.0] * len(self._sockets))]
        done = [
            socket.run(seconds, share, *self._limits_w(zones))
            for socket, share, zones in zip(self._sockets, loads, self._package_zones, strict=False)
        ]
        self._platform_j += (self.machine.platform_w or 0.0) * seconds
        self._write_counters()
        return done

    def _platform_total_j(self) -> float:
        return self._platform_j + sum(s.energy_j + s.dram_j for s in self._sockets)

    def _limits_w(self, zones: Sequence[Path]) -> tuple[float, float]:
        """Long- and short-term limit of a package: the lowest of its zones that are enabled."""
        limits = [math.inf, math.inf]
        for zone in zones:
            for index in range(len(limits)):
                path = zone / f"constraint_{index}_power_limit_uw"
                if path.exists() and (zone / "enabled").read_text().strip() == "1":
                    limits[index] = min(limits[index], int(path.read_text()) / UW_PER_W)
        return limits[0], limits[1]

    def _create_zones(self) -> None:
        number = 0
        for i, socket in enumerate(self._sockets):
            for die in range(socket.package.dies):
                suffix = f"-die-{die}" if socket.package.dies > 1 else ""
                self._create_package(f"intel-rapl:{number}", f"package-{i}{suffix}", i)
                number += 1
        if self.machine.platform_w is not None:
            zone = f"intel-rapl:{number}"
            self._create_zone(zone, "psys", "psys", self._platform_total_j, self.machine.range_uj)
        if self.machine.mmio:
            self._create_package("intel-rapl-mmio:0", "package-0", 0)
        for folder in sorted(self._devices.rglob("*rapl*")):
            link = self.path / folder.name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(folder, link.parent))

    def _create_package(self, folder: str, name: str, i: int) -> None:
        socket, machine = self._sockets[i], self.machine
        control = folder.partition(":")[0]
        zone = self._create_zone(
            folder, name, f"{control} {i}", lambda: socket.energy_j, machine.range_uj
        )
        self._package_zones[i].append(zone)
        for index, limit_w in enumerate(socket.package.limits_w or ()):
            _write_constraint(zone, index, limit_w, socket.package.rated_w)
        if control != "intel-rapl":
            return
        inside: list[tuple[str, Callable[[], float], int]] = [
            (part, _share_of_energy(socket, share), machine.range_uj)
            for part, share in machine.inside.items()
        ]
        if socket.package.dram_w:
            inside.append(("dram", lambda: socket.dram_j, machine.dram_range_uj))
        for index, (part, joules, range_uj) in enumerate(inside):
            self._create_zone(f"{folder}/{folder}:{index}", part, f"{part} {i}", joules, range_uj)

    def _create_zone(
        self, folder: str, name: str, register: str, joules: Callable[[], float], range_uj: int
    ) -> Path:
        zone = self._devices / folder.partition(":")[0] / folder
        zone.mkdir(parents=True)
        start_uj = self._start_uj
        if start_uj is None:
            start_uj = self._registers.setdefault(
                register, _START_DISTANCE_UJ * (1 + len(self._registers))
            )
        self._counters.append((zone, joules, range_uj, start_uj % (range_uj + 1)))
        for file, value in (("name", name), ("enabled", 1), ("max_energy_range_uj", range_uj)):
            (zone / file).write_text(f"{value}\n")
        return zone

    def _write_counters(self) -> None:
        for zone, joules, range_uj, start_uj in self._counters:
            energy_uj = (start_uj + math.floor(joules() * UJ_PER_J)) % (range_uj + 1)
            # Replaced as a whole, so that a reader at work never meets half a number.
            new = zone / ".energy_uj"
            new.write_text(f"{energy_uj}\n")
            new.chmod(self._mode)
            new.replace(zone / "energy_uj")

    def _write_proc(self, proc: Path) -> None:
        proc.mkdir()
        blocks = (
            f"processor\t: {i}\nvendor_id\t: {self.machine.vendor_id}\n"
            f"model name\t: {self.machine.name}\nphysical id\t: {i}\ncore id\t\t: 0\n"
            for i in range(len(self._sockets))
        )
        (proc / "cpuinfo").write_text("\n".join(blocks))
        (proc / "meminfo").write_text(f"MemTotal:       {64 << 20} kB\n")


def _share_of_energy(socket: Socket, share: float) -> Callable[[], float]:
    return lambda: socket.energy_j * share


def _write_constraint(zone: Path, index: int, limit_w: float, rated_w: float) -> None:
    name, window_s = list(_WINDOWS_S.items())[index]
    values = {
        "name": name,
        "power_limit_uw": round(limit_w * UW_PER_W),
        "time_window_us": round(window_s * 1_000_000),
        "max_power_uw": round(rated_w * UW_PER_W) if name == "long_term" else 0,
    }
    for file, value in values.items():
        (zone / f"constraint_{index}_{file}").write_text(f"{value}\n")
