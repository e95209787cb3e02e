"""A sweep: its settings, the runs that are planned, and the outcome of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from joulewise.data.energy import Energy

POWER_LIMIT: Final = "power_limit_w"
SM_CLOCK: Final = "sm_clock_mhz"
MEM_CLOCK: Final = "mem_clock_mhz"
CPU_LIMIT: Final = "cpu_limit_w"
CONTROL_KEYS: Final = {
    POWER_LIMIT: "power_limit",
    SM_CLOCK: "sm_clock",
    MEM_CLOCK: "mem_clock",
    CPU_LIMIT: "cpu_limit",
}
"""Each control's key in a sweep file."""

CONTROL_AXES: Final = tuple(CONTROL_KEYS)
"""The axes that set a control of a device; every other is a parameter of the command."""

_CONTROL_TEXTS: Final = {
    POWER_LIMIT: ("", "W", "limit as it is"),
    SM_CLOCK: ("SM ", "MHz", "SM unlocked"),
    MEM_CLOCK: ("memory ", "MHz", "memory unlocked"),
    CPU_LIMIT: ("CPU ", "W", "CPU limit as it is"),
}

WARM_UP: Final = -1
"""The block number of runs that only warm up the devices; real blocks count from 0."""

CONFIRMING: Final = 1000
"""From this block on, runs had no part in a search's choice: they confirm it with new data.

Chosen: no sweep has that many repetitions.
"""

Value = float | str | None
"""Of a control a number, or None where it is left as the device has it; of a parameter the text
that is put into the command line."""


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
        import msgspec

        return cls.of(msgspec.convert(payload, dict[str, int | float | str | None]))

    def __str__(self) -> str:
        """``150 W, SM 1200 MHz, batch_size 32``."""
        return ", ".join(_value_text(name, value) for name, value in self.values)

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
        """The parameters of the command, by name."""
        return {name: str(value) for name, value in self.values if name not in CONTROL_AXES}

    @property
    def controls(self) -> dict[str, float | None]:
        """The controls of the device, by name."""
        return {name: value for name, value in self.values if name in CONTROL_AXES}  # type: ignore[misc]


@dataclass(frozen=True)
class Planned:
    """A run that is to be made; setting and block identify it within the sweep.

    ``block`` is the repetition, from 0. A block has its own run of the reference, and stays in one
    ``lane`` if it can: a slot of one GPU, or of several that work together. With ``look_s`` only so
    many seconds of steady steps are measured, not the whole run.
    """

    setting: Setting
    block: int
    lane: int = 0
    look_s: float | None = None


class TrialState(str, Enum):
    """How a planned run ended; only ``done`` has the numbers of a whole run.

    ``stopped``: another setting had finished with less time and less energy than this run had
    already taken; its numbers are those up to then. ``skipped``: it is certain to be too slow.
    """

    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Work:
    """All spans of one name in a run: how many, their time, and energy as in ``Trial.energy``."""

    count: int
    time_s: float
    energy: Mapping[str, Energy] = field(default_factory=dict)


@dataclass(frozen=True)
class Trial:
    """A planned run and its outcome.

    - ``energy``: ``gpu`` (the GPUs that the command used) and ``rest`` (CPU and memory), each only
      where it is known; with ``look_s`` of some steps, not of a whole run
    - ``bounds``: those of which only a lower bound is known; nothing is computed from them
    - ``spans``: the work that was marked (``epoch``, ``step``, ``training``)
    - ``capped``: share of the time under load in which the power limit held the clocks down; None
      where it was not measured
    - ``clock_mhz``: mean SM clock under load
    - ``gpu``: the board that it ran on; only runs of one board are compared
    - ``is_module``: the GPU energy is that of superchip modules, CPU and memory included
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
    """A sweep as its file has it.

    - ``asked``: the request, with all that is needed to repeat it
    - ``state``: ``running``, ``interrupted`` (nobody runs it, and runs are left) or ``finished``
    - ``settings``: all points of the grid in order; the reference need not be among them
    - ``trials``: in the order in which they ended
    - ``limits_w``: lowest, default and highest power limit of the boards, None where they have
      none; of runs from a file (``is_table``), which names no board, the lowest and highest tried
    - ``sure``: the search's own account; for each of its ``metrics`` at least the ``settings`` that
      it chose
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

        Their start times are then those of the simulating program, and mean nothing.
        """
        return bool(self.asked.get("simulated"))


@dataclass(frozen=True)
class RunCounts:
    """How many runs a sweep has, by how they ended; warm-ups and skipped ones are not counted.

    Only ``whole`` ones are called runs where a sweep is shown: all results come from them.
    ``looks`` measured some steps of a run, and only guide a search.
    """

    whole: int
    looks: int
    stopped: int
    failed: int

    @classmethod
    def of(cls, trials: Iterable[Trial]) -> RunCounts:
        # A probe of some steps that ended in order is no whole run.
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


def control_option(control: str) -> str:
    """The option of a control on the command line: ``--power-limit``."""
    return f"--{CONTROL_KEYS[control].replace('_', '-')}"


def control_options(setting: Setting, gpus: Sequence[int], *, force: bool) -> list[str]:
    """Write the controls of a setting as options of ``joulewise run``.

    Controls that the setting leaves alone (None) are left out.
    """
    controls = {name: value for name, value in setting.controls.items() if value is not None}
    options = [f"{control_option(name)}={value:g}" for name, value in controls.items()]
    if gpus and controls:
        options.append(f"--gpu={','.join(map(str, gpus))}")
    return [*options, *(["--force"] if force and controls else [])]


def is_one_control(points: Sequence[Setting]) -> bool:
    """Whether all points differ in one control only: a search then makes no probes."""
    differing = [name for name in points[0] if len({point[name] for point in points}) > 1]
    return len(differing) == 1 and differing[0] in CONTROL_AXES


def _value_text(name: str, value: Value) -> str:
    if name not in _CONTROL_TEXTS:
        return f"{name} {value}"
    prefix, unit, unchanged = _CONTROL_TEXTS[name]
    return unchanged if value is None else f"{prefix}{value:g} {unit}"
