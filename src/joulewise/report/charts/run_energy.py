"""How a run's energy grew, with its error."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.curves.run import RunCurves
from joulewise.report.charts.axes import Unit, energy_unit, time_unit
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.run_tables import Record, columns_as_records, known, record_table
from joulewise.report.charts.run_time import time_axis, timed
from joulewise.report.figures import energy, seconds
from joulewise.report.tables import Column

if TYPE_CHECKING:
    import altair as alt

    from joulewise.analyse.curves.cumulative import Growth

_COLUMNS: Final = {
    "t_s": Column("time", "s"),
    "energy_j": Column("energy so far", "J"),
    "error_j": Column("error (95 %)", "J"),
}
_ROWS: Final = 10


def energy_charts(curves: RunCurves) -> Iterator[Chart]:
    growth, total = curves.growth, curves.result.run.total
    if growth is None or total is None or len(growth.t_s) < 3:
        return
    records = known(_records(growth), "energy_j")
    step = max(len(records) // _ROWS, 1)
    tenths = records[::-step][::-1]
    yield Chart(
        key="energy",
        title=f"The run takes {energy(total)} in {seconds(curves.result.time_s)}",
        description=(
            "Energy of all devices that count, from the start up to each moment. The band is its "
            "error (95 %), most of which is one unknown factor of the board: it does not change "
            "from moment to moment, and cancels where runs on one board are compared."
        ),
        tables={
            "tenths": record_table("Energy so far", _COLUMNS, tenths),
            "growth": record_table("Energy so far, every moment drawn", _COLUMNS, records),
        },
        drawing=partial(
            draw_growth, "growth", energy_unit(total.value), time_unit(curves.result.time_s)
        ),
    )


def draw_growth(data: str, joules: Unit, unit: Unit) -> alt.TopLevelMixin:
    """``energy_j`` as a line, in a band from ``low_j`` to ``high_j``."""
    import altair as alt

    title = f"energy so far ({joules.name})"
    base = timed(alt.Chart(alt.NamedData(data)), unit).transform_calculate(
        energy=joules.expression("energy_j"),
        low=joules.expression("low_j"),
        high=joules.expression("high_j"),
    )
    x = time_axis(unit)
    return alt.layer(
        base.mark_area(style="band").encode(x=x, y=alt.Y("low:Q").title(title), y2="high:Q"),
        base.mark_line().encode(x=x, y=alt.Y("energy:Q").title(title)),
    )


def _records(growth: Growth) -> list[Record]:
    return columns_as_records(
        {
            "t_s": growth.t_s,
            "energy_j": growth.energy_j,
            "error_j": growth.error_j,
            "low_j": np.maximum(growth.energy_j - growth.error_j, 0.0),
            "high_j": growth.energy_j + growth.error_j,
        }
    )
