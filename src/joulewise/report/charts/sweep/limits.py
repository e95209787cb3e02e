"""Power, energy, time and the metrics by power limit: as ratios, and single runs with a fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.data.sweeps import POWER_LIMIT
from joulewise.formatting import capitalised
from joulewise.metrics.intervals import means, ratios
from joulewise.metrics.metric import Metric, parse
from joulewise.metrics.result import Interval, ParabolaFit
from joulewise.metrics.trial_table import AxisSlice, TrialTable
from joulewise.report.charts import encoding
from joulewise.report.charts.chart import Chart, alt
from joulewise.report.charts.encoding import DisplayUnit
from joulewise.report.charts.records import record_table
from joulewise.report.charts.sweep.source import (
    SweptData,
    fixed_text,
    summarise_finding,
    title_suffix,
)
from joulewise.report.settings_text import change, fit_quality
from joulewise.report.tables import Column, Table
from joulewise.report.views.sweep_tables import bounds, has_bounds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

Curves = Mapping[str, Sequence[Interval | None]]
"""Ratios to the reference by the label of their quantity, in the order of the limits."""

_POWER: Final = Metric("power", "power", "W", lambda time_s, energy_j, _: energy_j / time_s)
_MAX_POINTS: Final = 12  # limits of a curve up to which each is marked by a point
_FIT_POINTS: Final = 60  # of a drawn parabola: one for every 10 px, which looks smooth


def chart_limits(data: SweptData) -> Iterator[Chart]:
    """As in published tables: a curve for each quantity, with the best of each metric marked."""
    for along in data.limit_slices():
        curves = _curves(data, along)
        if not curves:
            continue
        table = _ratio_table(data, along, curves)
        yield Chart(
            key=_key("limits", along),
            title=_ratio_title(data, along, curves),
            description=(
                f"{capitalised(', '.join(curves))} by power limit, relative to the reference "
                f"({data.reference_text}). Below 1 is less than the reference. Circles mark the "
                "best setting by each metric; bars are 95 % intervals."
            ),
            tables={"caps": table},
            drawing=partial(
                _draw_ratios, table, list(curves), len(along.rows), data.reference_text
            ),
        )


def _key(*parts_and_slice: str | AxisSlice) -> str:
    *parts, along = parts_and_slice
    fixed = fixed_text(along.where) if isinstance(along, AxisSlice) else ""
    return "-".join(filter(None, (*map(str, parts), fixed.replace(" ", "-"))))


def _ratio_title(data: SweptData, along: AxisSlice, curves: Curves) -> str:
    """The finding of the sweep; of one of several slices, that of the slice."""
    energies = [
        (ratio.mean, limit_w)
        for ratio, limit_w in zip(curves["energy"], along.values, strict=True)
        if ratio
    ]
    if not along.where.values or not energies:
        return summarise_finding(data)
    least, limit_w = min(energies)
    return (
        f"With {fixed_text(along.where)}, energy is lowest at {limit_w:g} W: "
        f"{100 * (least - 1):+.1f} % compared with {data.reference_text}"
    )


def _curves(data: SweptData, along: AxisSlice) -> Curves:
    """Curves of all quantities that are known; not of metrics that exclude settings."""
    points = [data.result.points[row] for row in along.rows]
    curves: dict[str, list[Interval | None]] = {}
    if data.table is not None:
        power = ratios(_POWER, data.table, data.result.boundary)
        curves["power"] = [power.interval(row) for row in along.rows]
    curves["energy"] = [point.energy_ratio for point in points]
    curves["time"] = [point.time_ratio for point in points]
    for name in data.result.metrics:
        metric = parse(name)
        if name not in curves and metric.max_slowdown is None:
            curves[metric.label] = [point.ratios.get(name) for point in points]
    return {label: curve for label, curve in curves.items() if any(curve)}


def _ratio_table(data: SweptData, along: AxisSlice, curves: Curves) -> Table:
    limits = list(enumerate(along.values))
    chosen = [data.chosen_by(data.result.points[row].setting) for row in along.rows]
    return Table(
        "Ratios to the reference",
        (
            Column("limit", "W"),
            *(Column(label) for label in curves),
            Column("best by", right=False),
        ),
        tuple(
            (
                f"{limit_w:g}",
                *(change(curve[step]) for curve in curves.values()),
                "; ".join(chosen[step]),
            )
            for step, limit_w in limits
        ),
        tuple(
            {
                POWER_LIMIT: limit_w,
                "quantity": label,
                **bounds("ratio", curve[step]),
                "chosen": int(label in chosen[step]),
            }
            for label, curve in curves.items()
            for step, limit_w in limits
            if curve[step]
        ),
    )


def _draw_ratios(
    table: Table, labels: Sequence[str], limits: int, reference: str
) -> alt.TopLevelMixin:
    lines = encoding.encode_lines("quantity", labels)
    y = alt.Y("ratio:Q").title(f"ratio to {reference}").scale(zero=False)
    base = encoding.data_layer("caps").encode(x=encoding.limit_axis(), y=y)
    series = base.encode(color=lines["color"])
    layers = [encoding.reference_line("caps", "y")]
    if has_bounds(table, "ratio"):
        layers.append(encoding.interval_layer(series, "y", "ratio_low", "ratio_high"))
    layers.append(series.mark_line().encode(strokeDash=lines["strokeDash"]))
    if limits <= _MAX_POINTS:
        layers.append(series.mark_point(style="mean"))
    if any(record["chosen"] for record in table.records):
        is_chosen = "datum.chosen == 1"
        labels_of = base.transform_filter(is_chosen).transform_calculate(label=encoding.WATTS)
        layers += [
            series.transform_filter(is_chosen).mark_point(style="choice"),
            *(
                labels_of.mark_text(style=style).encode(text=alt.Text("label:N"))
                for style in (["label_above", "halo"], "label_above")
            ),
        ]
    return alt.layer(*layers)


@dataclass(frozen=True)
class _Quantity:
    """Values and errors of single runs, a row for each point; ``field`` is its name in records."""

    label: str
    field: str
    unit: DisplayUnit
    values: Array
    errors: Array


def chart_fits(data: SweptData) -> Iterator[Chart]:
    """Single runs by power limit, with a quadratic fit where there is one."""
    along = data.main_slice
    if data.table is None or along is None:
        return
    quantities = _quantities(data.table, data.result.boundary)
    for fit in data.result.fits:
        quantity = quantities[fit.quantity]
        if fit.where == along.where and not np.isnan(quantity.values).all():
            yield _chart_fit(quantity, fit, along)


def _quantities(table: TrialTable, boundary: str) -> dict[str, _Quantity]:
    time_s, energy_j = table.time_s, table.energy_j[boundary]
    error_j = table.error_j[boundary]
    longest_s, most_j = (
        float(np.nanmax(values)) if np.isfinite(values).any() else 0.0
        for values in (time_s, energy_j)
    )
    edp = encoding.edp_unit(longest_s * most_j)
    return {
        "energy": _Quantity("energy", "energy_j", encoding.energy_unit(most_j), energy_j, error_j),
        "time": _Quantity(
            "time", "time_s", encoding.time_unit(longest_s), time_s, np.zeros_like(time_s)
        ),
        "edp": _Quantity("EDP", "edp_j_s", edp, energy_j * time_s, error_j * time_s),
    }


def _chart_fit(quantity: _Quantity, fit: ParabolaFit, along: AxisSlice) -> Chart:
    has_fit = not fit.problem
    tables = {"means": _mean_table(quantity, along), "runs": _run_table(quantity, along)}
    if has_fit:
        tables["parabola"] = _fit_table(quantity, fit, along)
    return Chart(
        key=_key(fit.quantity, "by-limit", along),
        title=_fit_title(quantity, fit) + title_suffix(along.where),
        description=(
            f"{capitalised(quantity.label)} of every run by power limit (small points), and the "
            f"mean at each limit with its 95 % interval (large points). {_fit_text(fit)}"
        ),
        tables=tables,
        drawing=partial(_draw_fit, quantity.label, quantity.field, quantity.unit, has_fit=has_fit),
    )


def _fit_title(quantity: _Quantity, fit: ParabolaFit) -> str:
    """How good the fit is, and where its minimum lies, or why there is none."""
    if fit.problem.startswith("no limit binds"):
        return f"No power limit is reached: differences in {quantity.label} are noise"
    if fit.problem or fit.r2 is None:
        return f"No quadratic fit of {quantity.label}: {fit.problem}"
    title = f"Quadratic fit of {quantity.label}"
    if fit.minimum_w is not None and fit.quantity != "time":  # time only falls with the limit
        title += f": minimum at {fit.minimum_w:.0f} W"
    # To three digits, a fit that is not perfect must not be shown as one.
    return f"{title} (R² {'> 0.999' if 0.9995 <= fit.r2 < 1 else f'= {fit.r2:.3f}'})"


def _fit_text(fit: ParabolaFit) -> str:
    text = f"No quadratic fit: {fit.problem}" if fit.problem else "Quadratic fit to the single runs"
    quality = [fit_quality(fit)]
    if not fit.problem and fit.adjusted_r2 is not None:
        quality += [f"adjusted R² {fit.adjusted_r2:.4f}", f"{fit.dof} degrees of freedom"]
    return f"{text} ({', '.join(quality)})." if quality[0] else f"{text}."


def _mean_table(quantity: _Quantity, along: AxisSlice) -> Table:
    rows = list(along.rows)
    averages, unit = means(quantity.values[rows], quantity.errors[rows]), quantity.unit
    records = (
        {POWER_LIMIT: limit_w, "runs": int(averages.n[row]), quantity.field: interval}
        for row, limit_w in enumerate(along.values)
        if (interval := averages.interval(row))
    )

    def format_mean(interval: Interval) -> str:
        if interval.low is None or interval.high is None:
            return unit.format(interval.mean)
        low, mean, high = map(unit.format, (interval.low, interval.mean, interval.high))
        return f"{mean} ({low} to {high})"

    return record_table(
        f"Mean {quantity.label} at each limit, with its 95 % interval",
        f"{POWER_LIMIT} runs {quantity.field}",
        records,
        titles={quantity.field: Column(quantity.label, unit.name)},
        **{POWER_LIMIT: "{:g}".format, quantity.field: format_mean},
    )


def _run_table(quantity: _Quantity, along: AxisSlice) -> Table:
    pairs = [
        (limit_w, value)
        for row, limit_w in zip(along.rows, along.values, strict=True)
        for value in quantity.values[row].tolist()
        if not np.isnan(value)
    ]
    return _pair_table(f"{capitalised(quantity.label)} of every run", quantity, pairs)


def _fit_table(quantity: _Quantity, fit: ParabolaFit, along: AxisSlice) -> Table:
    """From the lowest limit that has runs to the highest, without extrapolation."""
    tried = [
        limit_w
        for row, limit_w in zip(along.rows, along.values, strict=True)
        if not np.isnan(quantity.values[row]).all()
    ]
    limits_w = np.linspace(tried[0], tried[-1], _FIT_POINTS)
    values = np.polyval(fit.coefficients or (), limits_w)
    pairs = list(zip(limits_w.tolist(), values.tolist(), strict=True))
    return _pair_table(f"Quadratic fit of {quantity.label}", quantity, pairs)


def _pair_table(title: str, quantity: _Quantity, pairs: Sequence[tuple[float, float]]) -> Table:
    return record_table(
        title,
        f"{POWER_LIMIT} {quantity.field}",
        ({POWER_LIMIT: limit_w, quantity.field: value} for limit_w, value in pairs),
        titles={quantity.field: Column(quantity.label, quantity.unit.name)},
        **{POWER_LIMIT: "{:g}".format, quantity.field: quantity.unit.format},
    )


def _draw_fit(label: str, field: str, unit: DisplayUnit, *, has_fit: bool) -> alt.TopLevelMixin:
    y = alt.Y("shown:Q").title(f"{label} ({unit.name})").scale(zero=False)
    runs, mean_points, fit = (
        encoding.data_layer(name, shown=unit.expression(field)).encode(x=encoding.limit_axis(), y=y)
        for name in ("runs", "means", "parabola")
    )
    bars = mean_points.transform_calculate(
        low=unit.expression(f"{field}_low"), high=unit.expression(f"{field}_high")
    )
    return alt.layer(
        *([fit.mark_line(style="fit")] if has_fit else []),
        runs.mark_point(style="run"),
        encoding.interval_layer(bars, "y", "low", "high"),
        mean_points.mark_point(style="mean"),
    )
