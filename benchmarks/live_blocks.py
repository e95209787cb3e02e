"""Whether a tuning that has a minute ends near the best: the product's controller in virtual time.

    python benchmarks/live_blocks.py [--seeds 2] [--boards rtx6000] [--networks resnet50]
                         [--metrics slowdown:1.1] [--max-slowdown 1.05] [--busy 0.15] [--step 0.2]

What `live_realtime.py` does in real time, in a second each: blocks that are long enough for the
sensor of the board, time lost to settle after each change, energies that come when the recorder
writes, and 60 s in all. The board is settled at once, and noise is that of a quiet host. With
`--busy` the host is slowed by others for half of the time, by up to that share at a time.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from dataclasses import dataclass

import numpy as np
from helpers.verdict import Verdicts
from live_axes import (
    BROKEN,
    LEAST_CLOCK_SHARE,
    LIMIT_STEP_W,
    NEAR,
    NETWORKS,
    Tuned,
    discovered,
    scores,
    true_step,
)

from joulewise.data.tuning import TuningState
from joulewise.optimise.live import TuningCandidate, TuningPolicy
from joulewise.optimise.live.candidates import make_candidates, parse_axes
from joulewise.optimise.live.controller import Controller
from joulewise.optimise.live.tuning_options import TuningOptions
from joulewise.simulate.boards import load_board
from joulewise.simulate.workloads import load_workload
from joulewise.units import NS_PER_S

# Shortest block and time to settle (s), as `joulewise tune` takes them for the sensors of these
# boards: TuningOptions of a tuning in real time.
SENSORS = {"v100": (0.8, 1.1), "rtx6000": (1.6, 1.12), "a100": (1.6, 1.12)}
TIME_NOISE, ENERGY_NOISE = 0.004, 0.004  # of a step, as in real time on a quiet machine
HOST_S = 0.002  # between steps and at their ends, mean
POLL_S = 0.1
READING_LATE_S = 0.2  # and then the recorder writes once a second
BUSY_S = 5.0  # how long a busy or a calm time is, mean
LONGEST_S = 100.0  # a tuning that holds nothing by then has failed
AT_BOUND = NEAR["slowdown:1.1"]


@dataclass(frozen=True)
class Step:
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Outcome:
    over_best: float
    is_broken: bool
    time_s: float


@dataclass
class Host:
    """How much longer a step takes beside other programs."""

    rng: np.random.Generator
    most: float
    until_s: float = 0.0
    slowed: float = 0.0

    def factor(self, now_s: float) -> float:
        if not self.most:
            return 1.0
        if now_s >= self.until_s:
            self.until_s = now_s + self.rng.exponential(BUSY_S)
            self.slowed = self.rng.uniform(0, self.most) if self.rng.random() < 0.5 else 0.0
        return 1 + self.slowed * self.rng.exponential()


@dataclass
class VirtualTraining:
    """Steps of the settled board, one after the other."""

    tuned: Tuned
    scale: float
    host: Host
    rng: np.random.Generator
    now_s: float = 0.0
    _start_ns: int = 0
    _end_ns: int = 0

    def steps_until(self, now_s: float, index: int) -> list[Step]:
        done = []
        self.now_s = now_s
        while self._end_ns <= now_s * NS_PER_S:
            if self._end_ns:
                done.append(Step(self._start_ns, self._end_ns))
            self._start_ns = self._end_ns + round(1e-4 * NS_PER_S)
            self._end_ns = self._start_ns + round(self._step_s(index) * NS_PER_S)
        return done

    def _step_s(self, index: int) -> float:
        time_s = self.scale * self.tuned.truth[index][0] * self.host.factor(self.now_s)
        noisy_s = time_s * np.exp(self.rng.normal(0, TIME_NOISE))
        return float(noisy_s + self.rng.exponential(HOST_S))

    def energy_j(self, index: int, steps: int) -> float:
        exact_j = self.scale * self.tuned.truth[index][1] * steps
        return float(exact_j * np.exp(self.rng.normal(0, ENERGY_NOISE)))


def tune(tuned: Tuned, board: str, args: argparse.Namespace, metric: str, seed: int) -> Outcome:
    rng = np.random.default_rng([seed, zlib.crc32(tuned.name.encode())])
    bound, reference = args.max_slowdown, tuned.reference
    block_s, settle_s = SENSORS[board]
    policy = TuningPolicy(tuned.candidates, reference, metric, seed=seed, max_slowdown=bound)
    options = TuningOptions(shortest_block_s=block_s, settle_s=settle_s, max_slowdown=bound)
    controller = Controller(policy, options, started_ns=0, starting_index=reference)
    scale = args.step / tuned.truth[reference][0]
    training = VirtualTraining(tuned, scale, Host(rng, args.busy), rng)
    now_s, index, written_s = 0.0, reference, rng.random()
    while controller.state is not TuningState.HOLDING and now_s < LONGEST_S:
        now_s += POLL_S
        controller.add_steps(training.steps_until(now_s, index))
        for block in controller.pending_blocks():
            late_s = block.end_ns / NS_PER_S + READING_LATE_S - written_s
            if now_s >= written_s + np.ceil(late_s):
                energy_j = training.energy_j(block.index, block.steps)
                controller.add_energy(block, energy_j)
        wanted = controller.update(round(now_s * NS_PER_S)).index
        wanted = reference if wanted is None else wanted
        if wanted != index:
            index = wanted
            controller.set_in_force(index, round(now_s * NS_PER_S))
    return judge(tuned, metric, bound or np.inf, controller.chosen, now_s)


def judge(tuned: Tuned, metric: str, bound: float, chosen: int | None, time_s: float) -> Outcome:
    if chosen is None:
        return Outcome(np.inf, is_broken=False, time_s=time_s)
    base, mine = tuned.truth[tuned.reference], tuned.truth[chosen]
    best = scores(metric, *tuned.grid[:, tuned.grid[0] <= bound * base[0]], base).min()
    score = float(scores(metric, *mine, base, BROKEN))
    is_broken = bool(np.isinf(score)) or mine[0] > BROKEN * bound * base[0]
    return Outcome(score / best - 1, is_broken, time_s)


def trainings(board_key: str, networks: list[str]) -> list[Tuned]:
    board = load_board(board_key)
    gpu = discovered(board)
    candidates, reference = make_candidates([gpu], parse_axes(["power-limit", "sm-clock"]))
    limits = np.arange(gpu.lowest_w, gpu.highest_w + 1, LIMIT_STEP_W)
    clocks = [c for c in gpu.sm_clocks_mhz if c >= LEAST_CLOCK_SHARE * gpu.sm_clocks_mhz[-1]]
    grid = [TuningCandidate(float(w), c) for w in limits for c in clocks]
    found = []
    for network in networks:
        load = load_workload(network, board).step
        truth = [true_step(board, load, each) for each in candidates]
        best = np.array([true_step(board, load, each) for each in grid]).T
        found.append(Tuned(f"{board_key} {network}", candidates, reference, truth, best))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--boards", default=",".join(SENSORS))
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--metrics", default="eds:2.0")
    parser.add_argument("--max-slowdown", type=float)
    parser.add_argument("--busy", type=float, default=0.0, help="share by which others slow steps")
    parser.add_argument("--step", type=float, default=0.2, help="seconds of a step before tuning")
    args = parser.parse_args()
    outcomes = []
    for board in args.boards.split(","):
        for tuned in trainings(board, args.networks.split(",")):
            for metric in args.metrics.split(","):
                for seed in range(args.seeds):
                    one = tune(tuned, board, args, metric, seed)
                    outcomes.append(one)
                    if one.over_best > NEAR["energy"] or one.is_broken:
                        what = "breaks the bound" if one.is_broken else "over the best"
                        print(f"  {tuned.name} {metric}: {one.over_best:.2%} {what}", flush=True)
    over = np.array([one.over_best for one in outcomes])
    broken = sum(one.is_broken for one in outcomes)
    time_s = np.mean([one.time_s for one in outcomes])
    print(f"{len(outcomes)} tunings settled after {time_s:.0f} s on average")
    print(f"within 1 % of the best: {np.mean(over <= NEAR['energy']):.1%}")
    verdicts = Verdicts()
    verdicts.at_least(
        "within 2 % of the best", float(np.mean(over <= AT_BOUND)), 0.96, percent=True
    )
    verdicts.at_most("bounds broken", broken, 0, percent=False)
    verdicts.show()
    return int(not verdicts.all_met)


if __name__ == "__main__":
    sys.exit(main())
