"""Every setting in the plane of time and energy, and lines along which metrics are the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.metrics.result import Choice, PointResult, Verdict
from joulewise.metrics.rules import Metric, Reference, parse
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.series import dashed
from joulewise.report.charts.sweep_source import Swept, brief, varied
from joulewise.report.sweep_tables import bounds, has_bounds
from joulewise.report.sweep_words import change, setting_words
from joulewise.report.tables import Column, Table

if TYPE_CHECKING:
    import altair as alt
    from numpy.typing import NDArray

_STEPS: Final = 60
_HALVINGS: Final = 60
_MARGIN: Final = 0.04
_FEW: Final = 10  # points that all can have their names


def plane_charts(seen: Swept) -> Iterator[Chart]:
    if len(seen.known) < 2:
        return
    lines, points = _lines(seen), _points(seen)
    labels = list(dict.fromkeys(str(record["metric"]) for record in lines.records))
    reference = setting_words(seen.result.reference.setting)
    yield Chart(
        key="plane",
        title=(
            f"{sum(it.pareto for it in seen.known)} of {len(seen.known)} settings are beaten by no "
            "other in both time and energy"
        ),
        description=(
            f"Energy against time of every setting, both over those of {reference}, with 95 % "
            "intervals; to the lower left is better in both. Along a dashed line a metric is the "
            "same as at the setting that it prefers, which is ringed. The grey line joins the "
            f"settings that no other beats in both: the Pareto front.{seen.beyond}"
        ),
        tables={"points": points, "lines": lines},
        drawing=partial(_draw, points, labels, reference),
    )


def _points(seen: Swept) -> Table:
    apart = any(it.verdict is Verdict.BETTER for it in seen.choices)
    every = apart and len(seen.near) <= _FEW
    axes = varied(seen.known)
    reference = seen.result.reference.setting
    rows = [(point, seen.chosen(point.setting)) for point in seen.near]
    return Table(
        "Time and energy of every setting",
        (
            Column("setting", right=False),
            Column("time vs ref."),
            Column("energy vs ref."),
            Column("Pareto", right=False),
            Column("preferred by", right=False),
        ),
        tuple(
            (
                setting_words(point.setting),
                change(point.time_ratio),
                change(point.energy_ratio),
                "front" if point.pareto else "",
                "; ".join(chosen),
            )
            for point, chosen in rows
        ),
        tuple(
            {
                "setting": setting_words(point.setting),
                "label": brief(point.setting, axes),
                **bounds("time_ratio", point.time_ratio),
                **bounds("energy_ratio", point.energy_ratio),
                "pareto": int(point.pareto),
                "preferred_by": "; ".join(chosen),
                "named": int(bool(chosen) or every or point.setting == reference),
            }
            for point, chosen in rows
        ),
    )


def _lines(seen: Swept) -> Table:
    records: list[dict[str, float | str | None]] = [
        {
            "metric": f"equal {parse(choice.metric).label}",
            "time_ratio": time,
            "energy_ratio": energy,
        }
        for choice in seen.choices
        for time, energy in _line(seen, choice)
    ]
    return Table(
        "Where each metric is as at the setting that it prefers",
        (Column("metric", right=False), Column("time vs ref."), Column("energy vs ref.")),
        tuple(
            (str(it["metric"]), f"{it['time_ratio']:.3f}", f"{it['energy_ratio']:.3f}")
            for it in records
        ),
        tuple(records),
    )


def _line(seen: Swept, choice: Choice) -> list[tuple[float, float]]:
    """Energies, by halving, at which the metric stays the same; any rule that grows with them."""
    metric = parse(choice.metric)
    there = seen.result.point(choice.setting)
    if metric.max_slowdown is not None or not there.time_ratio or not there.energy_ratio:
        return []
    left, right, bottom, top = _frame(seen.near)
    reference = _reference(seen)
    try:
        level = metric.rule(there.time_ratio.mean, there.energy_ratio.mean, reference)
    except ValueError:
        return []
    time = np.linspace(left, right, _STEPS)
    energy = _solved(metric, time, level, reference)
    inside = (energy >= bottom) & (energy <= top)
    return list(zip(time[inside].tolist(), energy[inside].tolist(), strict=True))


def _solved(
    metric: Metric, time: NDArray[np.float64], level: float, reference: Reference
) -> NDArray[np.float64]:
    low, high = np.zeros_like(time), np.full_like(time, 10.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = metric.rule(time, middle, reference) > level
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.asarray((low + high) / 2)


def _reference(seen: Swept) -> Reference:
    """Time and energy of 1, and the highest power in the same measure."""
    there, most_w = seen.result.reference, None
    if seen.table is not None and seen.table.max_power_w and there.time_s and there.energy_j:
        most_w = seen.table.max_power_w * there.time_s.mean / there.energy_j.mean
    return Reference(1.0, 1.0, most_w)


def _frame(points: Sequence[PointResult]) -> tuple[float, float, float, float]:
    times = [it.time_ratio.mean for it in points if it.time_ratio]
    energies = [it.energy_ratio.mean for it in points if it.energy_ratio]
    wide, high = _MARGIN * (max(times) - min(times)), _MARGIN * (max(energies) - min(energies))
    return min(times) - wide, max(times) + wide, min(energies) - high, max(energies) + high


def _draw(table: Table, labels: Sequence[str], reference: str) -> alt.TopLevelMixin:
    import altair as alt

    room = alt.Scale(zero=False, nice=False, padding=16)
    x = alt.X("time_ratio:Q", scale=room).title(f"time, ratio to {reference}").axis(tickCount=6)
    y = alt.Y("energy_ratio:Q", scale=room).title(f"energy, ratio to {reference}")
    points = alt.Chart(alt.NamedData("points"))
    placed = points.encode(x=x, y=y)
    chosen = placed.transform_filter("datum.preferred_by != ''")
    bars = {
        "time_ratio": {"x": alt.X("time_ratio_low:Q"), "x2": alt.X2("time_ratio_high:Q")},
        "energy_ratio": {"y": alt.Y("energy_ratio_low:Q"), "y2": alt.Y2("energy_ratio_high:Q")},
    }
    layers = [
        points.mark_rule(style="reference").encode(x=alt.XDatum(1)),
        points.mark_rule(style="reference").encode(y=alt.YDatum(1)),
        placed.transform_filter("datum.pareto == 1")
        .mark_line(style="front")
        .encode(order=alt.Order("time_ratio:Q")),
        *(
            placed.mark_rule(style="interval").encode(**ends)
            for name, ends in bars.items()
            if has_bounds(table, name)
        ),
        placed.mark_point(style="mean").encode(
            fillOpacity=alt.FillOpacity("pareto:Q", legend=None).scale(
                domain=[0, 1], range=[0.4, 1]
            ),
            tooltip=[
                alt.Tooltip("setting:N"),
                alt.Tooltip("time_ratio:Q"),
                alt.Tooltip("energy_ratio:Q"),
            ],
        ),
        chosen.mark_point(style="choice"),
        placed.transform_filter("datum.named == 1")
        .mark_text(style="label_beside")
        .encode(text=alt.Text("label:N")),
    ]
    if labels:
        lines = alt.Chart(alt.NamedData("lines")).mark_line()
        told = dashed("metric", labels)
        layers.insert(2, lines.encode(x=x, y=y, **told))
    return alt.layer(*layers)
