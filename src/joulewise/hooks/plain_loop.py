"""Detection of trainings, epochs, validations and steps in a training loop without a trainer.

The events: passes over data loaders begin, fetch batches and end; optimisers update weights.

- A *step* is one update, with all that led to it since the one before. Where several optimisers
  take turns (a GAN), the one that updates most often sets the pace.
- An *epoch* is one pass over the loader that feeds the steps: the outermost one that has given a
  batch since the update before. It begins with the pass and ends with it, or with the last update
  where the pass was left early. Such an epoch is cut, and does not count as whole, where it had
  fewer batches than another one before it, or where an exception was raised since it began that is
  unhandled or being handled.
- A *validation* is a pass, during a training, in which nothing was updated.
- A *training* begins with the first epoch (or step) and lasts until the last of them is over. A
  pass whose first update is of weights never updated before begins another one.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from .marks import Marks


class Pass:
    """One pass over a loader; ``gone_ns`` is when its iterator was garbage-collected."""

    def __init__(self, begin_ns: int) -> None:
        self.begin_ns = begin_ns
        self.gone_ns: int | None = None
        self.iterator: object = None
        self.batch_ns = 0
        self.batches = 0
        self.updates = 0
        self.over = False
        self._errors = _known_errors()

    def has_failed(self) -> bool:
        """Whether an exception was raised since the pass began.

        Earlier ones do not count: a notebook keeps the last error until the next one, and a
        training may be called in an ``except`` block. An exception after the pass, and before the
        next event of the loop, counts as the pass's.
        """
        return any(now and now not in self._errors for now in _known_errors())


class PlainLoop:
    """Turns the events of a loop into marks.

    ``is_told`` returns whether a trainer reports its own events, and these are to be ignored;
    ``end_training`` is called before it begins. ``weights`` returns those of an optimiser; the
    first of them is kept alive.

    A loop is *steady* between two updates of the optimiser that sets the pace, while no pass
    begins, ends or is left: the next update then needs no classification.
    """

    def __init__(
        self,
        marks: Marks,
        next_training: Callable[[], int],
        is_told: Callable[[], bool],
        weights: Callable[[Any], Iterable[object]],
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.marks, self.clock = marks, clock
        self._next_training, self._is_told, self._weights = next_training, is_told, weights
        self.forget()

    def forget(self) -> None:
        """Drop all state, in a fork: open spans belong to the parent process."""
        self.muted = 0
        self._open: list[Pass] = []
        self._updating_since_ns: int | None = None
        self._updated_ns = 0
        self._forget_training()

    def _forget_training(self) -> None:
        self._steady = False
        self._training: int | None = None
        self._epoch: Pass | None = None
        self._epoch_token: int | None = None
        self._epochs = self._validations = self._steps = 0
        self._most_batches = 0  # of an epoch of this training that is over
        self._rest_ns = 0  # start of the next step
        self._last_ns = 0
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        # A strong reference: torch refuses to swap tensors that have weak ones.
        self._weight: object = None
        self._pace: Callable[[], object] = lambda: None
        self._ahead: weakref.WeakSet[Any] = weakref.WeakSet()

    # --- loaders

    def pass_begins(self, iterator: object = None, begin_ns: int | None = None) -> Pass | None:
        """Note that a pass begins; None where it is part of a trainer's work.

        With the iterator given, the pass ends at the latest when that is garbage-collected.
        """
        if self.muted or self._is_told():
            return None
        self._leave_abandoned()
        begun = Pass(self.clock() if begin_ns is None else begin_ns)
        if iterator is not None:
            begun.iterator = weakref.ref(iterator, lambda _: self.pass_is_gone(begun))
        self._open.append(begun)
        self._steady = False
        return begun

    def pass_is_gone(self, left: Pass) -> None:
        """Note when an iterator was garbage-collected; the next event finds out why.

        An exception that caused it is known to Python only later, when it is handled or shown.
        """
        # May be called anywhere, also inside a method of this class: it must do no more.
        left.gone_ns = self.clock()
        self._steady = False

    def batch(self, fed: Pass) -> None:
        fed.batches += 1
        fed.batch_ns = self.clock()

    def pass_ends(self, ended: Pass) -> None:
        if not ended.over:
            self._leave(ended, self.clock(), exhausted=True)

    def _leave_abandoned(self) -> None:
        for left in list(self._open):
            if left.gone_ns is not None:
                self._leave(left, left.gone_ns, exhausted=False)

    def pass_abandoned(self, left: Pass) -> None:
        if not left.over:
            self._leave(left, self.clock(), exhausted=False)

    def _leave(self, left: Pass, end_ns: int, *, exhausted: bool) -> None:
        left.over = True
        self._steady = False
        self._open = [other for other in self._open if other is not left]
        if left is self._epoch:
            self._end_epoch(end_ns if exhausted else self._updated_ns, exhausted=exhausted)
        elif self._is_validation(left, exhausted=exhausted):
            self.marks.whole("validation", left.begin_ns, end_ns, self._validations, guessed=True)
            self._validations += 1
            self._rest_ns = self._last_ns = max(self._last_ns, end_ns)

    def _is_validation(self, left: Pass, *, exhausted: bool) -> bool:
        # A pass inside an update (the closure of LBFGS) is no validation, nor is a single batch of
        # a pass, nor a pass after the optimisers of the training are gone.
        if left.updates or self._updating_since_ns is not None or not self._optimizers:
            return False
        return left.batches > 1 or (exhausted and left.batches == 1)

    # --- optimisers

    def update_begins(self) -> None:
        if self._updating_since_ns is None:
            self._updating_since_ns = self.clock()

    def update_ends(self, optimizer: object) -> None:
        now_ns = self.clock()
        since_ns, self._updating_since_ns = self._updating_since_ns, None
        if self._steady and self._pace() is optimizer:
            self._count_update(now_ns)
            self._count_step(now_ns)
        elif not self._is_told():
            self._classify(optimizer, now_ns, now_ns if since_ns is None else since_ns)

    def _classify(self, optimizer: object, now_ns: int, since_ns: int) -> None:
        """Find the epoch and training of an update, and whether the loop is steady."""
        self._steady = True  # unless something below says otherwise
        self._leave_abandoned()
        if not self._optimizers and not self._is_known(optimizer):
            self.end_training()
        self._epoch = self._outer() or self._epoch
        feeding = self._feeding()
        if feeding is not self._epoch:
            self._begin_epoch(feeding, optimizer)
        if self._training is None:
            self._begin_training(since_ns)
        if optimizer not in self._optimizers:
            self._optimizers.add(optimizer)
            if self._weight is None:
                self._weight = next(iter(self._weights(optimizer)), None)
        self._count_update(now_ns)
        if self._sets_pace(optimizer):
            self._count_step(now_ns)
        else:
            self._steady = False
        if feeding is not None and feeding.over:
            feeding.updates += 1
            self._end_epoch(now_ns, exhausted=True)
        if self._is_new(feeding):
            self._steady = False

    def _is_new(self, feeding: Pass | None) -> bool:
        """Whether the next update may show that another pass is the epoch."""
        if feeding is None:
            return bool(self._open)
        return feeding.over or feeding.updates <= 1

    def _count_update(self, now_ns: int) -> None:
        for fed in self._open:
            fed.updates += fed.batch_ns > self._updated_ns
        self._updated_ns = self._last_ns = now_ns

    def _count_step(self, now_ns: int) -> None:
        self.marks.whole("step", self._rest_ns, now_ns, self._steps, guessed=True)
        self._steps += 1
        self._rest_ns = now_ns

    def _feeding(self) -> Pass | None:
        """The pass to which the update that has just ended belongs."""
        now = self._epoch
        fed = [p for p in self._open if p.batch_ns > self._updated_ns]
        if now is not None and not now.over:
            # Other passes that feed as well (tasks in turns, a second loader) are no epochs.
            begun = [p for p in fed if p.begin_ns > self._updated_ns]
            return now if now in fed or not begun else begun[0]
        if not fed and now is not None and now.updates == now.batches - 1:
            return now  # a loop that prefetches one batch has its last update after the pass
        new = [p for p in fed if p.updates == 0]
        if not new:
            return None
        latest = max(new, key=lambda p: p.batch_ns)
        # A pass from which only one batch was taken gave it before this one began.
        return next(p for p in new if p.batch_ns >= latest.begin_ns)

    def _outer(self) -> Pass | None:
        """The outer pass, where a second loader was mistaken for the epoch at its first update."""
        now = self._epoch
        if now is not None and now.updates == 1:
            for other in self._open:
                is_around = other.updates == 1 and other.begin_ns < now.begin_ns
                if is_around and other.batch_ns > self._updated_ns:
                    return other
        return None

    def _is_known(self, optimizer: object) -> bool:
        if optimizer in self._optimizers:
            return True
        return self._weight is not None and any(
            weight is self._weight for weight in self._weights(optimizer)
        )

    def _begin_epoch(self, feeding: Pass | None, optimizer: object) -> None:
        if self._epoch is not None and not self._epoch.over:
            self._end_epoch(self._updated_ns, exhausted=False)
        self._epoch = feeding
        if feeding is None:
            return
        if self._training is not None and not self._is_known(optimizer):
            self.end_training()
            self._epoch = feeding
        if self._training is None:
            self._begin_training(feeding.begin_ns)
        self._epoch_token = self._begin("epoch", self._epochs, feeding.begin_ns)
        self._epochs += 1
        self._rest_ns = feeding.begin_ns

    def _end_epoch(self, end_ns: int, *, exhausted: bool) -> None:
        epoch = self._epoch
        batches = epoch.batches if epoch is not None else 0
        failed = epoch is not None and epoch.has_failed()
        cut = not exhausted and (batches < self._most_batches or failed)
        self._most_batches = max(self._most_batches, batches)
        if self._epoch_token is not None:
            self.marks.end(self._epoch_token, end_ns, cut=cut)
        self._last_ns = max(self._last_ns, end_ns)

    def _begin_training(self, begin_ns: int) -> None:
        self._training = self._begin("training", self._next_training(), begin_ns)
        self._rest_ns = begin_ns

    def end_training(self) -> None:
        """End the training: another begins, a trainer takes over, or the program ends."""
        self._leave_abandoned()
        if self._training is not None:
            if self._epoch is not None and not self._epoch.over:
                self._end_epoch(self._updated_ns, exhausted=False)
            self.marks.end(self._training, self._last_ns)
        self._forget_training()

    def _sets_pace(self, optimizer: object) -> bool:
        """Whether an update of this optimiser is a step.

        The first optimiser sets the pace, until another one has updated twice in between.
        """
        pace = self._pace()
        if pace is not optimizer:
            if pace is not None and optimizer not in self._ahead:
                self._ahead.add(optimizer)
                return False
            self._pace = weakref.ref(optimizer)
        self._ahead.clear()
        return True

    def _begin(self, name: str, index: int, begin_ns: int) -> int:
        return self.marks.begin(name, index, t_ns=begin_ns, guessed=True)


def _known_errors() -> tuple[int, int]:
    """Ids of the last unhandled exception, and of the one that is being handled; 0 for none.

    References would keep the frames of their tracebacks alive.
    """
    last, handled = getattr(sys, "last_value", None), sys.exc_info()[1]
    return (0 if last is None else id(last), 0 if handled is None else id(handled))
