"""How a sweep's runs are known in the store."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from joulewise.data.sweeps import Planned
from joulewise.errors import JoulewiseError
from joulewise.record.manifest import read_manifest
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


def names(store: Path) -> set[str]:
    """What lies in the store, run or not."""
    try:
        return set(os.listdir(store))  # noqa: PTH208  # of thousands, the names are enough
    except OSError:
        return set()


def run_of(store: Path, sweep_id: str, planned: Planned, before: Collection[str]) -> Path | None:
    """The run that is being made for it, which was not there ``before``: one that failed was."""
    wanted = set(tags(sweep_id, planned))
    for name in sorted(names(store).difference(before)):
        with suppress(JoulewiseError):
            if wanted <= set(read_manifest(store / name).tags):
                return store / name
    return None


def _digest(planned: Planned) -> str:
    told = [planned.setting.as_json(), planned.block, planned.look_s]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:12]
