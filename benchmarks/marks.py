"""What marks cost the measured program, in microseconds of its CPU time.

A mark may take 5. A whole step of a loop of one's own (its batch, its update and its mark; without
torch: what the hooks call) may take so much that it is 1 % of a step of the training of
``cost.py``, where it finds its caches cold. The bare ``os.write`` of as many bytes, which is most
of a mark, stands beside them.

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
from helpers.peers import Figure, interval
from helpers.verdict import Verdicts

from joulewise.hooks.marks import RECORD_BYTES, Marks
from joulewise.hooks.plain_loop import PlainLoop

ROUNDS = 200
CALLS = 500
MARK_US = 5.0
TRAINING_STEP_US = 5000.0  # of training.py, on a fast core
COLD = 6  # how much longer the same takes between the work of real steps (`cost.py training`)
STEP_US = 0.01 * TRAINING_STEP_US / COLD


class Optimizer:
    pass


def main() -> None:
    verdicts = Verdicts()
    with tempfile.TemporaryDirectory() as folder:
        marks = Marks(folder)
        bare = os.open(Path(folder) / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        record = bytes(RECORD_BYTES)
        token = marks.begin("epoch", 0, 10)
        loop = PlainLoop(marks, lambda: 0, lambda: False, lambda _: [Optimizer()])
        fed, optimizer = loop.pass_begins(), Optimizer()
        assert fed is not None

        def step() -> None:
            loop.batch(fed)
            loop.update_begins()
            loop.update_ends(optimizer)

        calls: dict[str, tuple[Callable[[], object], float | None]] = {
            "bare os.write": (lambda: os.write(bare, record), None),
            "begin": (lambda: marks.begin("epoch", 3, 10), MARK_US),
            "end": (lambda: marks.end(token), MARK_US),
            "whole": (lambda: marks.whole("step", 1, 2, 3), MARK_US),
            "a step of a loop, hooks and mark": (step, STEP_US),
        }
        print(f"{'us of CPU time a call':<34}median (95 % interval)")
        for name, (call, limit_us) in calls.items():
            figure = _cpu_us(call)
            print(f"{name:<34}{figure.text('.2f')}")
            if limit_us is not None:
                verdicts.at_most(f"{name}, us at most", figure.high, limit_us, percent=False)
        os.close(bare)
        marks.close()
    verdicts.show()
    sys.exit(int(not verdicts.all_met))


def _cpu_us(call: Callable[[], object]) -> Figure:
    took_us = np.empty((ROUNDS, 1))
    for position in range(ROUNDS):
        before_ns = time.thread_time_ns()
        for _ in range(CALLS):
            call()
        took_us[position] = (time.thread_time_ns() - before_ns) / 1000 / CALLS
    low, high = interval(took_us, lambda drawn: np.median(drawn, axis=(1, 2)))
    return Figure(float(np.median(took_us)), low, high)


if __name__ == "__main__":
    main()
