"""From the trials of a sweep to what they say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from joulewise.data.sweeps import Sweep
from joulewise.metrics.ratios import Means, Ratios, means, ratios
from joulewise.metrics.result import Choice, PointResult, SweepResult, Verdict
from joulewise.metrics.rules import Metric, default_metrics, parse
from joulewise.metrics.table import Table, tabulate
from joulewise.metrics.view import BOUNDARIES, View

__all__ = ["View", "evaluate"]

_TIME: Final = parse("time")
_ENERGY: Final = parse("energy")


def evaluate(sweep: Sweep, metrics: Sequence[Metric] = (), view: View | None = None) -> SweepResult:
    """Every setting with its intervals, and what each metric prefers at each boundary."""
    view, metrics = view or View(), tuple(metrics) or default_metrics()
    table = tabulate(sweep, view)
    asked = {metric.name: metric for metric in (*metrics, _TIME, _ENERGY)}
    found = {
        boundary: {name: ratios(metric, table, boundary) for name, metric in asked.items()}
        for boundary in BOUNDARIES
    }
    names = tuple(dict.fromkeys(metric.name for metric in metrics))
    points = tuple(_points(table, found[view.boundary], names, view.boundary))
    choices = {
        boundary: {name: made for name in names if (made := _choice(table, found, name, boundary))}
        for boundary in BOUNDARIES
    }
    return SweepResult(
        id=sweep.id,
        name=sweep.name,
        gpu_name=sweep.gpu_name,
        boundary=view.boundary,
        per="training" if view.training else view.per,
        metrics=names,
        reference=points[table.reference],
        points=points,
        choices=choices,
        sources=table.sources,
        assumed=table.assumed,
    )


def _points(
    table: Table, found: Mapping[str, Ratios], names: Sequence[str], boundary: str
) -> Iterator[PointResult]:
    time_s = means(table.time_s)
    energy_j = means(table.energy_j[boundary], table.error_j[boundary])
    gain_j = means(table.gain_j[boundary])
    capped, clock = means(table.capped), means(table.clock_mhz)
    for row, setting in enumerate(table.settings):
        is_reference = row == table.reference
        yield PointResult(
            setting=setting,
            n=int(time_s.n[row]),
            time_s=time_s.interval(row),
            energy_j=energy_j.interval(row),
            gain_j=_number(gain_j, row),
            time_ratio=found["time"].interval(row),
            energy_ratio=found["energy"].interval(row),
            scores={name: found[name].score(row) for name in names},
            ratios={name: found[name].interval(row) for name in names},
            verdicts={
                name: Verdict.REFERENCE if is_reference else found[name].verdict(row)
                for name in names
            },
            capped=_number(capped, row),
            clock_mhz=_number(clock, row),
        )


def _choice(
    table: Table, found: Mapping[str, Mapping[str, Ratios]], name: str, boundary: str
) -> Choice | None:
    at = found[boundary][name]
    scores = np.where(at.ruled_out, np.inf, at.means.mean)
    if np.isnan(scores).all():
        return None
    row = int(np.nanargmin(scores))
    return Choice(
        metric=name,
        boundary=boundary,
        setting=table.settings[row],
        verdict=Verdict.REFERENCE if row == table.reference else at.verdict(row),
        score=at.interval(row),
        time=found[boundary]["time"].interval(row),
        energy=found[boundary]["energy"].interval(row),
        at={it: found[it]["energy"].interval(row) for it in BOUNDARIES},
    )


def _number(of: Means, row: int) -> float | None:
    value = of.mean[row]
    return None if np.isnan(value) else float(value)
