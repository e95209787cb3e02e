"""Time and energy to the target, with rays of constant mean power and the Pareto front."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from joulewise.data.sweeps import KNOBS
from joulewise.metrics.result import PointResult
from joulewise.report.charts.axes import Unit, energy_unit, time_unit
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.series import shaped
from joulewise.report.charts.sweep_source import Swept, ordered, varied
from joulewise.report.figures import one_line
from joulewise.report.sweep_tables import bounds
from joulewise.report.sweep_words import setting_words, value_words
from joulewise.report.tables import Column, Table

if TYPE_CHECKING:
    import altair as alt

_STEPS_W: Final = (1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000)
_MOST_RAYS: Final = 5
_MOST_SERIES: Final = 7


def rays_charts(seen: Swept) -> Iterator[Chart]:
    """For sweeps that vary something of the program, such as its batch size."""
    points = [point for point in seen.near if point.time_s and point.energy_j]
    axis = _axis(points)
    if axis is None:
        return
    every_w = [_power_w(point) for point in points]
    power_w = [_power_w(point) for point in points if point.pareto]
    rays = _rays(points, _round_watts(min(every_w), max(every_w)))
    names = ordered(points, axis)
    most_s, most_j = _most(points)
    yield Chart(
        key="time-energy",
        title=(
            f"{sum(point.pareto for point in points)} of {len(seen.known)} settings are on the "
            f"front, at a mean power of {min(power_w):.0f} to {max(power_w):.0f} W"
        ),
        description=(
            f"Energy against time per {seen.result.per} of every setting, by {_said(axis)}. Along "
            "a ray the mean power is the same. The grey line joins the settings that no other "
            "beats in both time and energy: the Pareto front. What a metric prefers is "
            f"ringed.{seen.beyond}"
        ),
        tables={"points": _points(seen, points, axis), "rays": rays},
        drawing=partial(_draw, _said(axis), names, energy_unit(most_j), time_unit(most_s)),
    )


def _axis(points: Sequence[PointResult]) -> str | None:
    """What of the program takes more than one value, the batch size before all else."""
    own = [name for name in varied(points) if name not in KNOBS]
    return min(own, key=lambda name: "batch" not in name.lower(), default=None)


def _points(seen: Swept, points: Sequence[PointResult], axis: str) -> Table:
    return Table(
        "Time, energy and mean power of every setting",
        (
            Column("setting", right=False),
            Column("time", "s"),
            Column("energy", "J"),
            Column("mean power", "W"),
            Column("Pareto", right=False),
        ),
        tuple(
            (
                setting_words(point.setting),
                None if point.time_s is None else f"{point.time_s.mean:.4g}",
                None if point.energy_j is None else f"{point.energy_j.mean:.4g}",
                f"{_power_w(point):.1f}",
                "front" if point.pareto else "",
            )
            for point in points
        ),
        tuple(
            {
                "setting": setting_words(point.setting),
                "series": value_words(axis, point.setting[axis]),
                **bounds("time_s", point.time_s),
                **bounds("energy_j", point.energy_j),
                "power_w": _power_w(point),
                "pareto": int(point.pareto),
                "preferred_by": "; ".join(seen.chosen(point.setting)),
            }
            for point in points
        ),
    )


def _rays(points: Sequence[PointResult], powers_w: Sequence[float]) -> Table:
    """From the lower left corner of all points to their border on the other side."""
    most_s, most_j = _most(points)
    records: list[dict[str, float | str | None]] = []
    for power_w in powers_w:
        end_s = min(most_s, most_j / power_w)
        records += [
            {"power_w": power_w, "time_s": time_s, "energy_j": power_w * time_s, "end": end}
            for end, time_s in enumerate((0.0, end_s))
        ]
    return Table(
        "Rays of constant mean power",
        (Column("mean power", "W"), Column("time", "s"), Column("energy", "J")),
        tuple(
            (f"{it['power_w']:g}", f"{it['time_s']:.4g}", f"{it['energy_j']:.4g}") for it in records
        ),
        tuple(records),
    )


def _round_watts(low_w: float, high_w: float) -> list[float]:
    """A few round values from below the lowest to above the highest."""
    fitting = (step for step in _STEPS_W if (high_w - low_w) / step < _MOST_RAYS - 1)
    step = next(fitting, _STEPS_W[-1])
    first, last = int(low_w // step), int(-(-high_w // step))
    return [float(step * at) for at in range(max(first, 1), last + 1)]


def _power_w(point: PointResult) -> float:
    if point.time_s is None or point.energy_j is None:
        return float("nan")
    return point.energy_j.mean / point.time_s.mean


def _most(points: Sequence[PointResult]) -> tuple[float, float]:
    return (
        1.05 * max(point.time_s.mean for point in points if point.time_s),
        1.05 * max(point.energy_j.mean for point in points if point.energy_j),
    )


def _said(axis: str) -> str:
    return one_line(axis.replace("_", " "))


def _draw(axis: str, names: Sequence[str], energy: Unit, time: Unit) -> alt.TopLevelMixin:
    import altair as alt

    x = alt.X("time_shown:Q").title(f"time ({time.name})").scale(nice=False)
    y = alt.Y("energy_shown:Q").title(f"energy ({energy.name})").scale(nice=False)
    points, rays = (
        alt.Chart(alt.NamedData(name))
        .transform_calculate(
            time_shown=time.expression("time_s"), energy_shown=energy.expression("energy_j")
        )
        .encode(x=x, y=y)
        for name in ("points", "rays")
    )
    ends = rays.transform_filter("datum.end == 1").transform_calculate(label="datum.power_w + ' W'")
    return alt.layer(
        rays.mark_line(style="level").encode(detail=alt.Detail("power_w:Q")),
        ends.mark_text(style="note_end").encode(text=alt.Text("label:N")),
        points.transform_filter("datum.pareto == 1")
        .mark_line(style="front")
        .encode(order=alt.Order("time_s:Q")),
        points.mark_point(style="mean").encode(
            **_told_apart(names, axis),
            tooltip=[
                alt.Tooltip("setting:N"),
                alt.Tooltip("time_s:Q"),
                alt.Tooltip("energy_j:Q"),
                alt.Tooltip("power_w:Q"),
            ],
        ),
        points.transform_filter("datum.preferred_by != ''").mark_point(style="choice"),
        points.transform_filter("datum.preferred_by != ''")
        .mark_text(style="label_beside")
        .encode(text=alt.Text("preferred_by:N")),
    )


def _told_apart(names: Sequence[str], axis: str) -> dict[str, Any]:
    """By shape, or, where there are too many for that, from dark to light."""
    import altair as alt

    if len(names) <= _MOST_SERIES:
        return shaped("series", names, axis)
    legend = alt.Legend(title=axis, columns=8)
    return {"color": alt.Color("series:O", sort=list(names), legend=legend)}
