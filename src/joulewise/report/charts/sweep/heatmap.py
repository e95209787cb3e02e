"""A metric over two axes of a sweep, such as batch size and power limit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from joulewise.data.sweeps import Setting
from joulewise.formatting import one_line
from joulewise.metrics.metric import parse
from joulewise.metrics.result import PointResult, Verdict
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.sweep.source import Swept, least, ordered, place, varied
from joulewise.report.settings_text import AXES, change, setting_words, value_words
from joulewise.report.tables import Column, Table
from joulewise.report.views.sweep_tables import bounds

if TYPE_CHECKING:
    import altair as alt

_READABLE: Final = 15  # columns that leave room for a figure in each cell
_LEAST: Final = 2


def heat_charts(seen: Swept, metric: str = "") -> Iterator[Chart]:
    """Of the metric, else of the first that was asked for; ratios to the reference."""
    metric = metric or seen.result.metrics[0]
    axes = _axes(seen.known)
    choice = seen.result.best.get(metric)
    if axes is None or choice is None:
        return
    across, down = axes
    held = _others(choice.setting, axes)
    points = [
        point
        for point in seen.known
        if _others(point.setting, axes) == held
        and (ratio := point.ratios.get(metric))
        and math.isfinite(ratio.mean)
    ]
    columns, rows = ordered(points, across), ordered(points, down)
    if len(columns) < _LEAST or len(rows) < _LEAST:
        return
    label = parse(metric).label
    title = (
        f"{label} is least at the reference, {setting_words(choice.setting)}"
        if choice.verdict is Verdict.REFERENCE
        else least(choice, "the reference")
    )
    yield Chart(
        key=f"heat-{metric.replace(':', '-')}",
        title=title[0].upper() + title[1:],
        description=(
            f"{label[0].upper()}{label[1:]} over that of the reference, "
            f"{setting_words(seen.result.reference.setting)}, for each {_name(across)} and "
            f"{_name(down)}{f' at {place(held)}' if held.values else ''}; the frame marks the "
            "setting that is chosen."
        ),
        tables={"cells": _table(points, metric, choice.setting, axes)},
        drawing=partial(_draw, label, axes, columns, rows, _middle(points, metric)),
    )


def _axes(points: Sequence[PointResult]) -> tuple[str, str] | None:
    """The two with most values, that with more across; None where fewer than two vary."""
    names = sorted(varied(points), key=lambda name: len(ordered(points, name)))
    return (names[-1], names[-2]) if len(names) >= _LEAST else None


def _table(
    points: Sequence[PointResult], metric: str, best: Setting, axes: tuple[str, str]
) -> Table:
    across, down = axes
    return Table(
        f"{parse(metric).label} against the reference",
        (
            *(Column(_name(axis), AXES.get(axis, ("", ""))[1]) for axis in (down, across)),
            Column(f"{parse(metric).label} vs ref."),
            Column("chosen", right=False),
        ),
        tuple(
            (
                value_words(down, point.setting[down]),
                value_words(across, point.setting[across]),
                change(point.ratios.get(metric)),
                "best" if point.setting == best else "",
            )
            for point in points
        ),
        tuple(
            {
                "down": value_words(down, point.setting[down]),
                "across": value_words(across, point.setting[across]),
                **bounds("ratio", point.ratios.get(metric)),
                "best": int(point.setting == best),
            }
            for point in points
        ),
    )


def _middle(points: Sequence[PointResult], metric: str) -> float:
    """Of the ramp, which is one of factors."""
    found = [ratio.mean for point in points if (ratio := point.ratios.get(metric))]
    return math.sqrt(min(found) * max(found))


def _others(setting: Setting, axes: tuple[str, str]) -> Setting:
    return Setting(tuple(item for item in setting.values if item[0] not in axes))


def _name(axis: str) -> str:
    return one_line(AXES.get(axis, (axis.replace("_", " "), ""))[0])


def _titled(axis: str) -> str:
    unit = AXES.get(axis, ("", ""))[1]
    return f"{_name(axis)} ({unit})" if unit else _name(axis)


def _draw(
    label: str, axes: tuple[str, str], columns: Sequence[str], rows: Sequence[str], middle: float
) -> alt.TopLevelMixin:
    import altair as alt

    base = alt.Chart(alt.NamedData("cells"), height=max(34 * len(rows), 90)).encode(
        x=alt.X("across:N", sort=list(columns))
        .title(_titled(axes[0]))
        .axis(labelAngle=0, tickSize=0),
        y=alt.Y("down:N", sort=list(rows)).title(_titled(axes[1])).axis(grid=False),
    )
    best = base.transform_filter("datum.best == 1")
    colour = (
        alt.Color("ratio:Q")
        .scale(type="log")
        .legend(title=f"{label}, ratio to the reference", format=".2f")
    )
    layers = [
        base.mark_rect(style="cell").encode(
            color=colour,
            tooltip=[alt.Tooltip("across:N"), alt.Tooltip("down:N"), alt.Tooltip("ratio:Q")],
        ),
        best.mark_rect(style="best_cell"),
        best.mark_rect(style="best_cell_inside"),
    ]
    if len(columns) <= _READABLE:
        # The ramp is dark at its low end in every theme.
        ink = alt.condition(f"datum.ratio > {middle}", alt.value("black"), alt.value("white"))
        text = base.mark_text(style="cell_label").encode(
            text=alt.Text("ratio:Q", format=".2f"), color=ink
        )
        layers.insert(1, text)
    return alt.layer(*layers)
