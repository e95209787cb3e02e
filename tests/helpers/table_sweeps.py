"""Sweeps out of tables, for tests of their figures."""

from dataclasses import replace

from joulewise.metrics.evaluate import evaluate
from joulewise.sweep.csv_import import read_table


def swept(folder, rows, reference=None, **of_each):
    """A sweep and its result; rows are dicts, ``of_each`` what every trial has besides."""
    names = list(rows[0])
    lines = [names, *([str(row[name]) for name in names] for row in rows)]
    path = folder / "table.csv"
    path.write_text("".join(",".join(line) + "\n" for line in lines), "utf-8")
    sweep = read_table(path, reference)
    trials = [replace(trial, **of_each) for trial in sweep.trials]
    sweep = replace(sweep, trials=tuple(trials))
    return sweep, evaluate(sweep)


def by_limit(limits=(150, 175, 200, 225, 250, 275, 300), blocks=4):
    """Energy is least at 200 W, time at 300 W; runs of a block differ from those of another."""
    return [
        {
            "power_limit_w": watts,
            "time_s": (100 + (300 - watts) / 5) * (1 + 0.001 * (block * watts % 7)),
            "energy_j": (20_000 + (watts - 200) ** 2) * (1 + 0.001 * (block * watts % 5)),
            "block": block,
        }
        for block in range(blocks)
        for watts in limits
    ]


def by_batch(sizes=("8", "32", "128"), limits=(100, 150, 200, 250)):
    """The smallest batch takes five times as long, and the largest more energy."""
    slow = dict(zip(sizes, (5.0, 1.0, 1.1), strict=False))
    return [
        {
            "batch_size": size,
            "power_limit_w": watts,
            "time_s": slow[size] * (1000 + 40_000 / watts),
            "power_w": 0.8 * watts + (20 if size == "128" else 0),
        }
        for size in sizes
        for watts in limits
    ]


def chart(charts, key):
    return next(each for each in charts if each.key == key)
