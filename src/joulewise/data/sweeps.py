"""What a sweep consists of: settings, runs that are planned, and what each came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import msgspec

from joulewise.data.energy import Energy

POWER_LIMIT: Final = "power_limit_w"
SM_CLOCK: Final = "sm_clock_mhz"
MEM_CLOCK: Final = "mem_clock_mhz"
CPU_LIMIT: Final = "cpu_limit_w"
KNOB_KEYS: Final = {
    POWER_LIMIT: "power_limit",
    SM_CLOCK: "sm_clock",
    MEM_CLOCK: "mem_clock",
    CPU_LIMIT: "cpu_limit",
}
"""Each knob's key in a file of sweeps."""

KNOBS: Final = tuple(KNOB_KEYS)
"""The names of settings that turn a knob; every other is the command's own."""

_KNOB_WORDS: Final = {
    POWER_LIMIT: ("", "W", "limit as it is"),
    SM_CLOCK: ("SM ", "MHz", "SM unlocked"),
    MEM_CLOCK: ("memory ", "MHz", "memory unlocked"),
    CPU_LIMIT: ("CPU ", "W", "CPU limit as it is"),
}

WARM_UP: Final = -1
"""The block of runs that only warm up."""

CONFIRMING: Final = 1000
"""From this block on, runs had no part in a search's choice: they confirm it afresh."""

Value = float | str | None
"""Of a knob a number, or None where it is left as the device has it; of the command's own a word,
as it is put in the command's place for it."""


class Setting:
    """One point of a space: the value of each axis, in the order of the axes. Immutable.

    It is not a dataclass, which :mod:`joulewise.data.codec` would write with its fields: in JSON a
    setting is an object with a key for each axis.
    """

    __slots__ = ("values",)

    def __init__(self, values: tuple[tuple[str, Value], ...]) -> None:
        self.values = values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Setting) and self.values == other.values

    def __hash__(self) -> int:
        return hash(self.values)

    def __repr__(self) -> str:
        return f"Setting({self.values!r})"

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> Setting:
        return cls(tuple(values.items()))

    @classmethod
    def from_json(cls, payload: Any) -> Setting:
        """What :meth:`as_json` made; anything else is a ValueError."""
        return cls.of(msgspec.convert(payload, dict[str, int | float | str | None]))

    def __str__(self) -> str:
        """``150 W, SM 1200 MHz, batch_size 32``."""
        return ", ".join(_words(name, value) for name, value in self.values)

    def __getitem__(self, name: str) -> Value:
        return dict(self.values)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self.values))

    def get(self, name: str) -> Value:
        return dict(self.values).get(name)

    def as_json(self) -> dict[str, Value]:
        return dict(self.values)

    @property
    def words(self) -> dict[str, str]:
        """What belongs to the command, by name."""
        return {name: str(value) for name, value in self.values if name not in KNOBS}

    @property
    def knobs(self) -> dict[str, float | None]:
        return {name: value for name, value in self.values if name in KNOBS}  # type: ignore[misc]


@dataclass(frozen=True)
class Planned:
    """A run to be made; setting and block tell it from every other of the sweep.

    ``block`` is the repetition, from 0. A block has its own run of the reference, and stays on
    one ``lane`` (a GPU, or several that work together) if it can, so that they can be compared.
    With ``look_s`` only so many seconds of steady steps are wanted, not the whole run.
    """

    setting: Setting
    block: int
    lane: int = 0
    look_s: float | None = None


class TrialState(str, Enum):
    """How a planned run ended; only ``done`` has figures of a whole run.

    ``stopped``: another setting had finished with less time and less energy than this run had
    taken already, which is what its figures are. ``skipped``: it must be too slow.
    """

    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Work:
    """All spans of one name together: how many, their time and energy (by boundary, as below)."""

    count: int
    time_s: float
    energy: Mapping[str, Energy] = field(default_factory=dict)


@dataclass(frozen=True)
class Trial:
    """A planned run and what it came to.

    ``energy`` has ``gpu`` (the GPUs that the command used) and ``rest`` (CPU and memory), each
    only where it is known; with ``look_s`` it is a look at some steps, not at a whole run.
    ``bounds`` has those of which only a lower bound is known: no figure is made of them.
    ``spans`` has the work that was marked (``epoch``, ``step``,
    ``training``). ``capped`` is the share of the time under load in which the power limit held
    the clocks down, None where nobody looked; ``clock_mhz`` the mean SM clock under load.
    ``gpu`` names what it ran on, so that only runs of one board are compared. ``is_module`` says
    that what is told of its GPUs is of their modules, CPU and memory included (a superchip).
    """

    setting: Setting
    block: int
    state: TrialState
    lane: int = 0
    look_s: float | None = None
    run: str | None = None
    gpu: str = ""
    host: str = ""
    start_wall_ns: int = 0
    attempts: int = 1
    time_s: float | None = None
    energy: Mapping[str, Energy] = field(default_factory=dict)
    bounds: Mapping[str, Energy] = field(default_factory=dict)
    spans: Mapping[str, Work] = field(default_factory=dict)
    capped: float | None = None
    clock_mhz: float | None = None
    temperature_c: float | None = None
    warnings: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()
    exit_code: int | None = None
    reason: str = ""
    log_tail: str = ""
    is_module: bool = False

    @property
    def planned(self) -> Planned:
        return Planned(self.setting, self.block, self.lane, self.look_s)


@dataclass(frozen=True)
class Sweep:
    """A sweep as its file has it; ``asked`` is all that it takes to repeat it.

    ``state`` is ``running``, ``interrupted`` (nobody runs it, and runs are left) or ``finished``.
    ``settings`` are all points of the grid in order, the reference among them or not. ``trials``
    are in the order in which they ended. ``limits_w`` are the lowest, default and highest power
    limit of the boards, None where they have none; of runs from a file (``is_table``), which names
    no board, the lowest and highest that were tried. ``sure`` is what a search says of itself;
    of each metric (``metrics``) it has at least the ``settings`` that it decided for.
    """

    id: str
    asked: Mapping[str, Any]
    seed: int
    reference: Setting
    settings: tuple[Setting, ...]
    trials: tuple[Trial, ...] = ()
    name: str = ""
    state: str = "running"
    start_wall_ns: int = 0
    gpu_name: str = ""
    limits_w: tuple[float, float, float] | None = None
    sure: Mapping[str, Any] = field(default_factory=dict)
    is_table: bool = False

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(self.reference)

    @property
    def is_virtual(self) -> bool:
        """Whether its runs were simulated in virtual time, each from the same state.

        When they were made is then a time of the simulating program, and means nothing.
        """
        return bool(self.asked.get("simulated"))


@dataclass(frozen=True)
class RunCounts:
    """How many runs a sweep has, by what became of them; warm-ups and skipped ones are none.

    Only ``whole`` ones are called runs where a sweep is shown: all figures come from them.
    ``looks`` are at some steps of a run, and only lead a search.
    """

    whole: int
    looks: int
    stopped: int
    failed: int

    @classmethod
    def of(cls, trials: Iterable[Trial]) -> RunCounts:
        kinds = Counter(
            "looks" if trial.look_s is not None and state is TrialState.DONE else state.value
            for trial in trials
            if trial.block != WARM_UP
            for state in [trial.state]
        )
        return cls(kinds["done"], kinds["looks"], kinds["stopped"], kinds["failed"])

    @property
    def begun(self) -> int:
        return self.whole + self.looks + self.stopped + self.failed


def knob_option(knob: str) -> str:
    """Its option on the command line."""
    return f"--{KNOB_KEYS[knob].replace('_', '-')}"


def _words(name: str, value: Value) -> str:
    if name not in _KNOB_WORDS:
        return f"{name} {value}"
    before, unit, untouched = _KNOB_WORDS[name]
    return untouched if value is None else f"{before}{value:g} {unit}"
