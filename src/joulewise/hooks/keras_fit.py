"""Keras 3: what ``Model.fit`` tells its list of callbacks, whatever the backend."""

from __future__ import annotations

from typing import Any

from .quiet import around
from .trainings import trainings


def watch_callbacks(module: Any) -> None:
    callbacks = module.CallbackList
    around(callbacks, "on_train_begin", before=_train_begin)
    around(callbacks, "on_train_end", after=lambda self, *_, **__: trainings.end(self))
    around(callbacks, "on_epoch_begin", before=_epoch_begin)
    around(callbacks, "on_epoch_end", after=lambda self, *_, **__: trainings.end_epoch(self))
    around(callbacks, "on_train_batch_begin", before=_batch_begin)
    around(callbacks, "on_train_batch_end", after=_batch_end)
    around(callbacks, "on_test_begin", before=lambda *_, **__: trainings.begin_validation())
    around(callbacks, "on_test_end", after=lambda *_, **__: trainings.end_validation())


def watch_fit(module: Any) -> None:
    """For the end of a training that an exception ends, which no callback is told."""
    around(
        module.Model,
        "fit",
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
    trainings.begin_epoch(self, int(epoch), _whole(_parameters(self).get("epochs")))


def _batch_begin(self: Any, batch: int, *_: Any, **__: Any) -> None:
    trainings.begin_step(self)
    trainings.memory["batch"] = batch


def _batch_end(self: Any, batch: int, *_: Any, **__: Any) -> None:
    # With steps_per_execution a batch ends as another than it began.
    count = batch - trainings.memory.pop("batch", batch) + 1
    parameters = _parameters(self)
    steps, epochs = _whole(parameters.get("steps")), _whole(parameters.get("epochs"))
    trainings.end_step(self, steps * epochs if steps and epochs else None, count)


def _parameters(callbacks: Any) -> dict[str, Any]:
    return getattr(callbacks, "params", None) or {}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None
