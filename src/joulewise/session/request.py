"""What is asked of a recorder, and what it answers when it records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from joulewise.errors import UsageError
from joulewise.store.runs import LAST

LOWEST_HZ: Final = 0.01
HIGHEST_HZ: Final = 1_000
_SHARED: Final = {
    "rate_hz": "--rate",
    "name": "--name",
    "tags": "--tag",
    "budgets": "--budget",
    "gco2_per_kwh": "--gco2-per-kwh",
    "price_per_kwh": "--price-per-kwh",
    "epochs": "--epochs",
    "cpu_tdp_w": "--cpu-tdp",
}


@dataclass(frozen=True)
class Request:
    """What is asked of the recorder; only the first of a group decides.

    Without a ``rate_hz`` it reads as often as its devices deserve. ``settings`` are what was set
    for this run, by device and knob. ``run_id`` is the id that the run is to have; a new one
    where it is empty.
    """

    rate_hz: float | None = None
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
    settings: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    run_id: str = ""

    @classmethod
    def told(cls, message: Mapping[str, Any]) -> Request:
        lists = {name: tuple(message[name]) for name in ("tags", "budgets")}
        return cls(**{**message, **lists})

    def unheeded(self, first: Request) -> tuple[str, ...]:
        """The options that are given here, and otherwise by the first of the group."""
        return tuple(
            option
            for name, option in _SHARED.items()
            if getattr(self, name) not in {getattr(Request(), name), getattr(first, name)}
        )


def check_rate(rate_hz: float | None) -> None:
    with suppress(TypeError):
        if rate_hz is None or LOWEST_HZ <= rate_hz <= HIGHEST_HZ:
            return
    raise UsageError(f"a rate of {rate_hz} Hz", f"take one from {LOWEST_HZ:g} to {HIGHEST_HZ:g} Hz")


def check_words(name: str | None, tags: Sequence[str]) -> None:
    if name == LAST:
        raise UsageError("a run cannot be named last, which is the newest", "name it otherwise")
    if name is not None and not name.strip():
        raise UsageError("a name that is empty", "leave it out for none")
    if not all(tag.strip() for tag in tags):
        raise UsageError("a tag that is empty", "leave it out for none")


@dataclass(frozen=True)
class Ready:
    """The recorder records: where, what, and how often.

    ``devices`` are (key, name, where its joules come from), the last empty where it has none.
    ``joined`` says that the run is another command's, too, and ``unheeded`` which options are as
    that one has them.
    """

    run: Path
    devices: tuple[tuple[str, str, str], ...]
    rate_hz: float
    joined: bool = False
    unheeded: tuple[str, ...] = ()

    @classmethod
    def told(cls, message: Mapping[str, Any]) -> Ready:
        devices = tuple((key, name, source) for key, name, source in message["devices"])
        run, unheeded = Path(message["run"]), tuple(message["unheeded"])
        return cls(run, devices, message["rate_hz"], message["joined"], unheeded)
