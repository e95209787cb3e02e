"""From the trials of a sweep to what they say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from joulewise.data.sweeps import Setting, Sweep
from joulewise.metrics.caps import binds
from joulewise.metrics.cautions import cautions
from joulewise.metrics.choices import choose
from joulewise.metrics.parabola import fits
from joulewise.metrics.pareto import front
from joulewise.metrics.ratios import Means, Ratios, means, ratios
from joulewise.metrics.result import Choice, PointResult, SweepResult, Verdict
from joulewise.metrics.rules import Metric, default_metrics, parse
from joulewise.metrics.table import Table, tabulate
from joulewise.metrics.view import BOUNDARIES, GPU, View

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

    def _choice(name: str, boundary: str) -> Choice | None:
        decided = _decided(sweep, name, boundary)
        return choose(table, found, name, boundary, decided=decided)

    bound = binds(table)
    points = tuple(_points(table, found[view.boundary], names, view.boundary, bound))
    choices = {
        boundary: {name: made for name in names if (made := _choice(name, boundary))}
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
        simulated=table.simulated,
        fits=fits(table, view.boundary),
        cautions=tuple(cautions(sweep, table, found, choices, view)),
    )


def _points(
    table: Table,
    found: Mapping[str, Ratios],
    names: Sequence[str],
    boundary: str,
    bound: Sequence[bool | None],
) -> Iterator[PointResult]:
    time_s = means(table.time_s)
    energy_j = means(table.energy_j[boundary], table.error_j[boundary])
    gain_j = means(table.gain_j[boundary])
    capped, clock = means(table.capped), means(table.clock_mhz)
    on_front = front(found["time"], found["energy"])
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
            pareto=bool(on_front[row]),
            binds=bound[row],
            capped=_number(capped, row),
            clock_mhz=_number(clock, row),
        )


def _decided(sweep: Sweep, metric: str, boundary: str) -> Setting | None:
    """What the search of this sweep settled on, at the boundary that it was for."""
    told = sweep.sure.get("metrics", {}).get(metric, {}).get("settings")
    if told is None or boundary != sweep.asked.get("boundary", GPU):
        return None
    return Setting.of(told)


def _number(of: Means, row: int) -> float | None:
    value = of.mean[row]
    return None if np.isnan(value) else float(value)
