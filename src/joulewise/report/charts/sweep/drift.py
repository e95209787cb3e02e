"""The runs of the reference in the course of a sweep: nothing but time lies between them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.formatting import seconds
from joulewise.metrics.result import SweepCaution
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.sweep.source import Swept
from joulewise.report.charts.theme import DisplayUnit, shaped, time_unit
from joulewise.report.settings_text import setting_words
from joulewise.report.tables import Column, Table
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    import altair as alt

_LEAST: Final = 3
_NAMES: Final = ("energy", "time")


NO_DRIFT: Final = (
    "There is no figure of drift: runs in virtual time do not depend on when they were made."
)
"""What stands in place of the figure for a sweep that was simulated in virtual time."""


def drift_charts(seen: Swept) -> Iterator[Chart]:
    if seen.sweep.is_virtual:
        return
    table = _table(seen)
    if table is None:
        return
    found = next((it for it in seen.result.cautions if it.code is SweepCaution.DRIFT), None)
    reference = setting_words(seen.result.reference.setting)
    title = found.message if found else f"The reference, {reference}, stayed the same within noise"
    most_s = max(float(record["start_s"] or 0) for record in table.records)
    yield Chart(
        key="drift",
        title=title[0].upper() + title[1:],
        description=(
            f"Energy and time of each run of the reference, {reference}, over their means, by when "
            "it started. A slope is warmth, other load, or a changing machine."
        ),
        tables={"drift": table},
        drawing=partial(_draw, time_unit(most_s)),
    )


def _table(seen: Swept) -> Table | None:
    if seen.table is None:
        return None
    row = seen.table.reference
    start_ns = seen.table.start_ns[row]
    energy_j, time_s = seen.table.energy_j[seen.result.boundary][row], seen.table.time_s[row]
    there = np.flatnonzero(~np.isnan(time_s) & (start_ns > 0))
    if len(there) < _LEAST:
        return None
    there = there[np.argsort(start_ns[there])]
    start_s = (start_ns[there] - start_ns[there[0]]) / NS_PER_S
    courses = {"energy": energy_j[there], "time": time_s[there]}
    means = {name: float(np.nanmean(it)) for name, it in courses.items() if not np.isnan(it).all()}
    records: tuple[dict[str, float | str | None], ...] = tuple(
        {"start_s": float(at_s), "quantity": name, "ratio": float(value / means[name])}
        for name in means
        for at_s, value in zip(start_s, courses[name], strict=True)
        if not np.isnan(value)
    )
    return Table(
        "The runs of the reference",
        (Column("started after"), *(Column(f"{name} vs mean") for name in means)),
        tuple(
            (
                seconds(float(at_s)),
                *(_percent(courses[name][at] / means[name]) for name in means),
            )
            for at, at_s in enumerate(start_s)
        ),
        records,
    )


def _percent(ratio: float) -> str | None:
    return None if np.isnan(ratio) else f"{100 * (ratio - 1):+.2f} %"


def _draw(unit: DisplayUnit) -> alt.TopLevelMixin:
    import altair as alt

    data = alt.NamedData("drift")
    base = (
        alt.Chart(data, height=180)
        .transform_calculate(started=unit.expression("start_s"))
        .encode(
            x=alt.X("started:Q").title(f"started after ({unit.name})").axis(tickCount=8),
            y=alt.Y("ratio:Q").title("ratio to the mean").scale(zero=False).axis(format=".3f"),
        )
    )
    told = shaped("quantity", _NAMES)
    return alt.layer(
        alt.Chart(data).mark_rule(style="reference").encode(y=alt.YDatum(1)),
        base.mark_line(style="thin").encode(color=told["color"]),
        base.mark_point(style="mean").encode(**told),
    )
