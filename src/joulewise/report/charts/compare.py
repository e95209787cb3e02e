"""Figures of a comparison: ratios with their intervals, power over time, epochs, and curves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from joulewise.analyse.curves.series import whole_stages
from joulewise.compare.judgement import CompareOutcome
from joulewise.compare.quantities import ENERGY, TIME
from joulewise.compare.runs import Comparison, Side
from joulewise.compare.sweeps import SettingComparison, SweepComparison
from joulewise.data.sweeps import POWER_LIMIT
from joulewise.formatting import joules, one_line, seconds
from joulewise.metrics.result import Interval
from joulewise.report.charts import encoding
from joulewise.report.charts.chart import Chart, alt, with_provenance
from joulewise.report.charts.encoding import DisplayUnit
from joulewise.report.charts.records import Record, record_table
from joulewise.report.charts.run import read_curves, skipped_text
from joulewise.report.charts.run.average import DEVIATION_BAND, average_power, power_records
from joulewise.report.settings_text import value_words
from joulewise.report.tables import Column
from joulewise.report.views.compare_tables import provenance, quantities_table
from joulewise.report.views.sweep_tables import bounds

_SIDES: Final = ("A", "B")
_WITH_UNITS: Final = {"energy_j": Column("energy"), "time_s": Column("time")}  # in every cell
# Vega expression of a tick, as in the tables: a change in percent, or a factor where the percentage
# would be in hundreds.
_CHANGE: Final = (
    "datum.value >= 2 || datum.value <= 0.1 ? format(datum.value, '.2~r') + ' times'"
    " : datum.value == 1 ? '0 %' : format(100 * (datum.value - 1), '+.3~r') + ' %'"
)
# Ticks of the ratio axis, chosen for a figure of 600 px so that their labels do not overlap.
_TICKS: Final = 7
_PERCENT_STEPS: Final = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)
_FACTORS_FROM: Final = 4.0  # an axis that spans this factor or more has factors as its ticks
_FEW_DECADES: Final = 4  # up to so many decades there are ticks at 2 and 5 as well
_MARGIN: Final = 0.04  # of the axis on both sides, so that no interval ends at the edge
_QUANTITY_PX, _SMALLEST_PX = 28, 80  # height in pixels of each quantity, and of the whole at least


def chart_comparison(comparison: Comparison) -> list[Chart]:
    """Figures of two groups of runs, each only where the runs have data for it."""
    charts = [*_chart_ratios(comparison), *_chart_power(comparison), *_chart_epochs(comparison)]
    return with_provenance(charts, provenance(comparison))


def chart_sweep_comparison(comparison: SweepComparison) -> list[Chart]:
    """Figures of two sweeps."""
    return with_provenance(_chart_curves(comparison), provenance(comparison))


def _chart_ratios(comparison: Comparison) -> Iterator[Chart]:
    table = quantities_table(comparison)
    compared = [record for record in table.records if record["ratio"] is not None]
    if not compared:
        return
    verdicts = {record["verdict"] for record in compared}
    yield Chart(
        key="compared",
        title="Change from A to B",
        description=(
            "Each quantity of B relative to that of A, with its 95 % interval, on a logarithmic "
            "axis: half as much is as far from no change as twice as much. Left of the line "
            "B takes less; an interval that crosses the line is within noise."
        ),
        tables={"compared": table},
        drawing=partial(
            _draw_ratios,
            [str(record["quantity"]) for record in compared],
            [outcome.value for outcome in CompareOutcome if outcome.value in verdicts],
            _ratio_range(compared),
        ),
    )


def _draw_ratios(
    quantities: Sequence[str], verdicts: Sequence[str], ends: tuple[float, float]
) -> alt.TopLevelMixin:
    base = (
        encoding.data_layer("compared")
        .transform_filter("isValid(datum.ratio)")
        .encode(y=alt.Y("quantity:N").title(None).sort(list(quantities)))
    )
    scale = alt.Scale(type="log", nice=False, domain=list(_widen(*ends)))
    axis = alt.Axis(values=_ratio_ticks(*ends), labelExpr=_CHANGE)
    x, low = (
        alt.X(f"{field}:Q", scale=scale, axis=axis).title("B relative to A")
        for field in ("ratio", "ratio_low")
    )
    layers = (
        encoding.reference_line("compared", "x"),
        base.transform_filter("isValid(datum.ratio_low)")
        .mark_rule(style="interval")
        .encode(x=low, x2="ratio_high:Q"),
        base.mark_point(style="mean").encode(x=x, **encoding.encode_points("verdict", verdicts)),
    )
    return alt.layer(*layers, height=max(_SMALLEST_PX, _QUANTITY_PX * len(quantities)))


def _ratio_range(records: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """The least and the most that is drawn; 1 (no change) is always inside."""
    names = ("ratio", "ratio_low", "ratio_high")
    drawn = [
        float(record[name]) for record in records for name in names if record[name] is not None
    ]
    return min(1.0, *drawn), max(1.0, *drawn)


def _widen(low: float, high: float) -> tuple[float, float]:
    factor = (high / low) ** _MARGIN if high > low else 1.01
    return low / factor, high * factor


def _ratio_ticks(low: float, high: float) -> list[float]:
    """Round changes in percent, or round factors where the axis spans many of them."""
    if high / low > _FACTORS_FROM:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        steps = (1, 2, 5) if len(decades) <= _FEW_DECADES else (1,)
        ticks = [step * 10.0**decade for decade in decades for step in steps]
    else:
        wanted = (high - low) * 100 / _TICKS
        step = next((step for step in _PERCENT_STEPS if step >= wanted), _PERCENT_STEPS[-1])
        first, last = (math.floor((end - 1) * 100 / step) for end in (low, high))
        ticks = [1 + step * number / 100 for number in range(first, last + 2)]
    least, most = _widen(low, high)
    return [tick for tick in ticks if least <= tick <= most]


def _chart_power(comparison: Comparison) -> Iterator[Chart]:
    """Each side as the average of its runs, where all have one trace that can be read."""
    sides = dict(zip(_SIDES, (comparison.a, comparison.b), strict=True))
    if not all(len(run.paths) == 1 for side in sides.values() for run in side.runs):
        return  # a group on several nodes has several traces
    records: list[Record] = []
    skipped = []
    for letter, side in sides.items():
        curves, unread = read_curves(
            [run.paths[0] for run in side.runs], [run.result for run in side.runs]
        )
        skipped += unread  # their energy is compared all the same
        average = average_power(curves)
        if average is None:
            return
        records += [{"side": letter, **record} for record in power_records(average)]
    longest_s = max(float(record["t_s"] or 0.0) for record in records)
    yield Chart(
        key="power-compared",
        title="Power over time of A and B",
        description=(
            "Power of all counted devices; of several runs the mean. "
            + DEVIATION_BAND
            + (f" Left out: {skipped_text(skipped)}." if skipped else "")
        ),
        tables={
            "power": record_table(
                "Power over time of A and B", "side t_s mean_w sigma_w runs", records
            )
        },
        drawing=partial(_draw_power, encoding.time_unit(longest_s)),
    )


def _draw_power(unit: DisplayUnit) -> alt.TopLevelMixin:
    base = encoding.time_layer("power", unit).encode(x=encoding.time_axis(unit))
    low, mean = (alt.Y(f"{field}:Q").title("power (W)") for field in ("low_w", "mean_w"))
    layered: alt.TopLevelMixin = encoding.layer_with_fill(
        base.mark_area(style="band").encode(
            y=low, y2="high_w:Q", fill=encoding.encode_fill("side", _SIDES)
        ),
        base.mark_line().encode(y=mean, **encoding.encode_lines("side", _SIDES)),
    )
    return layered


def _chart_epochs(comparison: Comparison) -> Iterator[Chart]:
    records = [*_epoch_records("A", comparison.a), *_epoch_records("B", comparison.b)]
    if {record["side"] for record in records} != set(_SIDES):
        return
    yield Chart(
        key="epochs-compared",
        title="Energy and time per epoch of A and B",
        description=(
            "Every epoch of every run is a point. A box spans the middle half of them with a line "
            "at the median; whiskers reach to the farthest point within 1.5 times its height."
        ),
        tables={
            "epochs": record_table(
                "Epochs of A and B",
                "side run epoch energy_j time_s",
                records,
                titles=_WITH_UNITS,
                run=one_line,
                energy_j=joules,
                time_s=seconds,
            )
        },
        drawing=partial(_draw_epochs, encoding.display_units(records)),
    )


def _epoch_records(letter: str, side: Side) -> Iterator[dict[str, Any]]:
    for run in side.runs:
        for epoch in whole_stages(run.result):
            yield {
                "side": letter,
                "run": run.id,
                "epoch": epoch.number,
                "energy_j": epoch.energy.value,
                "time_s": epoch.time_s,
            }


def _draw_epochs(units: Mapping[str, DisplayUnit]) -> alt.TopLevelMixin:
    panels = []
    for field, unit in units.items():
        title = f"{encoding.QUANTITIES[field]} per epoch ({unit.name})"
        base = encoding.data_layer("epochs", value=unit.expression(field)).encode(
            x=alt.X("side:N").title(None).axis(labelAngle=0),
            y=alt.Y("value:Q").title(title).scale(zero=False),
            color=alt.Color("side:N").scale(domain=list(_SIDES)).legend(None),
        )
        panels.append(
            alt.layer(base.mark_boxplot(outliers=False), base.mark_point(style="run", xOffset=30))
        )
    return alt.hconcat(*panels)


def _chart_curves(comparison: SweepComparison) -> Iterator[Chart]:
    """Against the power limit, where both sweeps vary it."""
    settings = [
        compared
        for compared in comparison.settings
        if isinstance(compared.setting.get(POWER_LIMIT), float | int)
    ]
    if len({compared.setting.get(POWER_LIMIT) for compared in settings}) < 2:
        return
    records = [record for compared in settings for record in _curve_records(compared)]
    series = list(dict.fromkeys(str(record["series"]) for record in records))
    yield Chart(
        key="curves-compared",
        title="Energy and time of A and B by power limit",
        description=(
            "Means over the runs of each setting that both sweeps have, with their 95 % intervals, "
            "which include the calibration error of the board's sensor."
        ),
        tables={
            "curves": record_table(
                "Energy and time of both sweeps",
                "series power_limit_w energy_j time_s",
                records,
                titles=_WITH_UNITS,
                power_limit_w="{:g}".format,
                energy_j=joules,
                time_s=seconds,
            )
        },
        drawing=partial(_draw_curves, series, encoding.display_units(records)),
    )


def _curve_records(compared: SettingComparison) -> Iterator[dict[str, Any]]:
    others = [value_words(*item) for item in compared.setting.values if item[0] != POWER_LIMIT]
    for side, letter in enumerate(_SIDES):
        record: dict[str, Any] = {
            "series": ", ".join((letter, *others)),
            **compared.setting.as_json(),
        }
        for name, field in ((ENERGY, "energy_j"), (TIME, "time_s")):
            quantity = compared.get(name)
            interval: Interval | None = (quantity.a, quantity.b)[side] if quantity else None
            record |= bounds(field, interval)
        yield record


def _draw_curves(series: Sequence[str], units: Mapping[str, DisplayUnit]) -> alt.TopLevelMixin:
    panels = []
    for field, unit in units.items():
        base = encoding.data_layer(
            "curves",
            value=unit.expression(field),
            low=unit.expression(f"{field}_low"),
            high=unit.expression(f"{field}_high"),
        ).encode(x=encoding.limit_axis())
        lines = encoding.encode_lines("series", series)
        y = alt.Y("value:Q").title(f"{encoding.QUANTITIES[field]} ({unit.name})").scale(zero=False)
        panels.append(
            alt.layer(
                base.mark_line().encode(y=y, **lines),
                encoding.interval_layer(base, "y", "low", "high", color=lines["color"]),
                base.mark_point(style="mean").encode(y=y, color=lines["color"]),
            )
        )
    return alt.hconcat(*panels)
