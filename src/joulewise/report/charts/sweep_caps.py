"""Power, energy, time and the metrics against the limit, as ratios to the reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from joulewise.data.sweeps import POWER_LIMIT
from joulewise.metrics.ratios import ratios
from joulewise.metrics.result import Interval
from joulewise.metrics.rules import Metric, parse
from joulewise.metrics.slices import Slice
from joulewise.report.charts.axes import WATTS, limit_axis
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.series import dashed
from joulewise.report.charts.sweep_source import Swept
from joulewise.report.charts.sweep_titles import finding, place
from joulewise.report.sweep_tables import bounds, has_bounds
from joulewise.report.sweep_words import change, setting_words
from joulewise.report.tables import Column, Table

if TYPE_CHECKING:
    import altair as alt

_POWER: Final = Metric("power", "power", "W", lambda time_s, energy_j, _: energy_j / time_s)
_FEW: Final = 12  # limits that a figure has room for as points


def caps_charts(seen: Swept) -> Iterator[Chart]:
    """As in published tables: one curve a quantity, the best of each metric marked."""
    for along in seen.along_limits():
        curves = _curves(seen, along)
        if not curves:
            continue
        where = place(along.where)
        drawn = ", ".join(curves)
        tables = {"caps": _table(seen, along, curves)}
        yield Chart(
            key="-".join(filter(None, ("limits", where.replace(" ", "-")))),
            title=_title(seen, along, curves),
            description=(
                f"{drawn[0].upper()}{drawn[1:]} against the power limit, each over that of the "
                f"reference, {setting_words(seen.result.reference.setting)}. Below 1 is less than "
                "the reference; points mark what each metric prefers; bars are 95 % intervals."
            ),
            tables=tables,
            drawing=partial(
                _draw,
                tables["caps"],
                list(curves),
                len(along.rows),
                setting_words(seen.result.reference.setting),
            ),
        )


def _title(seen: Swept, along: Slice, curves: Mapping[str, Sequence[Interval | None]]) -> str:
    """Of one of several slices what is its own."""
    there = [
        (it.mean, watts) for it, watts in zip(curves["energy"], along.values, strict=True) if it
    ]
    if not along.where.values or not there:
        return finding(seen)
    least, limit_w = min(there)
    reference = setting_words(seen.result.reference.setting)
    return (
        f"With {place(along.where)}, energy is least at {limit_w:g} W: "
        f"{100 * (least - 1):+.1f} % against {reference}"
    )


def _curves(seen: Swept, along: Slice) -> dict[str, list[Interval | None]]:
    """By label, in the order of the limits; what is ruled out or unknown has no curve."""
    points = [seen.result.points[row] for row in along.rows]
    curves = {} if seen.table is None else {"power": _power(seen, along)}
    curves |= {
        "energy": [point.energy_ratio for point in points],
        "time": [point.time_ratio for point in points],
    }
    for name in seen.result.metrics:
        metric = parse(name)
        if name not in curves and metric.max_slowdown is None:
            curves[metric.label] = [point.ratios.get(name) for point in points]
    return {label: curve for label, curve in curves.items() if any(curve)}


def _power(seen: Swept, along: Slice) -> list[Interval | None]:
    if seen.table is None:
        return []
    of_all = ratios(_POWER, seen.table, seen.result.boundary)
    return [of_all.interval(row) for row in along.rows]


def _table(seen: Swept, along: Slice, curves: Mapping[str, Sequence[Interval | None]]) -> Table:
    steps = list(enumerate(zip(along.rows, along.values, strict=True)))
    chosen = {step: seen.chosen(seen.result.points[row].setting) for step, (row, _) in steps}
    return Table(
        "Ratios to the reference",
        (
            Column("limit", "W"),
            *(Column(label) for label in curves),
            Column("preferred by", right=False),
        ),
        tuple(
            (
                f"{limit_w:g}",
                *(change(curve[step]) for curve in curves.values()),
                "; ".join(chosen[step]),
            )
            for step, (_, limit_w) in steps
        ),
        tuple(
            {
                POWER_LIMIT: limit_w,
                "quantity": label,
                **bounds("ratio", curve[step]),
                "chosen": int(label in chosen[step]),
            }
            for label, curve in curves.items()
            for step, (_, limit_w) in steps
            if curve[step]
        ),
    )


def _draw(table: Table, labels: Sequence[str], limits: int, reference: str) -> alt.TopLevelMixin:
    import altair as alt

    data = alt.NamedData("caps")
    told = dashed("quantity", labels)
    base = alt.Chart(data).encode(
        x=limit_axis(), y=alt.Y("ratio:Q").title(f"ratio to {reference}").scale(zero=False)
    )
    series = base.encode(color=told["color"])
    best = "datum.chosen == 1"
    layers = [alt.Chart(data).mark_rule(style="reference").encode(y=alt.YDatum(1))]
    if has_bounds(table, "ratio"):
        bars = series.mark_rule(style="interval")
        layers.append(bars.encode(y=alt.Y("ratio_low:Q"), y2=alt.Y2("ratio_high:Q")))
    layers.append(series.mark_line().encode(strokeDash=told["strokeDash"]))
    if limits <= _FEW:
        layers.append(series.mark_point(style="mean"))
    if any(record["chosen"] for record in table.records):
        layers += [
            series.transform_filter(best).mark_point(style="choice"),
            base.transform_filter(best)
            .transform_calculate(label=WATTS)
            .mark_text(style="label_above")
            .encode(text=alt.Text("label:N")),
        ]
    return alt.layer(*layers)
