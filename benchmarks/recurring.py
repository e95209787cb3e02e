"""The policy of recurring jobs on boards that it was not tuned on: made from measured ones.

    python benchmarks/recurring.py JUDGE FOLDER [--boards 4] [--gpu v100] [--seed 0] [--eta 0.5]

JUDGE is the program that replays a policy on measured jobs, FOLDER holds the traces published with
Zeus (NSDI'23); neither is part of this project. Each made board has the epochs of the traces; its
costs of an epoch are those of ``--gpu`` times a smooth random factor, its default is another batch
size that reaches the target, it has fewer recurrences, and another maximum power. Regret is over
that which Zeus had at the same job on the measured board, for so many recurrences as it has here.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from helpers.verdict import Verdicts

from joulewise.optimise.recurring import make_policy

WANTED = {"regret over Zeus'": 0.65, "worst running cost over the default's": 1.25}
FACTOR_DEVIATION, FACTOR_OCTAVES = 0.3, 3.0  # of the smooth factor, in log units and octaves
DEFAULT_OCTAVES = 2.0  # how far the default is moved at most
RECURRENCES = (0.4, 1.0)  # over those of the measured board


def main(options: argparse.Namespace) -> int:
    power = options.folder / f"summary_power_{options.gpu}.csv"
    for path in (options.judge, power, options.folder / "summary_train.csv"):
        if not path.is_file():
            print(f"{path} is missing: nothing is judged", file=sys.stderr)
            return 2
    judge = load(options.judge)
    train, rng = (
        judge.read(options.folder / "summary_train.csv"),
        np.random.default_rng(options.seed),
    )
    rows = []
    for board in range(options.boards):
        for dataset in judge.JOBS:
            cell = judge.Cell(options.gpu, dataset, judge.read(power), train, options.eta)
            zeus = judge.ZEUS_REGRET[options.gpu, dataset] * cell.recurrences
            remake(cell, rng)
            costs = np.array(
                [
                    cell.replay(make_policy, options.eta, seed)[0]
                    for seed in range(1, 1 + options.tries)
                ]
            )
            running = costs.cumsum(axis=1).mean(axis=0) / np.arange(1, cell.recurrences + 1)
            regret, over = running[-1] / cell.oracle - 1, max(running[4:]) / cell.default_cost
            rows.append((regret, zeus / cell.recurrences, over))
            print(
                f"board {board} {dataset:13} default {cell.default:5d} "
                f"({cell.default_cost / cell.oracle:5.2f} of the best) "
                f"{cell.recurrences:3d} recurrences: regret {regret:6.2%}, Zeus' "
                f"{rows[-1][1]:5.1%}; worst {over:.2f} of the default's",
                flush=True,
            )
    regrets, zeus_regrets, worst = np.array(rows).T
    verdicts = Verdicts()
    for (what, limit), value in zip(
        WANTED.items(), (regrets.mean() / zeus_regrets.mean(), worst.max()), strict=True
    ):
        verdicts.at_most(what, value, limit, percent=False)
    verdicts.show()
    return 0 if verdicts.all_met else 1


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("recurring_jobs_judge", path)
    if spec is None or spec.loader is None:
        sys.exit(f"{path} is no Python program")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def remake(cell: Any, rng: np.random.Generator) -> None:
    """Turn a measured job into one on another board."""
    octaves = np.log2(np.array(cell.batch_sizes, dtype=float))
    apart = (octaves[:, None] - octaves[None, :]) / FACTOR_OCTAVES
    factors = np.exp(
        rng.multivariate_normal(
            np.zeros(len(octaves)), FACTOR_DEVIATION**2 * np.exp(-0.5 * apart**2)
        )
    )
    for batch_size, factor in zip(cell.batch_sizes, factors, strict=True):
        cell.epoch_cost[batch_size] *= factor
        cell.profiling_cost[batch_size] *= factor
    expected = {b: cell._expected(b, cell.epoch_cost[b]) for b in cell.batch_sizes}  # noqa: SLF001
    overhead = cell.default_cost / (
        expected[cell.default] / factors[cell.batch_sizes.index(cell.default)]
    )
    near = [
        b
        for b in cell.batch_sizes
        if math.isfinite(expected[b]) and abs(math.log2(b / cell.default)) <= DEFAULT_OCTAVES
    ]
    cell.default = int(rng.choice(near))
    cell.oracle = min(expected.values())
    cell.default_cost = overhead * expected[cell.default]
    cell.max_power_w = float(rng.choice([150, 300, 400, 700]))
    cell.recurrences = max(20, int(cell.recurrences * rng.uniform(*RECURRENCES)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("judge", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--boards", type=int, default=4)
    parser.add_argument("--tries", type=int, default=4, help="of each job, with other seeds")
    parser.add_argument("--gpu", default="v100")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--eta", type=float, default=0.5)
    sys.exit(main(parser.parse_args()))
