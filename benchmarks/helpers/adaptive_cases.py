"""Curves of time and power against the power limit that a search is tried on, and runs on them."""

from __future__ import annotations

import csv
import hashlib
import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator
from scipy.optimize import isotonic_regression

from joulewise.metrics.metric import Metric, Reference
from joulewise.simulate.boards import load_board
from joulewise.simulate.physics.integrate import run_factors
from joulewise.simulate.physics.steady_state import steady_run
from joulewise.simulate.workloads import load_workload

BOARDS = {"v100": (150, 300), "rtx6000": (100, 260)}
NETWORKS = ("alexnet", "vgg19", "inception3", "inception4", "resnet50", "resnet152")
TRACES = {"v100": (100, 250), "rtx6000": (100, 260)}
STEP_W = 5.0
NEAR = 0.8


@dataclass(frozen=True, eq=False)
class Curve:
    """The truth; the last limit is the reference.

    ``binds``: it draws about as much as the lowest limit allows, or more. Where no limit binds,
    whatever differs in a measured curve is the noise of single runs.
    """

    board: str
    name: str
    limits_w: NDArray[np.float64]
    time_s: NDArray[np.float64]
    energy_j: NDArray[np.float64]

    @property
    def title(self) -> str:
        return f"{self.board} {self.name}"

    @property
    def binds(self) -> bool:
        return bool((self.energy_j / self.time_s).max() >= NEAR * self.limits_w[0])

    def scores(self, metric: Metric) -> NDArray[np.float64]:
        reference = Reference(self.time_s[-1], self.energy_j[-1], float(self.limits_w[-1]))
        return np.asarray(metric.score(self.time_s, self.energy_j, reference))

    def losses(self, metric: Metric) -> NDArray[np.float64]:
        """How much worse than the best each limit is."""
        scores = self.scores(metric)
        return np.asarray(scores / scores.min() - 1)

    def run(self, at: int, noise: float, *which: object) -> tuple[float, float]:
        """Time and energy of one run; the same again for the same ``which``."""
        words = repr((self.board, self.name, at, *which)).encode()
        seed = int.from_bytes(hashlib.blake2b(words, digest_size=8).digest(), "big")
        slower, hungrier = run_factors(seed, noise)
        return float(self.time_s[at] * slower), float(self.energy_j[at] * slower * hungrier)


def simulated() -> Iterator[Curve]:
    for (name, (low_w, high_w)), network in itertools.product(BOARDS.items(), NETWORKS):
        board = load_board(name)
        limits_w = np.arange(low_w, high_w + STEP_W / 2, STEP_W)
        time_s, energy_j = steady_run(board, load_workload(network, board), limits_w)
        yield Curve(name, network, limits_w, time_s, energy_j)


def measured(folder: Path, *, monotone: bool) -> Iterator[Curve]:
    """The measured curves: one run every 25 W, and a smooth curve through them.

    ``monotone``: no lower limit makes a run faster, nor hungrier. Where a measurement says so, that
    is its noise, which isotonic regression takes out first. (Straight lines between them would put
    a corner at every limit that was measured: time bends, so between them it would be too long by
    up to 3 %, and the best limit always a measured one.)
    """
    for name, (low_w, high_w) in TRACES.items():
        rows: dict[tuple[str, ...], list[tuple[float, ...]]] = defaultdict(list)
        with (folder / f"summary_power_{name}.csv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                load = row["network"], row["dataset"], row["batch_size"], row["optimizer"]
                point = row["power_limit"], row["time_per_epoch"], row["average_power"]
                rows[load].append(tuple(map(float, point)))
        limits_w = np.arange(low_w, high_w + STEP_W / 2, STEP_W)
        for words, points in sorted(rows.items()):
            at_w, time_s, power_w = np.array(sorted(points)).T
            if at_w[0] > low_w or len(at_w) < len(range(low_w, high_w, 25)):
                continue  # half a curve
            if monotone:
                time_s = isotonic_regression(time_s, increasing=False).x
                power_w = isotonic_regression(power_w).x
            times, powers = (PchipInterpolator(at_w, it)(limits_w) for it in (time_s, power_w))
            yield Curve(name, " ".join(words), limits_w, times, times * powers)
