"""The figures of a comparison: ratios with their intervals, epochs side by side, both curves.

Power over time of both sides of a comparison, each as the average of its runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from joulewise.analyse.curves.series import whole_stages
from joulewise.compare.judgement import CompareOutcome
from joulewise.compare.quantities import ENERGY, TIME
from joulewise.compare.runs import Comparison, Side
from joulewise.compare.sweeps import SettingCompared, SweepsCompared
from joulewise.data.sweeps import POWER_LIMIT
from joulewise.formatting import joules, one_line, seconds
from joulewise.metrics.result import Interval
from joulewise.report.charts.chart import Chart, with_provenance
from joulewise.report.charts.run import read_curves
from joulewise.report.charts.run.average import average_power, power_records
from joulewise.report.charts.run.time_axis import Record, record_table, time_axis, timed
from joulewise.report.charts.theme import (
    DisplayUnit,
    dashed,
    energy_unit,
    limit_axis,
    shaped,
    time_unit,
)
from joulewise.report.settings_text import value_words
from joulewise.report.tables import Column, Table
from joulewise.report.views.compare_tables import provenance, quantities_table
from joulewise.report.views.sweep_tables import bounds

if TYPE_CHECKING:
    import altair as alt

_COLUMNS: Final = {
    "side": Column("side", right=False),
    "t_s": Column("time", "s"),
    "mean_w": Column("mean power", "W"),
    "sigma_w": Column("std. dev.", "W"),
    "runs": Column("runs"),
}


def power_compared(found: Comparison) -> Iterator[Chart]:
    """Where both have a trace that can be read; a group on several nodes has no one trace."""
    sides = {"A": found.a, "B": found.b}
    if not all(len(run.paths) == 1 for side in sides.values() for run in side.runs):
        return
    told = {letter: _records(letter, side) for letter, side in sides.items()}
    if not all(records for records, _ in told.values()):
        return
    records = [record for each, _ in told.values() for record in each]
    unread = [line for _, lines in told.values() for line in lines]
    longest_s = max(float(record["t_s"] or 0.0) for record in records)
    yield Chart(
        key="power-compared",
        title="Power over time of both",
        description=(
            "Power of all devices that count, of several runs the mean, with a band of one "
            "standard deviation to either side. A run that has ended is no longer in the mean."
            + (f" Left out: {'; '.join(unread)}." if unread else "")
        ),
        tables={"power": record_table("Power over time of both", _COLUMNS, records)},
        drawing=partial(_draw, time_unit(longest_s)),
    )


def _records(letter: str, side: Side) -> tuple[list[Record], list[str]]:
    """And the runs whose trace is damaged, which are in the figures of energy all the same."""
    curves, skipped = read_curves(
        [run.paths[0] for run in side.runs], [run.result for run in side.runs]
    )
    average = average_power(curves)
    unread = [f"{one_line(one.path.name)} ({one_line(one.reason)})" for one in skipped]
    if average is None:
        return [], unread
    return [{"side": letter, **record} for record in power_records(average)], unread


def _draw(unit: DisplayUnit) -> alt.TopLevelMixin:
    import altair as alt

    base = timed(alt.Chart(alt.NamedData("power")), unit).encode(x=time_axis(unit))
    told = dashed("side", ("A", "B"))
    # A channel of its own: in the colour's legend, what is filled hides the strokes.
    band = alt.Fill("side:N").scale(domain=["A", "B"]).legend(None)
    title = "power (W)"
    drawn: Any = alt.layer(
        base.mark_area(style="band").encode(
            y=alt.Y("low_w:Q").title(title), y2="high_w:Q", fill=band
        ),
        base.mark_line().encode(y=alt.Y("mean_w:Q").title(title), **told),
    )
    apart: alt.TopLevelMixin = drawn.resolve_scale(fill="independent").resolve_legend(
        fill="independent"
    )
    return apart


if TYPE_CHECKING:
    import altair as alt

# As in the tables: a change in percent, and times where a percentage would be in hundreds.
_CHANGE: Final = (
    "datum.value >= 2 || datum.value <= 0.1 ? format(datum.value, '.2~r') + ' times'"
    " : datum.value == 1 ? '0 %' : format(100 * (datum.value - 1), '+.3~r') + ' %'"
)
# Chosen by eye for a figure of 600 px: ticks that do not run into each other.
_TICKS: Final = 7
_PERCENT_STEPS: Final = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)
_WIDE: Final = 4.0  # from so many times between the ends on, factors instead of percent
_FEW_DECADES: Final = 4
_ROOM: Final = 0.04
_FIELDS: Final = {ENERGY: "energy_j", TIME: "time_s"}


def runs_charts(found: Comparison) -> list[Chart]:
    """Each only where the runs have what it shows."""
    charts = [*_ratios(found), *power_compared(found), *_epochs(found)]
    return with_provenance(charts, provenance(found))


def sweeps_charts(found: SweepsCompared) -> list[Chart]:
    return with_provenance(_curves(found), provenance(found))


def _ratios(found: Comparison) -> Iterator[Chart]:
    table = quantities_table(found)
    compared = [it for it in table.records if it["ratio"] is not None]
    if compared:
        yield Chart(
            key="compared",
            title="What B takes more or less than A",
            description=(
                "Each quantity of B against that of A, with its 95 % interval, on a logarithmic "
                "axis: half as much lies as far from no change as twice as much. Left of the line "
                "B takes less; an interval that crosses it is within noise."
            ),
            tables={"compared": table},
            drawing=partial(
                _draw_ratios,
                [str(it["quantity"]) for it in compared],
                [
                    it.value
                    for it in CompareOutcome
                    if it.value in {each["verdict"] for each in compared}
                ],
                _ratio_bounds(compared),
            ),
        )


def _draw_ratios(
    quantities: Sequence[str], verdicts: Sequence[str], bounds_: tuple[float, float]
) -> alt.TopLevelMixin:
    import altair as alt

    base = (
        alt.Chart(alt.NamedData("compared"))
        .transform_filter("isValid(datum.ratio)")
        .encode(y=alt.Y("quantity:N").title(None).sort(list(quantities)))
    )
    scale = alt.Scale(type="log", nice=False, domain=list(_padded(*bounds_)))
    axis = alt.Axis(values=_ratio_ticks(*bounds_), labelExpr=_CHANGE)
    x, low = (
        alt.X(f"{field}:Q", scale=scale, axis=axis).title("B against A")
        for field in ("ratio", "ratio_low")
    )
    zero = alt.Chart(alt.NamedData("compared")).mark_rule(style="reference")
    layers = (
        zero.encode(x=alt.datum(1)),
        base.transform_filter("isValid(datum.ratio_low)")
        .mark_rule(style="interval")
        .encode(x=low, x2="ratio_high:Q"),
        base.mark_point(style="mean").encode(x=x, **shaped("verdict", verdicts)),
    )
    return alt.layer(*layers, height=max(80, 28 * len(quantities)))


def _ratio_bounds(records: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """The least and the most that is drawn, and no change."""
    drawn = [
        float(it[name])
        for it in records
        for name in ("ratio", "ratio_low", "ratio_high")
        if it[name] is not None
    ]
    return min(1.0, *drawn), max(1.0, *drawn)


def _padded(low: float, high: float) -> tuple[float, float]:
    """With a little room on both sides, so that no end of an interval lies on the edge."""
    room = (high / low) ** _ROOM if high > low else 1.01
    return low / room, high * room


def _ratio_ticks(low: float, high: float) -> list[float]:
    """Round changes in percent, or round factors where the axis reaches over many of them."""
    if high / low > _WIDE:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        steps = (1, 2, 5) if len(decades) <= _FEW_DECADES else (1,)
        ticks = [step * 10.0**decade for decade in decades for step in steps]
    else:
        wanted = (high - low) * 100 / _TICKS
        step = next((it for it in _PERCENT_STEPS if it >= wanted), _PERCENT_STEPS[-1])
        first, last = (math.floor((it - 1) * 100 / step) for it in (low, high))
        ticks = [1 + step * number / 100 for number in range(first, last + 2)]
    least, most = _padded(low, high)
    return [tick for tick in ticks if least <= tick <= most]


def _epochs(found: Comparison) -> Iterator[Chart]:
    records = [*_epoch_records("A", found.a), *_epoch_records("B", found.b)]
    if {it["side"] for it in records} != {"A", "B"}:
        return
    most_j = max(float(it["energy_j"] or 0.0) for it in records)
    most_s = max(float(it["time_s"] or 0.0) for it in records)
    units = {"energy": energy_unit(most_j), "time": time_unit(most_s)}
    yield Chart(
        key="epochs-compared",
        title="Energy and time of the epochs of both",
        description=(
            "Every epoch of every run is a point. The box holds the middle half of them, its line "
            "is the median; whiskers reach to the farthest within one and a half of its heights."
        ),
        tables={"epochs": _epochs_table(records)},
        drawing=partial(_draw_epochs, units),
    )


def _epoch_records(letter: str, side: Side) -> Iterator[dict[str, Any]]:
    for run in side.runs:
        for it in whole_stages(run.result):
            yield {
                "side": letter,
                "run": run.id,
                "epoch": it.number,
                "energy_j": it.energy.value,
                "time_s": it.time_s,
            }


def _epochs_table(records: Sequence[Mapping[str, Any]]) -> Table:
    return Table(
        "Epochs of both",
        (
            Column("side", right=False),
            Column("run", right=False),
            Column("epoch"),
            Column("energy"),
            Column("time"),
        ),
        tuple(
            (
                it["side"],
                one_line(it["run"]),
                str(it["epoch"]),
                joules(it["energy_j"]),
                seconds(it["time_s"]),
            )
            for it in records
        ),
        tuple(records),
    )


def _draw_epochs(units: Mapping[str, DisplayUnit]) -> alt.TopLevelMixin:
    import altair as alt

    parts = []
    for what, unit in units.items():
        base = (
            alt.Chart(alt.NamedData("epochs"))
            .transform_calculate(value=unit.expression(_FIELDS[what]))
            .encode(
                x=alt.X("side:N").title(None).axis(labelAngle=0),
                y=alt.Y("value:Q").title(f"{what} of an epoch ({unit.name})").scale(zero=False),
                color=alt.Color("side:N").scale(domain=["A", "B"]).legend(None),
            )
        )
        parts.append(
            alt.layer(base.mark_boxplot(outliers=False), base.mark_point(style="run", xOffset=30))
        )
    return alt.hconcat(*parts)


def _curves(found: SweepsCompared) -> Iterator[Chart]:
    """Against the limit, where it was one of the settings."""
    settings = [it for it in found.settings if isinstance(it.setting.get(POWER_LIMIT), float | int)]
    if len({it.setting.get(POWER_LIMIT) for it in settings}) < 2:
        return
    records = [record for it in settings for record in _curve_records(it)]
    series = list(dict.fromkeys(str(record["series"]) for record in records))
    units = {}
    for what, making in ((ENERGY, energy_unit), (TIME, time_unit)):
        known = [record[_FIELDS[what]] for record in records if record[_FIELDS[what]] is not None]
        if known:
            units[what] = making(max(known))
    yield Chart(
        key="curves-compared",
        title="Energy and time of both against the power limit",
        description=(
            "Means of the runs of each setting that both sweeps have, with their 95 % intervals, "
            "in which the gain of the board is."
        ),
        tables={"curves": _curves_table(records)},
        drawing=partial(_draw_curves, series, units),
    )


def _curve_records(it: SettingCompared) -> Iterator[dict[str, Any]]:
    others = [value_words(*each) for each in it.setting.values if each[0] != POWER_LIMIT]
    for at, letter in enumerate("AB"):
        found: dict[str, Interval | None] = {}
        for what in _FIELDS:
            compared = it.get(what)
            found[what] = (compared.a, compared.b)[at] if compared else None
        yield {
            "series": ", ".join((letter, *others)),
            **it.setting.as_json(),
            **{
                name: value
                for what, field in _FIELDS.items()
                for name, value in bounds(field, found[what]).items()
            },
        }


def _curves_table(records: Sequence[Mapping[str, Any]]) -> Table:
    return Table(
        "Energy and time of both sweeps",
        (Column("of", right=False), Column("limit", "W"), Column("energy"), Column("time")),
        tuple(
            (
                it["series"],
                f"{it[POWER_LIMIT]:g}",
                None if it["energy_j"] is None else joules(it["energy_j"]),
                None if it["time_s"] is None else seconds(it["time_s"]),
            )
            for it in records
        ),
        tuple(records),
    )


def _draw_curves(series: Sequence[str], units: Mapping[str, DisplayUnit]) -> alt.TopLevelMixin:
    import altair as alt

    parts = []
    for what, unit in units.items():
        field = _FIELDS[what]
        base = (
            alt.Chart(alt.NamedData("curves"))
            .transform_calculate(
                value=unit.expression(field),
                low=unit.expression(f"{field}_low"),
                high=unit.expression(f"{field}_high"),
            )
            .encode(x=limit_axis())
        )
        told = dashed("series", series)
        y = alt.Y("value:Q").title(f"{what} ({unit.name})").scale(zero=False)
        parts.append(
            alt.layer(
                base.mark_line().encode(y=y, **told),
                base.mark_rule(style="interval").encode(
                    y=alt.Y("low:Q"), y2="high:Q", color=told["color"]
                ),
                base.mark_point(style="mean").encode(y=y, color=told["color"]),
            )
        )
    return alt.hconcat(*parts)
