"""How near the simulated GPUs come to published measurements, shown and not shown to the fit.

    python benchmarks/calibration.py [FOLDER]

FOLDER holds ``summary_power_v100.csv`` and ``summary_power_rtx6000.csv`` of the traces published
with Zeus (NSDI'23); they are not part of this project, and without them that part is left out.
Everything simulated here is a whole dynamic run, without noise.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from helpers.calibration_traces import judge_traces
from helpers.verdict import Verdicts

from joulewise.simulate import virtual
from joulewise.simulate.boards import load_board, make_unit
from joulewise.simulate.model import ControlSettings
from joulewise.simulate.published_caps import GPUS, PublishedRow, read_table
from joulewise.simulate.workloads import load_workload
from tools.fit_workloads.published_metrics import BANDS, grid_w, scores
from tools.fit_workloads.table import leave_out, networks


def main(traces: Path | None) -> int:
    verdicts = Verdicts()
    rows = read_table()
    judge_rows(rows, verdicts)
    judge_left_out(rows, verdicts)
    judge_choices(rows, verdicts)
    if traces is None:
        print("\nTraces: no folder given, so curves of other workloads are not judged.")
    else:
        judge_traces(traces, verdicts)
    verdicts.show()
    return 0 if verdicts.all_met else 1


def judge_rows(rows: Sequence[PublishedRow], verdicts: Verdicts) -> None:
    print(f"{'board':8} {'network':11} {'published as':12} {'cap':>4}", end="")
    print(f" {'time s':>8} {'simulated':>9} {'error':>7}", end="")
    print(f" {'energy J':>9} {'simulated':>9} {'error':>7}")
    errors: list[float] = []
    for row in rows:
        time_s, energy_j = simulated(row.board, row.network, row.cap_w)
        off = time_s / row.time_s - 1, energy_j / row.energy_j - 1
        errors += map(abs, off)
        print(
            f"{row.board:8} {row.network:11} {row.metric:12} {row.cap_w:4.0f} {row.time_s:8.1f} "
            f"{time_s:9.1f} {off[0]:+7.2%} {row.energy_j:9.0f} {energy_j:9.0f} {off[1]:+7.2%}"
        )
    verdicts.at_most("table, time and energy: median error", np.median(errors), 0.005)
    verdicts.at_most("table, time and energy: worst error", max(errors), 0.02)


def judge_left_out(rows: Sequence[PublishedRow], verdicts: Verdicts) -> None:
    errors: list[float] = []
    print("\nEach row left out in turn, the board fitted again without it:")
    for key in GPUS.values():
        for it in leave_out(key, rows):
            errors += abs(it.time_error), abs(it.energy_error)
            print(
                f"{key:8} {it.row.network:11} {it.row.cap_w:4.0f} W  "
                f"time {it.time_error:+7.2%}  energy {it.energy_error:+7.2%}"
            )
    print(f"nine in ten within {np.quantile(errors, 0.9):.2%}, worst {max(errors):.2%}")
    verdicts.at_most("left out in turn: median error", np.median(errors), 0.015)


def judge_choices(rows: Sequence[PublishedRow], verdicts: Verdicts) -> None:
    print("\nThe cap that each metric prefers, over a grid of 5 W:")
    choices = [
        choice
        for key in GPUS.values()
        for name in networks(rows, key)
        for choice in chosen(rows, key, name)
    ]
    for it in choices:
        print(
            f"{it.row.board:8} {it.row.network:11} {it.row.metric:12} "
            f"published {it.row.cap_w:3.0f} W, simulated {it.cap_w:3.0f} W, "
            f"better there by {it.excess:5.2%}; at the published cap "
            f"slower by {it.slower:5.1%} ({it.published_slower:5.1%}), saves {it.saves:5.1%} "
            f"({it.published_saves:5.1%})"
        )
    near = sum(abs(it.cap_w - it.row.cap_w) <= 15 for it in choices)
    verdicts.at_least(f"choices within 15 W of the published, of {len(choices)}", near, 40)
    worst = max(it.excess for it in choices)
    verdicts.at_most("published choice worse than the simulated, by score", worst, 0.015)
    points = max(
        max(abs(it.slower - it.published_slower), abs(it.saves - it.published_saves))
        for it in choices
    )
    verdicts.at_most("savings and slowdowns at the published cap: worst, points", points, 0.02)
    print("\nBands in which a cap beats the default (median of the networks):")
    for (key, metric), (low_w, high_w) in BANDS.items():
        edges = [it.band_w for it in choices if (it.row.board, it.row.metric) == (key, metric)]
        low, high = np.median(edges, axis=0)
        print(
            f"{key:8} {metric:12} published {low_w:.0f}-{high_w:.0f} W, "
            f"simulated {low:.0f}-{high:.0f} W"
        )
        off = max(abs(low - low_w), abs(high - high_w))
        verdicts.at_most(f"band {key} {metric}: edges off by, W", off, 10, percent=False)


@dataclass(frozen=True)
class Choice:
    """What a metric prefers in simulation, beside what the table has for it."""

    row: PublishedRow
    cap_w: float
    excess: float
    slower: float
    saves: float
    published_slower: float
    published_saves: float
    band_w: tuple[float, float]


def chosen(rows: Sequence[PublishedRow], key: str, name: str) -> list[Choice]:
    limits = load_board(key).limits
    caps_w = grid_w(limits.minimum_w, limits.maximum_w)
    runs = np.array([simulated(key, name, cap_w) for cap_w in caps_w])
    own = {row.metric: row for row in rows if (row.board, row.network) == (key, name)}
    reference = own["default"]
    choices = []
    for metric, score in scores(*runs.T).items():
        row = own[metric]
        at = int(np.searchsorted(caps_w, row.cap_w))
        time, energy = runs[at] / runs[-1]
        wins = caps_w[score < 1]
        choices.append(
            Choice(
                row,
                cap_w=float(caps_w[score.argmin()]),
                excess=float(score[at] / score.min() - 1),
                slower=float(time - 1),
                saves=float(1 - energy),
                published_slower=row.time_s / reference.time_s - 1,
                published_saves=1 - row.energy_j / reference.energy_j,
                band_w=(float(wins.min()), float(wins.max())),
            )
        )
    return choices


def simulated(key: str, name: str, cap_w: float) -> tuple[float, float]:
    board = load_board(key)
    workload = load_workload(name, board)
    run = virtual.simulate(
        workload, make_unit(board, 0), ControlSettings(float(cap_w)), run_noise=0.0
    )
    return run.time_s, run.energy_j


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
