"""Every setting in the time-energy plane, the Pareto front, and lines of equal metric."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.metrics.metric import Metric, Reference, parse
from joulewise.metrics.result import PointResult, Verdict
from joulewise.report.charts import encoding
from joulewise.report.charts.chart import Chart, alt
from joulewise.report.charts.labels import Frame, Position, label_layers, label_table, place_labels
from joulewise.report.charts.records import record_table, yes_or_empty
from joulewise.report.charts.sweep.source import SweptData, short_label, varied_axes
from joulewise.report.settings_text import setting_words
from joulewise.report.tables import Table
from joulewise.report.views.sweep_tables import has_bounds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# Points of a line of equal metric: one for every 10 px, which looks smooth.
_LINE_POINTS: Final = 60
# Bisections of energies from 0 to 10 times the reference's: more than a double can resolve.
_BISECTIONS, _MAX_ENERGY_RATIO = 60, 10.0
MARGIN: Final = 0.06
"""Share of the range of the points that is free around them, for labels at the border."""

# What intervals may add to the frame on each side, as a share of the range of the points: those of
# two runs are twelve times as long (Student's t) and would leave the points no space.
_INTERVAL_MARGIN: Final = 0.5
_FEW_POINTS: Final = 10  # up to so many points are all labelled
THROUGH_REFERENCE, THROUGH_CHOICE = "reference", "choice"


def chart_plane(data: SweptData) -> Iterator[Chart]:
    """Energy against time, relative to the reference."""
    if len(data.known) < 2:
        return
    frame = _frame(data.near)
    lines = _lines(data, frame)
    points, labels = _points(data), _labels(data, frame, lines)
    metrics = list(dict.fromkeys(str(record["metric"]) for record in lines.records))
    is_log = " Both axes are logarithmic." if frame.is_log else ""
    front = sum(point.pareto for point in data.known)
    yield Chart(
        key="plane",
        title=f"{front} of {len(data.known)} settings are on the Pareto front of time and energy",
        description=(
            f"Energy against time of every setting, both relative to {data.reference_text}, with "
            f"95 % intervals; lower left is better in both. {_lines_text(lines)}The grey line is "
            "the Pareto front: no other setting is better in both time and energy."
            f"{is_log}{data.omitted_text(data.near)}"
        ),
        tables={"points": points, "lines": lines, "labels": labels},
        drawing=partial(_draw, points, labels, metrics, data.reference_text, frame=frame),
    )


def _lines_text(lines: Table) -> str:
    drawn = {record["through"] for record in lines.records}
    text = ""
    if THROUGH_REFERENCE in drawn:
        text = (
            "Each coloured line through the reference (1, 1) is for one metric: all points on it "
            "are as good as the reference, and points below it are better. "
        )
    if THROUGH_CHOICE in drawn:
        text += (
            "All points on the thin line of the same colour are as good as the best setting by "
            "that metric, which is circled. "
        )
    return text


def _labels(data: SweptData, frame: Frame, lines: Table) -> Table:
    """Of the reference and the chosen settings; of all where there are few that differ."""
    is_clear = any(choice.verdict is Verdict.BETTER for choice in data.choices)
    axes, reference = varied_axes(data.known), data.result.reference.setting
    settings = [point.setting for point in data.near]
    always = [
        number
        for number, setting in enumerate(settings)
        if setting == reference or data.chosen_by(setting)
    ]
    others = range(len(settings)) if is_clear and len(settings) <= _FEW_POINTS else ()
    positions = [_ratios(point) for point in data.near]
    labels = place_labels(
        frame,
        positions,
        {number: (short_label(settings[number], axes),) for number in (*always, *others)},
        always=always,
        lines=[(float(it["time_ratio"]), float(it["energy_ratio"])) for it in lines.records],  # type: ignore[arg-type]
    )
    return label_table(labels, [{"time_ratio": x, "energy_ratio": y} for x, y in positions])


def _points(data: SweptData) -> Table:
    records = (
        {
            "setting": setting_words(point.setting),
            "time_ratio": point.time_ratio,
            "energy_ratio": point.energy_ratio,
            "pareto": int(point.pareto),
            "preferred_by": "; ".join(data.chosen_by(point.setting)),
        }
        for point in data.near
    )
    fields = "setting time_ratio energy_ratio pareto preferred_by"
    return record_table("Time and energy of every setting", fields, records, pareto=yes_or_empty)


def _lines(data: SweptData, frame: Frame) -> Table:
    """Of each metric, the line through the reference and that through its best setting."""
    chosen = {choice.metric: data.result.point(choice.setting) for choice in data.choices}
    through = [
        (name, passed, point)
        for name in data.result.metrics
        if name != "time"  # the vertical line at 1
        for passed, point in (
            (THROUGH_REFERENCE, data.result.reference),
            (THROUGH_CHOICE, chosen.get(name)),
        )
    ]
    records = (
        {
            "metric": f"equal {parse(name).label}",
            "through": passed,
            "time_ratio": time,
            "energy_ratio": energy,
        }
        for name, passed, point in through
        if point is not None
        for time, energy in _line(data, parse(name), point, frame)
    )
    ratio = "{:.3f}".format
    return record_table(
        "Lines of equal metric, through the reference and through the best setting",
        "metric through time_ratio energy_ratio",
        records,
        time_ratio=ratio,
        energy_ratio=ratio,
    )


def _line(data: SweptData, metric: Metric, point: PointResult, frame: Frame) -> list[Position]:
    """The part of the line of equal ``metric`` through a point that lies in the frame."""
    if metric.max_slowdown is not None or not point.time_ratio or not point.energy_ratio:
        return []
    reference = _reference(data)
    try:
        level = metric.rule(point.time_ratio.mean, point.energy_ratio.mean, reference)
    except ValueError:
        return []
    spaced = np.geomspace if frame.is_log else np.linspace
    time = np.union1d(spaced(frame.left, frame.right, _LINE_POINTS), point.time_ratio.mean)
    energy = _solve_energy(metric, time, level, reference)
    inside = (energy >= frame.bottom) & (energy <= frame.top)
    return list(zip(time[inside].tolist(), energy[inside].tolist(), strict=True))


def _solve_energy(metric: Metric, time: Array, level: float, reference: Reference) -> Array:
    """Energies at which the metric has this value, by bisection: every metric grows with energy."""
    low, high = np.zeros_like(time), np.full_like(time, _MAX_ENERGY_RATIO)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        above = metric.rule(time, middle, reference) > level
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.asarray((low + high) / 2)


def _reference(data: SweptData) -> Reference:
    """Time and energy of 1, and the highest power in the same unit."""
    point, most_w = data.result.reference, None
    if data.table is not None and data.table.max_power_w and point.time_s and point.energy_j:
        most_w = data.table.max_power_w * point.time_s.mean / point.energy_j.mean
    return Reference(1.0, 1.0, most_w)


def _ratios(point: PointResult) -> Position:
    if point.time_ratio is None or point.energy_ratio is None:
        raise ValueError(f"{point.setting} has no time or no energy")
    return point.time_ratio.mean, point.energy_ratio.mean


def _frame(points: Sequence[PointResult]) -> Frame:
    """Around all points, and their intervals as far as those leave the points space."""
    means = [_ratios(point) for point in points]
    least, most = np.min(means, axis=0), np.max(means, axis=0)
    free = _INTERVAL_MARGIN * (most - least)
    ends = np.clip(
        [corner for point in points for corner in _corners(point)], least - free, most + free
    )
    return Frame.around(
        [*means, *((x, y) for x, y in ends.tolist() if x > 0 and y > 0)], MARGIN, may_be_log=True
    )


def _corners(point: PointResult) -> Iterator[Position]:
    """The lower and the upper ends of a point's intervals."""
    time, energy = point.time_ratio, point.energy_ratio
    if time is not None and energy is not None:
        for end in ("low", "high"):
            x, y = getattr(time, end), getattr(energy, end)
            yield time.mean if x is None else x, energy.mean if y is None else y


def front_layer(base: Any, order: str) -> Any:
    """The Pareto front as a line through its points, in the order of a field."""
    front = base.transform_filter("datum.pareto == 1").mark_line(style="front")
    return front.encode(order=alt.Order(f"{order}:Q"))


def chosen_layer(base: Any) -> Any:
    """Circles around the chosen settings."""
    return base.transform_filter("datum.preferred_by != ''").mark_point(style="choice")


def _draw(
    table: Table, labels: Table, metrics: Sequence[str], reference: str, *, frame: Frame
) -> alt.TopLevelMixin:
    x = alt.X("time_ratio:Q", scale=frame.scale("x")).title(f"time relative to {reference}")
    x = x.axis(tickCount=6)
    y = alt.Y("energy_ratio:Q", scale=frame.scale("y")).title(f"energy relative to {reference}")
    points, label_base = (
        encoding.data_layer(name).encode(x=x, y=y) for name in ("points", "labels")
    )
    lines = encoding.data_layer("lines").encode(
        x=x, y=y, **encoding.encode_lines("metric", metrics)
    )
    opacity = alt.FillOpacity("pareto:Q", legend=None).scale(domain=[0, 1], range=[0.4, 1])
    return alt.layer(
        encoding.reference_line("points", "x"),
        encoding.reference_line("points", "y"),
        *(
            lines.transform_filter(f"datum.through == '{through}'").mark_line(style=style)
            for through, style in ((THROUGH_REFERENCE, "line"), (THROUGH_CHOICE, "thin"))
            if metrics
        ),
        front_layer(points, "time_ratio"),
        *(
            encoding.interval_layer(points, axis, f"{name}_low", f"{name}_high", clip=True)
            for axis, name in (("x", "time_ratio"), ("y", "energy_ratio"))
            if has_bounds(table, name)
        ),
        points.mark_point(style="mean").encode(
            fillOpacity=opacity,
            tooltip=[
                alt.Tooltip(field) for field in ("setting:N", "time_ratio:Q", "energy_ratio:Q")
            ],
        ),
        chosen_layer(points),
        *label_layers(label_base, labels),
    )
