"""A run in progress, seen from outside: what its recorder has written so far, read as it grows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import join
from typing import Any

from joulewise.data import Energy
from joulewise.data.contract import TOTAL, told_energy
from joulewise.errors import UsageError
from joulewise.record.files import read_regular
from joulewise.record.layout import LIVE, MANIFEST
from joulewise.record.manifest import Manifest, read_manifest
from joulewise.record.store import status
from joulewise.report.watch_device import DeviceNow, DeviceWatch
from joulewise.session.budget import Budget, parse_budget
from joulewise.units import NS_PER_S


@dataclass(frozen=True)
class RunNow:
    """``outlook`` and ``energies`` are as of ``told_ns``, when the recorder last told them.

    ``simulated`` are those of ``counted`` that are not there.
    """

    id: str
    name: str
    command: str
    state: str
    time_s: float | None
    told_ns: int
    total: Energy | None
    energies: Mapping[str, Energy | None]
    counted: tuple[str, ...]
    simulated: tuple[str, ...]
    outlook: Mapping[str, Any] | None
    budgets: tuple[Budget, ...]
    devices: tuple[DeviceNow, ...]


class RunWatch:
    """Looks at a run again and again, at a cost that does not grow with it."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self._devices: dict[str, DeviceWatch] = {}
        self._stamp: tuple[int, ...] = ()
        self._manifest: Manifest | None = None
        self._live = _Live()

    def look(self) -> RunNow:
        manifest = self._read_manifest()
        self._live = _read_live(self.run) or self._live
        for device in manifest.devices:
            if device.sources and device.info.key not in self._devices:
                self._devices[device.info.key] = DeviceWatch(self.run, device, manifest)
        for watch in self._devices.values():
            watch.poll()
        live = self._live
        last_ns = max([live.t_ns, *(watch.last_ns for watch in self._devices.values())])
        starts = [command.start_ns for command in manifest.commands]
        return RunNow(
            id=manifest.id,
            name=manifest.name,
            command=join(manifest.commands[0].arguments) if starts else "",
            state=status(manifest),
            time_s=max(last_ns - min(starts), 0) / NS_PER_S if starts else None,
            told_ns=live.t_ns,
            total=live.energies.get(TOTAL),
            energies=live.energies,
            counted=live.counted,
            simulated=tuple(
                device.info.key
                for device in manifest.devices
                if device.is_simulated and device.info.key in live.counted
            ),
            outlook=live.outlook,
            budgets=_budgets(manifest.options),
            devices=tuple(watch.now(last_ns) for watch in self._devices.values()),
        )

    def _read_manifest(self) -> Manifest:
        """Anew only where it was replaced."""
        try:
            told = (self.run / MANIFEST).stat()
            stamp: tuple[int, ...] = (told.st_ino, told.st_mtime_ns, told.st_size)
        except OSError:
            stamp = ()
        if self._manifest is None or stamp != self._stamp:
            self._manifest, self._stamp = read_manifest(self.run), stamp
        return self._manifest


@dataclass(frozen=True)
class _Live:
    """What the recorder tells of itself (see ``session.live``), and nothing before it does."""

    t_ns: int = 0
    energies: Mapping[str, Energy | None] = field(default_factory=dict)
    counted: tuple[str, ...] = ()
    outlook: Mapping[str, Any] | None = None


def _read_live(run: Path) -> _Live | None:
    try:
        told = json.loads(read_regular(run / LIVE))
        energies = {key: told_energy(each) for key, each in told["energy_j"].items()}
        counted = tuple(told.get("counted", ()))
        outlook = {"epochs": told["epochs"], **told["outlook"]}
        return _Live(int(told["t_ns"]), energies, counted, outlook)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _budgets(options: Mapping[str, Any]) -> tuple[Budget, ...]:
    try:
        gco2_per_kwh = options.get("gco2_per_kwh")
        return tuple(parse_budget(text, gco2_per_kwh) for text in options.get("budgets", ()))
    except (UsageError, TypeError):  # of a newer joulewise, or damaged
        return ()
