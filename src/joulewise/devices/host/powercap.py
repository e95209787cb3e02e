"""The zones of Linux's powercap folder that count something once.

A machine shows the same joules in several places. ``core`` and ``uncore`` are inside their
package; ``psys`` contains everything; ``intel-rapl-mmio`` is a second door to ``intel-rapl``;
and some AMD parts show the counter of the one package again in a zone for each die.

The power limits of a powercap zone, as knobs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from joulewise.data import Knob, KnobInfo, Source, Unavailable
from joulewise.devices.host.base import read_int, read_text
from joulewise.errors import DeviceError, PermissionDeniedError
from joulewise.units import UW_PER_W

_ZONE: Final = re.compile(r"(?P<control>[a-z-]*rapl[a-z-]*)(?P<number>(:\d+)+)")
_CONTROL: Final = re.compile(r"[a-z-]*rapl[a-z-]*")
_NAME: Final = re.compile(r"(?P<kind>package|psys)(-(?P<package>\d+)(-die-\d+)?)?")
SIMULATED_FILE: Final = "joulewise_simulated"
"""In the folder that a simulated machine shows for powercap, and in no real one."""

_LOOKS: Final = 3
"""How often two zones are compared before they pass for one."""


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
    """What counts: packages, the DRAM beside each (or None), and the platforms around them."""

    packages: tuple[tuple[Zone, Zone | None], ...]
    platforms: tuple[Zone, ...]


def counter_source(root: Path) -> Source:
    """The source of every counter under this folder."""
    return Source.SIMULATED if (root / SIMULATED_FILE).exists() else Source.MEASURED


def find_zones(root: Path) -> Zones:
    """The zones to count, each joule of a package or of DRAM once."""
    found = list(_zones(root))
    packages = _unmirrored(_first_door(found, "package"))
    drams = {(z.control, z.number.rpartition(":")[0]): z for z in found if z.name == "dram"}
    return Zones(
        tuple((zone, drams.get((zone.control, zone.number))) for zone in packages),
        tuple(_first_door(found, "psys")),
    )


def _zones(root: Path) -> Iterator[Zone]:
    """Every zone that can be named, whether the tree is flat, as links make it, or nested."""
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
    for folder, path in sorted(folders.items(), key=lambda item: _natural(item[0])):
        match, name = _ZONE.fullmatch(folder), read_text(path / "name")
        if match and isinstance(name, str):
            yield Zone(path, match["control"], match["number"], name)


def _first_door(zones: Iterable[Zone], kind: str) -> list[Zone]:
    """Zones of a kind, without those that repeat a package through another control type."""
    kept: list[Zone] = []
    for zone in sorted(zones, key=lambda zone: len(zone.control)):
        match = _NAME.fullmatch(zone.name)
        twin = any(k.package == zone.package and k.control != zone.control for k in kept)
        if match and match["kind"] == kind and not twin:
            kept.append(zone)
    return sorted(kept, key=lambda zone: (zone.package, _natural(zone.number)))


def _unmirrored(zones: Iterable[Zone]) -> list[Zone]:
    kept: list[Zone] = []
    for zone in zones:
        if not any(k.package == zone.package and _mirrors(zone, k) for k in kept):
            kept.append(zone)
    return kept


def _mirrors(zone: Zone, other: Zone) -> bool:
    """Whether two zones of one package show one counter.

    Read between two readings of the other, the same counter cannot be outside them; one of its
    own is inside by a chance of about 1 in 10^6 for each look. Dies that do count apart (Cascade
    Lake AP) stay apart. Zones that cannot be read pass for one: there is nothing to lose.
    """
    for _ in range(_LOOKS):
        looks = (other.range_uj(), other.energy_uj(), zone.energy_uj(), other.energy_uj())
        values = [value for value in looks if isinstance(value, int)]
        if len(values) < len(looks):
            return True
        size, before, now, after = values
        if (now - before) % (size + 1) > (after - before) % (size + 1):
            return False
    return True


def _natural(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", text)]


_KNOBS: Final = {"long_term": Knob.POWER_LIMIT, "short_term": Knob.POWER_LIMIT_SHORT}
_CONSTRAINTS: Final = 4

# The register holds 15 bits of eighths of a watt. Boards ship with limits far above the rated
# power, even at the register's end: what was found there must be a value that can be put back.
_STEP_W: Final = 0.125
_MOST_W: Final = 0x7FFF * _STEP_W

# Below a quarter of its rated power a CPU crawls, and the machine with it.
_LEAST_SHARE: Final = 0.25
_LEAST_W: Final = 1.0


@dataclass(frozen=True)
class PowerLimit:
    """One constraint of a zone; ``found_w`` is what it was when the device was opened."""

    path: Path
    info: KnobInfo
    found_w: float

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
                "the firmware may have locked the limit: look in its setup (BIOS)",
            ) from error
        except OSError as error:
            raise DeviceError(f"{key}: {self.path}: {error.strerror}", _ASK) from error
        now_w = self.get()
        if isinstance(now_w, Unavailable) or abs(now_w - value_w) > _STEP_W:
            told = now_w.reason if isinstance(now_w, Unavailable) else f"it is at {now_w:g} W"
            raise DeviceError(f"{key}: {info.knob.value} did not go to {value_w:g}: {told}", _ASK)


_ASK: Final = "see the kernel's log: dmesg | grep -i rapl"


def power_limits(zone: Path) -> dict[Knob, PowerLimit | Unavailable]:
    """The long- and the short-term limit of a zone, or why it has them not."""
    limits: dict[Knob, PowerLimit | Unavailable] = {
        knob: Unavailable(f"the kernel shows no {name} limit for this part")
        for name, knob in _KNOBS.items()
    }
    enabled = read_text(zone / "enabled")
    for index in range(_CONSTRAINTS):
        knob = _KNOBS.get(str(read_text(zone / f"constraint_{index}_name")))
        if knob is None:
            continue
        if enabled == "0":
            limits[knob] = Unavailable(
                "the zone's limits are off, or locked by the firmware",
                f"echo 1 | sudo tee {zone / 'enabled'}",
            )
        else:
            limits[knob] = _power_limit(zone, index, knob)
    return limits


def rated_w(zone: Path) -> float | None:
    """What the part is rated for, where its long-term constraint says so."""
    rated_uw = read_int(zone / "constraint_0_max_power_uw")
    return rated_uw / UW_PER_W if isinstance(rated_uw, int) and rated_uw else None


def _power_limit(zone: Path, index: int, knob: Knob) -> PowerLimit | Unavailable:
    path = zone / f"constraint_{index}_power_limit_uw"
    found_uw = read_int(path)
    if isinstance(found_uw, Unavailable):
        return found_uw
    if found_uw == 0:
        return Unavailable("the firmware has set no limit")
    found_w = found_uw / UW_PER_W
    minimum = max(_LEAST_W, (rated_w(zone) or 0.0) * _LEAST_SHARE)
    info = KnobInfo(
        knob,
        minimum=min(minimum, found_w),
        maximum=max(_MOST_W, found_w),
        default=None,
        writable=os.access(path, os.W_OK)
        or Unavailable(f"{path} is writable by root only", f"sudo chown $USER {path}"),
        owner=_owner(path),
    )
    return PowerLimit(path, info, found_w)


def _owner(path: Path) -> int:
    """The user id of whom the file belongs to; root's where it is gone."""
    try:
        return path.stat().st_uid
    except OSError:
        return 0
