"""What ``ls`` has to show: a line for each run, from run.json and the first line of result.json."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from joulewise.analyse.kept import read_summary
from joulewise.data import Source
from joulewise.record.manifest import Manifest
from joulewise.record.store import Skipped, readable, status
from joulewise.units import NS_PER_S


@dataclass(frozen=True)
class Listed:
    """A run in a list. ``energy`` is the total in its documented form.

    ``simulated`` are the devices in it that are not there, ``simulated_counted`` those that count.

    None is one that no device told of, or, where not ``is_computed``, that nobody asked for yet.
    """

    path: Path
    id: str
    name: str
    tags: tuple[str, ...]
    group: str
    host: str
    state: str
    exit_code: int | None
    codes: tuple[str, ...]
    started: datetime
    time_s: float | None
    energy: dict[str, Any] | None
    simulated: tuple[str, ...]
    simulated_counted: tuple[str, ...]
    is_computed: bool
    command: str

    @property
    def energy_j(self) -> float | None:
        return self.energy["value"] if self.energy else None

    @property
    def is_bound(self) -> bool:
        """Whether the energy is a lower bound: some device that counts was not read."""
        return bool(self.energy and self.energy.get("at_least"))


def listing(store: Path) -> Iterator[Listed | Skipped]:
    """Every run of a store, oldest first, and what cannot be read with the reason."""
    for found in readable(store):
        yield found if isinstance(found, Skipped) else _listed(*found)


def as_json(run: Listed) -> dict[str, Any]:
    return {
        "id": run.id,
        "name": run.name,
        "tags": list(run.tags),
        "group": run.group,
        "host": run.host,
        "state": run.state,
        "exit_code": run.exit_code,
        "started": run.started.isoformat(timespec="seconds"),
        "time_s": run.time_s,
        "energy_j": {"total": run.energy},
        "simulated": list(run.simulated),
        "command": run.command,
    }


def _listed(path: Path, manifest: Manifest) -> Listed:
    kept = read_summary(path)
    summary = kept or {}
    started = datetime.fromtimestamp(manifest.wall_start_ns / NS_PER_S, timezone.utc)
    commands = manifest.commands
    energy = (summary.get("energy_j") or {}).get("total")
    counted = summary.get("counted") or ()
    simulated = [one.info.key for one in manifest.devices if one.is_simulated]
    if energy and counted and set(counted) <= set(simulated):
        energy["source"] = Source.SIMULATED.value  # as it was not called before there was the word
    time_s = summary.get("time_s")
    if time_s is None and commands and all(command.end_ns for command in commands):
        end_ns = max(command.end_ns or 0 for command in commands)
        time_s = (end_ns - min(command.start_ns for command in commands)) / NS_PER_S
    return Listed(
        path=path,
        id=manifest.id,
        name=manifest.name,
        tags=manifest.tags,
        group=manifest.group,
        host=manifest.host.get("name", ""),
        state=status(manifest),
        exit_code=manifest.exit_code,
        codes=tuple(note.get("code", "") for note in manifest.notes),
        started=started.astimezone(),
        time_s=time_s,
        energy=energy,
        simulated=tuple(simulated),
        simulated_counted=tuple(key for key in simulated if key in counted),
        is_computed=kept is not None,
        command=shlex.join(commands[0].arguments) if commands else "",
    )
