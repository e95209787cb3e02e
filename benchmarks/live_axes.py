"""How near the best of all pairs of limit and clock a tuning over both axes ends, and how soon.

    python benchmarks/live_axes.py [--seeds 3] [--boards v100,rtx6000,a100] [--axes sm-clock]
                            [--metrics edp]

The candidates are those that `joulewise tune` would try on the simulated boards. Steps have the
time and energy of the settled board, with the noise and the transient of the judge of live tuning.
The best is that of the grid of every limit (5 W apart) with every clock that may be locked.
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from dataclasses import dataclass

import numpy as np
from helpers.verdict import Verdicts

from joulewise.metrics.metric import Reference, parse
from joulewise.optimise.live import TuningCandidate, TuningPolicy
from joulewise.optimise.live.candidates import make_candidates, parse_axes
from joulewise.session.gpu_discovery import DiscoveredGpu
from joulewise.simulate.boards import load_board
from joulewise.simulate.model import Board, ControlSettings, Load
from joulewise.simulate.physics.steady_state import equilibrium_clock, steady_c, step_at
from joulewise.simulate.workloads import load_workload

NETWORKS = ("alexnet", "vgg19", "inception3", "inception4", "resnet50", "resnet152")
METRICS = ("energy", "edp", "eds:2.0", "slowdown:1.1")
TIME_NOISE, ENERGY_NOISE = 0.01, 0.015
TRANSIENT_STEPS = 3
LIMIT_STEP_W = 5.0
LEAST_CLOCK_SHARE = 0.3  # of the grid; the least energy of every board is above
BROKEN = 1.005  # times the bound, as the judge's
NEAR = {"energy": 0.01, "edp": 0.01, "eds:2.0": 0.01, "slowdown:1.1": 0.02}  # as the judge's


@dataclass(frozen=True)
class Outcome:
    over_best: float
    is_broken: bool
    steps: int
    metric: str
    decisions: int
    cpu_s: float

    @property
    def is_near(self) -> bool:
        return self.over_best <= NEAR[self.metric]


@dataclass(frozen=True)
class Tuned:
    """A training on a board: its steps at each candidate, and all over the grid (s and J)."""

    name: str
    candidates: tuple[TuningCandidate, ...]
    reference: int
    truth: list[tuple[float, float]]
    grid: np.ndarray


def discovered(board: Board) -> DiscoveredGpu:
    clocks = board.clocks
    values = np.arange(clocks.sm_max_mhz, clocks.sm_min_mhz - 1, -clocks.sm_step_mhz)[::-1]
    limits = board.limits
    return DiscoveredGpu(
        key="gpu0",
        uid="gpu0",
        visible=True,
        default_w=limits.default_w,
        lowest_w=limits.minimum_w,
        highest_w=limits.maximum_w,
        now_w=limits.default_w,
        sm_clocks_mhz=tuple(map(float, values)),
    )


def true_step(board: Board, load: Load, candidate: TuningCandidate) -> tuple[float, float]:
    clock_mhz = candidate.sm_clock_mhz
    lock = None if clock_mhz is None else (board.clocks.sm_min_mhz, clock_mhz)
    settings = ControlSettings(candidate.power_limit_w or board.limits.default_w, lock)
    warm_c = steady_c(board, load, settings)
    time_s, energy_j = step_at(
        board, load, equilibrium_clock(board, load, settings, warm_c), warm_c
    )
    return float(time_s), float(energy_j)


def scores(
    metric: str,
    time_s: np.ndarray,
    energy_j: np.ndarray,
    base: tuple[float, float],
    broken: float = 1.0,
) -> np.ndarray:
    rule = parse(metric)
    values = rule.rule(time_s, energy_j, Reference(*base))
    bound = rule.max_slowdown or np.inf
    return np.where(time_s <= broken * bound * base[0], values, np.inf)


def tune(tuned: Tuned, metric: str, seed: int) -> Outcome:
    rng = np.random.default_rng([seed, zlib.crc32(f"{tuned.name} {metric}".encode())])
    truth, reference = tuned.truth, tuned.reference
    policy = TuningPolicy(tuned.candidates, reference, metric, seed=seed, discard=TRANSIENT_STEPS)
    steps = decisions = 0
    started_s = time.process_time()
    while not policy.settled:
        index, count = policy.ask()
        steps += count
        decisions += 1
        time_s, energy_j = truth[index]
        times_s = time_s * np.exp(rng.normal(0, TIME_NOISE, count))
        energies_j = energy_j * np.exp(rng.normal(0, ENERGY_NOISE, count))
        policy.tell(index, times_s, energies_j)
    cpu_s = time.process_time() - started_s
    score = float(scores(metric, *truth[policy.chosen], truth[reference], BROKEN))
    best = scores(metric, *tuned.grid, truth[reference]).min()
    return Outcome(score / best - 1, np.isinf(score), steps, metric, decisions, cpu_s)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--boards", default="v100,rtx6000,a100")
    parser.add_argument("--axes", default="power-limit,sm-clock")
    parser.add_argument("--metrics", default=",".join(METRICS))
    args = parser.parse_args()
    metrics = args.metrics.split(",")
    axes = parse_axes(args.axes.split(","))
    outcomes: list[Outcome] = []
    for key in args.boards.split(","):
        board = load_board(key)
        gpu = discovered(board)
        candidates, reference = make_candidates([gpu], axes)
        limits = np.arange(gpu.lowest_w, gpu.highest_w + 1, LIMIT_STEP_W)
        clocks = [c for c in gpu.sm_clocks_mhz if c >= LEAST_CLOCK_SHARE * gpu.sm_clocks_mhz[-1]]
        for network in NETWORKS:
            load = load_workload(network, board).step
            grid = [TuningCandidate(float(w), c) for w in limits for c in clocks]
            tuned = Tuned(
                f"{key} {network}",
                candidates,
                reference,
                [true_step(board, load, each) for each in candidates],
                np.array([true_step(board, load, each) for each in grid]).T,
            )
            for metric in metrics:
                for seed in range(args.seeds):
                    one = tune(tuned, metric, seed)
                    outcomes.append(one)
                    if not one.is_near:
                        over = f"{one.over_best:.2%} over the best after {one.steps} steps"
                        print(f"  {tuned.name} {metric}: {over}", flush=True)
    near = float(np.mean([one.is_near for one in outcomes]))
    steps = float(np.mean([one.steps for one in outcomes]))
    broken = sum(one.is_broken for one in outcomes)
    for metric in metrics:
        mine = [one for one in outcomes if one.metric == metric]
        within = np.mean([one.over_best <= NEAR["energy"] for one in mine])
        mean_steps = np.mean([one.steps for one in mine])
        print(f"{metric}: {within:.1%} within 1 %, settled after {mean_steps:.0f} steps")
    verdicts = Verdicts()
    decision_ms = 1e3 * sum(one.cpu_s for one in outcomes) / sum(one.decisions for one in outcomes)
    print(f"a decision takes {decision_ms:.1f} ms of CPU time, the start of the policy included")
    print(f"{len(outcomes)} tunings over {len(candidates)} candidates")
    verdicts.at_least(
        "within 1 % of the best of the grid (2 % at a bound)", near, 0.96, percent=True
    )
    verdicts.at_most("steps until settled, mean", steps, 90, percent=False)
    verdicts.at_most("bounds broken", broken, 0, percent=False)
    verdicts.show()
    return int(not verdicts.all_met)


if __name__ == "__main__":
    sys.exit(main())
