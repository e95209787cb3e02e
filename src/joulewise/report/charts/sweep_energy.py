"""Energy so far at each limit: the mean over the repetitions, and how far they lie apart.

The curves of a limit's runs are resampled to one grid of 4 Hz, padded to the longest, and averaged
over what is not padding: mean and standard deviation of the runs that still go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.analyse.curves.average import averaged
from joulewise.data.sweeps import POWER_LIMIT
from joulewise.metrics.slices import Slice
from joulewise.report.charts.axes import WATTS, Unit, energy_unit, time_unit
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.run_tables import (
    Record,
    known,
    record_table,
    spread,
    thinned_records,
)
from joulewise.report.charts.run_time import time_axis, timed
from joulewise.report.charts.series import dashed
from joulewise.report.charts.sweep_course import Course
from joulewise.report.charts.sweep_titles import at
from joulewise.report.figures import seconds
from joulewise.report.sweep_words import counted
from joulewise.report.tables import Column
from joulewise.units import digits

if TYPE_CHECKING:
    import altair as alt

_GRID_HZ: Final = 4.0
"""The source's rate, about twice that of its readings."""

_MOMENTS: Final = 240
"""A longer run has a coarser grid: no figure shows more moments, and a page would be larger."""

_LIMITS: Final = {
    POWER_LIMIT: Column("limit", "W"),
    "runs": Column("runs"),
    "time_s": Column("mean time", "s"),
    "energy_j": Column("mean energy", "J"),
    "sigma_j": Column("std. dev.", "J"),
}
_GROWTHS: Final = {
    POWER_LIMIT: Column("limit", "W"),
    "t_s": Column("time", "s"),
    "energy_j": Column("energy so far", "J"),
    "sigma_j": Column("std. dev.", "J"),
    "runs": Column("runs"),
}


def energy_so_far_charts(courses: Sequence[Course], along: Slice) -> Iterator[Chart]:
    read = [course for course in courses if course.growths]
    if not read:
        return
    longest_s = max(float(run.t_s[-1]) for course in read for run in course.growths)
    step_s = max(1 / _GRID_HZ, longest_s / _MOMENTS)
    limits = [_limit(course) for course in read]
    records = [record for course in read for record in _growth(course, step_s)]
    runs = max(len(course.growths) for course in read)
    most_j = max(float(record["energy_j"] or 0.0) for record in limits)
    yield Chart(
        key="energy-over-time",
        title=_title(read) + at(along.where),
        description=(
            f"Energy of the GPUs from the start of a run up to each moment, at "
            f"{counted(len(read), 'limit')}; the mean of {counted(runs, 'run')} at each"
            f" (cubic, at {digits(1 / step_s)} Hz), ending in a point at the mean time and energy."
            + (
                " The band is one standard deviation of the runs to either side; a run that has "
                "ended is no longer in the mean."
                if runs > 1
                else ""
            )
        ),
        tables={
            "limits": record_table("Energy at each limit", _LIMITS, limits),
            "growth": record_table("Energy so far at each limit", _GROWTHS, records),
        },
        drawing=partial(
            _draw,
            [course.limit_w for course in read],
            energy_unit(most_j),
            time_unit(longest_s),
            banded=runs > 1,
        ),
    )


def _limit(course: Course) -> Record:
    ends_j = [float(run.values[-1]) for run in course.growths]
    return {
        POWER_LIMIT: course.limit_w,
        "runs": len(ends_j),
        "time_s": mean(float(run.t_s[-1]) for run in course.growths),
        "energy_j": mean(ends_j),
        "sigma_j": stdev(ends_j) if len(ends_j) > 1 else None,
    }


def _growth(course: Course, step_s: float) -> list[Record]:
    longest_s = max(float(run.t_s[-1]) for run in course.growths)
    average = averaged(course.growths, np.arange(0.0, longest_s + step_s / 2, step_s))
    apart = np.nan_to_num(average.sigma)
    columns = {
        "t_s": average.t_s,
        "energy_j": average.mean,
        "sigma_j": average.sigma,
        "low_j": np.maximum(average.mean - apart, 0.0),
        "high_j": average.mean + apart,
        "runs": average.count,
    }
    return known(thinned_records(columns, **{POWER_LIMIT: course.limit_w}), "energy_j")


def _title(courses: Sequence[Course]) -> str:
    said = [
        f"{spread([float(run.values[-1]) for run in course.growths], 'J')} in "
        f"{seconds(mean(float(run.t_s[-1]) for run in course.growths))} at {course.limit_w:g} W"
        for course in (courses[:1] if len(courses) == 1 else (courses[0], courses[-1]))
    ]
    return f"A run takes {' and '.join(said)}"


def _draw(
    limits_w: Sequence[float], joules: Unit, unit: Unit, *, banded: bool
) -> alt.TopLevelMixin:
    import altair as alt

    title = f"energy so far ({joules.name})"
    names = [f"{limit_w:g} W" for limit_w in limits_w]
    told = dashed("limit", names, "power limit")
    # A channel of its own: in the colour's legend, what is filled hides the strokes.
    filled = alt.Fill("limit:N", scale=alt.Scale(domain=names), legend=None)
    x, y, low = time_axis(unit), *(alt.Y(f"{it}:Q").title(title) for it in ("energy", "low"))
    growth = timed(alt.Chart(alt.NamedData("growth")), unit).transform_calculate(
        limit=WATTS,
        energy=joules.expression("energy_j"),
        low=joules.expression("low_j"),
        high=joules.expression("high_j"),
    )
    ends = alt.Chart(alt.NamedData("limits")).transform_calculate(
        limit=WATTS, time=unit.expression("time_s"), energy=joules.expression("energy_j")
    )
    band = growth.mark_area(style="band").encode(x=x, y=low, y2="high:Q", fill=filled)
    drawn: Any = alt.layer(
        *([band] if banded else []),
        growth.mark_line().encode(x=x, y=y, **told),
        ends.mark_point(style="mean").encode(x=x, y=y, fill=filled),
    )
    apart: alt.TopLevelMixin = drawn.resolve_scale(fill="independent").resolve_legend(
        fill="independent"
    )
    return apart
