"""What the verbs that show a sweep have in common: from its runs to what is told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from joulewise.cli.output import say

if TYPE_CHECKING:
    from joulewise.data.sweeps import Sweep
    from joulewise.metrics.boundary import View
    from joulewise.metrics.result import SweepResult


def view_asked(given: Mapping[str, Any], sweep: Sweep) -> View:
    """By the options of ``metric_options``; what is not given is as the sweep was asked."""
    from joulewise.metrics.boundary import View

    asked = sweep.asked
    overhead_w, pue = (
        asked.get(name) if given[name] is None else given[name] for name in ("overhead_w", "pue")
    )
    return View(given["boundary"] or asked.get("boundary", "gpu"), overhead_w=overhead_w, pue=pue)


def evaluated(sweep: Sweep, by: Sequence[str], view: View) -> tuple[SweepResult, View]:
    """With the view that it is of: where no GPU was in use, the node is what is counted."""
    from joulewise.metrics.boundary import boundary_read
    from joulewise.metrics.evaluate import evaluate
    from joulewise.metrics.metric import parse

    boundary = boundary_read(view.boundary, sweep)
    if boundary != view.boundary:
        say("no GPU was in use: the node is counted, which is what was read of CPU and memory")
        view = replace(view, boundary=boundary)
    return evaluate(sweep, [parse(text) for text in by], view), view
