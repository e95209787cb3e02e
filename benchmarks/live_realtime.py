"""Whether a tuning in real time, on simulated GPUs through NVML, ends at the best setting.

    python benchmarks/live_realtime.py [--boards v100] [--networks resnet50,vgg19] [--metrics edp]
                                [--max-slowdown 1.05] [--changing] [--jobs 2] [--seed 0]

Each case is `joulewise sim` with `joulewise tune` and a training of simulated steps of about 0.2 s
(a smaller batch than the network's own, which changes no choice), which ends some seconds after a
setting is held. The choice is judged by the board's steady state at each pair of limit and clock,
and what is judged so is compared with the exact energy and time of the steps held (`--truth`). With
`--changing` the training goes on as another network, and both choices are judged. On a busy machine
the GPU waits for its program, and steps seem longer than they are (column `idle`): such a case is
tried a second time if it misses. A case takes one to two minutes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
from helpers.tuned_trainings import STATUS, TunedTraining, simulation, tuned_training
from helpers.verdict import Verdicts
from live_axes import (
    BROKEN,
    LEAST_CLOCK_SHARE,
    LIMIT_STEP_W,
    METRICS,
    NETWORKS,
    discovered,
    scores,
    true_step,
)

from joulewise.data.tuning import Tuning, TuningPhase, TuningState
from joulewise.optimise.live import TuningCandidate
from joulewise.simulate.boards import load_board
from joulewise.simulate.model import Load
from joulewise.simulate.workloads import load_workload
from joulewise.units import NS_PER_S

BOARDS = ("v100", "rtx6000", "a100")
STEP_S = 0.2
NEAR = 0.01
# The tuner looks ten times a second, and sees a step when it has ended.
LATE_S, LATE_STEPS = 1.0, 2
LONGEST_S, LONGEST_STEPS = 60.0, 90
HELD_S = 6.0
MOST_IDLE = 0.02  # of the time, in which the GPU waits for the program that trains
PATIENCE_S = 150.0  # until a setting is held; exploring takes a minute
NOTICED_S = 60.0  # until it explores again
# Of the steps held, between their exact time and energy and the steady state: the noise of a run
# (0.3 %), and a board that is still getting warm.
SAME_TIME, SAME_ENERGY = 0.012, 0.04


@dataclass(frozen=True)
class Case:
    board: str
    networks: tuple[str, ...]  # one after the other
    metric: str
    max_slowdown: float | None
    seed: int

    @property
    def name(self) -> str:
        bound = f" <= {self.max_slowdown:g}" if self.max_slowdown else ""
        return f"{self.board} {' > '.join(self.networks)} {self.metric}{bound}"


@dataclass(frozen=True)
class Choice:
    """A setting that was held: how far it is from the best, and how it was found."""

    case: Case
    network: str
    text: str
    over_best: float
    slowdown: float
    is_broken: bool
    explored_s: float
    explored_steps: int
    off_time: float  # of the steps held, against the steady state
    off_energy: float
    idle: float
    reason: str

    @property
    def faults(self) -> list[str]:
        is_long = (
            self.explored_s > LONGEST_S + LATE_S
            and self.explored_steps > LONGEST_STEPS + LATE_STEPS
        )
        is_other = abs(self.off_time) > SAME_TIME or abs(self.off_energy) > SAME_ENERGY
        found = {
            "not near the best": self.over_best > NEAR and not self.is_broken,
            "bound broken": self.is_broken,
            "explored too long": is_long,
            "the truth differs": is_other,
        }
        return [what for what, is_so in found.items() if is_so]


Held = tuple[Tuning, tuple[int, int, int]]
"""A tuning that holds a setting; since when it looked for it, and since and until when the steps
that it holds are judged (ns)."""


@dataclass(frozen=True)
class Played:
    case: Case
    choices: tuple[Choice, ...]
    faults: tuple[str, ...] = ()  # of the case as a whole

    @property
    def all_faults(self) -> list[str]:
        return [*self.faults, *(fault for choice in self.choices for fault in choice.faults)]


def batch_size(board_key: str, network: str) -> int:
    own = load_workload(network, load_board(board_key))
    return max(1, round(own.batch_size * STEP_S / own.step.time_s))


def play(case: Case) -> Played:
    """Tune one training."""
    options = ["--by", case.metric]
    if case.max_slowdown:
        options += ["--max-slowdown", str(case.max_slowdown)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truth = ("--truth", str(folder / "truth.csv"), "--seed", str(case.seed))
        faults: list[str] = []
        network, steps_path = case.networks[0], folder / "steps"
        load = [network, str(batch_size(case.board, network)), str(steps_path)]
        with simulation(case.board, *truth) as where:
            before = where.gpus.controls(0)
            with tuned_training(where, folder / "store", load, options) as training:
                held = list(hold_each(case, training, faults))
                out, said, status = training.finish()
                if (out, status) != ("trained\n", STATUS):
                    faults.append(f"the training ended with {status}: {said}")
            if where.gpus.controls(0) != before:
                faults.append("the settings before are not back")
        rows = np.genfromtxt(folder / "truth.csv", delimiter=",", skip_header=1)
        steps_ns = np.loadtxt(steps_path, np.int64)
    choices = [
        judge(case, place, tuning, exact_step(steps_ns, rows, times_ns))
        for place, (tuning, times_ns) in enumerate(held)
    ]
    return Played(case, tuple(choices), tuple(faults))


def play_calmly(case: Case) -> Played:
    """Once more where other programs disturbed it."""
    played = play(case)
    if played.all_faults and any(choice.idle > MOST_IDLE for choice in played.choices):
        played = play(case)
    return played


def hold_each(case: Case, training: TunedTraining, faults: list[str]) -> Iterator[Held]:
    """What is held for each network in turn; ends with a fault where nothing is."""
    for place, network in enumerate(case.networks):
        since_ns = time.monotonic_ns()
        if place:
            training.train(network, batch_size(case.board, network))
            if not training.wait_until(lambda now, n=place: len(now.changes) >= n, NOTICED_S):
                faults.append("the change was not noticed")
                return
        if not training.wait_until(lambda now: now.state is TuningState.HOLDING, PATIENCE_S):
            tuning = training.tuning
            faults.append(f"nothing was held: {tuning.reason if tuning else 'no tuning'}")
            return
        begin_ns = time.monotonic_ns() + NS_PER_S  # a step of the setting before may be under way
        time.sleep(HELD_S)
        tuning = training.tuning
        if tuning is None or tuning.state is not TuningState.HOLDING:
            faults.append("it explores again without a change")
            return
        yield tuning, (since_ns, begin_ns, time.monotonic_ns())


@dataclass(frozen=True)
class ExactStep:
    """The mean step held, and the share of the time of the tuning in which the GPU had none."""

    time_s: float
    energy_j: float
    idle: float


def exact_step(
    steps_ns: np.ndarray, truth: np.ndarray, times_ns: tuple[int, int, int]
) -> ExactStep:
    """By the exact energy of the steps within the window."""
    since_ns, begin_ns, end_ns = times_ns
    before_end = steps_ns[steps_ns[:, 1] <= end_ns]
    tuned = before_end[before_end[:, 0] >= since_ns]
    busy_ns, lasted_ns = np.diff(tuned, axis=1).sum(), tuned[-1, 1] - tuned[0, 0]
    chosen = tuned[tuned[:, 0] >= begin_ns]
    times_s = np.diff(chosen, axis=1) / NS_PER_S
    energies_j = np.diff(np.interp(chosen, truth[:, 0], truth[:, 2]), axis=1)
    idle = 1 - float(busy_ns / lasted_ns)
    return ExactStep(float(times_s.mean()), float(energies_j.mean()), idle)


@cache
def true_grid(board_key: str, network: str) -> np.ndarray:
    """Time and energy of a step at every limit and clock: two rows."""
    board, load = load_board(board_key), load_of(board_key, network)
    gpu = discovered(board)
    limits = np.arange(gpu.lowest_w, gpu.highest_w + 1, LIMIT_STEP_W)
    clocks = [c for c in gpu.sm_clocks_mhz if c >= LEAST_CLOCK_SHARE * gpu.sm_clocks_mhz[-1]]
    pairs = [TuningCandidate(float(w), c) for w, c in product(limits, clocks)]
    return np.array([true_step(board, load, each) for each in pairs]).T


@cache
def load_of(board_key: str, network: str) -> Load:
    return load_workload(network, load_board(board_key), batch_size(board_key, network)).step


def judge(case: Case, place: int, tuning: Tuning, exact: ExactStep) -> Choice:
    network, board = case.networks[place], load_board(case.board)
    assert tuning.chosen is not None
    candidate = TuningCandidate(**dict(tuning.chosen.values))  # type: ignore[arg-type]
    load = load_of(case.board, network)
    base = true_step(board, load, TuningCandidate(board.limits.default_w))
    mine = true_step(board, load, candidate)
    bound = case.max_slowdown or np.inf
    grid = true_grid(case.board, network)
    allowed = grid[:, grid[0] <= bound * base[0]]
    score = scores(case.metric, *mine, base, BROKEN)
    slowdown = mine[0] / base[0]
    is_broken = bool(np.isinf(score)) or slowdown > BROKEN * bound
    best = float(scores(case.metric, *allowed, base).min())
    explored_s, explored_steps = explored(tuning, place)
    return Choice(
        case,
        network,
        str(tuning.chosen),
        float(scores(case.metric, *mine, (np.inf, base[1]))) / best - 1
        if is_broken
        else float(score) / best - 1,
        slowdown,
        is_broken,
        explored_s,
        explored_steps,
        exact.time_s / mine[0] - 1,
        exact.energy_j / mine[1] - 1,
        exact.idle,
        tuning.reason,
    )


def explored(tuning: Tuning, place: int) -> tuple[float, int]:
    """Seconds and steps of the exploration at this place."""
    since_s = tuning.changes[place - 1].at_s if place else 0.0
    phases: Sequence[TuningPhase] = [
        phase
        for phase in tuning.phases
        if phase.state is TuningState.EXPLORING and phase.start_s >= since_s - 1e-6
    ]
    return sum(one.end_s - one.start_s for one in phases), sum(one.steps for one in phases)


def show(played: Played) -> None:
    for choice in played.choices:
        marks = ", ".join(choice.faults) or "met"
        print(
            f"{choice.case.board:8} {choice.network:10} {choice.case.metric:12} {choice.text:22} "
            f"{choice.over_best:8.2%} {choice.slowdown:7.3f} {choice.explored_s:6.1f} "
            f"{choice.explored_steps:5} {choice.off_time:+7.2%} {choice.off_energy:+7.2%} "
            f"{choice.idle:6.1%}  {marks}",
            flush=True,
        )
        if choice.faults:
            print(f"           {choice.reason}", flush=True)
    for fault in played.faults:
        print(f"{played.case.name}: {fault}", flush=True)


def make_cases(arguments: argparse.Namespace) -> list[Case]:
    boards, networks = arguments.boards.split(","), arguments.networks.split(",")
    cases = []
    for metric, board, (at, network) in product(
        arguments.metrics.split(","), boards, enumerate(networks)
    ):
        then = NETWORKS[(NETWORKS.index(network) + 3) % len(NETWORKS)]
        both = (network, then) if arguments.changing else (network,)
        cases.append(Case(board, both, metric, arguments.max_slowdown, arguments.seed + at))
    return cases


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--boards", default=",".join(BOARDS))
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--metrics", default="eds:2.0", help=f"such as {','.join(METRICS)}")
    parser.add_argument("--max-slowdown", type=float)
    parser.add_argument("--changing", action="store_true", help="train another network half-way")
    parser.add_argument("--jobs", type=int, default=2, help="cases at the same time")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    cases = make_cases(arguments)
    print(
        f"{'board':8} {'network':10} {'by':12} {'chosen':22} {'over':>8} {'slower':>7} "
        f"{'s':>6} {'steps':>5} {'time':>7} {'energy':>7} {'idle':>6}",
        flush=True,
    )
    everything: list[Played] = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for played in pool.map(play_calmly, cases):
            everything.append(played)
            show(played)
    met = [not played.all_faults for played in everything]
    choices = [choice for played in everything for choice in played.choices]
    verdicts = Verdicts()
    verdicts.at_most("worst over the best", max(c.over_best for c in choices), NEAR)
    verdicts.at_most("bounds broken", sum(c.is_broken for c in choices), 0, percent=False)
    verdicts.at_least("cases in which all is met", float(np.mean(met)), 1.0, percent=True)
    verdicts.show()
    return int(not verdicts.all_met)


if __name__ == "__main__":
    sys.exit(main())
