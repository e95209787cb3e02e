"""Drift: runs of the reference over the course of a sweep, which differ in nothing but time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np

from joulewise.formatting import capitalised, seconds
from joulewise.metrics.result import SweepWarningCode
from joulewise.report.charts import encoding
from joulewise.report.charts.chart import Chart, alt
from joulewise.report.charts.encoding import DisplayUnit
from joulewise.report.charts.sweep.source import SweptData
from joulewise.report.tables import Column, Table
from joulewise.units import NS_PER_S

_MIN_RUNS: Final = 3  # fewer show no trend
_HEIGHT_PX: Final = 180

NO_DRIFT: Final = (
    "There is no figure of drift: simulated runs do not change over the hours of a sweep."
)
"""What stands in place of the figure for a sweep in virtual time."""


def chart_drift(data: SweptData) -> Iterator[Chart]:
    """Energy and time of the reference's runs by when they started; not in virtual time."""
    if data.sweep.is_virtual:
        return
    table = _table(data)
    if table is None:
        return
    warning = next((it for it in data.result.warnings if it.code is SweepWarningCode.DRIFT), None)
    reference = f"The reference ({data.reference_text})"
    latest_s = max(float(record["start_s"] or 0) for record in table.records)
    yield Chart(
        key="drift",
        title=capitalised(warning.message)
        if warning
        else f"{reference} did not drift beyond noise",
        description=(
            f"Energy and time of each run of the reference ({data.reference_text}) relative to "
            "their means, by when it started. A slope indicates warming up, other load, or a "
            "change of the machine."
        ),
        tables={"drift": table},
        drawing=partial(_draw, encoding.time_unit(latest_s)),
    )


def _table(data: SweptData) -> Table | None:
    if data.table is None:
        return None
    row = data.table.reference
    start_ns = data.table.start_ns[row]
    energy_j, time_s = data.table.energy_j[data.result.boundary][row], data.table.time_s[row]
    known = np.flatnonzero(~np.isnan(time_s) & (start_ns > 0))
    if len(known) < _MIN_RUNS:
        return None
    known = known[np.argsort(start_ns[known])]
    start_s = (start_ns[known] - start_ns[known[0]]) / NS_PER_S
    ratios = {
        name: values / float(np.nanmean(values))
        for name, values in (("energy", energy_j[known]), ("time", time_s[known]))
        if not np.isnan(values).all()
    }
    return Table(
        "Runs of the reference",
        (Column("started after"), *(Column(f"{name} vs mean") for name in ratios)),
        tuple(
            (seconds(float(at_s)), *(_percent(values[index]) for values in ratios.values()))
            for index, at_s in enumerate(start_s)
        ),
        tuple(
            {"start_s": float(at_s), "quantity": name, "ratio": float(ratio)}
            for name, values in ratios.items()
            for at_s, ratio in zip(start_s, values, strict=True)
            if not np.isnan(ratio)
        ),
    )


def _percent(ratio: float) -> str | None:
    return None if np.isnan(ratio) else f"{100 * (ratio - 1):+.2f} %"


def _draw(unit: DisplayUnit) -> alt.TopLevelMixin:
    y = alt.Y("ratio:Q").title("ratio to the mean").scale(zero=False).axis(format=".3f")
    base = (
        encoding.data_layer("drift", started=unit.expression("start_s"))
        .properties(height=_HEIGHT_PX)
        .encode(x=alt.X("started:Q").title(f"started after ({unit.name})").axis(tickCount=8), y=y)
    )
    series = encoding.encode_points("quantity", ("energy", "time"))
    return alt.layer(
        encoding.reference_line("drift", "y"),
        base.mark_line(style="thin").encode(color=series["color"]),
        base.mark_point(style="mean").encode(**series),
    )
