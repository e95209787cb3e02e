"""One metric over two axes of a sweep, such as batch size and power limit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from joulewise.data.sweeps import Setting
from joulewise.formatting import capitalised, one_line
from joulewise.metrics.metric import parse
from joulewise.metrics.result import PointResult, Verdict
from joulewise.report.charts.chart import Chart, alt
from joulewise.report.charts.encoding import data_layer
from joulewise.report.charts.records import record_table, yes_or_empty
from joulewise.report.charts.sweep.source import (
    SweptData,
    axis_values,
    describe_choice,
    fixed_text,
    varied_axes,
)
from joulewise.report.settings_text import AXES, setting_words, value_words
from joulewise.report.tables import Column, Table

_MAX_LABELLED_COLUMNS: Final = 15  # more leave no space for a number in each cell
_MIN_VALUES: Final = 2  # of each axis
_ROW_PX, _SMALLEST_PX = 34, 90  # height in pixels of a row, and of the whole at least

Axes = tuple[str, str]
"""The axes across and down."""


def chart_heatmap(data: SweptData) -> Iterator[Chart]:
    """The first metric of the result over the two axes with most values, relative to the reference.

    Other axes are fixed at the values of the best setting.
    """
    metric = data.result.metrics[0]
    names = sorted(varied_axes(data.known), key=lambda name: len(axis_values(data.known, name)))
    choice = data.result.best.get(metric)
    if len(names) < 2 or choice is None:
        return
    axes = across, down = names[-1], names[-2]
    fixed = _others(choice.setting, axes)
    points = [
        point
        for point in data.known
        if _others(point.setting, axes) == fixed
        and (ratio := point.ratios.get(metric))
        and math.isfinite(ratio.mean)
    ]
    columns, rows = axis_values(points, across), axis_values(points, down)
    if min(len(columns), len(rows)) < _MIN_VALUES:
        return
    label = parse(metric).label
    title = (
        f"{label} is lowest at the reference, {setting_words(choice.setting)}"
        if choice.verdict is Verdict.REFERENCE
        else describe_choice(choice, "the reference")
    )
    ratios = [ratio.mean for point in points if (ratio := point.ratios.get(metric))]
    # The middle is that of the colours, whose scale is logarithmic.
    ticks = min(ratios), math.sqrt(min(ratios) * max(ratios)), max(ratios)
    yield Chart(
        key=f"heat-{metric.replace(':', '-')}",
        title=capitalised(title),
        description=(
            f"{capitalised(label)} relative to the reference ({data.reference_text}) for each "
            f"{_name(across)} and {_name(down)}"
            f"{f' at {fixed_text(fixed)}' if fixed.values else ''}; the frame marks the best "
            "setting."
        ),
        tables={"cells": _table(points, metric, choice.setting, axes)},
        drawing=partial(_draw, label, axes, columns, rows, ticks),
    )


def _table(points: Sequence[PointResult], metric: str, best: Setting, axes: Axes) -> Table:
    across, down = axes
    label = parse(metric).label
    records = (
        {
            "down": value_words(down, point.setting[down]),
            "across": value_words(across, point.setting[across]),
            "ratio": point.ratios.get(metric),
            "best": int(point.setting == best),
        }
        for point in points
    )
    headings = {
        name: Column(_name(axis), AXES.get(axis, ("", ""))[1])
        for name, axis in (("down", down), ("across", across))
    }
    return record_table(
        f"{label} relative to the reference",
        "down across ratio best",
        records,
        titles={**headings, "ratio": f"{label} vs ref."},
        best=yes_or_empty,
    )


def _others(setting: Setting, axes: Axes) -> Setting:
    return Setting(tuple(item for item in setting.values if item[0] not in axes))


def _name(axis: str) -> str:
    return one_line(AXES.get(axis, (axis.replace("_", " "), ""))[0])


def _axis_title(axis: str) -> str:
    unit = AXES.get(axis, ("", ""))[1]
    return f"{_name(axis)} ({unit})" if unit else _name(axis)


def _draw(
    label: str, axes: Axes, columns: Sequence[str], rows: Sequence[str], ticks: Sequence[float]
) -> alt.TopLevelMixin:
    x = alt.X("across:N", sort=list(columns)).title(_axis_title(axes[0]))
    y = alt.Y("down:N", sort=list(rows)).title(_axis_title(axes[1]))
    height = max(_ROW_PX * len(rows), _SMALLEST_PX)
    base = (
        data_layer("cells")
        .properties(height=height)
        .encode(x=x.axis(labelAngle=0, tickSize=0), y=y.axis(grid=False))
    )
    best = base.transform_filter("datum.best == 1")
    legend = alt.Legend(
        title=f"{label} relative to the reference", format=".2f", values=list(ticks)
    )
    colour = alt.Color("ratio:Q", legend=legend).scale(type="log")
    layers = [
        base.mark_rect(style="cell").encode(
            color=colour,
            tooltip=[alt.Tooltip(field) for field in ("across:N", "down:N", "ratio:Q")],
        ),
        best.mark_rect(style="best_cell"),
        best.mark_rect(style="best_cell_inside"),
    ]
    if len(columns) <= _MAX_LABELLED_COLUMNS:
        # The colours are dark at their low end in every theme.
        ink = alt.condition(f"datum.ratio > {ticks[1]}", alt.value("black"), alt.value("white"))
        number = alt.Text("ratio:Q", format=".2f")
        layers.insert(1, base.mark_text(style="cell_label").encode(text=number, color=ink))
    return alt.layer(*layers)
