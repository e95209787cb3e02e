"""Time and energy by batch size or the like, with rays of constant mean power (E = P t)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any, Final

from joulewise.data import RunResult
from joulewise.data.sweeps import CONTROL_AXES
from joulewise.formatting import one_line
from joulewise.metrics.boundary import GPU
from joulewise.metrics.result import PointResult
from joulewise.metrics.trial_table import completed_trials
from joulewise.report.charts import encoding
from joulewise.report.charts.chart import Chart, alt
from joulewise.report.charts.labels import Frame, Position, label_layers, label_table, place_labels
from joulewise.report.charts.records import Record, record_table, yes_or_empty
from joulewise.report.charts.sweep.source import SweptData, axis_values, short_label, varied_axes
from joulewise.report.charts.sweep.time_energy import MARGIN, chosen_layer, front_layer
from joulewise.report.settings_text import setting_words, value_words
from joulewise.report.tables import Table
from joulewise.report.views.sweep_tables import bounds

# What the ray of idle power may add to the figure below the points, as a share of their range, and
# how much of it is to be seen, as a share of the time (both chosen: more would squeeze the points).
_IDLE_HEIGHT, _IDLE_SEEN = 1.0, 0.25
_LABEL_BELOW: Final = 0.09  # of the height: space for the label of a ray that leaves at the top
_RAY_STEPS: Final = 60  # along a ray, at which labels of points are not to cover it
_RUNS_READ: Final = 5  # whose idle power is read: one file each, and all are of the same board

LOWEST, HIGHEST, IDLE = "lowest", "highest", "idle"


def chart_rays(data: SweptData, store: Path | None = None) -> Iterator[Chart]:
    """For sweeps that vary a parameter of the program, such as its batch size.

    ``store`` has the recorded runs, from which the idle power of the GPUs is known.
    """
    points = [point for point in data.near_front if point.time_s and point.energy_j]
    axis = _program_axis(points)
    if axis is None:
        return
    front_w = [_power_w(point) for point in points if point.pareto]
    idle_w = _idle_w(data, store)
    frame = plane_frame(points, idle_w)
    rays = power_rays(points, idle_w, frame)
    labels = _labels(data, points, frame, ray_positions(rays))
    name = _axis_name(axis)
    axes = sorted(varied_axes(points), key=lambda axis: axis in CONTROL_AXES)
    named = ", ".join(_axis_name(axis.removesuffix("_w").removesuffix("_mhz")) for axis in axes)
    yield Chart(
        key="time-energy",
        title=(
            f"{len(front_w)} of {len(data.known)} settings are on the Pareto front, at a mean "
            f"power of {min(front_w):.0f} to {max(front_w):.0f} W"
        ),
        description=(
            f"Energy against time per {data.result.per} of every setting, by {name}. On a dashed "
            "ray from the origin (outside the figure) the mean power is constant; all settings lie "
            f"between the rays of the lowest and the highest mean power.{_idle_text(rays, idle_w)} "
            "The grey line is the Pareto front: no other setting is better in both time and "
            f"energy. Where there is space, its points are labelled with {named}. The best "
            f"settings by each metric are circled.{data.omitted_text(points)}"
        ),
        tables={"points": _points(data, points, axis), "rays": rays, "labels": labels},
        drawing=partial(draw_plane, labels, name, axis_values(points, axis), frame),
    )


def _idle_text(rays: Table, idle_w: float | None) -> str:
    if idle_w is None:
        return ""
    if any(record["ray"] == IDLE for record in rays.records):
        return f" The ray of {idle_w:.0f} W is the idle power of the GPU."
    return f" The idle power of the GPU is {idle_w:.0f} W; its ray lies below the figure."


def _idle_w(data: SweptData, store: Path | None) -> float | None:
    """Idle power of the GPUs of a run together; None where it is not known.

    As recorded before, between and after the work; of a simulated board that was never idle in
    its runs, what its model draws with a process attached.
    """
    if data.result.boundary != GPU:
        return None
    from joulewise.analyse.stored_result import read_result

    runs = [trial.run for trial in completed_trials(data.sweep) if trial.run]
    results = [read_result(store / run) for run in runs[:_RUNS_READ]] if store else []
    recorded = [
        idle_w for result in results if result and (idle_w := _recorded_idle_w(result)) is not None
    ]
    if recorded:
        return median(recorded)
    simulated = data.sweep.asked.get("simulated")
    if not simulated:
        return None
    from joulewise.errors import JoulewiseError
    from joulewise.simulate.boards import load_board

    try:
        return load_board(simulated["gpu"]).idle.context_w
    except (JoulewiseError, KeyError, TypeError):
        return None


def _recorded_idle_w(result: RunResult) -> float | None:
    """The sum over the counted GPUs, None unless each has a baseline."""
    baselines = result.details.get("baseline", {})
    gpus = [key for key in result.counted if key.rpartition("/")[2].startswith("gpu")]
    powers = [baselines.get(key, {}).get("power_w") for key in gpus]
    return sum(powers) if powers and None not in powers else None


def _program_axis(points: Sequence[PointResult]) -> str | None:
    """The varied parameter of the program, the batch size before any other."""
    own = [name for name in varied_axes(points) if name not in CONTROL_AXES]
    return min(own, key=lambda name: "batch" not in name.lower(), default=None)


def ray_positions(rays: Table) -> list[Position]:
    """Positions on each ray, from its beginning to its end."""
    ends: dict[object, list[Position]] = {}
    for record in rays.records:
        position = (float(record["time_s"] or 0.0), float(record["energy_j"] or 0.0))
        ends.setdefault(record["ray"], []).append(position)
    return [
        (first[0] + share * (last[0] - first[0]), first[1] + share * (last[1] - first[1]))
        for first, *_, last in ends.values()
        for share in (step / _RAY_STEPS for step in range(_RAY_STEPS + 1))
    ]


def _labels(
    data: SweptData, points: Sequence[PointResult], frame: Frame, lines: Sequence[Position]
) -> Table:
    """Of the chosen settings, with their metrics, and of the front where there is space."""
    axes = varied_axes(points)
    chosen_by = ["; ".join(data.chosen_by(point.setting)) for point in points]
    always = [number for number, metrics in enumerate(chosen_by) if metrics]
    texts = {}
    for number in (*always, *_front_ends_first(points)):
        text = short_label(points[number].setting, axes)
        texts[number] = (f"{text}: {chosen_by[number]}", text) if chosen_by[number] else (text,)
    positions = [_position(point) for point in points]
    labels = place_labels(frame, positions, texts, always=always, lines=lines)
    return label_table(labels, [{"time_s": x, "energy_j": y} for x, y in positions])


def _front_ends_first(points: Sequence[PointResult]) -> list[int]:
    """Indices of the front: both ends, then every eighth, fourth and second, then the others."""
    front = [number for number, point in enumerate(points) if point.pareto]
    along = sorted(front, key=lambda number: _position(points[number]))
    ordered = [*along[:1], *along[-1:]]
    for step in (8, 4, 2, 1):
        ordered += along[::step]
    return list(dict.fromkeys(ordered))


_FORMATS: Final[dict[str, Any]] = {
    "time_s": "{:.4g}".format,
    "energy_j": "{:.4g}".format,
    "power_w": "{:.1f}".format,
}


def _points(data: SweptData, points: Sequence[PointResult], axis: str) -> Table:
    records = (
        {
            "setting": setting_words(point.setting),
            "series": value_words(axis, point.setting[axis]),
            **bounds("time_s", point.time_s),
            **bounds("energy_j", point.energy_j),
            "power_w": _power_w(point),
            "pareto": int(point.pareto),
            "preferred_by": "; ".join(data.chosen_by(point.setting)),
        }
        for point in points
    )
    return record_table(
        "Time, energy and mean power of every setting",
        "setting time_s energy_j power_w pareto",
        records,
        pareto=yes_or_empty,
        **_FORMATS,
    )


def power_rays(points: Sequence[PointResult], idle_w: float | None, frame: Frame) -> Table:
    """The two that bound all points, and idle, each from border to border of the frame."""
    powers_w = [_power_w(point) for point in points]
    wanted = {HIGHEST: max(powers_w), LOWEST: min(powers_w)}
    if f"{wanted[HIGHEST]:.0f}" == f"{wanted[LOWEST]:.0f}":  # one ray, which has one label
        del wanted[LOWEST]
    if idle_w is not None and idle_w < min(powers_w):
        wanted[IDLE] = idle_w
    records: list[Record] = []
    for ray, power_w in wanted.items():
        start_s = max(frame.left, frame.bottom / power_w)
        end_s = min(frame.right, frame.top / power_w)
        if start_s >= end_s:
            continue
        label_s = end_s
        if ray == HIGHEST and end_s < frame.right:  # it ends at the top, just below the legend
            below_j = frame.top - _LABEL_BELOW * (frame.top - frame.bottom)
            label_s = max(start_s, below_j / power_w)
        elif ray == LOWEST:  # below its beginning, or its middle, and to the right of that
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
    return record_table(
        "Rays of constant mean power", "ray power_w time_s energy_j", records, **_FORMATS
    )


def plane_frame(
    points: Sequence[PointResult], idle_w: float | None = None, also: Sequence[Position] = ()
) -> Frame:
    """Around the points, and down to the idle ray at the right where that leaves them space.

    ``also`` are further positions of time and energy that are to be seen.
    """
    frame = Frame.around([*(_position(point) for point in points), *also], MARGIN)
    if idle_w is None:
        return frame
    wanted_j = (1 - _IDLE_SEEN) * idle_w * frame.right
    lowest_j = frame.bottom - _IDLE_HEIGHT * (frame.top - frame.bottom)
    return replace(frame, bottom=wanted_j) if lowest_j <= wanted_j < frame.bottom else frame


def _position(point: PointResult) -> Position:
    if point.time_s is None or point.energy_j is None:
        raise ValueError(f"{point.setting} has no time or no energy")
    return point.time_s.mean, point.energy_j.mean


def _power_w(point: PointResult) -> float:
    time_s, energy_j = _position(point)
    return energy_j / time_s


def _axis_name(axis: str) -> str:
    return one_line(axis.replace("_", " "))


def draw_plane(
    labels: Table,
    axis: str,
    names: Sequence[str],
    frame: Frame,
    *,
    tries: str = "",
) -> alt.TopLevelMixin:
    """Draw the tables ``points``, ``rays`` and ``labels`` in the plane of time and energy.

    ``tries`` names a table of single runs, which are drawn as small points. The points have bars
    for their intervals then, and no legend: all of them have labels.
    """
    energy, time = encoding.energy_unit(frame.top), encoding.time_unit(frame.right)
    shown = Frame(
        frame.left / time.of, frame.right / time.of, frame.bottom / energy.of, frame.top / energy.of
    )
    x = alt.X("time_shown:Q", scale=shown.scale("x")).title(f"time ({time.name})")
    y = alt.Y("energy_shown:Q", scale=shown.scale("y")).title(f"energy ({energy.name})")

    def base(name: str) -> Any:
        fields = {"time": ("time_s", time), "energy": ("energy_j", energy)}
        ends = ("", "_low", "_high") if tries and name == "points" else ("",)
        calculated = {
            f"{shown}_shown{end}": unit.expression(f"{field}{end}")
            for shown, (field, unit) in fields.items()
            for end in ends
        }
        return encoding.data_layer(name, **calculated).encode(x=x.axis(tickCount=6), y=y)

    points, rays, label_base = base("points"), base("rays"), base("labels")
    upper = rays.transform_filter(f"datum.label != '' && datum.ray != '{LOWEST}'")
    lower = rays.transform_filter(f"datum.label != '' && datum.ray == '{LOWEST}'")
    series = _encode_series(names, axis)
    if tries:
        shapes = alt.Scale(domain=list(names), range=[*islice(cycle(encoding.SHAPES), len(names))])
        series = {
            "color": _colour(names),
            "shape": alt.Shape("series:N", scale=shapes, legend=None),
        }
    tooltips = ("setting:N", "time_s:Q", "energy_j:Q", "power_w:Q")
    return alt.layer(
        rays.mark_line(style="level").encode(detail=alt.Detail("ray:N")),
        upper.mark_text(style="note_end").encode(text=alt.Text("label:N")),
        lower.mark_text(style="note_start_below").encode(text=alt.Text("label:N")),
        front_layer(points, "time_s"),
        *(_draw_interval(points, along, names) for along in ("x", "y") if tries),
        *([base(tries).mark_point(style="run").encode(color=_colour(names))] if tries else []),
        points.mark_point(style="mean").encode(
            **series, tooltip=[alt.Tooltip(field) for field in tooltips]
        ),
        chosen_layer(points),
        *label_layers(label_base, labels),
    )


def _draw_interval(points: Any, along: str, names: Sequence[str]) -> Any:
    """The intervals of time (``x``) or energy (``y``) of the points that have one."""
    field = "time_s" if along == "x" else "energy_j"
    shown = "time_shown" if along == "x" else "energy_shown"
    known = points.transform_filter(f"isValid(datum.{field}_low)")
    start = (alt.X if along == "x" else alt.Y)(f"{shown}_low:Q")
    bars = known.mark_rule(style="thin", clip=True)  # two of them cross: they leave points visible
    return bars.encode(**{along: start, f"{along}2": f"{shown}_high:Q"}, color=_colour(names))


def _colour(names: Sequence[str]) -> Any:
    """The colours of :func:`_encode_series`, without a legend."""
    if len(names) <= encoding.MAX_SERIES:
        return alt.Color("series:N", legend=None, scale=alt.Scale(domain=list(names)))
    return alt.Color("series:O", legend=None, sort=list(names))


def _encode_series(names: Sequence[str], axis: str) -> dict[str, Any]:
    """By shape, or from dark to light where there are too many values for that."""
    if len(names) <= encoding.MAX_SERIES:
        return encoding.encode_points("series", names, axis)
    legend = alt.Legend(title=axis, columns=8)
    return {"color": alt.Color("series:O", sort=list(names), legend=legend)}
