"""The process that loads a GPU: ``python -m joulewise.calibrate.gpu_load torch|sim INDEX``.

Each line on its stdin is a wave, ``KIND OFF_S ON_S OFF_S ON_S ...``. It answers with ``begin``, a
line ``START_NS END_NS`` for each burst (CLOCK_MONOTONIC), and ``done`` after the last. An error is
a line of ``error``, the message and the hint, with tabs between. The process ends when its stdin is
closed or nobody reads its answers, so that it never outlives its parent by more than a burst.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from joulewise.errors import JoulewiseError, UsageError

HEAVY: Final = "heavy"
LIGHT: Final = "light"

_PRODUCT: Final = 2048  # rows and columns: 17 GFLOP, about a millisecond on a GPU of today
_COPIED_B: Final = 1 << 28
_POLL_S: Final = 0.0005
# Workloads whose steps are so short that no sensor resolves their phases.
SIMULATED: Final = {HEAVY: ("mnist-big", 1), LIGHT: ("mnist-small", None)}

# Does a piece of work so many times; returns start and end in ns.
Work = Callable[[int], tuple[int, int]]
Load = Callable[[str], Work]


def main(source: str, index: str) -> int:
    # Ctrl-C is for whoever started this, who then closes stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(BrokenPipeError):  # the parent has ended
        try:
            load = _simulated(int(index)) if source == "sim" else _torch()
            for line in iter(sys.stdin.readline, ""):
                kind, *times = line.split()
                _wave(load(kind), [float(time_s) for time_s in times])
        except JoulewiseError as error:
            _say(f"error\t{error.message}\t{error.hint}")
        else:
            return 0
    return 1


def _wave(work: Work, times: list[float]) -> None:
    unit_s = _time_of_one(work)
    _say("begin")
    for off_s, on_s in zip(times[::2], times[1::2], strict=True):
        time.sleep(off_s)
        start_ns, end_ns = work(max(1, round(on_s / unit_s)))
        _say(f"{start_ns} {end_ns}")
    _say("done")


def _time_of_one(work: Work) -> float:
    """Seconds of one piece of work at high clocks."""
    count = 16
    work(count)
    start_ns, end_ns = work(count)
    return max(1e-6, (end_ns - start_ns) / 1e9 / count)


def _simulated(index: int) -> Load:
    from joulewise.simulate.client import Gpu

    gpu = Gpu(index)

    def of_kind(kind: str) -> Work:
        workload, batch_size = SIMULATED[kind]

        def work(count: int) -> tuple[int, int]:
            steps = gpu.step(workload, batch_size, count)
            return steps.start_ns, steps.end_ns

        return work

    return of_kind


def _torch() -> Load:
    try:
        import torch
    except ImportError:
        raise UsageError(
            "loading a GPU needs torch, which is not installed",
            "pip install torch, or try it on simulated GPUs: "
            "joulewise sim --gpu v100 -- joulewise calibrate",
        ) from None
    if not torch.cuda.is_available():
        raise UsageError(
            f"torch {torch.__version__} sees no GPU here",
            "install a build of torch for CUDA: https://pytorch.org/get-started/locally",
        )
    pieces = {HEAVY: _products, LIGHT: _copies}
    return lambda kind: _wait_for(torch, pieces[kind](torch))


def _products(torch: Any) -> Callable[[], object]:
    a = torch.randn(_PRODUCT, _PRODUCT, device="cuda")
    b, c = torch.randn_like(a), torch.empty_like(a)
    return lambda: torch.mm(a, b, out=c)


def _copies(torch: Any) -> Callable[[], object]:
    a = torch.zeros(_COPIED_B, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    return lambda: b.copy_(a)


def _wait_for(torch: Any, piece: Callable[[], object]) -> Work:
    def work(count: int) -> tuple[int, int]:
        start_ns = time.monotonic_ns()
        for _ in range(count):
            piece()
        done = torch.cuda.Event()
        done.record()
        # CUDA's own wait spins: a busy core would show at a wall meter.
        while not done.query():
            time.sleep(_POLL_S)
        return start_ns, time.monotonic_ns()

    return work


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())  # unbuffered: no flush can fail at exit


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
