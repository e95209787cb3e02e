"""A training of simulated steps with Zeus' optimiser, under `joulewise tune`, or with nothing.

    joulewise sim --gpu v100 -- python benchmarks/zeus_training.py none resnet50 96 600 100 FILE

The words are who tunes (`none`, `zeus` or `joulewise`), network, batch size, steps, steps of an
epoch, and the file of JSON that gets what happened. It is started by live_zeus.py; with `zeus`, by
a Python that has the package `zeus`.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))  # where joulewise is not installed

from joulewise.simulate.client import gpu


class Nobody:
    def begin_step(self, _number: int) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def end_epoch(self) -> None:
        pass

    def chosen_w(self) -> float | None:
        """The power limit that it has settled on; None before."""
        return None


class Joulewise(Nobody):
    """The steps are marked; whoever runs it tunes."""

    def __init__(self) -> None:
        import joulewise

        self._span: Callable[..., Any] = joulewise.span

    def begin_step(self, number: int) -> contextlib.AbstractContextManager[Any]:
        return self._span("step", number)  # type: ignore[no-any-return]


class Zeus(Nobody):
    """With its defaults: limits 25 W apart, 10 steps to warm up and 40 to measure at each."""

    def __init__(self) -> None:
        from zeus.monitor import ZeusMonitor
        from zeus.optimizer.power_limit import Done, GlobalPowerLimitOptimizer

        class Monitor(ZeusMonitor):  # type: ignore[misc]  # it has no types
            """Waits for no CUDA, which there is none of: a step has ended when its call returns."""

            def begin_window(self, key: str, *_: Any, **more: Any) -> None:
                super().begin_window(key, **{**more, "sync_execution": False})

            def end_window(self, key: str, *_: Any, **more: Any) -> Any:
                return super().end_window(key, **{**more, "sync_execution": False})

        monitor = Monitor(gpu_indices=[0], cpu_indices=[])
        self._optimizer = GlobalPowerLimitOptimizer(monitor)
        self._done = Done

    @contextlib.contextmanager
    def begin_step(self, _number: int) -> Iterator[None]:
        self._optimizer.on_step_begin()
        yield
        self._optimizer.on_step_end()

    def end_epoch(self) -> None:
        self._optimizer.on_epoch_end()

    def chosen_w(self) -> float | None:
        state = self._optimizer.state
        # In its state it keeps milliwatts.
        return state.optimal_power_limit / 1000 if isinstance(state, self._done) else None


def main() -> None:
    who, network, *numbers, path = sys.argv[1:]
    batch_size, steps, epoch_steps = map(int, numbers)
    tuner = {"none": Nobody, "joulewise": Joulewise, "zeus": Zeus}[who]()
    board, times = gpu(0), []
    settled: int | None = None
    print("started", flush=True)
    for number in range(steps):
        with tuner.begin_step(number):
            times.append(board.step(network, batch_size=batch_size))
        if settled is None and tuner.chosen_w() is not None:
            settled = number
        if (number + 1) % epoch_steps == 0:
            tuner.end_epoch()
    told = {
        "begin_ns": times[0].start_ns,
        "end_ns": times[-1].end_ns,
        "settled_steps": settled,
        "chosen_w": tuner.chosen_w(),
    }
    Path(path).write_text(json.dumps(told))


if __name__ == "__main__":
    main()
