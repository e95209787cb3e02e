"""CPU packages, memory and the platform, measured by RAPL's energy counters (Linux's powercap)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from joulewise.data import (
    ControlInfo,
    ControlKind,
    DeviceInfo,
    Kind,
    Quantity,
    Reading,
    SensorInfo,
    Source,
    Unavailable,
)
from joulewise.devices.device import Options
from joulewise.devices.host.base import HostDevice
from joulewise.devices.host.cpu_model import CpuInfo, ModelledCpu, model_of, read_cpuinfo
from joulewise.devices.host.powercap import (
    PowerLimit,
    Zone,
    Zones,
    counter_source,
    find_zones,
    power_limits,
    rated_w,
)
from joulewise.units import NS_PER_S, UJ_PER_J

# A step back is a wrap only where that needs less than ten times the most that the device can draw;
# else the counter was set back. The extra second is for counters that move in jumps. Chosen: with
# twice as much, a counter that was set back late in its range passes for a wrap more often.
_IMPOSSIBLE_FACTOR: Final = 10.0
_JUMP_S: Final = 1.0

# No counter of this kind fills within a minute. One that is read each second is read often enough.
_OFTEN_S: Final = 1.0


class WrappingCounter:
    """Undoes the wraps of a counter from 0 to ``range_uj`` of a device that draws ``maximum_w``.

    A wrap cannot be told from two, so readings must come within ``wrap_s``, the time to fill the
    counter at ``maximum_w``. Where one comes later, or the counter was set back, what was drawn in
    between is unknown: that reading is Unavailable, and the count restarts at 0, so that no
    difference across the gap passes for energy.
    """

    def __init__(self, first_uj: int, t_ns: int, *, range_uj: int, maximum_w: float) -> None:
        self.wrap_s = max(_OFTEN_S, range_uj / UJ_PER_J / maximum_w)
        self._maximum_w = maximum_w
        self._modulus_uj = range_uj + 1
        self._total_uj = self._last_uj = first_uj
        self._last_ns = t_ns

    def update(self, now_uj: int, t_ns: int) -> Reading | Unavailable:
        """The energy counted up to now, given what the counter shows at ``t_ns``."""
        if now_uj >= self._modulus_uj:
            return Unavailable(f"its counter shows {now_uj} uJ, beyond its own range")
        step_uj = (now_uj - self._last_uj) % self._modulus_uj
        elapsed_s = (t_ns - self._last_ns) / NS_PER_S
        wrapped = now_uj < self._last_uj
        self._last_uj, self._last_ns = now_uj, t_ns
        if elapsed_s > self.wrap_s:
            self._total_uj = 0
            return Unavailable(
                f"its counter was not read for {elapsed_s:.0f} s and may have wrapped twice: "
                f"it must be read every {self.wrap_s:.0f} s"
            )
        maximum_j = _IMPOSSIBLE_FACTOR * self._maximum_w * (elapsed_s + _JUMP_S)
        if wrapped and step_uj > maximum_j * UJ_PER_J:
            self._total_uj = 0
            return Unavailable("its counter was set back, as by a suspend")
        self._total_uj += step_uj
        return Reading(self._total_uj / UJ_PER_J, t_ns)


UPDATE_S: Final = 0.001  # Intel's manual (SDM, RAPL interfaces): about one millisecond
WINDOW_S: Final = 0.05  # chosen: fifty updates; what the first and the last of them miss is 2 %

# Chosen: more than any such part draws today for long. It bounds how soon a counter can wrap;
# doubled, counters must be read twice as often.
_MAXIMUM_W: Final = {Kind.CPU: 600.0, Kind.DRAM: 150.0, Kind.NODE: 3000.0}


class RaplDevice(HostDevice):
    """One zone: its energy counter, and its power limits.

    Where the counter of a CPU cannot be read, as by most users, its energy is modelled. The load of
    a CPU comes from the model in any case: the kernel counts its busy time.
    """

    def __init__(self, zone: Zone, info: DeviceInfo, options: Options) -> None:
        self._zone = zone
        self._now_ns = options.now_ns
        self._counter = _open_counter(zone, info.kind, options)
        self._model: ModelledCpu | None = None
        self._is_modelled = False
        sensors = _sensors(self._counter, counter_source(options.powercap))
        if info.kind is Kind.CPU:
            self._model = model_of(zone.package, options)
        if self._model and isinstance(self._counter, Unavailable):
            self._is_modelled = True
            sensors = self._model.sensors
            info = replace(info, better=self._counter)
        elif self._model:
            sensors = {**sensors, Quantity.LOAD: self._model.sensors[Quantity.LOAD]}
        super().__init__(info, sensors, window_s=WINDOW_S, sleep=options.sleep)
        limits = power_limits(zone.path)
        self._limits = {k: limit for k, limit in limits.items() if isinstance(limit, PowerLimit)}
        self.controls = {
            control: limit.info if isinstance(limit, PowerLimit) else limit
            for control, limit in limits.items()
            if control in self._limits or info.kind is Kind.CPU
        }
        self._observe()

    def _read(self, quantity: Quantity) -> Reading | Unavailable:
        if self._model and (self._is_modelled or quantity is Quantity.LOAD):
            return self._model.read(quantity)
        return super()._read(quantity)

    def _energy(self) -> Reading | Unavailable:
        if isinstance(self._counter, Unavailable):
            return self._counter
        t_ns = self._now_ns()
        energy_uj = self._zone.energy_uj()
        if isinstance(energy_uj, Unavailable):
            return energy_uj
        return self._counter.update(energy_uj, t_ns)

    def _get(self, control: ControlKind) -> float | Unavailable:
        return self._limits[control].get()

    def _set(self, info: ControlInfo, value: float) -> None:
        self._limits[info.control].set(self.info.key, value)

    def _reset(self, info: ControlInfo) -> None:
        """Back to the limit at opening: RAPL keeps no record of the firmware's own."""
        limit = self._limits[info.control]
        limit.set(self.info.key, limit.initial_w)


def find(options: Options) -> list[RaplDevice]:
    """A device for each package, memory and platform with a counter; none without RAPL."""
    zones = find_zones(options.powercap)
    cpus = read_cpuinfo(options.proc)
    dram_counts = _dram_counts(zones) is True
    devices = []
    for number, (package, dram) in _numbered(zones):
        devices.append(RaplDevice(package, _cpu_info(package, number, cpus), options))
        if dram and dram_counts:
            name = f"memory of CPU {number}"
            info = _device_info(dram, f"dram{number}", Kind.DRAM, name, cpus)
            devices.append(RaplDevice(dram, info, options))
    platforms = [RaplDevice(z, _platform_info(z, zones, cpus), options) for z in zones.platforms]
    return devices + platforms


def counts_dram(options: Options) -> bool | Unavailable:
    """Whether memory is measured, or why the counters that there are cannot be read."""
    return _dram_counts(find_zones(options.powercap))


def _dram_counts(zones: Zones) -> bool | Unavailable:
    counters = [dram.energy_uj() for _, dram in zones.packages if dram]
    refused = [reason for reason in counters if isinstance(reason, Unavailable)]
    return refused[0] if refused and len(refused) == len(counters) else bool(counters)


def _numbered(zones: Zones) -> list[tuple[int, tuple[Zone, Zone | None]]]:
    """Packages with their numbers; consecutive ones where the dies of a package count apart."""
    numbers = [package.package for package, _ in zones.packages]
    if len(set(numbers)) < len(numbers):
        numbers = list(range(len(numbers)))
    return list(zip(numbers, zones.packages, strict=True))


def _cpu_info(zone: Zone, number: int, cpus: CpuInfo) -> DeviceInfo:
    rated = rated_w(zone.path)
    note = f"rated {rated:g} W" if rated else ""
    return _device_info(zone, f"cpu{number}", Kind.CPU, cpus.name, cpus, note=note)


def _platform_info(zone: Zone, zones: Zones, cpus: CpuInfo) -> DeviceInfo:
    inside = [
        number
        for number, (package, _) in _numbered(zones)
        if len(zones.platforms) == 1 or package.package == zone.package
    ]
    # Memory that is not counted but assumed, as dram0, is inside the platform, too.
    contains = tuple(f"{kind}{number}" for number in inside for kind in ("cpu", "dram"))
    note = "what it covers is up to the maker of the board"
    info = _device_info(zone, f"node{zone.package}", Kind.NODE, "platform (psys)", cpus, note=note)
    return replace(info, contains=contains)


def _device_info(
    zone: Zone, key: str, kind: Kind, name: str, cpus: CpuInfo, *, note: str = ""
) -> DeviceInfo:
    uid = f"{zone.control}{zone.number}/{zone.name}"
    return DeviceInfo(key, kind, name, uid, cpus.vendor, zone.control, note=note)


def _open_counter(zone: Zone, kind: Kind, options: Options) -> WrappingCounter | Unavailable:
    t_ns = options.now_ns()
    first_uj, range_uj = zone.energy_uj(), zone.range_uj()
    if isinstance(first_uj, Unavailable):
        return first_uj
    if isinstance(range_uj, Unavailable):
        return range_uj
    if first_uj > range_uj:
        return Unavailable(f"{zone.path}: energy_uj is beyond max_energy_range_uj")
    return WrappingCounter(first_uj, t_ns, range_uj=range_uj, maximum_w=_MAXIMUM_W[kind])


def _sensors(
    counter: WrappingCounter | Unavailable, source: Source
) -> Mapping[Quantity, SensorInfo | Unavailable]:
    if isinstance(counter, Unavailable):
        return dict.fromkeys((Quantity.ENERGY, Quantity.POWER), counter)
    wrap = f"may wrap after {counter.wrap_s:.0f} s: read it at least that often"
    return {
        Quantity.ENERGY: SensorInfo(Quantity.ENERGY, source, UPDATE_S, note=wrap),
        Quantity.POWER: SensorInfo(
            Quantity.POWER,
            source,
            update_period_s=WINDOW_S,
            window_s=WINDOW_S,
            note="mean between readings of the counter",
        ),
    }
