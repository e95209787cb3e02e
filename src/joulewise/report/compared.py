"""A comparison as a whole: found, judged, and ready to be shown in any form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from joulewise.data.sweeps import Sweep
from joulewise.errors import UsageError
from joulewise.metrics.boundary import boundary_read
from joulewise.metrics.compare_conditions import Condition
from joulewise.metrics.compare_contract import judged_json, runs_json, sweeps_json
from joulewise.metrics.compare_runs import Comparison, Side, compare_runs
from joulewise.metrics.compare_sweeps import SweepsCompared, compare_sweeps
from joulewise.metrics.rules import parse
from joulewise.metrics.view import GPU, View
from joulewise.report.compare_judged import Sentence, judged_runs, judged_sweeps
from joulewise.report.compare_sides import sides
from joulewise.report.compare_view import CompareView, view_of_runs, view_of_sweeps


@dataclass(frozen=True)
class Asked:
    """``conditions`` must not be the case; the rest is for sweeps, None as they were asked."""

    conditions: tuple[Condition, ...] = ()
    sure: bool = False
    by: tuple[str, ...] = ()
    boundary: str | None = None
    overhead_w: float | None = None
    pue: float | None = None


NOTHING_ASKED: Final = Asked()


@dataclass(frozen=True)
class Compared:
    """``told`` is what ``--json`` writes."""

    found: Comparison | SweepsCompared
    view: CompareView
    judged: tuple[Sentence, ...]
    told: dict[str, Any]

    @property
    def has_failed(self) -> bool:
        return any(it.is_the_case for it, _ in self.judged)


def compared(store: Path, a: str, b: str, asked: Asked = NOTHING_ASKED) -> Compared:
    """What is meant by A and B, compared; a condition that cannot be judged is a UsageError."""
    of_a, of_b = sides(store, a, b)
    if isinstance(of_a, Sweep) and isinstance(of_b, Sweep):
        return compared_sweeps(of_a, of_b, asked)
    assert isinstance(of_a, Side) and isinstance(of_b, Side)  # noqa: S101, PT018  # by sides()
    return compared_runs(of_a, of_b, asked)


def compared_runs(a: Side, b: Side, asked: Asked = NOTHING_ASKED) -> Compared:
    if asked.by or (asked.boundary, asked.overhead_w, asked.pue) != (None, None, None):
        raise UsageError(
            "--by, --boundary, --overhead-w and --pue are for sweeps, and these are runs",
            "leave them out: of runs every device is compared, and the total",
        )
    found = compare_runs(a, b)
    judged = judged_runs(found, asked.conditions, sure=asked.sure)
    return _made(found, view_of_runs(found), judged, runs_json(found))


def compared_sweeps(a: Sweep, b: Sweep, asked: Asked = NOTHING_ASKED) -> Compared:
    boundary = boundary_read(asked.boundary or _asked_of(a, b), a, b)
    overhead_w, pue = (
        (a.asked.get(name) if given is None and a.asked.get(name) == b.asked.get(name) else given)
        for name, given in (("overhead_w", asked.overhead_w), ("pue", asked.pue))
    )
    metrics = [parse(text) for text in asked.by]
    found = compare_sweeps(a, b, metrics, View(boundary, overhead_w=overhead_w, pue=pue))
    judged = judged_sweeps(found, asked.conditions, sure=asked.sure)
    return _made(found, view_of_sweeps(found), judged, sweeps_json(found))


def _asked_of(a: Sweep, b: Sweep) -> str:
    """The boundary that both were asked at; where they differ, the one that both have."""
    asked = {str(sweep.asked.get("boundary", GPU)) for sweep in (a, b)}
    return asked.pop() if len(asked) == 1 else GPU


def _made(
    found: Comparison | SweepsCompared,
    view: CompareView,
    judged: Sequence[Sentence],
    told: dict[str, Any],
) -> Compared:
    whole = {**told, "finding": view.finding, "conditions": judged_json(judged)}
    return Compared(found, view, tuple(judged), whole)
