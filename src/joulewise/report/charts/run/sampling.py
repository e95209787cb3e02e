"""How evenly a run was sampled: intervals between readings, and readings a second over time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.curves.run import RunCurves
from joulewise.analyse.curves.sampling import Sampling
from joulewise.formatting import seconds
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.run.time_axis import (
    Record,
    columns_as_records,
    record_table,
    time_axis,
    timed,
)
from joulewise.report.charts.theme import DisplayUnit, dashed, time_unit
from joulewise.report.tables import Column
from joulewise.units import NS_PER_S, digits

if TYPE_CHECKING:
    import altair as alt

_SUMMARY: Final = {
    "device": Column("device", right=False),
    "lane": Column("what", right=False),
    "rows": Column("readings"),
    "rate_hz": Column("rate", "Hz"),
    "sigma_hz": Column("std. dev.", "Hz"),
    "cv_pct": Column("CV", "%"),
    "effective_hz": Column("new values", "Hz"),
    "longest_s": Column("longest interval", "s"),
}
_INTERVALS: Final = {
    "interval_ms": Column("interval from", "ms"),
    "end_ms": Column("to", "ms"),
    "count": Column("readings"),
    "share_pct": Column("share", "%"),
}
_COURSE: Final = {
    "t_s": Column("time", "s"),
    "counted": Column("what", right=False),
    "rate_hz": Column("rate", "Hz"),
}
_ALL, _NEW = "readings", "new values"
_BESIDE: Final = 3


def sampling_charts(curves: RunCurves) -> Iterator[Chart]:
    """Figures of every lane, and a drawing of the first device's densest."""
    told = [
        (one.key, name, sampling)
        for one in (*curves.gpus, *(d for d in curves.devices if d not in curves.gpus))
        for name, sampling in one.sampling.items()
    ]
    if not told:
        return
    key, name, drawn = max((one for one in told if one[0] == told[0][0]), key=lambda o: o[2].rows)
    yield Chart(
        key="sampling",
        title=(
            f"{key} was read {digits(drawn.rate_hz)} times a second, "
            f"{digits(drawn.effective_hz)} of them new"
        ),
        description=(
            f"Left, the time between two of the {name} of {key}: {seconds(1 / drawn.rate_hz)} on "
            f"average, with a coefficient of variation of {100 * drawn.cv:.2g} %. The longest was "
            f"{seconds(drawn.longest_s)}. Right, readings a second over time, and how many of "
            "them were new values: a sensor that is asked more often than it updates repeats "
            "itself."
        ),
        tables={
            "summary": record_table(
                "How often each device was read", _SUMMARY, [_summary(*one) for one in told]
            ),
            "intervals": record_table("Time between readings", _INTERVALS, _intervals(drawn)),
            "course": record_table("Readings a second", _COURSE, _course(curves, drawn)),
        },
        drawing=partial(_draw, time_unit(curves.result.time_s)),
    )


def _summary(key: str, name: str, sampling: Sampling) -> Record:
    return {
        "device": key,
        "lane": name,
        "rows": sampling.rows,
        "rate_hz": sampling.rate_hz,
        "sigma_hz": sampling.sigma_hz,
        "cv_pct": 100 * sampling.cv,
        "effective_hz": sampling.effective_hz,
        "longest_s": sampling.longest_s,
    }


def _intervals(sampling: Sampling) -> list[Record]:
    """From the first that occurs to the last, and some beside them to show how narrow that is."""
    edges_ms = 1e3 * sampling.interval_edges_s
    there = np.flatnonzero(sampling.histogram)
    first, last = (int(there[0]), int(there[-1])) if len(there) else (0, 0)
    near = slice(max(first - _BESIDE, 0), last + _BESIDE + 1)
    counts = sampling.histogram[near]
    ends_ms = edges_ms[near.start + 1 : near.start + 1 + len(counts)]
    return columns_as_records(
        {
            "interval_ms": edges_ms[near.start : near.start + len(counts)],
            "end_ms": ends_ms,
            "count": counts,
            "share_pct": 100 * counts / (sampling.histogram.sum() + sampling.longer),
        }
    )


def _course(curves: RunCurves, sampling: Sampling) -> list[Record]:
    middles_ns = sampling.edges_ns[:-1] + np.diff(sampling.edges_ns) / 2
    t_s = (middles_ns - curves.stretch.start_ns) / NS_PER_S
    return [
        *columns_as_records({"t_s": t_s, "rate_hz": sampling.course_hz}, counted=_ALL),
        *columns_as_records({"t_s": t_s, "rate_hz": sampling.course_effective_hz}, counted=_NEW),
    ]


def _draw(unit: DisplayUnit) -> alt.TopLevelMixin:
    import altair as alt

    histogram = (
        alt.Chart(alt.NamedData("intervals"))
        .mark_bar(orient="vertical")
        .encode(
            x=alt.X("interval_ms:Q")
            .title("time between readings (ms)")
            .axis(tickCount=5)
            .scale(zero=False),
            x2="end_ms:Q",
            y=alt.Y("share_pct:Q").title("share of the readings (%)"),
        )
        .properties(height=220)
    )
    course = (
        timed(alt.Chart(alt.NamedData("course")), unit)
        .mark_line()
        .encode(
            x=time_axis(unit),
            y=alt.Y("rate_hz:Q").title("readings a second (Hz)"),
            **dashed("counted", [_ALL, _NEW]),
        )
        .properties(height=220)
    )
    return alt.hconcat(histogram, course)
