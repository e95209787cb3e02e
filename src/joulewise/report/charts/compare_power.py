"""Power over time of both sides of a comparison, each as the average of its runs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from joulewise.metrics.compare_runs import Comparison, Side
from joulewise.report.charts.axes import Unit, time_unit
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.run_average import average_power, power_records
from joulewise.report.charts.run_charts import read_curves
from joulewise.report.charts.run_tables import Record, record_table
from joulewise.report.charts.run_time import time_axis, timed
from joulewise.report.charts.series import dashed
from joulewise.report.figures import one_line
from joulewise.report.tables import Column

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


def _draw(unit: Unit) -> alt.TopLevelMixin:
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
