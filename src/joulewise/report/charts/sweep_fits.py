"""Energy, time and EDP against the power limit: runs, means, and a parabola where it fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.data.sweeps import POWER_LIMIT
from joulewise.metrics.ratios import means
from joulewise.metrics.result import Fit
from joulewise.metrics.slices import Slice
from joulewise.metrics.table import Table as Runs
from joulewise.report.charts.axes import Unit, energy_unit, limit_axis, product_unit, time_unit
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.sweep_source import Swept
from joulewise.report.charts.sweep_titles import at, place
from joulewise.report.sweep_tables import bounds
from joulewise.report.sweep_words import fit_worth
from joulewise.report.tables import Column, Table

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
    unit: Unit
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


def _chart(of: _Quantity, fit: Fit, along: Slice) -> Chart:
    where = place(along.where)
    drawn = not fit.problem
    tables = {"means": _means(of, along), "runs": _runs(of, along)}
    if drawn:
        tables["parabola"] = _parabola(of, fit, along)
    told = "a parabola is fitted to the single runs" if drawn else f"no parabola: {fit.problem}"
    told += f" ({worth})" if (worth := fit_worth(fit)) else ""
    return Chart(
        key="-".join(filter(None, (fit.quantity, "by-limit", where.replace(" ", "-")))),
        title=_title(of, fit) + at(along.where),
        description=(
            f"{of.label[0].upper()}{of.label[1:]} of every run against the power limit (small "
            f"points), the mean at each limit with its 95 % interval (large points); {told}."
        ),
        tables=tables,
        drawing=partial(_draw, of.label, of.field, of.unit, drawn=drawn),
    )


def _title(of: _Quantity, fit: Fit) -> str:
    """What the parabola is worth, or why there is none."""
    if fit.problem.startswith("no limit binds"):
        return f"The limit never binds: {of.label} at every limit differs by noise alone"
    if fit.problem or fit.r2 is None or fit.adjusted_r2 is None:
        return f"No parabola of {of.label} against the limit: {fit.problem}"
    worth = f"{fit_worth(fit)}, adjusted {fit.adjusted_r2:.4f}, {fit.dof} degrees of freedom"
    if fit.minimum_w is None or fit.quantity == "time":  # a limit that is raised slows nothing
        return f"A parabola of {of.label}: {worth}"
    return f"By a parabola {of.label} is least at {fit.minimum_w:.0f} W: {worth}"


def _means(of: _Quantity, along: Slice) -> Table:
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


def _runs(of: _Quantity, along: Slice) -> Table:
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


def _parabola(of: _Quantity, fit: Fit, along: Slice) -> Table:
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


def _draw(label: str, field: str, unit: Unit, *, drawn: bool) -> alt.TopLevelMixin:
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
