"""Linux's powercap folder: the zones that count each joule once, and their power limits.

A machine shows the same joules in several places. ``core`` and ``uncore`` are inside their package;
``psys`` contains everything; ``intel-rapl-mmio`` exposes the same counters as ``intel-rapl``; and
some AMD parts show the counter of the one package again in a zone for each die.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from joulewise.data import ControlInfo, ControlKind, Source, Unavailable
from joulewise.devices.host.base import read_int, read_text
from joulewise.errors import DeviceError, PermissionDeniedError
from joulewise.units import UW_PER_W

_ZONE: Final = re.compile(r"(?P<control>[a-z-]*rapl[a-z-]*)(?P<number>(:\d+)+)")
_CONTROL: Final = re.compile(r"[a-z-]*rapl[a-z-]*")
_NAME: Final = re.compile(r"(?P<kind>package|psys)(-(?P<package>\d+)(-die-\d+)?)?")
SIMULATED_FILE: Final = "joulewise_simulated"
"""A file in the powercap folder of a simulated machine, and in no real one."""

# How often two zones are compared before they count as one. Chosen: three comparisons are wrong by
# a chance of about 1 in 10^18. Doubled, discovery reads the counters twice as often.
_COMPARISONS: Final = 3


@dataclass(frozen=True)
class Zone:
    """One folder: ``intel-rapl:0`` of the control type ``intel-rapl``, named ``package-0``."""

    path: Path
    control: str
    number: str
    name: str

    @property
    def package(self) -> int:
        match = _NAME.fullmatch(self.name)
        return int(match["package"] or 0) if match else 0

    def energy_uj(self) -> int | Unavailable:
        return read_int(self.path / "energy_uj", self._fix)

    def range_uj(self) -> int | Unavailable:
        return read_int(self.path / "max_energy_range_uj", self._fix)

    @property
    def _fix(self) -> str:
        # Every zone has its link in this one folder, so that the pattern reaches them all.
        return f"sudo chmod a+r {self.path.parent}/*rapl*:*/*_uj"


@dataclass(frozen=True)
class Zones:
    """The zones to count: packages, the memory of each (or None), and the platforms."""

    packages: tuple[tuple[Zone, Zone | None], ...]
    platforms: tuple[Zone, ...]


def counter_source(root: Path) -> Source:
    """The source of every counter under this folder."""
    return Source.SIMULATED if (root / SIMULATED_FILE).exists() else Source.MEASURED


def find_zones(root: Path) -> Zones:
    """The zones to count, each joule of a package or of DRAM once."""
    zones = list(_iterate_zones(root))
    packages = _without_mirrors(_without_repeats(zones, "package"))
    drams = {(z.control, z.number.rpartition(":")[0]): z for z in zones if z.name == "dram"}
    return Zones(
        tuple((zone, drams.get((zone.control, zone.number))) for zone in packages),
        tuple(_without_repeats(zones, "psys")),
    )


def _iterate_zones(root: Path) -> Iterator[Zone]:
    """Every zone that has a name, whether the tree is flat, as links make it, or nested."""
    folders: dict[str, Path] = {}
    todo = [root]
    while todo:
        try:
            entries = sorted(todo.pop().iterdir())
        except OSError:
            continue
        for path in entries:
            if _ZONE.fullmatch(path.name) and path.name not in folders:
                folders[path.name] = path
                todo.append(path)
            elif _CONTROL.fullmatch(path.name):
                todo.append(path)
    for folder, path in sorted(folders.items(), key=lambda item: _natural_key(item[0])):
        match, name = _ZONE.fullmatch(folder), read_text(path / "name")
        if match and isinstance(name, str):
            yield Zone(path, match["control"], match["number"], name)


def _without_repeats(zones: Iterable[Zone], kind: str) -> list[Zone]:
    """Zones of a kind, without those that repeat a package through another control type."""
    distinct: list[Zone] = []
    for zone in sorted(zones, key=lambda zone: len(zone.control)):
        match = _NAME.fullmatch(zone.name)
        twin = any(z.package == zone.package and z.control != zone.control for z in distinct)
        if match and match["kind"] == kind and not twin:
            distinct.append(zone)
    return sorted(distinct, key=lambda zone: (zone.package, _natural_key(zone.number)))


def _without_mirrors(zones: Iterable[Zone]) -> list[Zone]:
    distinct: list[Zone] = []
    for zone in zones:
        if not any(z.package == zone.package and _is_mirror(zone, z) for z in distinct):
            distinct.append(zone)
    return distinct


def _is_mirror(zone: Zone, other: Zone) -> bool:
    """Whether two zones of one package show one counter.

    Read between two readings of the other, the same counter cannot be outside them; a counter of
    its own is inside by a chance of about 1 in 10^6 for each comparison. Dies that do count apart
    (Cascade Lake AP) stay apart. Zones that cannot be read count as one: nothing is lost.
    """
    for _ in range(_COMPARISONS):
        readings = (other.range_uj(), other.energy_uj(), zone.energy_uj(), other.energy_uj())
        values = [value for value in readings if isinstance(value, int)]
        if len(values) < len(readings):
            return True
        size, before, now, after = values
        if (now - before) % (size + 1) > (after - before) % (size + 1):
            return False
    return True


def _natural_key(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", text)]


_CONTROLS: Final = {
    "long_term": ControlKind.POWER_LIMIT,
    "short_term": ControlKind.POWER_LIMIT_SHORT,
}
_MAX_CONSTRAINTS: Final = 4  # chosen: more than any zone has (long, short and peak power)

# The register holds 15 bits of eighths of a watt (Intel SDM). Boards ship with limits far above the
# rated power, even at the register's end: such a value must be one that can be put back.
_STEP_W: Final = 0.125
_MAXIMUM_W: Final = 0x7FFF * _STEP_W

# The lowest limit to accept. Chosen: below a quarter of its rated power a CPU is so slow that the
# machine is hardly usable. Doubled, useful limits of CPUs are refused.
_MINIMUM_SHARE: Final = 0.25
_MINIMUM_W: Final = 1.0


@dataclass(frozen=True)
class PowerLimit:
    """One constraint of a zone; ``initial_w`` is its value when the device was opened."""

    path: Path
    info: ControlInfo
    initial_w: float

    def get(self) -> float | Unavailable:
        limit_uw = read_int(self.path)
        return limit_uw if isinstance(limit_uw, Unavailable) else limit_uw / UW_PER_W

    def set(self, key: str, value_w: float) -> None:
        info = self.info
        if isinstance(info.writable, Unavailable):
            raise PermissionDeniedError(f"{key}: {info.writable.reason}", info.writable.fix)
        try:
            self.path.write_text(str(round(value_w * UW_PER_W)), encoding="ascii")
        except PermissionError as error:
            raise PermissionDeniedError(
                f"{key}: the kernel refuses to write {self.path}",
                "the firmware may have locked the limit: check its setup (BIOS)",
            ) from error
        except OSError as error:
            raise DeviceError(f"{key}: {self.path}: {error.strerror}", _SEE_LOG) from error
        now_w = self.get()
        if isinstance(now_w, Unavailable) or abs(now_w - value_w) > _STEP_W:
            reason = now_w.reason if isinstance(now_w, Unavailable) else f"it is at {now_w:g} W"
            what = f"{key}: {info.control.value} was not set to {value_w:g}: {reason}"
            raise DeviceError(what, _SEE_LOG)


_SEE_LOG: Final = "see the kernel's log: dmesg | grep -i rapl"


def power_limits(zone: Path) -> dict[ControlKind, PowerLimit | Unavailable]:
    """The long- and the short-term limit of a zone, or why it has none."""
    limits: dict[ControlKind, PowerLimit | Unavailable] = {
        control: Unavailable(f"the kernel shows no {name} limit for this part")
        for name, control in _CONTROLS.items()
    }
    enabled = read_text(zone / "enabled")
    for index in range(_MAX_CONSTRAINTS):
        control = _CONTROLS.get(str(read_text(zone / f"constraint_{index}_name")))
        if control is None:
            continue
        if enabled == "0":
            limits[control] = Unavailable(
                "the zone's limits are off, or locked by the firmware",
                f"echo 1 | sudo tee {zone / 'enabled'}",
            )
        else:
            limits[control] = _power_limit(zone, index, control)
    return limits


def rated_w(zone: Path) -> float | None:
    """The rated power (W) of a part, where its long-term constraint says so."""
    rated_uw = read_int(zone / "constraint_0_max_power_uw")
    return rated_uw / UW_PER_W if isinstance(rated_uw, int) and rated_uw else None


def _power_limit(zone: Path, index: int, control: ControlKind) -> PowerLimit | Unavailable:
    path = zone / f"constraint_{index}_power_limit_uw"
    initial_uw = read_int(path)
    if isinstance(initial_uw, Unavailable):
        return initial_uw
    if initial_uw == 0:
        return Unavailable("the firmware has set no limit")
    initial_w = initial_uw / UW_PER_W
    minimum = max(_MINIMUM_W, (rated_w(zone) or 0.0) * _MINIMUM_SHARE)
    info = ControlInfo(
        control,
        minimum=min(minimum, initial_w),
        maximum=max(_MAXIMUM_W, initial_w),
        default=None,
        writable=os.access(path, os.W_OK)
        or Unavailable(f"{path} is writable by root only", f"sudo chown $USER {path}"),
        owner=_owner(path),
    )
    return PowerLimit(path, info, initial_w)


def _owner(path: Path) -> int:
    """The user id of the file's owner; root's where it does not exist."""
    try:
        return path.stat().st_uid
    except OSError:
        return 0
