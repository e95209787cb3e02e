"""How evenly a run was sampled: intervals between readings, and readings per second over time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import numpy as np

from joulewise.analyse.curves.run import RunCurves, Sampling
from joulewise.formatting import seconds
from joulewise.report.charts import encoding
from joulewise.report.charts.chart import Chart, alt
from joulewise.report.charts.encoding import DisplayUnit
from joulewise.report.charts.records import Record, record_table, to_records
from joulewise.units import NS_PER_S, digits

_ALL, _NEW = "readings", "new values"
# Empty bins of the histogram on each side, which show how narrow the distribution is (chosen).
_EMPTY_BINS: Final = 3
_PANEL_HEIGHT_PX: Final = 220


def chart_sampling(curves: RunCurves) -> Iterator[Chart]:
    """A table of every recorded stream, and a drawing of the first device's densest one."""
    devices = (*curves.gpus, *(other for other in curves.devices if other not in curves.gpus))
    streams = [
        (device.key, name, sampling)
        for device in devices
        for name, sampling in device.sampling.items()
    ]
    if not streams:
        return
    of_first = [stream for stream in streams if stream[0] == streams[0][0]]
    key, name, drawn = max(of_first, key=lambda stream: stream[2].rows)
    yield Chart(
        key="sampling",
        title=(
            f"{key} was read {digits(drawn.rate_hz)} times per second, "
            f"{digits(drawn.effective_hz)} of them with a new value"
        ),
        description=(
            f"Left: interval between readings ({name} of {key}), {seconds(1 / drawn.rate_hz)} on "
            f"average with a coefficient of variation of {100 * drawn.cv:.2g} % and a maximum of "
            f"{seconds(drawn.longest_s)}. Right: readings per second over time, and how many of "
            "them had a new value; a sensor that is read more often than it updates repeats its "
            "last value."
        ),
        tables={
            "summary": record_table(
                "Sampling rate of each device",
                "device lane rows rate_hz sigma_hz cv_pct effective_hz longest_s",
                [_summary(*stream) for stream in streams],
            ),
            "intervals": record_table(
                "Time between readings", "interval_ms end_ms count share_pct", _intervals(drawn)
            ),
            "course": record_table(
                "Readings per second", "t_s counted rate_hz", _rates(curves, drawn)
            ),
        },
        drawing=partial(_draw, encoding.time_unit(curves.result.time_s)),
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
    """The histogram from the first bin that is not empty to the last, and some around them."""
    edges_ms = 1e3 * sampling.interval_edges_s
    filled = np.flatnonzero(sampling.histogram)
    first, last = (int(filled[0]), int(filled[-1])) if len(filled) else (0, 0)
    start = max(first - _EMPTY_BINS, 0)
    counts = sampling.histogram[start : last + _EMPTY_BINS + 1]
    end = start + len(counts)
    return to_records(
        {
            "interval_ms": edges_ms[start:end],
            "end_ms": edges_ms[start + 1 : end + 1],
            "count": counts,
            "share_pct": 100 * counts / (sampling.histogram.sum() + sampling.longer),
        }
    )


def _rates(curves: RunCurves, sampling: Sampling) -> list[Record]:
    middles_ns = sampling.edges_ns[:-1] + np.diff(sampling.edges_ns) / 2
    t_s = (middles_ns - curves.interval.start_ns) / NS_PER_S
    return [
        *to_records({"t_s": t_s, "rate_hz": sampling.course_hz}, counted=_ALL),
        *to_records({"t_s": t_s, "rate_hz": sampling.course_effective_hz}, counted=_NEW),
    ]


def _draw(unit: DisplayUnit) -> alt.TopLevelMixin:
    x = alt.X("interval_ms:Q").title("time between readings (ms)")
    histogram = (
        encoding.data_layer("intervals")
        .mark_bar(orient="vertical")
        .encode(
            x=x.axis(tickCount=5).scale(zero=False),
            x2="end_ms:Q",
            y=alt.Y("share_pct:Q").title("share of the readings (%)"),
        )
    )
    rates = (
        encoding.time_layer("course", unit)
        .mark_line()
        .encode(
            x=encoding.time_axis(unit),
            y=alt.Y("rate_hz:Q").title("readings per second (Hz)"),
            **encoding.encode_lines("counted", [_ALL, _NEW]),
        )
    )
    panels = (panel.properties(height=_PANEL_HEIGHT_PX) for panel in (histogram, rates))
    # The legend is that of the right panel only.
    beside: alt.HConcatChart = alt.hconcat(*panels).resolve_scale(
        color="independent", strokeDash="independent"
    )
    return beside
