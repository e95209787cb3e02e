"""Trainings of known truth, by formulas that are not those of the policy's model.

Time is a smooth maximum of compute and memory (a roofline), power a power law of the clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from joulewise.metrics.metric import Reference, parse
from joulewise.optimise.live import TuningCandidate

LIMITS_W = tuple(float(limit_w) for limit_w in range(100, 301, 5))
CLOCKS_MHZ = tuple(float(clock_mhz) for clock_mhz in range(600, 1501, 30))


@dataclass(frozen=True)
class Training:
    compute_s: float = 0.8
    memory_s: float = 0.6
    exponent: float = 2.4
    static_w: float = 70.0
    dynamic_w: float = 210.0
    time_noise: float = 0.01
    energy_noise: float = 0.015

    def time_s(self, clock):
        return ((self.compute_s / clock) ** 4 + self.memory_s**4) ** 0.25

    def power_w(self, clock):
        return self.static_w + self.dynamic_w * clock**self.exponent

    def clock(self, candidate: TuningCandidate) -> float:
        """As a share of 1500 MHz: the locked one, or the highest that the limit allows."""
        clock = (candidate.sm_clock_mhz or 1500.0) / 1500.0
        if candidate.power_limit_w is not None:
            held = max((candidate.power_limit_w - self.static_w) / self.dynamic_w, 0.02)
            clock = min(clock, max(held ** (1 / self.exponent), 0.2))
        return min(clock, 1.0)

    def truth(self, candidate: TuningCandidate) -> tuple[float, float]:
        clock = self.clock(candidate)
        return self.time_s(clock), self.time_s(clock) * self.power_w(clock)

    def over_best(self, candidates, reference, metric, chosen, *, max_slowdown=None, overhead_w=0):
        """By how much the score of the choice is above the best; infinite if it is too slow."""
        time, energy = np.array([self.truth(each) for each in candidates]).T
        energy = energy + overhead_w * time
        scores = parse(metric).rule(time, energy, Reference(time[reference], energy[reference]))
        bound = max_slowdown or parse(metric).max_slowdown or np.inf
        scores = np.where(time <= 1.005 * bound * time[reference], scores, np.inf)
        return scores[chosen] / scores.min() - 1


class Job:
    """Plays a training to a policy."""

    def __init__(self, training: Training, policy, seed: int = 0) -> None:
        self.training, self.policy = training, policy
        self.rng = np.random.default_rng(seed)
        self.steps = 0
        self.tried: list[int] = []

    def play(self, steps: int | None = None) -> Job:
        """So many steps, or until the policy settles."""
        end = self.steps + (1000 if steps is None else steps)
        while self.steps < end and not (steps is None and self.policy.settled):
            index, count = self.policy.ask()
            time_s, energy_j = self.draw(index, count)
            self.policy.tell(index, time_s, energy_j)
            self.steps += count
            self.tried.append(index)
        return self

    def draw(self, index: int, count: int):
        time_s, energy_j = self.training.truth(self.policy.candidates[index])
        time_noise = self.rng.normal(0, self.training.time_noise, count)
        energy_noise = self.rng.normal(0, self.training.energy_noise, count)
        return time_s * np.exp(time_noise), energy_j * np.exp(energy_noise)


def limits(values_w=LIMITS_W) -> list[TuningCandidate]:
    return [TuningCandidate(power_limit_w=limit_w) for limit_w in values_w]


def clocks(values_mhz=CLOCKS_MHZ) -> list[TuningCandidate]:
    return [TuningCandidate(sm_clock_mhz=clock_mhz) for clock_mhz in values_mhz]


TRAININGS = (
    Training(),
    Training(compute_s=0.3, memory_s=0.9, exponent=1.8),
    Training(compute_s=1.0, memory_s=0.3, exponent=3.0, static_w=40.0, dynamic_w=250.0),
    Training(compute_s=0.6, memory_s=0.6, exponent=2.2, static_w=120.0, dynamic_w=230.0),
)
