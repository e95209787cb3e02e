"""What a search optimises, and the time and energy of its trials."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from joulewise.data.sweeps import Planned, Setting, Trial
from joulewise.errors import UsageError
from joulewise.metrics.boundary import SystemBoundary, View, amount
from joulewise.metrics.metric import Metric, Reference

# The probability from which on a choice is called sure; chosen, the usual 95 %.
SURE: Final = 0.95

TrialKey = tuple[Setting, int, float | None]
"""Setting, block and seconds of a probe: what tells a run from every other of its sweep."""

Trials = dict[TrialKey, Trial]


def trial_key(run: Planned | Trial) -> TrialKey:
    return run.setting, run.block, run.look_s


@dataclass(frozen=True)
class Objective:
    """The metrics to minimise, and how near to the best a setting has to be.

    ``tolerance`` is a share of the best score; None leaves it to the search. ``max_power_w`` is
    that of :class:`~joulewise.metrics.metric.Reference`. ``seed`` is of all random numbers.
    """

    metrics: tuple[Metric, ...]
    tolerance: float | None = None
    view: View = field(default_factory=View)
    max_power_w: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        unique = {metric.name: metric for metric in self.metrics}
        object.__setattr__(self, "metrics", tuple(unique.values()))
        if self.tolerance is not None and not 0 < self.tolerance < 1:
            raise UsageError(f"the tolerance is {self.tolerance:g}", "say --tolerance 1 for 1 %")
        if not self.metrics:
            raise UsageError("an adaptive search needs a metric", "add --by edp")
        for metric in self.metrics:  # raises where it needs a power limit that is unknown
            metric.rule(1.0, 1.0, Reference(1.0, 1.0, self.max_power_w))


def observe(trials: Iterable[Trial], view: View) -> Iterator[tuple[Trial, float, float]]:
    """Time in s and energy in J, at the boundary of the view, of trials where both are known."""
    amounts = [(trial, counted) for trial in trials if (counted := amount(trial, view))]
    line = SystemBoundary.from_trials(amounts, view)
    for trial, counted in amounts:
        energy = dict(line.energies(counted)).get(view.boundary)
        if energy is not None and energy.value > 0 and counted.time_s > 0:
            yield trial, counted.time_s, energy.value
