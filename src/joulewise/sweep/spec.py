"""The spec of a sweep, from the command line or a file, and the placeholders in its command.

In ``--batch-size {batch_size}`` a parameter's value replaces its name in braces. Only a name in
braces is such a placeholder: other braces stay, such as those of JSON (``{"a": 1}``), of the shell
(``${HOME}``, ``{a,b}``), and of ``find`` (``{}``). Doubled braces keep a name in braces:
``{{print}}``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

_PLACEHOLDER: Final = re.compile(
    r"(?<![${])(?P<open>\{+)(?P<name>[A-Za-z_]\w*)(?P<close>\}+)", re.ASCII
)


@dataclass(frozen=True)
class SimulationSpec:
    """A simulated GPU, and its workload: one by name, or one ``like`` a recorded run.

    ``run_noise`` is the standard deviation between runs as a share; None for the workload's own.
    """

    gpu: str
    workload: str = ""
    like: str = ""
    run_noise: float | None = None


@dataclass(frozen=True)
class SweepSpec:
    """What to sweep and how.

    ``axes`` and ``reference`` have values as text, by the name of the setting. ``cool_down`` is a
    time or a temperature (``60s``, ``50C``). ``each_gpu`` makes a run on every GPU at the same
    time. ``on`` is empty for this machine, or ``ray`` or ``ray://HEAD``. ``tolerance`` is a share.
    """

    command: tuple[str, ...] = ()
    axes: Mapping[str, str] = field(default_factory=dict)
    reference: Mapping[str, str] = field(default_factory=dict)
    constraints: tuple[str, ...] = ()
    repeat: int = 5
    seed: int = 0
    warm_up: int = 0
    cool_down: str = ""
    gpus: tuple[int, ...] = ()
    each_gpu: bool = False
    max_slowdown: float | None = None
    timeout_s: float | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    simulated: SimulationSpec | None = None
    on: str = ""
    adaptive: bool = False
    by: tuple[str, ...] = ()
    tolerance: float | None = None
    boundary: str = "gpu"
    overhead_w: float | None = None
    pue: float | None = None
    rate_hz: float | None = None
    hooks: bool = True
    force: bool = False
    name: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, payload: Mapping[str, Any]) -> SweepSpec:
        lists = {name: tuple(payload[name]) for name in ("command", "constraints", "gpus", "by")}
        simulated = payload["simulated"] and SimulationSpec(**payload["simulated"])
        return cls(**{**payload, **lists, "simulated": simulated})

    @property
    def digest(self) -> str:
        """A hash of the spec, by which the same command continues an earlier sweep."""
        text = json.dumps(self.as_json(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def render(text: str, values: Mapping[str, str]) -> str:
    """Replace each ``{name}`` by its value, and take away one pair of doubled braces."""

    def substitute(match: re.Match[str]) -> str:
        opened, name, closed = match["open"], match["name"], match["close"]
        return f"{opened[1:]}{name if _is_escaped(match) else values[name]}{closed[1:]}"

    return _PLACEHOLDER.sub(substitute, text)


def names_in(text: str) -> set[str]:
    """The names of the placeholders in a text."""
    return {match["name"] for match in _PLACEHOLDER.finditer(text) if not _is_escaped(match)}


def _is_escaped(match: re.Match[str]) -> bool:
    return min(len(match["open"]), len(match["close"])) > 1
