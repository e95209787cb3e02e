"""Lightning: the calls of ``Trainer.fit`` to its callbacks."""

from __future__ import annotations

import math
from typing import Any

from .figures import find_lightning_figures
from .safe_calls import wrap
from .training_events import trainings


def watch_callbacks(module: Any) -> None:
    # Not by a callback, which would show in its profiler and in the user's list.
    wrap(module, "_call_callback_hooks", before=_before, after=_after)


def watch_fit(module: Any) -> None:
    """Mark the end of a training that an exception ends, without a callback."""
    wrap(module.Trainer, "fit", after=lambda trainer, *_, **__: trainings.end(trainer))


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
        trainings.log(trainer, find_lightning_figures(trainer))
    elif hook_name == "on_train_epoch_end":
        if options.get("monitoring_callbacks") is not False:  # it is called twice
            # False where max_steps or should_stop ended the epoch before its loader, or
            # limit_train_batches, did.
            trainings.log(trainer, find_lightning_figures(trainer))
            trainings.end_epoch(trainer, cut=not getattr(trainer, "is_last_batch", True))
    elif hook_name == "on_train_end":
        trainings.end(trainer)


def _epochs(trainer: Any) -> int | None:
    """The number of epochs by the limits of epochs or of steps; None without any."""
    limits = []
    if trainer.max_epochs is not None and trainer.max_epochs >= 0:
        limits.append(trainer.max_epochs)
    batches = trainer.num_training_batches
    if trainer.max_steps is not None and trainer.max_steps > 0 and 0 < batches < math.inf:
        updates = math.ceil(batches / trainer.accumulate_grad_batches)
        limits.append(math.ceil(trainer.max_steps / updates))
    return min(limits) if limits else None
