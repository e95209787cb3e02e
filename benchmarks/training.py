"""A training on one CPU core that stops and continues what watches it; run under each tool.

    python training.py TOOL PAIRS SECONDS [SLOWED]

SLOWED is a share of the watched blocks' time that is spent on nothing: a slowdown that is known.
Prints one line of JSON. Of the tools it imports only zeus, which lives in the program that it
measures. The loop is a plain one, so that what marks plain loops marks this one.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
from helpers.peers import cpu_s, descendants
from torch.utils.data import DataLoader, TensorDataset

BLOCK_S = 0.05
FEATURES, HIDDEN, CLASSES = 784, 512, 10
BATCH = 128
BATCHES = 100
BARE_STEPS = 500
BARE_PASSES = 60


def main(tool: str, pairs: int, seconds: float, slowed: float = 0) -> None:
    torch.set_num_threads(1)
    with watching(tool) as (stopped, others):
        steps = training()
        run(steps, 100)
        steps_a_block = max(1, round(BLOCK_S * 100 / run(steps, 100)))
        results = {
            "pairs_s": [pair(steps, steps_a_block, stopped, slowed) for _ in range(pairs)],
            "slices": account(steps, steps_a_block, [*stopped, *others], seconds),
            "bare_step_s": bare_step_s(),
        }
    print(json.dumps(results), flush=True)


@contextmanager
def watching(tool: str) -> Iterator[tuple[list[int], list[int]]]:
    """The processes that watch, to be stopped and continued, and those that only wait.

    Those of joulewise are beside this one, that of codecarbon is above it, those of zeus below.
    """
    if tool == "zeus":
        from zeus.monitor import PowerMonitor

        monitor = PowerMonitor(update_period=0.1)
        yield [process.pid for process in monitor.processes.values()], []
        monitor.stop()
    elif tool == "codecarbon":
        yield [os.getppid()], []
    else:
        launcher, *below = descendants(os.getppid())
        own = descendants(os.getpid())
        yield [pid for pid in below if pid not in own], [launcher]


def training() -> Iterator[None]:
    """A network for MNIST, a step each time that somebody asks, epoch after epoch."""
    torch.manual_seed(0)
    images = torch.randn(BATCH * BATCHES, FEATURES)
    labels = torch.randint(CLASSES, (BATCH * BATCHES,))
    model = torch.nn.Sequential(
        *(torch.nn.Linear(FEATURES, HIDDEN), torch.nn.ReLU()),
        *(torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.ReLU()),
        torch.nn.Linear(HIDDEN, CLASSES),
    )
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(TensorDataset(images, labels), batch_size=BATCH)
    while True:
        for inputs, targets in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            yield


def run(steps: Iterator[None], number: int, slowed: float = 0) -> float:
    start_s = time.perf_counter()
    for _ in range(number):
        step_s = time.perf_counter()
        next(steps)
        busy_until_s = time.perf_counter() + slowed * (time.perf_counter() - step_s)
        while time.perf_counter() < busy_until_s:
            pass
    return time.perf_counter() - start_s


def pair(steps: Iterator[None], number: int, pids: list[int], slowed: float) -> tuple[float, float]:
    """The same number of steps watched and not watched, in random order."""
    took_s = {}
    for what in random.sample((signal.SIGCONT, signal.SIGSTOP), 2):
        send(what, pids)
        took_s[what] = run(steps, number, slowed if what == signal.SIGCONT else 0)
    send(signal.SIGCONT, pids)
    return took_s[signal.SIGCONT], took_s[signal.SIGSTOP]


def send(number: signal.Signals, pids: list[int]) -> None:
    """To those that live: the witness of signals, which only waits, may be a new one by now."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def account(
    steps: Iterator[None], number: int, pids: list[int], seconds: float
) -> list[tuple[float, float, int]]:
    """CPU time of what watches, wall time and steps, of stretches of a second."""
    slices = []
    begin_s = time.monotonic()
    while (start_s := time.monotonic()) < begin_s + seconds:
        before_s, done = cpu_of(pids), 0
        while time.monotonic() < start_s + 1:
            run(steps, number)
            done += number
        slices.append((cpu_of(pids) - before_s, time.monotonic() - start_s, done))
    return slices


def cpu_of(pids: list[int]) -> float:
    """CPU time of those that live."""
    total_s = 0.0
    for pid in pids:
        with suppress(OSError):
            total_s += cpu_s(pid)
    return total_s


def bare_step_s() -> list[float]:
    """CPU time of a step that does next to nothing, so that the cost of marking it stands out."""
    weight = torch.nn.Parameter(torch.zeros(1))
    weight.grad = torch.zeros(1)
    optimizer = torch.optim.SGD([weight])
    loader = DataLoader(torch.zeros(BARE_STEPS, 1), batch_size=None)
    took_s = []
    for _ in range(BARE_PASSES):
        start_s = time.thread_time()
        for _ in loader:
            optimizer.step()
        took_s.append((time.thread_time() - start_s) / BARE_STEPS)
    return took_s


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *map(float, sys.argv[3:]))
