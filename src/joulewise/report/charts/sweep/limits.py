"""Power, energy, time and the metrics against the limit, as ratios to the reference.

Energy, time and EDP against the power limit: runs, means, and a parabola where it fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.data.sweeps import POWER_LIMIT
from joulewise.metrics.intervals import means, ratios
from joulewise.metrics.metric import Metric, parse
from joulewise.metrics.result import Interval, ParabolaFit
from joulewise.metrics.trial_table import AxisSlice
from joulewise.metrics.trial_table import TrialTable as Runs
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.sweep.source import Swept, at, finding, place
from joulewise.report.charts.theme import (
    WATTS,
    DisplayUnit,
    dashed,
    energy_unit,
    limit_axis,
    product_unit,
    time_unit,
)
from joulewise.report.settings_text import change, fit_worth, setting_words
from joulewise.report.tables import Column, Table
from joulewise.report.views.sweep_tables import bounds, has_bounds

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


def _title(seen: Swept, along: AxisSlice, curves: Mapping[str, Sequence[Interval | None]]) -> str:
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


def _curves(seen: Swept, along: AxisSlice) -> dict[str, list[Interval | None]]:
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


def _power(seen: Swept, along: AxisSlice) -> list[Interval | None]:
    if seen.table is None:
        return []
    of_all = ratios(_POWER, seen.table, seen.result.boundary)
    return [of_all.interval(row) for row in along.rows]


def _table(seen: Swept, along: AxisSlice, curves: Mapping[str, Sequence[Interval | None]]) -> Table:
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


if TYPE_CHECKING:
    import altair as alt
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_STEPS: Final = 60


@dataclass(frozen=True)
class _Quantity:
    """``field`` is what records call it; values are of single runs, a row for each point."""

    label: str
    field: str
    unit: DisplayUnit
    values: Array
    errors: Array


def fits_charts(seen: Swept) -> Iterator[Chart]:
    along = seen.main_slice
    if seen.table is None or along is None:
        return
    quantities = _quantities(seen.table, seen.result.boundary)
    for fit in seen.result.fits:
        of = quantities[fit.quantity]
        if fit.where == along.where and not np.isnan(of.values).all():
            yield _chart(of, fit, along)


def _quantities(runs: Runs, boundary: str) -> dict[str, _Quantity]:
    time_s, energy_j = runs.time_s, runs.energy_j[boundary]
    error_j, none = runs.error_j[boundary], np.zeros_like(time_s)
    most_s, most_j = _most(time_s), _most(energy_j)
    product = product_unit(most_s * most_j)
    return {
        "energy": _Quantity("energy", "energy_j", energy_unit(most_j), energy_j, error_j),
        "time": _Quantity("time", "time_s", time_unit(most_s), time_s, none),
        "edp": _Quantity("EDP", "edp_j_s", product, energy_j * time_s, error_j * time_s),
    }


def _chart(of: _Quantity, fit: ParabolaFit, along: AxisSlice) -> Chart:
    where = place(along.where)
    drawn = not fit.problem
    tables = {"means": _means(of, along), "runs": _runs(of, along)}
    if drawn:
        tables["parabola"] = _parabola(of, fit, along)
    told = "a parabola is fitted to the single runs" if drawn else f"no parabola: {fit.problem}"
    told += f" ({worth})" if (worth := fit_worth(fit)) else ""
    return Chart(
        key="-".join(filter(None, (fit.quantity, "by-limit", where.replace(" ", "-")))),
        title=_sweep_fits_title(of, fit) + at(along.where),
        description=(
            f"{of.label[0].upper()}{of.label[1:]} of every run against the power limit (small "
            f"points), the mean at each limit with its 95 % interval (large points); {told}."
        ),
        tables=tables,
        drawing=partial(_sweep_fits_draw, of.label, of.field, of.unit, drawn=drawn),
    )


def _sweep_fits_title(of: _Quantity, fit: ParabolaFit) -> str:
    """What the parabola is worth, or why there is none."""
    if fit.problem.startswith("no limit binds"):
        return f"The limit never binds: {of.label} at every limit differs by noise alone"
    if fit.problem or fit.r2 is None or fit.adjusted_r2 is None:
        return f"No parabola of {of.label} against the limit: {fit.problem}"
    worth = f"{fit_worth(fit)}, adjusted {fit.adjusted_r2:.4f}, {fit.dof} degrees of freedom"
    if fit.minimum_w is None or fit.quantity == "time":  # a limit that is raised slows nothing
        return f"A parabola of {of.label}: {worth}"
    return f"By a parabola {of.label} is least at {fit.minimum_w:.0f} W: {worth}"


def _means(of: _Quantity, along: AxisSlice) -> Table:
    rows = list(along.rows)
    found = means(of.values[rows], of.errors[rows])
    told = [
        (limit_w, interval, int(found.n[row]))
        for row, limit_w in enumerate(along.values)
        if (interval := found.interval(row))
    ]
    return Table(
        f"Mean {of.label} at each limit",
        (
            Column("limit", "W"),
            Column("runs"),
            Column(of.label, of.unit.name),
            Column("95 % interval", of.unit.name, right=False),
        ),
        tuple(
            (
                f"{limit_w:g}",
                str(n),
                of.unit.said(interval.mean),
                None
                if interval.low is None or interval.high is None
                else f"{of.unit.said(interval.low)} to {of.unit.said(interval.high)}",
            )
            for limit_w, interval, n in told
        ),
        tuple(
            {POWER_LIMIT: limit_w, "runs": n, **bounds(of.field, interval)}
            for limit_w, interval, n in told
        ),
    )


def _runs(of: _Quantity, along: AxisSlice) -> Table:
    return _pairs(
        f"The {of.label} of every run",
        of,
        [
            (limit_w, value)
            for row, limit_w in zip(along.rows, along.values, strict=True)
            for value in of.values[row].tolist()
            if not np.isnan(value)
        ],
    )


def _parabola(of: _Quantity, fit: ParabolaFit, along: AxisSlice) -> Table:
    """From the lowest limit that has runs to the highest: beyond them it would be a guess."""
    tried = [
        limit_w
        for row, limit_w in zip(along.rows, along.values, strict=True)
        if not np.isnan(of.values[row]).all()
    ]
    limits_w = np.linspace(tried[0], tried[-1], _STEPS)
    values = np.polyval(fit.coefficients or (), limits_w)
    pairs = list(zip(limits_w.tolist(), values.tolist(), strict=True))
    return _pairs(f"The parabola of {of.label}", of, pairs)


def _pairs(title: str, of: _Quantity, pairs: list[tuple[float, float]]) -> Table:
    return Table(
        title,
        (Column("limit", "W"), Column(of.label, of.unit.name)),
        tuple((f"{limit_w:g}", of.unit.said(value)) for limit_w, value in pairs),
        tuple({POWER_LIMIT: limit_w, of.field: value} for limit_w, value in pairs),
    )


def _sweep_fits_draw(
    label: str, field: str, unit: DisplayUnit, *, drawn: bool
) -> alt.TopLevelMixin:
    import altair as alt

    y = alt.Y("shown:Q").title(f"{label} ({unit.name})").scale(zero=False)
    base = {
        name: alt.Chart(alt.NamedData(name))
        .transform_calculate(shown=unit.expression(field))
        .encode(x=limit_axis(), y=y)
        for name in ("runs", "means", "parabola")
    }
    bars = (
        base["means"]
        .transform_calculate(
            low=unit.expression(f"{field}_low"), high=unit.expression(f"{field}_high")
        )
        .mark_rule(style="interval")
        .encode(y=alt.Y("low:Q"), y2=alt.Y2("high:Q"))
    )
    fit = [base["parabola"].mark_line(style="fit")] if drawn else []
    return alt.layer(
        *fit, base["runs"].mark_point(style="run"), bars, base["means"].mark_point(style="mean")
    )


def _most(values: Array) -> float:
    return float(np.nanmax(values)) if np.isfinite(values).any() else 0.0
