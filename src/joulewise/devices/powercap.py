"""The zones of Linux's powercap folder that count something once.

A machine shows the same joules in several places. ``core`` and ``uncore`` are inside their
package; ``psys`` contains everything; ``intel-rapl-mmio`` is a second door to ``intel-rapl``;
and some AMD parts show the counter of the one package again in a zone for each die.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from joulewise.data import Source, Unavailable
from joulewise.devices.host import read_int, read_text

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
