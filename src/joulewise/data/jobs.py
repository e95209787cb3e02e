"""A recurring job: what it is, its tries, and its history.

A *job* is a training that recurs. Each *recurrence* is one or more *tries* (runs), until one
reaches the target. From them the job's policy learns which value of a parameter, usually the batch
size, costs least. A policy learns for each GPU type by itself, because the cost of an epoch differs
between them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from joulewise.data.sweeps import Setting

_TARGET: Final = re.compile(
    r"\s*(?P<metric>[^\s<>=]+)\s*(?P<relation>>=|<=)\s*(?P<wanted>\S+)\s*", re.ASCII
)


@dataclass(frozen=True)
class JobTarget:
    """The value of a metric at which a training is done: at least, or at most, ``wanted``."""

    metric: str
    wanted: float
    is_at_least: bool

    @classmethod
    def parse(cls, text: str) -> JobTarget:
        """Read ``val_acc>=0.65`` or ``val_loss<=1.2``; a ValueError for anything else."""
        parts = _TARGET.fullmatch(text)
        try:
            wanted = float(parts["wanted"]) if parts else math.nan
        except ValueError:
            wanted = math.nan
        if parts is None or not math.isfinite(wanted):
            raise ValueError(f"{text!r} is not a metric, >= or <=, and a number")
        return cls(parts["metric"], wanted, parts["relation"] == ">=")

    @property
    def text(self) -> str:
        """The form that :meth:`parse` reads."""
        return f"{self.metric}{'>=' if self.is_at_least else '<='}{self.wanted!r}"

    def is_reached(self, value: float) -> bool:
        """Whether a value of the metric is good enough; NaN never is."""
        return value >= self.wanted if self.is_at_least else value <= self.wanted


@dataclass(frozen=True)
class JobDefinition:
    """What a job is; the same in all of its recurrences, on every host.

    - ``parameter``: what the policy chooses, such as ``batch_size``; ``values``: from which,
      ascending; ``default``: the one that the user would take, among them
    - ``max_epochs``: after so many epochs without reaching the target, a try is missed
    - ``eta``: weight of energy in the cost, from 0 (time only) to 1 (energy only)
    - ``policy``: name of the policy that chooses; ``seed``: of its random numbers
    - ``is_open``: the values have no end, as of ``8:max``: what fits in memory is to be found
    - ``metric_pattern``: the regular expression that finds the target's metric in the output of the
      command; None where the command logs it
    """

    name: str
    parameter: str
    values: tuple[int, ...]
    default: int
    target: JobTarget
    max_epochs: int
    eta: float
    policy: str
    seed: int
    is_open: bool = False
    metric_pattern: str | None = None


class TryStatus(str, Enum):
    """What became of a try.

    - ``running``: nothing yet, and its worker was heard of lately
    - ``reached``: it reached the target
    - ``missed``: it ended, or had run ``max_epochs``, without reaching it
    - ``stopped_early``: it was stopped, because it had cost more than its budget
    - ``crashed``: it ran out of memory
    - ``failed``: another exit status than 0, or it logged no metric
    - ``expired``: its worker was lost
    """

    RUNNING = "running"
    REACHED = "reached"
    MISSED = "missed"
    STOPPED_EARLY = "stopped_early"
    CRASHED = "crashed"
    FAILED = "failed"
    EXPIRED = "expired"


@dataclass(frozen=True)
class TryOutcome:
    """How a try ended, as its worker tells it; the fields have the meaning of :class:`JobTry`.

    ``settings`` are those that the run chose besides the job's parameter, such as its power limit.
    """

    status: TryStatus
    epochs: int | None = None
    cost: float | None = None
    epoch_cost: float | None = None
    energy_j: float | None = None
    time_s: float | None = None
    metric_value: float | None = None
    run: str | None = None
    exit_code: int | None = None
    settings: Setting | None = None


@dataclass(frozen=True)
class JobTry:
    """One run of a recurrence.

    - ``key``: a UUID; ``number``: counts the tries of a recurrence from 1
    - ``gpu_type``: model and number of the GPUs (:func:`gpu_type_name`)
    - ``settings``: the value of the job's parameter, and what else was set
    - ``budget``: the cost above which the try is to be stopped, None where it never is
    - ``epochs``: those that were run; ``epoch_cost``: cost of one at the limit that was chosen
    - ``cost``: :func:`training_cost` in joules, of ``energy_j`` and ``time_s``: from the begin of
      the first epoch until the target, or the end of the command
    - ``energy_j``, ``max_power_w``: summed over the GPUs
    - ``metric_value``: best value of the target's metric that was logged
    - ``run``: id of its run directory; ``host``: where it ran
    - ``started_wall_ns``, ``ended_wall_ns``: by the clock of the store

    What is not known, or not yet, is None.
    """

    key: str
    job: str
    recurrence: int
    number: int
    gpu_type: str
    settings: Setting
    budget: float | None
    status: TryStatus
    max_power_w: float
    host: str
    started_wall_ns: int
    ended_wall_ns: int | None = None
    epochs: int | None = None
    cost: float | None = None
    epoch_cost: float | None = None
    energy_j: float | None = None
    time_s: float | None = None
    metric_value: float | None = None
    run: str | None = None
    exit_code: int | None = None
    is_simulated: bool = False


@dataclass(frozen=True)
class JobPolicyState:
    """What the policy of a job has learned on one GPU type.

    - ``state``: as the policy of that ``version`` saved it; None where nothing usable is stored,
      and the policy is made again from the tries when it is needed next
    - ``revision``: counts how often it was changed
    - ``largest_value``: larger values of the job's parameter are left out, as the search for what
      fits in memory has it; None where nothing was searched
    """

    gpu_type: str
    max_power_w: float
    version: int | None
    state: Mapping[str, Any] | None
    revision: int
    largest_value: int | None = None


@dataclass(frozen=True)
class JobHistory:
    """All that is stored of a job. ``tries`` are in the order in which they were started."""

    definition: JobDefinition
    tries: tuple[JobTry, ...]
    policy_states: tuple[JobPolicyState, ...] = ()

    def value_of(self, job_try: JobTry) -> int:
        """The value of the job's parameter in a try."""
        return int(str(job_try.settings[self.definition.parameter]))


def training_cost(eta: float, energy_j: float, time_s: float, max_power_w: float) -> float:
    """The cost of a training in joules: ``eta * ETA + (1 - eta) * MAXPOWER * TTA``.

    Energy and maximum power are both summed over the GPUs. Source: You, Chung and Chowdhury,
    "Zeus: Understanding and Optimizing GPU Energy Consumption of DNN Training", NSDI 2023, eq. 2.
    """
    return eta * energy_j + (1.0 - eta) * max_power_w * time_s


def gpu_type_name(model: str, count: int, *, is_simulated: bool = False) -> str:
    """What a policy learns for: ``Tesla V100-PCIE-16GB``, ``4 x … (simulated)``."""
    number = f"{count} x " if count > 1 else ""
    return f"{number}{model}{' (simulated)' if is_simulated else ''}"
