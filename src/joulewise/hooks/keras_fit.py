"""Keras 2 and 3: the calls of ``Model.fit`` to its list of callbacks, whatever the backend.

The list is where all loops of Keras meet: ``fit`` in eager mode, in graph mode and of Keras 3, and
``fit_generator``, which was a loop of its own up to Keras 2.3 and calls ``fit`` since. A training
is marked where the list is told that one begins, so one that passes through both is marked once.
"""

from __future__ import annotations

from typing import Any

from .safe_calls import wrap
from .training_events import trainings


def watch_callbacks(module: Any) -> None:
    callbacks = module.CallbackList
    wrap(callbacks, "on_train_begin", before=_train_begin)
    wrap(callbacks, "on_train_end", after=lambda self, *_, **__: trainings.end(self))
    wrap(callbacks, "on_epoch_begin", before=_epoch_begin)
    wrap(callbacks, "on_epoch_end", before=_before_epoch_end, after=_epoch_end)
    # Keras 2.2 and before has only batches of trainings, and no callbacks of evaluations.
    batch = "train_batch" if hasattr(callbacks, "on_train_batch_begin") else "batch"
    wrap(callbacks, f"on_{batch}_begin", before=_batch_begin)
    wrap(callbacks, f"on_{batch}_end", after=_batch_end)
    if hasattr(callbacks, "_call_batch_hook"):
        # The loops of graph mode and of Keras 2.3 call only this. In eager mode the methods above
        # call it, where some callback uses batches.
        wrap(callbacks, "_call_batch_hook", before=_mode_batch_begin, after=_mode_batch_end)
    if hasattr(callbacks, "on_test_begin"):
        wrap(callbacks, "on_test_begin", before=lambda *_, **__: trainings.begin_validation())
        wrap(callbacks, "on_test_end", after=lambda *_, **__: trainings.end_validation())


def watch_fit(module: Any) -> None:
    """Mark the end of a training that an exception ends, without a callback."""
    for name in ("fit", "fit_generator"):
        if hasattr(module.Model, name):  # Keras 3 has no fit_generator
            wrap(
                module.Model,
                name,
                before=lambda *_, **__: _lists.append(None),
                after=lambda *_, **__: trainings.end(_lists.pop()),
            )


# The list of callbacks of each fit that runs, the innermost last.
_lists: list[Any] = []


def _train_begin(self: Any, *_: Any, **__: Any) -> None:
    trainings.begin(self)
    if _lists:
        _lists[-1] = self


def _epoch_begin(self: Any, epoch: int, *_: Any, **__: Any) -> None:
    trainings.memory.setdefault("first_epoch", int(epoch))
    trainings.begin_epoch(self, int(epoch), _whole(_parameters(self).get("epochs")))


def _before_epoch_end(
    self: Any, _epoch: int, logs: dict[str, Any] | None = None, *_: Any, **__: Any
) -> None:
    """Mark what is logged, and note whether a callback stopped the epoch before its last batch.

    Before the callbacks of the end are called: one that stops the training then cuts nothing.
    """
    steps, done = _steps(_parameters(self)), trainings.memory.pop("batches", 0)
    is_stopped = bool(getattr(getattr(self, "model", None), "stop_training", False))
    trainings.memory["cut"] = int(is_stopped and steps is not None and 0 < done < steps)
    trainings.log(self, logs)


def _epoch_end(self: Any, *_: Any, **__: Any) -> None:
    trainings.end_epoch(self, cut=bool(trainings.memory.pop("cut", 0)))


def _batch_begin(self: Any, batch: int, *_: Any, **__: Any) -> None:
    trainings.begin_step(self)
    trainings.memory["batch"] = batch


def _batch_end(self: Any, batch: int, *_: Any, **__: Any) -> None:
    # With steps_per_execution a batch ends with a higher number than it began.
    count = batch - trainings.memory.pop("batch", batch) + 1
    parameters = _parameters(self)
    steps, epochs = _steps(parameters), _whole(parameters.get("epochs"))
    left = epochs - trainings.memory.get("first_epoch", 0) if epochs else None
    trainings.end_step(self, steps * left if steps and left else None, count)
    trainings.memory["batches"] = batch + 1  # of this epoch


def _steps(parameters: dict[str, Any]) -> int | None:
    """Steps of an epoch; graph mode has the number of samples instead, where data are arrays."""
    steps, samples, batch_size = (
        _whole(parameters.get(name)) for name in ("steps", "samples", "batch_size")
    )
    return steps or (-(-samples // batch_size) if samples and batch_size else None)


def _mode_batch_begin(self: Any, mode: str, hook: str, batch: int, *_: Any, **__: Any) -> None:
    if (mode, hook) == ("train", "begin"):
        _batch_begin(self, batch)


def _mode_batch_end(self: Any, mode: str, hook: str, batch: int, *_: Any, **__: Any) -> None:
    if (mode, hook) == ("train", "end"):
        _batch_end(self, batch)


def _parameters(callbacks: Any) -> dict[str, Any]:
    return getattr(callbacks, "params", None) or {}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None
