"""Data classes of the simulation: a board, one physical unit of it, and its load.

A board's figures come from ``boards/NAME.toml`` and a workload's from ``workloads/``; this file
defines what they mean. Clocks are in MHz, power in W, times in s unless the name says ns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class ClockRange:
    """The clocks that a board can run at, and the ridge above which voltage rises.

    Below ``ridge_mhz`` the voltage is ``floor_v`` (relative to 1 at ``sm_max_mhz``), so that energy
    per cycle is constant. Above it, at a clock ``f``, voltage is
    ``floor_v + (1 - floor_v) * ((f - ridge) / (max - ridge)) ** 2``.
    """

    sm_min_mhz: float
    sm_max_mhz: float
    sm_step_mhz: float
    ridge_mhz: float
    floor_v: float
    memory_mhz: tuple[float, ...]


@dataclass(frozen=True)
class IdlePower:
    """Idle power in three conditions, and how long clocks stay up after the last work.

    ``asleep_w`` with no process attached, ``context_w`` with one, ``clocks_up_w`` while the clocks
    have not come down yet.
    """

    asleep_w: float
    context_w: float
    clocks_up_w: float
    hold_s: float


@dataclass(frozen=True)
class PowerLimitRange:
    """What the board's power limit can be set to, and what it is by default."""

    minimum_w: float
    maximum_w: float
    default_w: float


@dataclass(frozen=True)
class Governor:
    """The control loop that holds the cap by moving the clock, one decision a period.

    It goes down fast (``attack``: the share of the excess that is taken back in one period) and
    up slowly (``release``), so that the cap holds for a burst, not for the mean of a step. See
    :mod:`joulewise.simulate.physics.governor`.
    """

    period_s: float
    attack: float
    release: float


@dataclass(frozen=True)
class Thermal:
    """A thermal resistance and time constant, leakage, and the temperatures that slow it down.

    Leakage is ``leak_w_per_c`` for every degree above ``reference_c``.
    """

    ambient_c: float
    reference_c: float
    resistance_c_per_w: float
    time_constant_s: float
    leak_w_per_c: float
    slowdown_c: float
    shutdown_c: float


@dataclass(frozen=True)
class SensorSpec:
    """How NVML would show the board; ``docs/explanation/simulated-gpu.md`` has the sources.

    A reading at tick k is the mean of true power over the ``window_s`` before it, shifted by
    ``lag_s``, times the unit's gain, plus noise, rounded to ``quantum_w``. ``average_window_s``
    is that of field 185 (and of the plain call where ``plain_is_average``); 0 where the board
    has no such field. The counter moves every ``counter_period_s`` by whole ``counter_step_j``, 0
    where the board has none; it shows what was drawn ``counter_lag_s`` ago, from which each unit
    differs. ``tick_jitter`` is the coefficient of variation of the intervals at which both update.
    """

    period_s: float
    tick_jitter: float
    window_s: float
    lag_s: float
    gain_sigma: float
    noise_w: float
    quantum_w: float
    average_window_s: float
    plain_is_average: bool
    counter_period_s: float
    counter_lag_s: float
    counter_step_j: float
    buffer_samples: int
    utilisation_period_s: float


@dataclass(frozen=True)
class Module:
    """What shares a superchip's module with the GPU, and what NVML shows of it.

    The CPU and its memory draw ``host_idle_w`` to ``host_full_w`` with the CPU's load. The GPU's
    own memory, a part of the GPU's power, draws ``memory_idle_w`` to ``memory_full_w`` with its
    utilisation. ``limit_w`` is the module's power limit, which NVML reports. The plain power call
    and the energy counter cover the module where ``plain_is_module`` and ``counter_is_module``.
    """

    host_idle_w: float
    host_full_w: float
    memory_idle_w: float
    memory_full_w: float
    limit_w: float
    plain_is_module: bool
    counter_is_module: bool

    def host_power_w(self, load: float) -> float:
        """The power (W) of the CPU and its memory at a load of 0 to 1."""
        return self.host_idle_w + load * (self.host_full_w - self.host_idle_w)


@dataclass(frozen=True)
class Board:
    """A model of GPU: everything that two units of it have in common.

    ``module`` is None for a GPU on a board of its own.
    """

    key: str
    name: str
    architecture: int
    compute_capability: tuple[int, int]
    memory_b: int
    pci_device_id: int
    pci_subsystem_id: int
    cores: int
    fans: int
    persistence: bool
    limits: PowerLimitRange
    clocks: ClockRange
    idle: IdlePower
    governor: Governor
    thermal: Thermal
    sensor: SensorSpec
    module: Module | None = None


@dataclass(frozen=True)
class Phase:
    """A part of a step with one level of activity.

    It lasts ``time_s`` at the board's highest clock. The share ``compute`` of that grows as the
    clock falls, the rest (memory, host) does not. Its power is the board's idle with clocks up,
    plus ``fixed_w`` (memory, links), plus ``core_w``, which scales with clock and voltage squared.
    ``busy`` is whether a kernel runs, ``memory`` the share of time that the memory is busy.
    """

    name: str
    time_s: float
    compute: float
    core_w: float
    fixed_w: float
    busy: bool = True
    memory: float = 0.0


@dataclass(frozen=True)
class Load:
    """One step of a workload on a board, as a cycle of phases."""

    phases: tuple[Phase, ...]
    memory_b: int = 0

    @cached_property
    def lasting(self) -> tuple[Phase, ...]:
        """The phases whose time is not 0."""
        return tuple(phase for phase in self.phases if phase.time_s > 0.0)

    @cached_property
    def busy(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Utilisation of the GPU and of its memory in each of the lasting phases."""
        return (
            tuple(float(phase.busy) for phase in self.lasting),
            tuple(phase.memory for phase in self.lasting),
        )

    @cached_property
    def time_s(self) -> float:
        """Time of a step at the highest clock."""
        return sum(phase.time_s for phase in self.lasting)


@dataclass(frozen=True)
class Workload:
    """A training: its steps, how many there are, and the waits between them.

    ``step`` is one training step at ``batch_size``; ``validation`` one step of validation.
    An epoch has ``ceil(samples / batch_size)`` steps, then the validation, then ``epoch_end_s``
    of waiting for the host with clocks up. Each of the first ``warmup_steps`` steps of the run
    also waits for the host, clocks up, for ``warmup_factor - 1`` times the step's time at the
    highest clock. ``source`` says where its figures come from.
    """

    name: str
    board: str
    batch_size: int
    samples: int
    epochs: int
    step: Load
    validation: Load
    validation_steps: int
    warmup_steps: int
    warmup_factor: float
    epoch_end_s: float
    run_noise: float
    source: str = ""


@dataclass(frozen=True)
class ControlSettings:
    """What a unit's controls are set to. Locks are (lowest, highest) clock, None where unlocked."""

    limit_w: float
    sm_lock_mhz: tuple[float, float] | None = None
    memory_lock_mhz: tuple[float, float] | None = None


@dataclass(frozen=True)
class BoardUnit:
    """One physical board: the properties of its sensor and energy counter that follow from a seed.

    The phases are the offsets of their ticks on the clock, and differ from each other.
    """

    board: Board
    seed: int
    gain: float
    sensor_phase_ns: int
    counter_phase_ns: int
    counter_lag_ns: int
