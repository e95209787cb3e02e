"""transformers: the calls of a ``Trainer`` to its callbacks."""

from __future__ import annotations

from typing import Any

from .safe_calls import wrap
from .training_events import trainings

# The Trainer has more epochs than this (sys.maxsize) where its data set has no length.
MOST_EPOCHS = 10**9


def watch_callbacks(module: Any) -> None:
    # Not by a callback, which would show in the user's list.
    wrap(module.CallbackHandler, "call_event", before=_before, after=_after)


def watch_trainer(module: Any) -> None:
    wrap(
        module.Trainer,
        "train",
        after=lambda trainer, *_, **__: trainings.end(trainer.callback_handler),
    )
    wrap(
        module.Trainer,
        "evaluate",
        before=lambda *_, **__: trainings.begin_validation(),
        after=lambda *_, **__: trainings.end_validation(),
    )


def _before(
    handler: Any, event: str, arguments: Any, state: Any, control: Any, *_: Any, **more: Any
) -> None:
    if event == "on_step_begin":
        trainings.begin_step(handler)
    elif event == "on_train_begin":
        trainings.begin(handler)
        trainings.steps = int(state.global_step)
        trainings.memory["epoch"] = int((state.epoch or 0) + 1e-6)
        if not _is_between_epochs(state) and not getattr(arguments, "ignore_data_skip", False):
            trainings.memory["resumed"] = 1  # from a checkpoint in the middle of an epoch
    elif event == "on_epoch_end":  # before callbacks that stop the training now
        trainings.memory["cut"] = int(
            bool(trainings.memory.pop("resumed", 0)) or _is_cut(state, control)
        )
    elif event == "on_log":  # an evaluation logs its metrics, too
        trainings.log(handler, more.get("logs"))
    elif event == "on_epoch_begin":
        total = int(state.num_train_epochs)
        first = trainings.memory.pop("epoch", None)
        trainings.begin_epoch(handler, first, total if total < MOST_EPOCHS else None)


def _after(handler: Any, event: str, _arguments: Any, state: Any, *_: Any, **__: Any) -> None:
    if event == "on_step_end":
        trainings.end_step(handler, int(state.max_steps) if state.max_steps > 0 else None)
    elif event == "on_epoch_end":
        trainings.end_epoch(handler, cut=bool(trainings.memory.pop("cut", 0)))
    elif event == "on_train_end":
        trainings.end(handler)


def _is_cut(state: Any, control: Any) -> bool:
    """Whether an epoch ends before its data do: by ``max_steps``, or by a callback.

    With a data set without a length the last batch is unknown: where the training stops then, the
    epoch counts as cut.
    """
    if not (control.should_training_stop or control.should_epoch_stop):
        return False
    return int(state.num_train_epochs) >= MOST_EPOCHS or not _is_between_epochs(state)


def _is_between_epochs(state: Any) -> bool:
    """``state.epoch`` is the epochs before this one plus the share of its batches that is done."""
    return float(state.epoch or 0).is_integer()
