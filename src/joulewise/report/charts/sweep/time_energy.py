"""Every setting in the plane of time and energy, and lines along which metrics are the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.metrics.metric import Metric, Reference, parse
from joulewise.metrics.result import PointResult, Verdict
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.labels import (
    Frame,
    label_layers,
    label_table,
    place_labels,
)
from joulewise.report.charts.sweep.source import Swept, brief, varied
from joulewise.report.charts.theme import dashed
from joulewise.report.settings_text import change, setting_words
from joulewise.report.tables import Column, Table
from joulewise.report.views.sweep_tables import bounds, has_bounds

if TYPE_CHECKING:
    import altair as alt
    from numpy.typing import NDArray

_STEPS: Final = 60
_HALVINGS: Final = 60
_MARGIN: Final = 0.06  # of the span of the points; less, and labels at the border have no room
_MOST_ROOM: Final = 0.5  # for intervals, on each side; of two runs they are twelve times as long
_FEW: Final = 10  # points that all can have their names

THROUGH_REFERENCE, THROUGH_CHOICE = "reference", "choice"


def plane_charts(seen: Swept) -> Iterator[Chart]:
    if len(seen.known) < 2:
        return
    frame = _frame(seen.near)
    lines = _lines(seen, frame)
    points, labels = _points(seen), _labels(seen, frame, lines)
    metrics = list(dict.fromkeys(str(record["metric"]) for record in lines.records))
    reference = setting_words(seen.result.reference.setting)
    yield Chart(
        key="plane",
        title=(
            f"{sum(it.pareto for it in seen.known)} of {len(seen.known)} settings are beaten by no "
            "other in both time and energy"
        ),
        description=(
            f"Energy against time of every setting, both over those of {reference}, with 95 % "
            f"intervals; to the lower left is better in both. {_lines_words(lines)}The grey line "
            "joins the settings that no other beats in both: the Pareto front."
            f"{_LOG_WORDS if frame.is_log else ''}{seen.beyond(seen.near)}"
        ),
        tables={"points": points, "lines": lines, "labels": labels},
        drawing=partial(_draw, points, labels, metrics, reference, frame=frame),
    )


_LOG_WORDS: Final = " Both axes are logarithmic."


def _lines_words(lines: Table) -> str:
    drawn = {record["through"] for record in lines.records}
    words = ""
    if THROUGH_REFERENCE in drawn:
        words = (
            "Along a coloured line through the reference, (1, 1), a metric is the same as there: "
            "what lies below is better by it. "
        )
    if THROUGH_CHOICE in drawn:
        words += (
            "Along the thin line of the same colour it is the same as at the setting that it "
            "prefers, which is ringed. "
        )
    return words


def _labels(seen: Swept, frame: Frame, lines: Table) -> Table:
    """Of the reference and what is chosen; of all where there are few that differ."""
    apart = any(it.verdict is Verdict.BETTER for it in seen.choices)
    every = apart and len(seen.near) <= _FEW
    axes, reference = varied(seen.known), seen.result.reference.setting
    settings = [point.setting for point in seen.near]
    always = [i for i, it in enumerate(settings) if it == reference or seen.chosen(it)]
    wanted = [*always, *(range(len(settings)) if every else ())]
    places = [_ratios(point) for point in seen.near]
    labels = place_labels(
        frame,
        places,
        {i: (brief(settings[i], axes),) for i in wanted},
        always=always,
        lines=[(float(it["time_ratio"]), float(it["energy_ratio"])) for it in lines.records],  # type: ignore[arg-type]
    )
    return label_table(labels, [{"time_ratio": x, "energy_ratio": y} for x, y in places])


def _points(seen: Swept) -> Table:
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
                **bounds("time_ratio", point.time_ratio),
                **bounds("energy_ratio", point.energy_ratio),
                "pareto": int(point.pareto),
                "preferred_by": "; ".join(chosen),
            }
            for point, chosen in rows
        ),
    )


def _lines(seen: Swept, frame: Frame) -> Table:
    """Of each metric, the line through the reference and that through what it prefers."""
    reference = seen.result.reference
    chosen = {choice.metric: seen.result.point(choice.setting) for choice in seen.choices}
    through = [
        (name, passed, point)
        for name in seen.result.metrics
        if name != "time"  # the upright line at 1
        for passed, point in ((THROUGH_REFERENCE, reference), (THROUGH_CHOICE, chosen.get(name)))
    ]
    records: list[dict[str, float | str | None]] = [
        {
            "metric": f"equal {parse(name).label}",
            "through": passed,
            "time_ratio": time,
            "energy_ratio": energy,
        }
        for name, passed, point in through
        if point is not None
        for time, energy in _line(seen, parse(name), point, frame)
    ]
    return Table(
        "Where each metric is as at the reference, and as at the setting that it prefers",
        (
            Column("metric", right=False),
            Column("through", right=False),
            Column("time vs ref."),
            Column("energy vs ref."),
        ),
        tuple(
            (
                str(it["metric"]),
                str(it["through"]),
                f"{it['time_ratio']:.3f}",
                f"{it['energy_ratio']:.3f}",
            )
            for it in records
        ),
        tuple(records),
    )


def _line(
    seen: Swept, metric: Metric, there: PointResult, frame: Frame
) -> list[tuple[float, float]]:
    """Energies, by halving, at which the metric stays the same; any rule that grows with them."""
    if metric.max_slowdown is not None or not there.time_ratio or not there.energy_ratio:
        return []
    reference = _reference(seen)
    try:
        level = metric.rule(there.time_ratio.mean, there.energy_ratio.mean, reference)
    except ValueError:
        return []
    spaced = np.geomspace if frame.is_log else np.linspace
    time = np.union1d(spaced(frame.left, frame.right, _STEPS), there.time_ratio.mean)
    energy = _solved(metric, time, level, reference)
    inside = (energy >= frame.bottom) & (energy <= frame.top)
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


def _ratios(point: PointResult) -> tuple[float, float]:
    if point.time_ratio is None or point.energy_ratio is None:
        raise ValueError(f"{point.setting} has no place in the plane")
    return point.time_ratio.mean, point.energy_ratio.mean


def _frame(points: Sequence[PointResult]) -> Frame:
    """Around all points, and their intervals as far as those leave the points room."""
    means = [_ratios(point) for point in points]
    least, most = ([pick(place[axis] for place in means) for axis in (0, 1)] for pick in (min, max))
    room = [_MOST_ROOM * (high - low) for low, high in zip(least, most, strict=True)]
    ends = [
        tuple(
            min(max(at, low - spare), high + spare)
            for at, low, high, spare in zip(place, least, most, room, strict=True)
        )
        for point in points
        for place in _corners(point)
    ]
    places = [*means, *((x, y) for x, y in ends if x > 0 and y > 0)]
    return Frame.around(places, _MARGIN, may_be_log=True)


def _corners(point: PointResult) -> Iterator[tuple[float, float]]:
    """The lower and the upper ends of a point's intervals."""
    time, energy = point.time_ratio, point.energy_ratio
    if time is not None and energy is not None:
        for end in ("low", "high"):
            x, y = getattr(time, end), getattr(energy, end)
            yield time.mean if x is None else x, energy.mean if y is None else y


def _draw(
    table: Table, labels: Table, metrics: Sequence[str], reference: str, *, frame: Frame
) -> alt.TopLevelMixin:
    import altair as alt

    x = alt.X("time_ratio:Q", scale=frame.scale("x")).title(f"time, ratio to {reference}")
    x = x.axis(tickCount=6)
    y = alt.Y("energy_ratio:Q", scale=frame.scale("y")).title(f"energy, ratio to {reference}")
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
        *_line_layers(metrics, x, y),
        placed.transform_filter("datum.pareto == 1")
        .mark_line(style="front")
        .encode(order=alt.Order("time_ratio:Q")),
        *(
            placed.mark_rule(style="interval", clip=True).encode(**ends)
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
        *label_layers(alt.Chart(alt.NamedData("labels")).encode(x=x, y=y), labels),
    ]
    return alt.layer(*layers)


def _line_layers(metrics: Sequence[str], x: alt.X, y: alt.Y) -> Iterator[alt.Chart]:
    """Through the reference, and thin ones through what is preferred, in the same colours."""
    import altair as alt

    if not metrics:
        return
    lines = alt.Chart(alt.NamedData("lines")).encode(x=x, y=y, **dashed("metric", metrics))
    for through, style in ((THROUGH_REFERENCE, "line"), (THROUGH_CHOICE, "thin")):
        yield lines.transform_filter(f"datum.through == '{through}'").mark_line(style=style)
