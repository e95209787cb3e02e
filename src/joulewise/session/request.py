"""What is requested of a recorder, and its answer once it records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from joulewise.errors import UsageError
from joulewise.store.runs import LAST

# Chosen: below one reading in 100 s a run of minutes has none; above 1 kHz reading the sensors
# takes a core of the CPU, and none of them updates that often.
MIN_RATE_HZ: Final = 0.01
MAX_RATE_HZ: Final = 1_000
_GROUP_OPTIONS: Final = {
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
    """How a run is to be recorded; in a group, the first command's request decides.

    ``rate_hz`` None: the recorder chooses it for its devices. ``settings`` are the values that were
    set for this run, by device and control. ``run_id`` is the id that the run is to have; a new one
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
    def from_message(cls, message: Mapping[str, Any]) -> Request:
        lists = {name: tuple(message[name]) for name in ("tags", "budgets")}
        return cls(**{**message, **lists})

    def ignored_options(self, first: Request) -> tuple[str, ...]:
        """The options given here that differ from those of the group's first command."""
        return tuple(
            option
            for name, option in _GROUP_OPTIONS.items()
            if getattr(self, name) not in {getattr(Request(), name), getattr(first, name)}
        )


def check_rate(rate_hz: float | None) -> None:
    """Raise where the rate is out of range or no number; None is the recorder's choice."""
    with suppress(TypeError):
        if rate_hz is None or MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
            return
    raise UsageError(
        f"rate must be between {MIN_RATE_HZ:g} and {MAX_RATE_HZ:g} Hz, not {rate_hz}",
        "leave it out for a rate that suits the devices",
    )


def check_names(name: str | None, tags: Sequence[str]) -> None:
    """Raise where a run cannot have this name or these tags."""
    if name == LAST:
        raise UsageError(
            f"a run cannot be named {LAST!r}, which means the newest run", "choose another name"
        )
    if name is not None and not name.strip():
        raise UsageError("the name is empty", "leave it out, or give a name")
    if not all(tag.strip() for tag in tags):
        raise UsageError("a tag is empty", "leave it out, or give a word")


@dataclass(frozen=True)
class Ready:
    """The recorder's answer once it records: the run's folder, its devices and the rate.

    ``devices`` are (key, name, source of its energy), the last empty where it cannot be read.
    ``joined`` says that the run was begun by another command, and ``ignored_options`` lists those
    that are ignored because that command gave other values.
    """

    run: Path
    devices: tuple[tuple[str, str, str], ...]
    rate_hz: float
    joined: bool = False
    ignored_options: tuple[str, ...] = ()

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Ready:
        devices = tuple((key, name, source) for key, name, source in message["devices"])
        run, ignored_options = Path(message["run"]), tuple(message["unheeded"])
        return cls(run, devices, message["rate_hz"], message["joined"], ignored_options)
