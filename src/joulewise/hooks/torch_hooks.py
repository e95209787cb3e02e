"""PyTorch without a trainer: torch's global optimiser hooks, and passes over its loaders."""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections.abc import Iterator
from typing import Any

from .plain_loop import Pass, PlainLoop
from .safe_calls import ignoring_errors
from .training_events import trainings


def _next_training() -> int:
    # Processes that multiprocessing forked do not run atexit.
    processes = sys.modules.get("multiprocessing.util")
    if processes is not None:
        processes.Finalize(None, ignoring_errors(loop.end_training), exitpriority=0)
    return trainings.next_index()


def _weights(optimizer: Any) -> list[Any]:
    """The weights of an optimiser, the smallest first: the one that is kept alive costs least."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    return sorted(weights, key=lambda weight: weight.numel())


loop = PlainLoop(trainings.marks, _next_training, lambda: trainings.under_way, _weights)
trainings.on_begin.append(loop.end_training)
atexit.register(ignoring_errors(loop.end_training))
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=loop.forget)

_pass_begins, _pass_ends = ignoring_errors(loop.pass_begins), ignoring_errors(loop.pass_ends)


def watch_optimizers(torch: Any) -> None:
    # In a compiled step Python runs once, when it is traced: there is no step to mark, and a traced
    # mark would break the graph.
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", bool)

    def before(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not is_compiling():
            loop.update_begins()

    def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if is_compiling():
            return
        try:  # noqa: SIM105 - as `ignoring_errors`, but at no cost: this is in every step
            loop.update_ends(optimizer)
        except Exception:  # noqa: BLE001, S110
            pass

    optimizers = sys.modules["torch.optim.optimizer"]
    optimizers.register_optimizer_step_pre_hook(before)
    optimizers.register_optimizer_step_post_hook(after)


def watch_loaders(module: Any) -> None:
    iterator_class = module._BaseDataLoaderIter  # noqa: SLF001 - there is no public one
    begin, fetch = module.DataLoader.__iter__, iterator_class.__next__

    @functools.wraps(begin)
    def iterate(self: Any) -> Any:
        begin_ns = loop.clock()  # before its workers start
        iterator = begin(self)
        _note_pass(iterator, begin_ns)
        return iterator

    @functools.wraps(fetch)
    def next_batch(self: Any) -> Any:
        current = self.__dict__.get("_joulewise_pass")
        if current is None:
            return fetch(self)
        try:
            batch = fetch(self)
        except StopIteration:
            _pass_ends(current)
            raise
        loop.batch(current)
        return batch

    module.DataLoader.__iter__ = iterate
    iterator_class.__next__ = next_batch


@ignoring_errors
def _note_pass(iterator: Any, begin_ns: int) -> None:
    former = iterator.__dict__.get("_joulewise_pass")
    if former is not None:  # persistent workers keep one iterator for all passes
        loop.pass_abandoned(former)
    iterator.__dict__["_joulewise_pass"] = loop.pass_begins(iterator, begin_ns)


def watch_accelerate(module: Any) -> None:
    """Count passes over the loaders of accelerate, which prefetch one batch, not over torch's."""
    for name in ("DataLoaderShard", "DataLoaderDispatcher"):
        loader = getattr(module, name)
        loader.__iter__ = _follow(loader.__iter__)


def _follow(begin: Any) -> Any:
    @functools.wraps(begin)
    def iterate(self: Any) -> Iterator[Any]:
        batches = begin(self)
        return batches if trainings.under_way else _batches(batches)

    return iterate


def _batches(batches: Iterator[Any]) -> Iterator[Any]:
    own: Pass | None = _pass_begins()
    try:
        while True:
            loop.muted += 1
            try:
                batch = next(batches)
            except StopIteration:
                if own is not None:
                    _pass_ends(own)
                return
            finally:
                loop.muted -= 1
            if own is not None:
                loop.batch(own)
            yield batch
    finally:
        if own is not None and not own.over:
            loop.pass_is_gone(own)
