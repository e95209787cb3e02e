"""Power over time at each limit, averaged over repetitions, one panel above the other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.data.sweeps import POWER_LIMIT
from joulewise.metrics.slices import Slice
from joulewise.report.charts.axes import Unit, time_unit
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.run_tables import Record, known, record_table, thinned_records
from joulewise.report.charts.run_time import are_shaded, time_axis
from joulewise.report.charts.sweep_course import Course, course_of
from joulewise.report.charts.sweep_energy import energy_so_far_charts
from joulewise.report.charts.sweep_source import Swept, runs_at
from joulewise.report.charts.sweep_titles import at
from joulewise.report.sweep_words import counted
from joulewise.report.tables import Column

if TYPE_CHECKING:
    import altair as alt

_PANELS: Final = 5
_REPEATS: Final = 5  # of a limit's runs, the first
_PANEL_HEIGHT: Final = 74


def courses_charts(seen: Swept, store: Path | None) -> Iterator[Chart]:
    along = seen.main_slice
    if store is None or along is None:
        return
    courses = [
        course
        for limit_w in _shown(seen, along)
        if (course := course_of(limit_w, runs_at(seen, store, along, limit_w)[:_REPEATS]))
    ]
    if not courses:
        return
    panel_w = _panel_w(courses)
    longest_s = max(float(course.power.t_s[-1]) for course in courses)
    runs = max(course.runs for course in courses)
    unread = sum(course.unread for course in courses)
    left_out = f" {counted(unread, 'run')} of these cannot be read any more." if unread else ""
    shaded = [course for course in courses if are_shaded(len(course.epochs))]
    epochs = [record for course in shaded for record in _epochs(course)]
    bands = ", every other epoch is shaded" if epochs else ""
    yield Chart(
        key="power-over-time",
        title=_title(courses) + at(along.where),
        description=(
            f"Power of a GPU over time at {counted(len(courses), 'limit')}, from the lowest at "
            f"the top to the highest; the mean of {counted(runs, 'run')} at each, with a band "
            "from their lowest to their highest reading. The dotted line is the limit"
            f"{bands}.{left_out}"
        ),
        tables={
            "limits": record_table("Mean power at each limit", _LIMITS, map(_limit, courses)),
            "courses": record_table("Power over time", _COURSES, _records(courses)),
            "epochs": record_table("Epochs at each limit", _EPOCHS, epochs),
        },
        drawing=partial(
            _draw,
            [course.limit_w for course in courses],
            panel_w,
            time_unit(longest_s),
            shaded=bool(epochs),
        ),
    )
    yield from energy_so_far_charts(courses, along)


_LIMITS: Final = {
    POWER_LIMIT: Column("limit", "W"),
    "runs": Column("runs"),
    "mean_w": Column("mean power", "W"),
    "highest_w": Column("highest reading", "W"),
    "time_s": Column("time", "s"),
}
_COURSES: Final = {
    POWER_LIMIT: Column("limit", "W"),
    "t_s": Column("time", "s"),
    "mean_w": Column("mean power", "W"),
    "low_w": Column("lowest", "W"),
    "high_w": Column("highest", "W"),
}
_EPOCHS: Final = {
    POWER_LIMIT: Column("limit", "W"),
    "epoch": Column("epoch"),
    "start_s": Column("start", "s"),
    "end_s": Column("end", "s"),
}


def _shown(seen: Swept, along: Slice) -> list[float]:
    """The ends, what is chosen, and limits between them, as evenly as they come."""
    limits = list(along.values)
    if len(limits) <= _PANELS:
        return limits
    chosen = [choice.setting.get(POWER_LIMIT) for choice in seen.choices]
    wanted = [limits[0], limits[-1], *(it for it in chosen if it in limits)]
    evenly = [limits[round(step)] for step in np.linspace(0, len(limits) - 1, _PANELS)]
    return sorted(list(dict.fromkeys(float(it or 0) for it in (*wanted, *evenly)))[:_PANELS])


def _limit(course: Course) -> Record:
    return {
        POWER_LIMIT: course.limit_w,
        "runs": course.runs,
        "mean_w": course.mean_w,
        "highest_w": float(np.nanmax(course.high)),
        "time_s": float(course.power.t_s[-1]),
    }


def _records(courses: Sequence[Course]) -> list[Record]:
    records: list[Record] = []
    for course in courses:
        columns = {
            "t_s": course.power.t_s,
            "mean_w": course.power.mean,
            "low_w": course.low,
            "high_w": course.high,
        }
        records += known(thinned_records(columns, **{POWER_LIMIT: course.limit_w}), "mean_w")
    return records


def _epochs(course: Course) -> Iterator[Record]:
    for number, (start_s, end_s) in enumerate(course.epochs, start=1):
        yield {POWER_LIMIT: course.limit_w, "epoch": number, "start_s": start_s, "end_s": end_s}


def _title(courses: Sequence[Course]) -> str:
    lowest, highest = courses[0], courses[-1]
    if len(courses) == 1:
        return f"At {lowest.limit_w:g} W a GPU draws {lowest.mean_w:.0f} W on average"
    return (
        f"A GPU draws {lowest.mean_w:.0f} W on average at a limit of {lowest.limit_w:g} W, and "
        f"{highest.mean_w:.0f} W at {highest.limit_w:g} W"
    )


def _panel_w(courses: Sequence[Course]) -> float:
    """The height of a panel in watts, a multiple of 100 with room above what is in it."""
    most_w = max(max(course.limit_w, float(np.nanmax(course.high))) for course in courses)
    return 100.0 * math.ceil(1.12 * most_w / 100)


def _draw(
    limits_w: Sequence[float], panel_w: float, unit: Unit, *, shaded: bool
) -> alt.TopLevelMixin:
    import altair as alt

    # One view, which a page can stretch: panels are shifted up by their height in watts.
    below = f"({len(limits_w) - 1} - indexof({list(limits_w)}, datum['{POWER_LIMIT}'])) * {panel_w}"
    ticks = [
        panel * panel_w + watts
        for panel in range(len(limits_w))
        for watts in np.arange(0, panel_w - 50, 100 if panel_w <= 400 else 200).tolist()
    ]
    axis = alt.Axis(values=ticks, labelExpr=f"format(datum.value % {panel_w}, '~g')")
    scale = alt.Scale(domain=[0, panel_w * len(limits_w)], nice=False)
    y = alt.Y("from:Q", axis=axis, scale=scale).title("power (W)")
    x = time_axis(unit)
    height = _PANEL_HEIGHT * len(limits_w)

    courses = alt.Chart(alt.NamedData("courses"), height=height).transform_calculate(
        **{"time": unit.expression("t_s"), "from": f"datum.low_w + {below}"},
        to=f"datum.high_w + {below}",
        mean=f"datum.mean_w + {below}",
    )
    epochs = (
        alt.Chart(alt.NamedData("epochs"))
        .transform_filter("datum.epoch % 2 == 1")
        .transform_calculate(
            **{"time": unit.expression("start_s"), "from": below},
            until=unit.expression("end_s"),
            to=f"{below} + {panel_w}",
        )
    )
    limits = alt.Chart(alt.NamedData("limits")).transform_calculate(
        **{"time": "0", "from": f"datum['{POWER_LIMIT}'] + {below}"},
        label=f"'limit ' + datum['{POWER_LIMIT}'] + ' W'",
    )
    bands = epochs.mark_rect(style="stretch").encode(
        x=x, x2=alt.X2("until:Q"), y=y, y2=alt.Y2("to:Q")
    )
    return alt.layer(
        *([bands] if shaded else []),
        limits.mark_rule(style="limit").encode(y=y),
        courses.mark_area(style="band").encode(
            x=x, y=y, y2=alt.Y2("to:Q"), detail=alt.Detail(f"{POWER_LIMIT}:Q")
        ),
        courses.mark_line(style="course").encode(
            x=x, y=alt.Y("mean:Q", axis=axis, scale=scale), detail=alt.Detail(f"{POWER_LIMIT}:Q")
        ),
        limits.mark_text(style="label_within").encode(x=x, y=y, text=alt.Text("label:N")),
    )
