r"""How near to the best a search of batch size, power limit and clock comes, after so many runs.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
        python benchmarks/several.py [--seeds 10] [--noise 0.01] [--by edp]

The surface is that of runs in virtual time, noise-free; each run made on it has noise of its own.
"ours" is what ``--adaptive`` does, up to its choice and with its runs of the reference; "whole" is
the same without looks. The others are Optuna's samplers as they come, on whole runs, each choosing
the best that it has seen. The cost is the time that all runs so far would have taken.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np
import optuna
from helpers.verdict import Verdicts
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler

from joulewise.data.devices import Source
from joulewise.data.energy import Energy
from joulewise.data.sweeps import (
    CONFIRMING,
    POWER_LIMIT,
    SM_CLOCK,
    Planned,
    Setting,
    Trial,
    TrialState,
    Work,
)
from joulewise.metrics.metric import Metric, Reference, parse
from joulewise.search.many_axes.bayesian import ManyAxesSearch
from joulewise.search.objective import Objective
from joulewise.simulate.boards import load_board, make_unit
from joulewise.simulate.model import ControlSettings
from joulewise.simulate.physics.integrate import run_factors
from joulewise.simulate.virtual import simulate
from joulewise.simulate.workloads import load_workload
from joulewise.sweep.runners.early_stop import STEP, UNSTEADY_STEPS
from joulewise.units import NS_PER_S

BATCHES = ("32", "64", "96", "128", "192", "256")
LIMITS_W = tuple(map(float, range(150, 301, 10)))
CLOCKS_MHZ = tuple(map(float, range(900, 1501, 75)))
AT = (15, 20, 30, 40)
LOOK_S = 10.0
TOLERANCE = 0.02


@dataclass(frozen=True)
class Point:
    """Of one setting without noise: a whole run, and a look with all that it takes to get there."""

    time_s: float
    energy_j: float
    steps: int
    look_time_s: float
    look_energy_j: float
    look_steps: int
    look_cost_s: float


class Surface:
    def __init__(self, gpu: str, workload: str, by: str) -> None:
        self.metric: Metric = parse(by)
        self.settings = [
            Setting.of({POWER_LIMIT: limit_w, SM_CLOCK: clock, "batch_size": batch})
            for limit_w in LIMITS_W
            for clock in CLOCKS_MHZ
            for batch in BATCHES
        ]
        values = {POWER_LIMIT: LIMITS_W[-1], SM_CLOCK: None, "batch_size": BATCHES[0]}
        self.reference = Setting.of(values)
        self._unit = make_unit(load_board(gpu), 0)
        self._works = {
            batch: load_workload(workload, self._unit.board, int(batch)) for batch in BATCHES
        }
        self._points = {each: self._point(each) for each in (*self.settings, self.reference)}
        self.max_power_w = self._unit.board.limits.maximum_w
        self._best = min(map(self.score, self.settings))

    def score(self, setting: Setting) -> float:
        one, other = self._points[setting], self._points[self.reference]
        against = Reference(other.time_s, other.energy_j, self.max_power_w)
        return float(self.metric.score(one.time_s, one.energy_j, against))

    def loss(self, setting: Setting) -> float:
        return self.score(setting) / self._best - 1

    def cost_s(self, planned: Planned) -> float:
        point = self._points[planned.setting]
        return point.time_s if planned.look_s is None else point.look_cost_s

    def run(self, planned: Planned, noise: float, seed: int) -> Trial:
        point = self._points[planned.setting]
        words = repr((planned.setting, planned.block, planned.look_s, seed)).encode()
        number = int.from_bytes(hashlib.blake2b(words, digest_size=6).digest(), "big")
        slower, hungrier = run_factors(number, noise)
        whole = point.time_s, point.energy_j, point.steps
        looked = point.look_time_s, point.look_energy_j, point.look_steps
        time_s, energy_j, steps = whole if planned.look_s is None else looked
        energy = {"gpu": Energy(energy_j * slower * hungrier, 0.0, 0.0, Source.MEASURED)}
        return Trial(
            planned.setting,
            planned.block,
            TrialState.DONE,
            planned.lane,
            planned.look_s,
            gpu="0",
            time_s=time_s * slower,
            energy=energy,
            spans={STEP: Work(steps, time_s * slower)},
        )

    def _point(self, setting: Setting) -> Point:
        clock = setting[SM_CLOCK]
        lock = (clock, clock) if isinstance(clock, float) else None
        limit_w = setting[POWER_LIMIT]
        assert isinstance(limit_w, float)
        controls = ControlSettings(limit_w, lock)
        ran = simulate(self._works[str(setting["batch_size"])], self._unit, controls, run_noise=0.0)
        ends_ns, start_ns = ran.spans[STEP].end_ns, int(ran.spans["run"].start_ns[0])
        since_ns = int(ends_ns[UNSTEADY_STEPS - 1])
        last = int(np.searchsorted(ends_ns, since_ns + LOOK_S * NS_PER_S))
        until_ns = int(ends_ns[min(last, len(ends_ns) - 1)])
        drawn_j = ran.timeline.energy_at(np.array([since_ns, until_ns]))
        return Point(
            ran.time_s,
            ran.energy_j,
            len(ends_ns),
            (until_ns - since_ns) / NS_PER_S,
            float(drawn_j[1] - drawn_j[0]),
            last - UNSTEADY_STEPS + 1,
            (until_ns - start_ns) / NS_PER_S,
        )


Course = Iterator[tuple[Setting, float]]
"""After each run: what would be chosen, and the time of all runs so far."""


def ours(surface: Surface, noise: float, seed: int, *, may_look: bool) -> Course:
    strategy = ManyAxesSearch(
        surface.settings,
        surface.reference,
        # A tolerance that is never met: the search uses its whole budget.
        Objective((surface.metric,), 1e-6, max_power_w=surface.max_power_w, seed=seed),
        budget=max(AT) + 6,
        may_probe=may_look,
    )
    cost_s, made = 0.0, 0
    while (planned := strategy.ask(())) is not None and planned.block < CONFIRMING:
        strategy.tell(surface.run(planned, noise, seed))
        cost_s, made = cost_s + surface.cost_s(planned), made + 1
        chosen = surface.reference
        if made in AT:
            chosen = Setting.of(strategy.sure["metrics"][surface.metric.name]["settings"])
        yield chosen, cost_s


def optunas(surface: Surface, noise: float, seed: int, sampler: BaseSampler) -> Course:
    study = optuna.create_study(sampler=sampler)
    seen: list[tuple[float, Setting]] = []
    cost_s = 0.0
    for number in range(max(AT)):
        asked = study.ask()
        setting = Setting.of(
            {
                POWER_LIMIT: LIMITS_W[asked.suggest_int("limit", 0, len(LIMITS_W) - 1)],
                SM_CLOCK: CLOCKS_MHZ[asked.suggest_int("clock", 0, len(CLOCKS_MHZ) - 1)],
                "batch_size": BATCHES[asked.suggest_int("batch", 0, len(BATCHES) - 1)],
            }
        )
        planned = Planned(setting, number)
        trial = surface.run(planned, noise, seed)
        against = Reference(1.0, 1.0, surface.max_power_w)
        score = float(surface.metric.score(trial.time_s, trial.energy["gpu"].value, against))
        study.tell(asked, np.log(score))
        seen.append((score, setting))
        cost_s += surface.cost_s(planned)
        yield min(seen, key=lambda it: it[0])[1], cost_s


SAMPLERS: dict[str, Callable[[int], BaseSampler]] = {
    "Optuna GP": lambda seed: GPSampler(seed=seed),
    "Optuna TPE": lambda seed: TPESampler(seed=seed),
    "Optuna NSGA-II": lambda seed: NSGAIISampler(population_size=8, seed=seed),
    "Optuna random": lambda seed: RandomSampler(seed=seed),
}


def course(name: str, surface: Surface, noise: float, seed: int) -> Course:
    if name in SAMPLERS:
        return optunas(surface, noise, seed, SAMPLERS[name](seed))
    return ours(surface, noise, seed, may_look=name == "ours")


def within(course: list[tuple[Setting, float]], time_s: float) -> Setting:
    """What would be chosen once so much time has passed."""
    return next((chosen for chosen, cost_s in reversed(course) if cost_s <= time_s), course[0][0])


@dataclass(frozen=True)
class Ended:
    """What a search came to that ends by itself, before its choice is confirmed."""

    runs: int
    time_s: float
    loss: float
    is_sure: bool


def by_itself(surface: Surface, noise: float, seed: int) -> Ended:
    strategy = ManyAxesSearch(
        surface.settings,
        surface.reference,
        Objective((surface.metric,), TOLERANCE, max_power_w=surface.max_power_w, seed=seed),
    )
    cost_s, made = 0.0, 0
    while (planned := strategy.ask(())) is not None and planned.block < CONFIRMING:
        strategy.tell(surface.run(planned, noise, seed))
        cost_s, made = cost_s + surface.cost_s(planned), made + 1
    found = strategy.sure["metrics"][surface.metric.name]
    return Ended(made, cost_s, surface.loss(Setting.of(found["settings"])), found["sure"])


@dataclass(frozen=True)
class Mean:
    """Of some seeds, with its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Mean:
        values = list(values)
        error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
        return cls(fmean(values), error)

    def __str__(self) -> str:
        return f"{self.value:.2%} ± {self.error:.2%}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", default="v100")
    parser.add_argument("--workload", default="resnet50")
    parser.add_argument("--by", default="edp")
    parser.add_argument("--noise", type=float, default=0.01)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)

    surface = Surface(options.gpu, options.workload, options.by)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    print(f"{len(surface.settings)} settings; the worst loses", end=" ")
    print(f"{max(map(surface.loss, surface.settings)):.2%}")
    ended = [by_itself(surface, options.noise, seed) for seed in seeds]
    sure = [it for it in ended if it.is_sure]
    right = [it for it in sure if it.loss <= TOLERANCE]
    print(f"left to itself: {fmean(it.runs for it in ended):.1f} runs", end=", ")
    print(f"{fmean(it.time_s for it in ended) / 3600:.2f} h", end=", ")
    print(f"loss {Mean.of(it.loss for it in ended)}", end="; ")
    print(f"sure {len(sure)} times of {len(ended)}, right {len(right)} of these", end=", ")
    print(f"and {sum(it.loss <= TOLERANCE for it in ended)} of all", flush=True)

    print("\nequal runs: the loss against the best, and hours of all runs so far, after")
    print(f"{'':16}" + "".join(f"{f'{at} runs':>24}" for at in AT))
    courses, hours = {}, {}
    for name in ("ours", "whole", *SAMPLERS):
        courses[name] = [list(course(name, surface, options.noise, seed)) for seed in seeds]
        losses = [Mean.of(surface.loss(it[at - 1][0]) for it in courses[name]) for at in AT]
        hours[name] = [fmean(it[at - 1][1] for it in courses[name]) / 3600 for at in AT]
        row = zip(losses, hours[name], strict=True)
        print(f"{name:16}" + "".join(f"{loss!s:>16}{h:6.2f} h" for loss, h in row), flush=True)
    print(f"\nequal time: the loss after the {hours['ours'][-1]:.2f} h of ours")

    def chosen(name: str, time_s: float | None) -> list[float]:
        found = (
            it[AT[-1] - 1][0] if time_s is None else within(it, time_s) for it in courses[name]
        )
        return [surface.loss(setting) for setting in found]

    time_s = 3600 * hours["ours"][-1]
    for name in SAMPLERS:
        print(f"{name:16}{Mean.of(chosen(name, time_s))!s:>16}")

    verdicts = Verdicts()
    verdicts.at_most("loss of ours after 40 runs", fmean(chosen("ours", None)), 0.02)
    for name in ("ours", "whole"):
        ratio = fmean(chosen(name, None)) / fmean(chosen("Optuna random", None))
        verdicts.at_most(
            f"equal runs: loss of {name} over random's, 40 runs each", ratio, 0.5, percent=False
        )
    ratio = fmean(chosen("ours", None)) / fmean(chosen("Optuna random", time_s))
    verdicts.at_most("equal time: loss of ours over random's", ratio, 0.5, percent=False)
    ratio = hours["ours"][-1] / hours["whole"][-1]
    verdicts.at_most("time of all runs over that without looks", ratio, 0.5, percent=False)
    verdicts.at_least("how often it is sure, left to itself", len(sure) / len(ended), 0.5)
    if sure:
        verdicts.at_least("how often it is right when sure", len(right) / len(sure), 0.95)
    verdicts.show()
    return 0 if verdicts.all_met else 1


if __name__ == "__main__":
    sys.exit(main())
