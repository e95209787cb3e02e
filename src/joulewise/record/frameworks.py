"""What the measured processes told of their frameworks when they ended (``hooks.frameworks``)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from joulewise.record.environment import FRAMEWORKS
from joulewise.record.files import read_regular
from joulewise.record.layout import MARKS
from joulewise.record.manifest import Manifest
from joulewise.units import NS_PER_S

SUFFIX: Final = ".frameworks.json"


@dataclass(frozen=True)
class FrameworkUse:
    """One process that imported a framework.

    ``time_s`` is from the first import to the end of the process and ``cpu_s`` the CPU time in it,
    its children's included; both are None of a process that was killed. ``frameworks`` has the
    ``version`` of each, and where it has them ``cuda``, ``cudnn`` and ``hip``.
    """

    pid: int
    imported_ns: int
    time_s: float | None
    cpu_s: float | None
    frameworks: Mapping[str, Mapping[str, str]]


def read_framework_uses(run: Path) -> list[FrameworkUse]:
    """In the order of their imports; a file that cannot be read counts as none."""
    read = map(_read, (run / MARKS).glob(f"*{SUFFIX}"))
    return sorted((use for use in read if use is not None), key=lambda use: use.imported_ns)


def _read(path: Path) -> FrameworkUse | None:
    try:
        return _use(json.loads(read_regular(path)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _use(told: Any) -> FrameworkUse:
    imported_ns, end_ns = int(told["imported_ns"]), told["end_ns"]
    return FrameworkUse(
        pid=int(told["pid"]),
        imported_ns=imported_ns,
        time_s=None if end_ns is None else (int(end_ns) - imported_ns) / NS_PER_S,
        cpu_s=None if told["cpu_s"] is None else float(told["cpu_s"]),
        frameworks={
            str(name): {str(key): str(value) for key, value in parts.items()}
            for name, parts in told["frameworks"].items()
        },
    )


def with_frameworks(run: Path, manifest: Manifest) -> Manifest:
    """The manifest with what the program used; that replaces what stands in our own environment."""
    frameworks = _together(use.frameworks for use in read_framework_uses(run))
    if not frameworks:
        return manifest
    ours = {name: v for name, v in manifest.versions.items() if name not in FRAMEWORKS}
    theirs = {name: parts["version"] for name, parts in frameworks.items()}
    return replace(manifest, frameworks=frameworks, versions={**ours, **theirs})


def _together(
    uses: Iterable[Mapping[str, Mapping[str, str]]],
) -> dict[str, dict[str, str]]:
    """Of several processes; where they differ, all that they have."""
    values: dict[str, dict[str, dict[str, None]]] = {}
    for frameworks in uses:
        for name, parts in frameworks.items():
            for key, value in parts.items():
                values.setdefault(name, {}).setdefault(key, {})[value] = None
    return {
        name: {key: ", ".join(each) for key, each in parts.items()}
        for name, parts in values.items()
        if "version" in parts
    }
