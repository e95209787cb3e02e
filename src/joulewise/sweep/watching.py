"""Whether a run of a sweep may be ended early: it is hopeless, or a look at it was enough."""

from __future__ import annotations

import json
from collections.abc import Collection
from enum import Enum
from pathlib import Path
from typing import Any

from joulewise.data.sweeps import Planned
from joulewise.record.files import read_regular
from joulewise.record.layout import LIVE
from joulewise.record.manifest import read_manifest
from joulewise.sweep.looking import Look
from joulewise.sweep.naming import names, run_of
from joulewise.sweep.runner import Hopeless
from joulewise.sweep.trial import GPU, REST, is_gpu
from joulewise.units import NS_PER_S


class Why(str, Enum):
    """Why a run was ended before its command did so itself."""

    STOPPED = "the sweep was stopped"
    TOO_LONG = "it took longer than it may"
    DOMINATED = "another setting had finished with less time and less energy"
    ENOUGH = "enough steady steps were seen"


class Watch:
    """Looks at what a run tells of itself while it goes on; made before the run begins."""

    def __init__(
        self, store: Path, sweep: str, planned: Planned, hopeless: Hopeless | None
    ) -> None:
        self._place = store, sweep, planned
        self._before = names(store)
        self._hopeless = hopeless
        self._run: Path | None = None
        self._look: Look | None = None

    def look(self) -> Why | None:
        look_s = self._place[2].look_s
        if self._hopeless is None and look_s is None:
            return None
        run = self._found()
        if run is None:
            return None
        if look_s is not None:
            self._look = self._look or Look(run, look_s)
            if self._look.is_enough():
                return Why.ENOUGH
        return Why.DOMINATED if self._is_hopeless(run) else None

    def command_since_s(self) -> float | None:
        """When the command was started, by the monotonic clock; None where it was not yet."""
        run = self._found()
        commands = () if run is None else read_manifest(run).commands
        return min((it.start_ns / NS_PER_S for it in commands), default=None)

    def _found(self) -> Path | None:
        if self._run is None:
            self._run = run_of(*self._place, self._before)
        return self._run

    def _is_hopeless(self, run: Path) -> bool:
        if self._hopeless is None:
            return False
        try:
            live = json.loads(read_regular(run / LIVE))
        except (OSError, ValueError):  # it has not begun, or has just ended
            return False
        return self._hopeless(live["time_s"], _joules(live["energy_j"], live["counted"]))


def _joules(energies: dict[str, Any], counted: Collection[str]) -> dict[str, float]:
    """In the GPUs and in the rest, of the devices that count and as far as it can be read."""
    joules: dict[str, float] = {}
    for key, energy in energies.items():
        if key in counted and energy is not None:
            part = GPU if is_gpu(key) else REST
            joules[part] = joules.get(part, 0.0) + energy["value"]
    return joules
