"""Marks of the events that a framework's trainer reports, of one trainer at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from .figures import select_quality, write_figures
from .marks import Marks


class TrainingEvents:
    """The training of one trainer (its *owner*), and the spans of it that are open.

    Other trainers that begin meanwhile, such as one inside another, are ignored: their work is part
    of the training that is marked already.
    """

    def __init__(self, marks: Marks) -> None:
        self.marks = marks
        self.on_begin: list[Callable[[], None]] = []
        self._forget()
        self._count = 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._in_child)

    def _in_child(self) -> None:
        self._forget()  # open spans belong to the parent process
        self._count = 0

    def _forget(self) -> None:
        self._owner: object = None
        self._open: dict[str, int] = {}
        self._step_ns: int | None = None
        self._epochs = self._validations = self.steps = 0
        self.memory: dict[str, int] = {}  # for hooks, until the training ends

    @property
    def under_way(self) -> bool:
        return self._owner is not None

    def next_index(self) -> int:
        """The number of trainings that this process began before."""
        self._count += 1
        return self._count - 1

    def begin(self, owner: object) -> None:
        """Begin a training, unless another owner's is under way."""
        self.end(owner)
        if self._owner is not None:
            return
        for call in self.on_begin:
            call()
        self._forget()
        self._owner = owner
        self._begin("training", self.next_index(), None)

    def end(self, owner: object) -> None:
        """End a training; spans that are still open in it were cut off by Ctrl-C or an error."""
        if self._is_owner(owner):
            for name in ("validation", "epoch"):
                self._end(name, cut=True)
            self._end("training")
            self._forget()

    def begin_epoch(self, owner: object, index: int | None, total: int | None) -> None:
        """Begin an epoch; without an ``index``, the trainer does not count, and it is the next."""
        if self._is_owner(owner):
            self._end("epoch")
            index = self._epochs if index is None else index
            self._begin("epoch", index, total)
            self._epochs = index + 1
            self._step_ns = None

    def end_epoch(self, owner: object, *, cut: bool = False) -> None:
        """End an epoch; ``cut`` where a limit of steps or a callback ended it before its data."""
        if self._is_owner(owner):
            self._end("epoch", cut=cut)

    def begin_validation(self) -> None:
        """Begin a validation; an evaluation outside of a training is none, and is ignored."""
        if self._owner is not None and "validation" not in self._open:
            self._begin("validation", self._validations, None)
            self._validations += 1

    def end_validation(self) -> None:
        self._end("validation")

    def begin_step(self, owner: object) -> None:
        if self._is_owner(owner) and self._step_ns is None:
            self._step_ns = time.monotonic_ns()

    def end_step(self, owner: object, total: int | None = None, count: int = 1) -> None:
        """End a step, or ``count`` steps where the trainer reports several at once."""
        if self._is_owner(owner) and self._step_ns is not None:
            self.marks.whole("step", self._step_ns, time.monotonic_ns(), self.steps, total)
            self.steps += count
            self._step_ns = None

    def log(self, owner: object, figures: Mapping[Any, Any] | None) -> None:
        """Figures of the training's quality that the trainer logs.

        Also of an evaluation after the training, but none of another trainer beside it.
        """
        if self._owner is None or self._owner is owner:
            write_figures((self.marks,), select_quality(figures or {}), guessed=True)

    def _is_owner(self, owner: object) -> bool:
        return self._owner is not None and self._owner is owner

    def _begin(self, name: str, index: int, total: int | None) -> None:
        self._open[name] = self.marks.begin(name, index, total)

    def _end(self, name: str, *, cut: bool = False) -> None:
        token = self._open.pop(name, None)
        if token is not None:
            self.marks.end(token, cut=cut)


trainings = TrainingEvents(Marks(os.environ.get("JOULEWISE_MARKS", "")))
