"""What a framework's trainer tells of a training, as marks; one trainer at a time is heard."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from .marks import Marks


class Trainings:
    """The training that a trainer has under way, and what of it is open.

    Others that begin meanwhile (a trainer inside a trainer, a loader it reads) are not heard:
    their work is part of the training that is marked already.
    """

    def __init__(self, marks: Marks) -> None:
        self.marks = marks
        self.on_begin: list[Callable[[], None]] = []
        self._forget()
        self._count = 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._in_child)

    def _in_child(self) -> None:
        self._forget()  # what is open belongs to the parent
        self._count = 0

    def _forget(self) -> None:
        self._owner: object = None
        self._open: dict[str, int] = {}
        self._step_ns: int | None = None
        self._epochs = self._validations = self.steps = 0
        self.memory: dict[str, int] = {}  # what a hook has to remember of this training

    @property
    def under_way(self) -> bool:
        return self._owner is not None

    def next_index(self) -> int:
        """How many trainings this process began before."""
        self._count += 1
        return self._count - 1

    def begin(self, owner: object) -> None:
        self.end(owner)
        if self._owner is not None:
            return
        for call in self.on_begin:
            call()
        self._forget()
        self._owner = owner
        self._begin("training", self.next_index(), None)

    def end(self, owner: object) -> None:
        """What is still open in it was broken off: by Ctrl-C, or by an error."""
        if self._is_heard(owner):
            for name in ("validation", "epoch"):
                self._end(name, cut=True)
            self._end("training")
            self._forget()

    def begin_epoch(self, owner: object, index: int | None, total: int | None) -> None:
        """``index`` is None where the trainer does not count: then the one after the last."""
        if self._is_heard(owner):
            self._end("epoch")
            index = self._epochs if index is None else index
            self._begin("epoch", index, total)
            self._epochs = index + 1
            self._step_ns = None

    def end_epoch(self, owner: object, *, cut: bool = False) -> None:
        """``cut``: a limit of steps, or a callback, ended it before its data did."""
        if self._is_heard(owner):
            self._end("epoch", cut=cut)

    def begin_validation(self) -> None:
        """Only inside a training: an evaluation by itself is no validation."""
        if self._owner is not None and "validation" not in self._open:
            self._begin("validation", self._validations, None)
            self._validations += 1

    def end_validation(self) -> None:
        self._end("validation")

    def begin_step(self, owner: object) -> None:
        if self._is_heard(owner) and self._step_ns is None:
            self._step_ns = time.monotonic_ns()

    def end_step(self, owner: object, total: int | None = None, count: int = 1) -> None:
        """``count`` is how many steps it was, where the trainer tells of several at once."""
        if self._is_heard(owner) and self._step_ns is not None:
            self.marks.whole("step", self._step_ns, time.monotonic_ns(), self.steps, total)
            self.steps += count
            self._step_ns = None

    def _is_heard(self, owner: object) -> bool:
        return self._owner is not None and self._owner is owner

    def _begin(self, name: str, index: int, total: int | None) -> None:
        self._open[name] = self.marks.begin(name, index, total)

    def _end(self, name: str, *, cut: bool = False) -> None:
        token = self._open.pop(name, None)
        if token is not None:
            self.marks.end(token, cut=cut)


trainings = Trainings(Marks(os.environ.get("JOULEWISE_MARKS", "")))
