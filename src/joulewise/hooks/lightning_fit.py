"""Lightning: the moments at which ``Trainer.fit`` calls its callbacks."""

from __future__ import annotations

import math
from typing import Any

from .quiet import around
from .trainings import trainings


def watch_callbacks(module: Any) -> None:
    # Not a callback of our own: that would show in its profiler and in the user's list.
    around(module, "_call_callback_hooks", before=_before, after=_after)


def watch_fit(module: Any) -> None:
    """For the end of a training that an exception ends."""
    around(module.Trainer, "fit", after=lambda trainer, *_, **__: trainings.end(trainer))


def _before(trainer: Any, hook_name: str, *_: Any, **__: Any) -> None:
    if hook_name == "on_train_batch_start":
        trainings.begin_step(trainer)
    elif hook_name == "on_train_start":
        trainings.begin(trainer)
        trainings.memory["updates"] = trainer.global_step
    elif hook_name == "on_train_epoch_start":
        trainings.begin_epoch(trainer, int(trainer.current_epoch), _epochs(trainer))
    elif hook_name == "on_validation_start":
        trainings.begin_validation()


def _after(trainer: Any, hook_name: str, *_: Any, **options: Any) -> None:
    if hook_name == "on_train_batch_end":
        if trainer.global_step != trainings.memory.get("updates"):  # else gradients are accumulated
            trainings.memory["updates"] = trainer.global_step
            trainings.end_step(trainer)
    elif hook_name == "on_validation_end":
        trainings.end_validation()
    elif hook_name == "on_train_epoch_end":
        if options.get("monitoring_callbacks") is not False:  # it is called twice
            # False where max_steps or should_stop ended the epoch before its loader, or
            # limit_train_batches, did.
            trainings.end_epoch(trainer, cut=not getattr(trainer, "is_last_batch", True))
    elif hook_name == "on_train_end":
        trainings.end(trainer)


def _epochs(trainer: Any) -> int | None:
    """How many there will be, from the limits that are set: of epochs, or of steps."""
    limits = []
    if trainer.max_epochs is not None and trainer.max_epochs >= 0:
        limits.append(trainer.max_epochs)
    batches = trainer.num_training_batches
    if trainer.max_steps is not None and trainer.max_steps > 0 and 0 < batches < math.inf:
        updates = math.ceil(batches / trainer.accumulate_grad_batches)
        limits.append(math.ceil(trainer.max_steps / updates))
    return min(limits) if limits else None
