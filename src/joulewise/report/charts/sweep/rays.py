"""Time and energy to the target, with rays of constant mean power and the Pareto front."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from joulewise.data import RunResult
from joulewise.data.sweeps import KNOBS
from joulewise.formatting import one_line
from joulewise.metrics.boundary import GPU
from joulewise.metrics.result import PointResult
from joulewise.metrics.trial_table import entering
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.labels import (
    Frame,
    Place,
    label_layers,
    label_table,
    place_labels,
)
from joulewise.report.charts.sweep.source import Swept, brief, ordered, varied
from joulewise.report.charts.theme import energy_unit, shaped, time_unit
from joulewise.report.settings_text import setting_words, value_words
from joulewise.report.tables import Column, Table
from joulewise.report.views.sweep_tables import bounds

if TYPE_CHECKING:
    import altair as alt

_MOST_SERIES: Final = 7
_MARGIN: Final = 0.06  # of the span of the points
_IDLE_ROOM: Final = 1.0  # what the idle ray may add to the height, as a share of the points' span
_IDLE_SEEN: Final = 0.25  # how much of the idle ray there is to see, as a share of the time
_LABEL_BELOW: Final = 0.09  # of the height: room for the label of a ray that leaves at the top
_RAY_PLACES: Final = 60  # along a ray, which labels of points had better not cover
_RUNS_READ: Final = 5  # of which the idle power is taken; one a file, and all are of one board

LOWEST, HIGHEST, IDLE = "lowest", "highest", "idle"


def rays_charts(seen: Swept, store: Path | None = None) -> Iterator[Chart]:
    """For sweeps that vary something of the program, such as its batch size.

    ``store`` has the recorded runs, from which the idle power of the GPUs is known.
    """
    points = [point for point in seen.near_front if point.time_s and point.energy_j]
    axis = _axis(points)
    if axis is None:
        return
    power_w = [_power_w(point) for point in points if point.pareto]
    idle_w = _idle_w(seen, store)
    frame = _frame(points, idle_w)
    rays = _rays(points, idle_w, frame)
    labels = _labels(seen, points, frame, _along(rays))
    names = ordered(points, axis)
    yield Chart(
        key="time-energy",
        title=(
            f"{sum(point.pareto for point in points)} of {len(seen.known)} settings are on the "
            f"front, at a mean power of {min(power_w):.0f} to {max(power_w):.0f} W"
        ),
        description=(
            f"Energy against time per {seen.result.per} of every setting, by {_said(axis)}. Along "
            "a dashed ray from the origin, which lies outside the figure, the mean power is the "
            "same; all settings lie between the rays of the lowest and the highest."
            f"{_idle_words(rays, idle_w)} The grey line joins the settings that no other beats in "
            "both time and energy: the Pareto front; its points are labelled with "
            f"{_label_words(points)} as far as there is room. What a metric prefers is "
            f"ringed.{seen.beyond(points)}"
        ),
        tables={"points": _points(seen, points, axis), "rays": rays, "labels": labels},
        drawing=partial(_draw, labels, _said(axis), names, frame),
    )


def _idle_words(rays: Table, idle_w: float | None) -> str:
    if idle_w is None:
        return ""
    if any(record["ray"] == IDLE for record in rays.records):
        return f" The ray of {idle_w:.0f} W is what the GPU draws when idle."
    return f" Idle, it draws {idle_w:.0f} W, the ray of which is below the figure."


def _label_words(points: Sequence[PointResult]) -> str:
    names = sorted(varied(points), key=lambda name: name in KNOBS)
    return ", ".join(_said(name.removesuffix("_w").removesuffix("_mhz")) for name in names)


def _idle_w(seen: Swept, store: Path | None) -> float | None:
    """What the GPUs of a run draw together when idle; None where it is not known.

    As recorded before, between and after the work; of a simulated board that was never idle in
    its runs, what its model draws with a process attached.
    """
    if seen.result.boundary != GPU:
        return None
    from joulewise.analyse.stored_result import read_result

    runs = [trial.run for trial in entering(seen.sweep) if trial.run]
    results = [read_result(store / run) for run in runs[:_RUNS_READ]] if store else []
    recorded = [watts for it in results if it and (watts := _recorded_idle_w(it)) is not None]
    if recorded:
        return median(recorded)
    simulated = seen.sweep.asked.get("simulated")
    if not simulated:
        return None
    from joulewise.errors import JoulewiseError
    from joulewise.simulate.boards import load_board

    try:
        return load_board(simulated["gpu"]).idle.context_w
    except (JoulewiseError, KeyError, TypeError):
        return None


def _recorded_idle_w(result: RunResult) -> float | None:
    """The sum over the GPUs that count, None unless each has a baseline."""
    baselines = result.details.get("baseline", {})
    gpus = [key for key in result.counted if key.rpartition("/")[2].startswith("gpu")]
    powers = [baselines.get(key, {}).get("power_w") for key in gpus]
    return sum(powers) if powers and None not in powers else None


def _axis(points: Sequence[PointResult]) -> str | None:
    """What of the program takes more than one value, the batch size before all else."""
    own = [name for name in varied(points) if name not in KNOBS]
    return min(own, key=lambda name: "batch" not in name.lower(), default=None)


def _along(rays: Table) -> list[Place]:
    """Places on each ray, from its beginning to its end."""
    ends: dict[object, list[Place]] = {}
    for it in rays.records:
        place = (float(it["time_s"] or 0.0), float(it["energy_j"] or 0.0))
        ends.setdefault(it["ray"], []).append(place)
    return [
        (first[0] + share * (last[0] - first[0]), first[1] + share * (last[1] - first[1]))
        for first, *_, last in ends.values()
        for share in (i / _RAY_PLACES for i in range(_RAY_PLACES + 1))
    ]


def _labels(
    seen: Swept, points: Sequence[PointResult], frame: Frame, lines: Sequence[Place]
) -> Table:
    """Of what metrics prefer, with their names, and of the front as far as there is room."""
    axes = varied(points)
    preferred = ["; ".join(seen.chosen(point.setting)) for point in points]
    always = [i for i, chosen in enumerate(preferred) if chosen]
    wanted = [*always, *_ends_first(points, [i for i, it in enumerate(points) if it.pareto])]
    briefly = {i: brief(points[i].setting, axes) for i in wanted}
    texts = {
        i: (f"{text}: {preferred[i]}", text) if preferred[i] else (text,)
        for i, text in briefly.items()
    }
    places = [_place(point) for point in points]
    labels = place_labels(frame, places, texts, always=always, lines=lines)
    return label_table(labels, [{"time_s": x, "energy_j": y} for x, y in places])


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


def _ends_first(points: Sequence[PointResult], front: Sequence[int]) -> list[int]:
    """The fastest, that of least energy, then every eighth, fourth, second and all the others."""
    along = sorted(front, key=lambda number: _place(points[number]))
    wanted = [*along[:1], *along[-1:]]
    for step in (8, 4, 2, 1):
        wanted += along[::step]
    return list(dict.fromkeys(wanted))


def _rays(points: Sequence[PointResult], idle_w: float | None, frame: Frame) -> Table:
    """The two that bound all points, and idle, each from border to border of the frame."""
    powers_w = [_power_w(point) for point in points]
    wanted = {HIGHEST: max(powers_w), LOWEST: min(powers_w)}
    if idle_w is not None and idle_w < wanted[LOWEST]:
        wanted[IDLE] = idle_w
    records: list[dict[str, float | str | None]] = []
    for ray, power_w in wanted.items():
        start_s = max(frame.left, frame.bottom / power_w)
        end_s = min(frame.right, frame.top / power_w)
        if start_s >= end_s:
            continue
        label_s = end_s
        if ray == HIGHEST and end_s < frame.right:  # it leaves at the top, above which is a legend
            below_j = frame.top - _LABEL_BELOW * (frame.top - frame.bottom)
            label_s = max(start_s, below_j / power_w)
        elif ray == LOWEST:  # to the right of its beginning, or of its middle, and below it
            label_s = start_s if start_s == frame.left else (start_s + end_s) / 2
        label = f"{'idle ' if ray == IDLE else ''}{power_w:.0f} W"
        records += [
            {
                "ray": ray,
                "power_w": power_w,
                "time_s": time_s,
                "energy_j": power_w * time_s,
                "label": label if time_s == label_s else "",
            }
            for time_s in sorted({start_s, label_s, end_s})
        ]
    return Table(
        "Rays of constant mean power",
        (
            Column("ray", right=False),
            Column("mean power", "W"),
            Column("time", "s"),
            Column("energy", "J"),
        ),
        tuple(
            (
                str(it["ray"]),
                f"{it['power_w']:.1f}",
                f"{it['time_s']:.4g}",
                f"{it['energy_j']:.4g}",
            )
            for it in records
        ),
        tuple(records),
    )


def _frame(points: Sequence[PointResult], idle_w: float | None) -> Frame:
    """Around the points, and down to the idle ray at the right where that leaves them room."""
    frame = Frame.around([_place(point) for point in points], _MARGIN)
    if idle_w is None:
        return frame
    wanted_j = (1 - _IDLE_SEEN) * idle_w * frame.right
    lowest_j = frame.bottom - _IDLE_ROOM * (frame.top - frame.bottom)
    if wanted_j >= frame.bottom or wanted_j < lowest_j:
        return frame
    return replace(frame, bottom=wanted_j)


def _place(point: PointResult) -> tuple[float, float]:
    if point.time_s is None or point.energy_j is None:
        raise ValueError(f"{point.setting} has no time or no energy")
    return point.time_s.mean, point.energy_j.mean


def _power_w(point: PointResult) -> float:
    time_s, energy_j = _place(point)
    return energy_j / time_s


def _said(axis: str) -> str:
    return one_line(axis.replace("_", " "))


def _draw(labels: Table, axis: str, names: Sequence[str], frame: Frame) -> alt.TopLevelMixin:
    import altair as alt

    energy, time = energy_unit(frame.top), time_unit(frame.right)
    shown = Frame(
        frame.left / time.of, frame.right / time.of, frame.bottom / energy.of, frame.top / energy.of
    )
    x = alt.X("time_shown:Q", scale=shown.scale("x")).title(f"time ({time.name})")
    y = alt.Y("energy_shown:Q", scale=shown.scale("y")).title(f"energy ({energy.name})")
    points, rays, texts = (
        alt.Chart(alt.NamedData(name))
        .transform_calculate(
            time_shown=time.expression("time_s"), energy_shown=energy.expression("energy_j")
        )
        .encode(x=x.axis(tickCount=6), y=y)
        for name in ("points", "rays", "labels")
    )
    upper = rays.transform_filter(f"datum.label != '' && datum.ray != '{LOWEST}'")
    lower = rays.transform_filter(f"datum.label != '' && datum.ray == '{LOWEST}'")
    return alt.layer(
        rays.mark_line(style="level").encode(detail=alt.Detail("ray:N")),
        upper.mark_text(style="note_end").encode(text=alt.Text("label:N")),
        lower.mark_text(style="note_start_below").encode(text=alt.Text("label:N")),
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
        *label_layers(texts, labels),
    )


def _told_apart(names: Sequence[str], axis: str) -> dict[str, Any]:
    """By shape, or, where there are too many for that, from dark to light."""
    import altair as alt

    if len(names) <= _MOST_SERIES:
        return shaped("series", names, axis)
    legend = alt.Legend(title=axis, columns=8)
    return {"color": alt.Color("series:O", sort=list(names), legend=legend)}
