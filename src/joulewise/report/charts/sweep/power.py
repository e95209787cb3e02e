"""Power over time at each limit, averaged over repetitions, one panel above the other.

Power and energy of a sweep's runs over time, averaged over the repetitions of a limit.

Energy so far at each limit: the mean over the repetitions, and how far they lie apart.

The curves of a limit's runs are resampled to one grid of 4 Hz, padded to the longest, and averaged
over what is not padding: mean and standard deviation of the runs that still go on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.analyse.curves.average import Average, Curve, averaged
from joulewise.analyse.curves.downsample import Envelope, Thinning, even_edges, show
from joulewise.analyse.curves.series import Stage, gpu_growth, whole_stages
from joulewise.analyse.stored_result import result_of
from joulewise.analyse.time_intervals import Stretch
from joulewise.data.sweeps import POWER_LIMIT
from joulewise.errors import JoulewiseError
from joulewise.formatting import seconds
from joulewise.metrics.trial_table import AxisSlice
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.run.time_axis import (
    Record,
    are_shaded,
    known,
    record_table,
    spread,
    thinned_records,
    time_axis,
    timed,
)
from joulewise.report.charts.sweep.source import Swept, at, runs_at
from joulewise.report.charts.theme import WATTS, DisplayUnit, dashed, energy_unit, time_unit
from joulewise.report.settings_text import counted
from joulewise.report.tables import Column
from joulewise.store.layout import StreamKind
from joulewise.store.trace import open_lane
from joulewise.units import NS_PER_S, digits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_MOMENTS: Final = 240
_POWER: Final = "power_w"


@dataclass(frozen=True)
class LimitSeries:
    """All that is shown of one limit; ``low`` and ``high`` are of all runs' readings.

    ``mean_w`` is that of the runs' results; the mean of a drawn curve would be another figure.
    ``unread`` is how many runs could not be read any more. ``growths`` are the energy so far of
    the GPUs in each run, joules over seconds, of those whose GPUs have all been read.
    """

    limit_w: float
    mean_w: float
    runs: int
    unread: int
    power: Average
    low: Array
    high: Array
    epochs: tuple[tuple[float, float], ...]
    growths: tuple[Curve, ...]


def course_of(limit_w: float, runs: Sequence[Path]) -> LimitSeries | None:
    """None where nothing can be read any more."""
    read = [found for run in runs if (found := _read(run))]
    if not read:
        return None
    grid_s = np.linspace(0.0, max(run.time_s for run in read), _MOMENTS + 1)
    return LimitSeries(
        limit_w,
        float(np.mean([run.mean_w for run in read])),
        len(read),
        len(runs) - len(read),
        averaged([run.curve for run in read], grid_s),
        np.fmin.reduce([run.at(grid_s, run.low) for run in read]),
        np.fmax.reduce([run.at(grid_s, run.high) for run in read]),
        _mean_epochs([run.epochs for run in read]),
        tuple(run.growth for run in read if run.growth is not None),
    )


@dataclass(frozen=True)
class _RunSeries:
    """The mean of its GPUs' power: over all of it, and in pieces of one length up to ``time_s``."""

    time_s: float
    mean_w: float
    low: Array
    high: Array
    mean: Array
    epochs: Sequence[Stage]
    growth: Curve | None

    @property
    def curve(self) -> Curve:
        middle_s = (np.arange(len(self.mean)) + 0.5) * self.time_s / len(self.mean)
        return Curve(middle_s, self.mean)

    def at(self, grid_s: Array, values: Array) -> Array:
        """NaN where it has ended."""
        pieces = (grid_s * len(values) / self.time_s).astype(np.int64)
        there = grid_s <= self.time_s
        return np.where(there, values[np.minimum(pieces, len(values) - 1)], np.nan)


def _read(run: Path) -> _RunSeries | None:
    try:
        result = result_of(run)
        stretch = Stretch(result.run.span.start_ns, result.run.span.end_ns)
        edges_ns = even_edges(stretch, _MOMENTS)
        gpus = [key for key in result.counted if key.startswith("gpu")]
        means_w = [it for key in gpus if (it := result.run.devices[key].mean_w) is not None]
        powers = [found for key in gpus if (found := _thinned(run, key, edges_ns)) is not None]
        growth = gpu_growth(run, result)
    except (JoulewiseError, OSError, ValueError, KeyError, TypeError):  # Arrow's are ValueErrors
        return None
    if not powers or not means_w or stretch.time_ns <= 0:
        return None
    low, high, mean = (
        np.mean([getattr(power, name) for power in powers], axis=0)
        for name in ("low", "high", "mean")
    )
    time_s, mean_w = stretch.time_ns / NS_PER_S, float(np.mean(means_w))
    return _RunSeries(time_s, mean_w, low, high, mean, whole_stages(result), growth)


def _thinned(run: Path, key: str, edges_ns: NDArray[np.int64]) -> Envelope | None:
    for kind in (StreamKind.BUFFER, StreamKind.FAST):
        lane = open_lane(run, key, kind)
        if lane is not None and _POWER in lane.columns:
            thinning = Thinning(_POWER, edges_ns)
            show(lane, thinning)
            return thinning.envelope()
    return None


def _mean_epochs(runs: Sequence[Sequence[Stage]]) -> tuple[tuple[float, float], ...]:
    """Where all have as many, and they can be told apart."""
    count = len(runs[0])
    if not are_shaded(count) or any(len(run) != count for run in runs):
        return ()
    return tuple(
        (
            float(np.mean([one.start_s for one in alike])),
            float(np.mean([one.end_s for one in alike])),
        )
        for alike in zip(*runs, strict=True)
    )


if TYPE_CHECKING:
    import altair as alt

_GRID_HZ: Final = 4.0
"""The source's rate, about twice that of its readings."""

_SWEEP_ENERGY_MOMENTS: Final = 240
"""A longer run has a coarser grid: no figure shows more moments, and a page would be larger."""

_SWEEP_ENERGY_LIMITS: Final = {
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


def energy_so_far_charts(courses: Sequence[LimitSeries], along: AxisSlice) -> Iterator[Chart]:
    read = [course for course in courses if course.growths]
    if not read:
        return
    longest_s = max(float(run.t_s[-1]) for course in read for run in course.growths)
    step_s = max(1 / _GRID_HZ, longest_s / _SWEEP_ENERGY_MOMENTS)
    limits = [_sweep_energy_limit(course) for course in read]
    records = [record for course in read for record in _growth(course, step_s)]
    runs = max(len(course.growths) for course in read)
    most_j = max(float(record["energy_j"] or 0.0) for record in limits)
    yield Chart(
        key="energy-over-time",
        title=_sweep_energy_title(read) + at(along.where),
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
            "limits": record_table("Energy at each limit", _SWEEP_ENERGY_LIMITS, limits),
            "growth": record_table("Energy so far at each limit", _GROWTHS, records),
        },
        drawing=partial(
            _sweep_energy_draw,
            [course.limit_w for course in read],
            energy_unit(most_j),
            time_unit(longest_s),
            banded=runs > 1,
        ),
    )


def _sweep_energy_limit(course: LimitSeries) -> Record:
    ends_j = [float(run.values[-1]) for run in course.growths]
    return {
        POWER_LIMIT: course.limit_w,
        "runs": len(ends_j),
        "time_s": mean(float(run.t_s[-1]) for run in course.growths),
        "energy_j": mean(ends_j),
        "sigma_j": stdev(ends_j) if len(ends_j) > 1 else None,
    }


def _growth(course: LimitSeries, step_s: float) -> list[Record]:
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


def _sweep_energy_title(courses: Sequence[LimitSeries]) -> str:
    said = [
        f"{spread([float(run.values[-1]) for run in course.growths], 'J')} in "
        f"{seconds(mean(float(run.t_s[-1]) for run in course.growths))} at {course.limit_w:g} W"
        for course in (courses[:1] if len(courses) == 1 else (courses[0], courses[-1]))
    ]
    return f"A run takes {' and '.join(said)}"


def _sweep_energy_draw(
    limits_w: Sequence[float], joules: DisplayUnit, unit: DisplayUnit, *, banded: bool
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


def _shown(seen: Swept, along: AxisSlice) -> list[float]:
    """The ends, what is chosen, and limits between them, as evenly as they come."""
    limits = list(along.values)
    if len(limits) <= _PANELS:
        return limits
    chosen = [choice.setting.get(POWER_LIMIT) for choice in seen.choices]
    wanted = [limits[0], limits[-1], *(it for it in chosen if it in limits)]
    evenly = [limits[round(step)] for step in np.linspace(0, len(limits) - 1, _PANELS)]
    return sorted(list(dict.fromkeys(float(it or 0) for it in (*wanted, *evenly)))[:_PANELS])


def _limit(course: LimitSeries) -> Record:
    return {
        POWER_LIMIT: course.limit_w,
        "runs": course.runs,
        "mean_w": course.mean_w,
        "highest_w": float(np.nanmax(course.high)),
        "time_s": float(course.power.t_s[-1]),
    }


def _records(courses: Sequence[LimitSeries]) -> list[Record]:
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


def _epochs(course: LimitSeries) -> Iterator[Record]:
    for number, (start_s, end_s) in enumerate(course.epochs, start=1):
        yield {POWER_LIMIT: course.limit_w, "epoch": number, "start_s": start_s, "end_s": end_s}


def _title(courses: Sequence[LimitSeries]) -> str:
    lowest, highest = courses[0], courses[-1]
    if len(courses) == 1:
        return f"At {lowest.limit_w:g} W a GPU draws {lowest.mean_w:.0f} W on average"
    return (
        f"A GPU draws {lowest.mean_w:.0f} W on average at a limit of {lowest.limit_w:g} W, and "
        f"{highest.mean_w:.0f} W at {highest.limit_w:g} W"
    )


def _panel_w(courses: Sequence[LimitSeries]) -> float:
    """The height of a panel in watts, a multiple of 100 with room above what is in it."""
    most_w = max(max(course.limit_w, float(np.nanmax(course.high))) for course in courses)
    return 100.0 * math.ceil(1.12 * most_w / 100)


def _draw(
    limits_w: Sequence[float], panel_w: float, unit: DisplayUnit, *, shaded: bool
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
