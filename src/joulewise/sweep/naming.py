"""How a sweep's runs are known in the store."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Final

from joulewise.data.sweeps import Planned
from joulewise.errors import JoulewiseError
from joulewise.record.index.condition import any_matches, text_is
from joulewise.record.index.run_entry import find_runs
from joulewise.record.manifest import read_manifest

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
    tagged = any_matches("tags", escape(f"{_SWEEP}{sweep_id}"))
    for run in find_runs(store, tagged & text_is("state", "complete")):
        for tag in run.tags:
            found.setdefault(tag, []).append(run.path)
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
