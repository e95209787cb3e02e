"""A job in virtual time that is tuned: steps and energies by a curve, in virtual seconds.

Its GPU draws its limit and slows down as it must; heat follows power, and leaks. Energies come
late, as from a recorder that writes once a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from joulewise.optimise.live.controller import Controller
from joulewise.optimise.live.policy.response_model import TuningCandidate
from joulewise.optimise.live.policy.tuning_policy import TuningPolicy
from joulewise.optimise.live.tuning_options import TuningOptions

S = 10**9
LIMITS_W = tuple(range(150, 301, 10))


def candidates():
    return [TuningCandidate(power_limit_w=float(limit)) for limit in LIMITS_W]


REFERENCE = len(LIMITS_W) - 1


@dataclass(frozen=True)
class Step:
    start_ns: int
    end_ns: int


@dataclass
class VirtualJob:
    """``epoch_steps`` steps and ``validation_s`` in turn; ``factor(k)`` is of step k's time.

    ``host_s(k)`` is what the host adds to step k, at idle power, whatever the setting.

    ``wrong_energy(t_s)`` is whether no energy can be read then.
    """

    controller: Controller
    step_s: float = 0.25
    noise: float = 0.003
    epoch_steps: int = 10**9
    epochs: int | None = None
    validation_s: float = 0.0
    late_s: float = 1.0
    leak: float = 0.0
    heat_s: float = 40.0
    factor: Callable[[int], float] = lambda _step: 1.0
    power_factor: Callable[[int], float] = lambda _step: 1.0
    host_s: Callable[[int], float] = lambda _step: 0.0
    refused: frozenset[int] = frozenset()
    can_read: Callable[[float], bool] = lambda _t_s: True
    seed: int = 0
    t_ns: int = 5 * S
    steps: int = 0
    index: int = REFERENCE
    # Where the setting was changed: (time, candidate), and every step with its candidate.
    history: list[tuple[Step, int]] = field(default_factory=list)
    decisions: list[tuple[int, int | None, str]] = field(default_factory=list)

    def __post_init__(self):
        self._random = np.random.default_rng(self.seed)
        self._marks_ns, self._marks_j = [self.t_ns], [0.0]
        self._heat_w = self.true(self.index)[1] / self.true(self.index)[0]
        self._changed_ns = self.t_ns

    def true(self, index: int) -> tuple[float, float]:
        """Seconds and joules of a step that stays at a candidate, without noise."""
        limit_w = LIMITS_W[index]
        power_w = min(limit_w, 260.0)
        share = (power_w - 70.0) / 190.0
        time_s = self.step_s * (0.45 + 0.55 * share ** -(1 / 2.2))
        return time_s, time_s * power_w

    def run(self, most_steps: int, until: Callable[[VirtualJob], bool] = lambda _: False):
        controller = self.controller
        for _ in range(most_steps):
            self._update()
            controller.set_epochs(self.steps // self.epoch_steps, self.epochs, self.t_ns)
            if until(self):
                break
            step = self._step()
            controller.add_steps([step])
            if self.steps % self.epoch_steps == 0:
                self._advance(self.validation_s, 0.6 * self._heat_w)
                if self.steps // self.epoch_steps == self.epochs:
                    break
        return self

    def _update(self):
        controller, covered_ns = self.controller, self.t_ns - self.late_s * S
        for block in controller.pending_blocks():
            if block.end_ns <= covered_ns:
                sums = np.interp(np.array(block.windows_ns), self._marks_ns, self._marks_j)
                known = self.can_read(block.end_ns / S)
                controller.add_energy(block, float(np.diff(sums).sum()) if known else None)
        decision = controller.update(self.t_ns)
        self.decisions.append((self.t_ns, decision.index, decision.state.value))
        wanted = REFERENCE if decision.index is None else decision.index
        if wanted in self.refused:
            controller.refuse(wanted, self.t_ns, "no")
        elif wanted != self.index or (decision.index is not None and self._changed_ns == 5 * S):
            self._changed_ns = self.t_ns
            self.index = wanted
            controller.set_in_force(decision.index, self.t_ns)

    def _step(self) -> Step:
        time_s, energy_j = self.true(self.index)
        # The governor takes a moment: the first steps are a blend of two settings.
        blend = math.exp(-(self.t_ns - self._changed_ns) / S / 0.08)
        time_s *= self.factor(self.steps) * (1 + self._random.normal() * self.noise) * (1 + blend)
        own_w = energy_j / self.true(self.index)[0]
        power_w = own_w * self.power_factor(self.steps)
        power_w *= 1 + self._random.normal() * self.noise
        power_w += self.leak * (self._heat_w - own_w)
        start_ns = self.t_ns
        self._advance(time_s, power_w)
        self._advance(self.host_s(self.steps), 60.0)
        step = Step(start_ns, self.t_ns)
        self.history.append((step, self.index))
        self.steps += 1
        return step

    def _advance(self, time_s: float, power_w: float):
        self.t_ns += round(time_s * S)
        self._marks_ns.append(self.t_ns)
        self._marks_j.append(self._marks_j[-1] + power_w * time_s)
        self._heat_w = power_w + (self._heat_w - power_w) * math.exp(-time_s / self.heat_s)


def make_job(metric="edp", *, policy=None, options=None, seed=0, **job) -> VirtualJob:
    options = options or TuningOptions()
    if policy is None:
        policy = TuningPolicy(
            candidates(), REFERENCE, metric, seed=seed, max_slowdown=options.max_slowdown
        )
    controller = Controller(policy, options, started_ns=5 * S, starting_index=REFERENCE)
    return VirtualJob(controller, seed=seed, **job)
