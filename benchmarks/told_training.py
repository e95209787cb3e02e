"""A training of marked simulated steps that trains what it is told, until its input ends.

    joulewise sim --gpu v100 -- python benchmarks/told_training.py resnet50 30 [FILE]

Each line of the input is a network and a batch size, from which on steps are of these. FILE gets
when the GPU began and ended each step (ns), which marks show later on a busy machine. It is started
by live_realtime.py and live_kills.py.
"""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path

import joulewise
from joulewise.simulate.client import gpu

STATUS = 7
"""How it exits when its input has ended."""


def told() -> list[str] | None:
    """The words of the next line, if there is one; None where the input has ended."""
    if not select.select([0], [], [], 0)[0]:
        return []
    received = os.read(0, 4096).decode()  # a line is written at once, and one at a time
    return received.split() if received else None


def main() -> None:
    network, batch_size = sys.argv[1], int(sys.argv[2])
    board, number, times = gpu(int(os.environ.get("LOCAL_RANK", "0"))), 0, []
    print(os.getpid(), flush=True)
    while (words := told()) is not None:
        if words:
            network, batch_size = words[0], int(words[1])
        with joulewise.span("step", number):
            times.append(board.step(network, batch_size=batch_size))
        number += 1
    for path in sys.argv[3:]:
        Path(path).write_text("".join(f"{step.start_ns} {step.end_ns}\n" for step in times))
    print("trained", flush=True)
    sys.exit(STATUS)


if __name__ == "__main__":
    main()
