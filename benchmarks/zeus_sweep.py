"""Measurements of others read as a sweep: batch size and power limit of DeepSpeech2 to its target.

    python benchmarks/zeus_sweep.py FOLDER

FOLDER holds ``summary_power_v100.csv`` and ``summary_train.csv`` of the traces published with Zeus
(NSDI'23), which are not part of this project. Time to the target is the mean number of epochs of a
batch size times the seconds of an epoch; energy is that times the mean power.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from math import isclose, isnan
from pathlib import Path
from statistics import fmean

from helpers.verdict import Verdicts

from joulewise.metrics.evaluate import evaluate
from joulewise.metrics.metric import parse
from joulewise.metrics.result import SweepResult
from joulewise.report.settings_text import setting_words
from joulewise.sweep.csv_import import read_table

JOB = {"dataset": "librispeech", "network": "deepspeech2", "optimizer": "adamw"}
TARGET = 40.0
REFERENCE_BATCH = "192"  # the default, 256, has no power on this board
PUBLISHED = {"energy": ("32", 100.0), "time": ("48", 250.0)}


def main(folder: Path) -> int:
    for name in ("summary_power_v100.csv", "summary_train.csv"):
        if not (folder / name).is_file():
            print(f"{folder} has no {name}: nothing is judged", file=sys.stderr)
            return 2
    result = chosen(folder)
    show(result)
    verdicts = Verdicts()
    for metric, (batch_size, limit_w) in PUBLISHED.items():
        setting = result.best[metric].setting
        found = setting["batch_size"] == batch_size and setting["power_limit_w"] == limit_w
        verdicts.at_least(f"by {metric}: batch {batch_size}, {limit_w:g} W is chosen", found, 1)
    verdicts.show()
    return 0 if verdicts.all_met else 1


def chosen(folder: Path) -> SweepResult:
    with tempfile.TemporaryDirectory() as scratch:
        table = Path(scratch) / "deepspeech2.csv"
        with table.open("w", encoding="utf-8", newline="") as lines:
            writer = csv.writer(lines)
            writer.writerow(["batch_size", "power_limit_w", "time_s", "power_w"])
            writer.writerows(rows(folder))
        sweep = read_table(table, {"batch_size": REFERENCE_BATCH})
    return evaluate(sweep, [parse("energy"), parse("time"), parse("cost:0.5")])


def rows(folder: Path) -> Iterator[tuple[str, str, float, float]]:
    """Of batch sizes that reach the target: time to it, and mean power."""
    epochs = defaultdict(list)
    for run in ours(folder / "summary_train.csv"):
        if isclose(float(run["target_metric"]), TARGET):
            epochs[run["batch_size"]].append(float(run["target_epoch"]))
    for point in ours(folder / "summary_power_v100.csv"):
        reached = [each for each in epochs[point["batch_size"]] if not isnan(each)]
        if reached and len(reached) == len(epochs[point["batch_size"]]):
            time_s = fmean(reached) * float(point["time_per_epoch"])
            yield (
                point["batch_size"],
                point["power_limit"],
                time_s,
                float(point["average_power"]),
            )


def ours(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            if all(row[name] == value for name, value in JOB.items()):
                yield row


def show(result: SweepResult) -> None:
    print(f"{len(result.points)} points; reference {setting_words(result.reference.setting)}")
    for metric, choice in result.best.items():
        point = result.point(choice.setting)
        energy_j, time_s = point.energy_j.mean, point.time_s.mean
        print(
            f"by {metric:8} {setting_words(choice.setting):26} "
            f"{energy_j / 1e6:6.2f} MJ in {time_s / 3600:5.2f} h"
        )
    front = sorted((p for p in result.points if p.pareto), key=lambda p: p.time_s.mean)
    print("Pareto front, fastest first:")
    for point in front:
        print(
            f"  {setting_words(point.setting):26} "
            f"{point.energy_j.mean / 1e6:6.2f} MJ in {point.time_s.mean / 3600:5.2f} h"
        )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("name the folder of the traces: python benchmarks/zeus_sweep.py FOLDER")
    sys.exit(main(Path(sys.argv[1])))
