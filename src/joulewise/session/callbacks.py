"""Callbacks of Keras, Lightning and the Hugging Face Trainer that measure, or tune, a training.

Each takes what ``joulewise.measure()`` or ``joulewise.tune()`` returned. Its training, epochs and
steps are marked in that run. One that has not been started begins and ends with the training; one
that runs (``with joulewise.tune() as t``) is only marked in, and ends with its block, also where
the training fails. Where a callback is used again, its next training is a new run;
``callback.measurement`` is the last.

The first process of a node measures for all; in its other ranks (torchrun) a callback does nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from joulewise.hooks.figures import find_lightning_figures, select_quality
from joulewise.hooks.ranks import find_rank
from joulewise.hooks.safe_calls import ignoring_errors

if TYPE_CHECKING:
    from joulewise.session.measure import Measurement
    from joulewise.session.spans import OpenSpan


class _TrainingSpans:
    """The spans of one training after the other, each in a measurement."""

    def __init__(self, measurement: Measurement) -> None:
        self.measurement = measurement
        self._is_ours = False
        self._open: dict[str, OpenSpan] = {}
        self._steps = 0

    def begin(self) -> None:
        if find_rank(os.environ)[2] > 0:  # the rank on this node
            return
        if self.measurement.has_ended:
            self.measurement = self.measurement.renewed()
        self._is_ours = not self.measurement.is_running
        if self._is_ours:
            self.measurement.start()
        self._steps = 0
        self.enter("training")

    def end(self) -> None:
        for name in reversed(tuple(self._open)):
            self.leave(name)
        if self._is_ours:
            self._is_ours = False
            self.measurement.stop()

    @ignoring_errors
    def enter(self, name: str, index: int | None = None, total: int | None = None) -> None:
        self.leave(name)
        if self.measurement.is_running:
            span = self._open[name] = self.measurement.span(name, index, total=total)
            span.__enter__()

    @ignoring_errors
    def leave(self, name: str) -> None:
        span = self._open.pop(name, None)
        if span is not None:
            span.__exit__(None)

    @ignoring_errors
    def log(self, figures: Mapping[str, Any] | None) -> None:
        """Figures that the trainer logs, on the first process of a node."""
        if "training" in self._open:
            self.measurement.log(select_quality(figures or {}))

    def enter_step(self) -> None:
        """Begin a step, unless one goes on: the batches of one update of the weights are one."""
        if "step" not in self._open:
            self.enter("step", self._steps)

    def leave_step(self) -> None:
        if "step" in self._open:
            self._steps += 1
        self.leave("step")


class _Callback:
    """What the callbacks of all frameworks have."""

    def __init__(self, measurement: Measurement) -> None:
        super().__init__()
        self._spans = _TrainingSpans(measurement)

    @property
    def measurement(self) -> Measurement:
        """The measurement of the training that goes on, or of the last."""
        return self._spans.measurement


def keras(measurement: Measurement) -> Any:
    """A callback for ``Model.fit`` of Keras 3: ``callbacks=[joulewise.callbacks.keras(…)]``."""
    base: Any = import_module("keras").callbacks.Callback

    class KerasCallback(_Callback, base):  # type: ignore[misc]
        """Marks a batch of training as a step."""

        def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
            self._spans.begin()

        def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
            self._spans.end()

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
            self._spans.enter("epoch", epoch, (self.params or {}).get("epochs"))

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
            self._spans.log(logs)
            self._spans.leave("epoch")

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            self._spans.enter_step()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            self._spans.leave_step()

    return KerasCallback(measurement)


def lightning(measurement: Measurement) -> Any:
    """A callback for ``lightning.Trainer`` or ``pytorch_lightning.Trainer``."""
    is_separate = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
    base: Any = import_module("pytorch_lightning" if is_separate else "lightning.pytorch").Callback

    class LightningCallback(_Callback, base):  # type: ignore[misc]
        """Marks the batches of one optimiser step as a step."""

        _updates = 0

        def on_train_start(self, trainer: Any, *_: Any) -> None:
            self._updates = trainer.global_step
            self._spans.begin()

        def on_train_end(self, *_: Any) -> None:
            self._spans.end()

        def on_exception(self, *_: Any) -> None:
            self._spans.end()

        def on_train_epoch_start(self, trainer: Any, *_: Any) -> None:
            self._spans.enter("epoch", trainer.current_epoch)

        def on_validation_end(self, trainer: Any, *_: Any) -> None:
            self._spans.log(find_lightning_figures(trainer))

        def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
            self._spans.log(find_lightning_figures(trainer))
            self._spans.leave("epoch")

        def on_train_batch_start(self, *_: Any) -> None:
            self._spans.enter_step()

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step != self._updates:  # else gradients are accumulated
                self._updates = trainer.global_step
                self._spans.leave_step()

    return LightningCallback(measurement)


def hugging_face(measurement: Measurement) -> Any:
    """A callback for the ``Trainer`` of transformers."""
    base: Any = import_module("transformers").TrainerCallback

    class HuggingFaceCallback(_Callback, base):  # type: ignore[misc]
        """Marks an optimiser step, with all batches that it accumulates, as a step."""

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self._spans.begin()

        def on_train_end(self, *_: Any, **__: Any) -> None:
            self._spans.end()

        def on_epoch_begin(self, _arguments: Any, state: Any, *_: Any, **__: Any) -> None:
            self._spans.enter("epoch", int(state.epoch or 0))

        def on_epoch_end(self, *_: Any, **__: Any) -> None:
            self._spans.leave("epoch")

        def on_log(self, *_: Any, logs: Any = None, **__: Any) -> None:
            self._spans.log(logs)

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self._spans.enter_step()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self._spans.leave_step()

    return HuggingFaceCallback(measurement)
