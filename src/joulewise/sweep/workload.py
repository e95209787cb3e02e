"""What trains on a simulated GPU: a workload by its name, or one like a run's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from joulewise.errors import UsageError
from joulewise.simulate.model import Board, Workload
from joulewise.simulate.workloads import load_workload
from joulewise.sweep.asked import Simulated
from joulewise.sweep.checks import BATCH_SIZE, EPOCHS


def load(simulated: Simulated, words: Mapping[str, str], board: Board, store: Path) -> Workload:
    """``words`` are what a setting gives it."""
    given, like = {name: int(word) for name, word in words.items()}, simulated.like
    if like and BATCH_SIZE in given:
        raise UsageError(
            f"a run like {like} tells nothing of other batch sizes",
            f"leave out {BATCH_SIZE}, or take a --workload",
        )
    if like:
        from joulewise.sweep.like_run import load_like

        workload = load_like(like, store, board)
    else:
        workload = load_workload(simulated.workload, board, given.get(BATCH_SIZE))
    return replace(workload, epochs=given.get(EPOCHS, workload.epochs))
