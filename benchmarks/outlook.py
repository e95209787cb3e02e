"""How often a training ends inside its outlook, and how wide that is, after 2, 3 and 5 epochs.

Trainings of the catalogue in virtual time, on three boards, ten epochs each. Every epoch differs
from the others as much as the workload's runs do (``run_noise``), every board's sensor has its own
gain (N(0, 2.5 %), believed as such), and energies arrive once a second, as from the recorder.
``cold`` trainings begin on a board that idled for long, and drift until it is warm.

    .venv/bin/python benchmarks/outlook.py [--trainings 20]
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
from helpers.verdict import Verdicts
from numpy.typing import NDArray

from joulewise.data import Span, Unavailable
from joulewise.session.forecast import Forecaster
from joulewise.simulate.boards import load_board, make_unit
from joulewise.simulate.model import ControlSettings
from joulewise.simulate.virtual import Start, simulate
from joulewise.simulate.workloads import WORKLOADS, load_workload
from joulewise.units import NS_PER_S

BOARDS = ("v100", "rtx6000", "a100")
AFTER = (2, 3, 5)
EPOCHS = 10
GAIN_SIGMA = 0.025


@dataclass(frozen=True)
class Training:
    """When its epochs began, when it ended, and its energy as a function of time."""

    begins_ns: NDArray[np.int64]
    end_ns: int
    t_ns: NDArray[np.int64]
    energy_j: NDArray[np.float64]

    def energy_at(self, t_ns: int) -> float:
        return float(np.interp(t_ns, self.t_ns, self.energy_j))


@dataclass(frozen=True)
class Score:
    time_hit: bool
    time_width: float
    energy_hit: bool
    energy_width: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trainings", type=int, default=20, help="of each kind")
    count = parser.parse_args().trainings
    scores: dict[tuple[str, str, int], list[Score]] = defaultdict(list)
    for start, name, board, seed in itertools.product(
        ("warm", "cold"), WORKLOADS, BOARDS, range(count)
    ):
        training = train(name, board, seed, start)
        gain = 1 + GAIN_SIGMA * _draw(name, board, seed, 1).normal()
        for after in AFTER:
            scores[start, name, after].append(judge(training, after, gain))
    print(f"{'':24}{'after':>6}{'time':>8}{'± half':>8}{'energy':>8}{'± half':>8}{'n':>6}")
    verdicts = Verdicts()
    for start in ("warm", "cold"):
        for name in WORKLOADS:
            for after in AFTER:
                _row(f"{name}, {start}", after, scores[start, name, after])
        for after in AFTER:
            all_of_them = list(
                itertools.chain.from_iterable(scores[start, name, after] for name in WORKLOADS)
            )
            time, energy = _row(f"all, {start}", after, all_of_them)
            verdicts.at_least(f"time inside, {start}, after {after}", time, 0.93, percent=True)
            verdicts.at_least(f"energy inside, {start}, after {after}", energy, 0.93, percent=True)
    verdicts.show()
    sys.exit(int(not verdicts.all_met))


def train(name: str, board_name: str, seed: int, start: Start) -> Training:
    """Ten epochs, each with the noise of a run of its own but on the same board.

    How a board warms up is that of one training without noise, whose epochs are then stretched.
    """
    board = load_board(board_name)
    workload = replace(load_workload(name, board), epochs=EPOCHS)
    settings = ControlSettings(board.limits.default_w)
    run = simulate(workload, make_unit(board, seed), settings, start=start,
                   run_noise=0.0, margin_s=0.0)  # fmt: skip
    spans, noise = run.spans["epoch"], _draw(name, board_name, seed)
    slower, hungrier = noise.lognormal(0.0, workload.run_noise, (2, EPOCHS))
    t_ns, energy_j = [np.zeros(1)], [np.zeros(1)]
    begins = []
    for epoch, (begin, end) in enumerate(zip(spans.start_ns, spans.end_ns, strict=True)):
        within = np.linspace(begin, end, max(int((end - begin) / NS_PER_S), 20))
        drawn = np.diff(run.timeline.energy_at(within.astype(np.int64)))
        begins.append(t_ns[-1][-1])
        t_ns.append(begins[-1] + np.cumsum(np.diff(within)) * slower[epoch])
        energy_j.append(energy_j[-1][-1] + np.cumsum(drawn) * slower[epoch] * hungrier[epoch])
    times = np.concatenate(t_ns)
    return Training(
        np.array(begins, np.int64), int(times[-1]), times.astype(np.int64), np.concatenate(energy_j)
    )


def judge(training: Training, after: int, gain: float) -> Score:
    course = Forecaster(0)
    now_ns = int(training.begins_ns[after]) + NS_PER_S // 2
    points = [*range(NS_PER_S, now_ns, NS_PER_S), now_ns]
    for point_ns in points[-600:]:
        course.add_energy(point_ns, gain * training.energy_at(point_ns))
    for index, begin_ns in enumerate(training.begins_ns[: after + 1]):
        course.add_spans(
            [Span("epoch", index, int(begin_ns), int(begin_ns), 0, EPOCHS, closed=False)]
        )
    forecast = course.forecast(now_ns, gain_error=1.96 * GAIN_SIGMA)
    assert not isinstance(forecast, Unavailable), forecast.reason
    assert forecast.energy_j is not None
    time_s, energy_j = training.end_ns / NS_PER_S, training.energy_at(training.end_ns)
    time, energy = forecast.time_s, forecast.energy_j
    return Score(
        time.low <= time_s <= time.high,
        (time.high - time.low) / 2 / time_s,
        energy.low <= energy_j <= energy.high,
        (energy.high - energy.low) / 2 / energy_j,
    )


def _draw(name: str, board: str, *seeds: int) -> np.random.Generator:
    return np.random.default_rng([WORKLOADS.index(name), BOARDS.index(board), *seeds])


def _row(title: str, after: int, scores: list[Score]) -> tuple[float, float]:
    time = float(np.mean([score.time_hit for score in scores]))
    energy = float(np.mean([score.energy_hit for score in scores]))
    time_width = np.median([score.time_width for score in scores])
    energy_width = np.median([score.energy_width for score in scores])
    print(
        f"{title:24}{after:>6}{time:>8.1%}{time_width:>8.2%}{energy:>8.1%}{energy_width:>8.2%}"
        f"{len(scores):>6}"
    )
    return time, energy


if __name__ == "__main__":
    main()
