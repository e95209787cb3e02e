"""How a sweep's runs are known in the store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from joulewise.data.sweeps import Planned
from joulewise.record.manifest import Manifest
from joulewise.record.store import Skipped, readable


def tags(sweep_id: str, planned: Planned) -> tuple[str, str]:
    """What the run of this plan is tagged with: its sweep, and its place in it."""
    told = [planned.setting.as_json(), planned.block, planned.look_s]
    digest = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:12]
    return f"sweep:{sweep_id}", f"trial:{digest}"


def runs_of(store: Path, sweep_id: str, planned: Planned) -> Iterator[tuple[Path, Manifest]]:
    """The runs that were made for it, oldest first."""
    wanted = set(tags(sweep_id, planned))
    for found in readable(store):
        if not isinstance(found, Skipped) and wanted <= set(found[1].tags):
            yield found
