"""How a sweep's runs are known in the store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from joulewise.data.sweeps import Planned
from joulewise.record.manifest import Manifest
from joulewise.record.store import Skipped, readable, status

_SWEEP: Final = "sweep:"


def tags(sweep_id: str, planned: Planned) -> tuple[str, str]:
    """What the run of this plan is tagged with: its sweep, and its place in it."""
    return f"{_SWEEP}{sweep_id}", f"trial:{_digest(planned)}"


def log_name(planned: Planned) -> str:
    """What the run says is in a file of this name."""
    return f"{planned.block}-{_digest(planned)}.log"


def finished(store: Path, sweep_id: str) -> dict[str, list[Path]]:
    """The sweep's runs that came to an end in order, by the tag of their place in it."""
    found: dict[str, list[Path]] = {}
    for each in readable(store):
        if isinstance(each, Skipped) or f"{_SWEEP}{sweep_id}" not in each[1].tags:
            continue
        run, manifest = each
        if status(manifest) == "complete":
            for tag in manifest.tags:
                found.setdefault(tag, []).append(run)
    return found


def runs_of(store: Path, sweep_id: str, planned: Planned) -> Iterator[tuple[Path, Manifest]]:
    """The runs that were made for it, oldest first."""
    wanted = set(tags(sweep_id, planned))
    for found in readable(store):
        if not isinstance(found, Skipped) and wanted <= set(found[1].tags):
            yield found


def _digest(planned: Planned) -> str:
    told = [planned.setting.as_json(), planned.block, planned.look_s]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:12]
