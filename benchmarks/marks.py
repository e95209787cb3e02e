"""What a mark costs the measured program, in microseconds: the limit is 5 for each.

Beside it the bare ``os.write`` of as many bytes, which is most of it, and what the hooks add to a
batch and to an update of a loop (without torch: what they call).

    .venv/bin/python benchmarks/marks.py
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from verdict import Verdicts

from joulewise.hooks.marks import RECORD_BYTES, Marks
from joulewise.hooks.plain_loop import PlainLoop

ROUNDS = 50_000
LIMIT_US = 5.0


class Optimizer:
    pass


def main() -> None:
    verdicts = Verdicts()
    with tempfile.TemporaryDirectory() as folder:
        marks = Marks(folder)
        bare = os.open(Path(folder) / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        record = bytes(RECORD_BYTES)
        token = marks.begin("epoch", 0, 10)
        loop = PlainLoop(marks, lambda: 0, lambda: False)
        fed, optimizer, weights = loop.pass_begins(), Optimizer(), [Optimizer()]
        assert fed is not None

        def update() -> None:
            loop.batch(fed)
            loop.update_begins()
            loop.update_ends(optimizer, lambda: weights)

        calls: dict[str, Callable[[], object]] = {
            "bare os.write": lambda: os.write(bare, record),
            "begin": lambda: marks.begin("epoch", 3, 10),
            "end": lambda: marks.end(token),
            "whole": lambda: marks.whole("step", 1, 2, 3),
            "batch, update and step of a loop": update,
        }
        print(f"{'us a call':<34}{'median':>8}{'p99':>8}")
        for name, call in calls.items():
            median, p99 = _time(call)
            print(f"{name:<34}{median:8.2f}{p99:8.2f}")
            if name in {"begin", "end", "whole"}:
                verdicts.at_most(f"{name}, median us", median, LIMIT_US, percent=False)
        os.close(bare)
        marks.close()
    verdicts.show()
    sys.exit(int(not verdicts.all_met))


def _time(call: Callable[[], object]) -> tuple[float, float]:
    took_ns = np.empty(ROUNDS)
    for position in range(ROUNDS):
        before_ns = time.perf_counter_ns()
        call()
        took_ns[position] = time.perf_counter_ns() - before_ns
    median, p99 = np.percentile(took_ns, [50, 99]) / 1000
    return float(median), float(p99)


if __name__ == "__main__":
    main()
