"""What could be found at all: a chooser that knows every measured curve, but not which it runs on.

It knows all curves of the board, the one at hand among them (or all but that one), and the noise
of a run; not the level of time and of power. Every run is placed where it will, on the mean, make
it surest; after so many it takes the limit that is likeliest to be within.

    .venv/bin/python benchmarks/adaptive_oracle.py FOLDER [--runs 12] [--noise 0.03] [--seeds 20]
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from adaptive import METRICS, WITHIN
from helpers.adaptive_cases import Curve, measured
from numpy.typing import NDArray

from joulewise.metrics.metric import parse

Array = NDArray[np.float64]
OUTCOMES = 16
FIRST = (-1, 0)
"""The reference and the lowest limit."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", type=Path, help="folder of the measured curves")
    parser.add_argument("--runs", type=int, nargs="+", default=[8, 10, 12, 16])
    parser.add_argument("--noise", type=float, choices=WITHIN, default=0.03)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--every", type=int, default=2)
    parser.add_argument("--skip", type=int, default=1)
    asked = parser.parse_args()
    every = list(measured(asked.traces, monotone=True))
    print(f"{'':30}" + "".join(f"{f'{runs} runs':>18}" for runs in asked.runs))
    for binds, itself in itertools.product((True, False), (True, False)):
        curves = [it for it in every if it.binds is binds]
        families = {board: Family.of(curves, board) for board in {it.board for it in curves}}
        judged = curves[asked.skip :: asked.every]
        within = np.array(
            [
                [
                    families[curve.board].within(
                        curve, Case(metric, asked.noise, seed, itself), asked.runs
                    )
                    for metric, seed in itertools.product(METRICS, range(asked.seeds))
                ]
                for curve in judged
            ]
        ).mean(axis=1)
        means, errors = within.mean(axis=0), within.std(axis=0, ddof=1) / len(judged) ** 0.5
        name = f"{'a limit' if binds else 'none'} binds, {'all' if itself else 'others'} known"
        shares = (f"{it:.1%} ± {off:.1%}" for it, off in zip(means, errors, strict=True))
        print(f"{name:30}" + "".join(f"{it:>18}" for it in shares), flush=True)


@dataclass(frozen=True)
class Case:
    metric: str
    noise: float
    seed: int
    itself: bool


@dataclass(frozen=True)
class Family:
    """Logarithms of time and power: of both, of each curve, at each limit."""

    curves: Sequence[Curve]
    logs: Array

    @classmethod
    def of(cls, curves: Sequence[Curve], board: str) -> Family:
        its = [it for it in curves if it.board == board]
        time = np.log([it.time_s for it in its])
        return cls(its, np.stack([time, np.log([it.energy_j for it in its]) - time]))

    def within(self, curve: Curve, case: Case, runs: Sequence[int]) -> list[bool]:
        """After so many runs each: if the limit that it would choose is good enough."""
        losses = np.array([it.losses(parse(case.metric)) for it in self.curves])
        good, logs, truth = (
            (losses <= WITHIN[case.noise]).astype(float),
            self.logs / case.noise,
            self.curves.index(curve),
        )
        does, is_at = good[truth], logs[:, truth]
        if not case.itself:
            good, logs = np.delete(good, truth, axis=0), np.delete(logs, truth, axis=1)
        draw = np.random.default_rng((case.seed, METRICS.index(case.metric)))
        known = Known.nothing(len(good))
        found = []
        for number in range(max(runs)):
            at = FIRST[number] if number < len(FIRST) else known.most_telling(logs, good)
            came_to = is_at[:, at] + draw.standard_normal(2)
            known = known.told(came_to[:, None] - logs[:, :, at])
            if known.runs in runs:
                found.append(bool(does[(known.weights() @ good).argmax()]))
        return found


@dataclass(frozen=True)
class Known:
    """How far the runs were above each curve, in units of the noise: sums, and of squares."""

    runs: int
    above: Array
    squares: Array

    @classmethod
    def nothing(cls, curves: int) -> Known:
        return cls(0, np.zeros((2, curves)), np.zeros((2, curves)))

    def told(self, above: Array) -> Known:
        return Known(self.runs + 1, self.above + above, self.squares + above**2)

    def weights(self) -> Array:
        """Of each curve, over whatever level it may have."""
        misfit = (self.squares - self.above**2 / self.runs).sum(axis=0)
        weights = np.exp(0.5 * (misfit.min(axis=-1, keepdims=True) - misfit))
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))

    def most_telling(self, logs: Array, good: Array) -> int:
        draw = np.random.default_rng(self.runs)
        heaped = np.cumsum(self.weights())
        picked = np.searchsorted(heaped, (np.arange(OUTCOMES) + draw.random()) / OUTCOMES)
        picked = np.minimum(picked, len(heaped) - 1)
        shaken = draw.standard_normal((2, OUTCOMES)) * np.sqrt(1 + 1 / self.runs)
        expected = logs[:, picked] + (self.above[:, picked] / self.runs + shaken)[:, :, None]
        above = (expected[:, :, None] - logs[:, None]).transpose(0, 3, 1, 2)
        after = Known(self.runs, self.above[:, None, None], self.squares[:, None, None]).told(above)
        return int((after.weights() @ good).max(axis=-1).mean(axis=-1).argmax())


if __name__ == "__main__":
    main()
