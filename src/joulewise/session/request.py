"""What is asked of a recorder, and what it answers when it records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

DEFAULT_RATE_HZ: Final = 10.0


@dataclass(frozen=True)
class Request:
    """What is asked of the recorder; only the first of a group decides."""

    rate_hz: float = DEFAULT_RATE_HZ
    name: str = ""
    tags: tuple[str, ...] = ()
    group: str = ""
    budgets: tuple[str, ...] = ()
    gco2_per_kwh: float | None = None
    price_per_kwh: float | None = None
    epochs: int | None = None
    baseline_s: float = 0.0
    cpu_tdp_w: float | None = None
    hooks: bool = True

    @classmethod
    def told(cls, message: Mapping[str, Any]) -> Request:
        lists = {name: tuple(message[name]) for name in ("tags", "budgets")}
        return cls(**{**message, **lists})


@dataclass(frozen=True)
class Ready:
    """The recorder records: where, what, and how often.

    ``devices`` are (key, name, where its joules come from), the last empty where it has none.
    ``joined`` says that the run is another command's, too.
    """

    run: Path
    devices: tuple[tuple[str, str, str], ...]
    rate_hz: float
    joined: bool = False

    @classmethod
    def told(cls, message: Mapping[str, Any]) -> Ready:
        devices = tuple((key, name, source) for key, name, source in message["devices"])
        return cls(Path(message["run"]), devices, message["rate_hz"], message["joined"])
