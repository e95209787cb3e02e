"""Figures of a run that was tuned: its power by phase, and what steps took at each setting."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Final

from joulewise.analyse.curves.run import RunCurves
from joulewise.data import Quantity
from joulewise.data.sweeps import MEM_CLOCK, POWER_LIMIT, SM_CLOCK, Setting
from joulewise.data.tuning import FittedSetting, SettingSteps, Tuning, TuningPhase, TuningState
from joulewise.formatting import plain, seconds
from joulewise.report.charts import encoding
from joulewise.report.charts.chart import Chart, alt
from joulewise.report.charts.encoding import DisplayUnit
from joulewise.report.charts.labels import Frame
from joulewise.report.charts.records import Record, finite, record_table, to_thinned_records
from joulewise.report.charts.run.power import power_records
from joulewise.report.charts.theme import EPOCH_PANEL_PX
from joulewise.report.settings_text import AXES, counted
from joulewise.report.views.tuning import best_setting, estimate_fields, setting_in_force

TUNING_KEY: Final = "tuning-"
"""How the keys of these figures begin."""

_CLOCKS: Final = {SM_CLOCK: Quantity.SM_CLOCK, MEM_CLOCK: Quantity.MEMORY_CLOCK}
_MAX_GPUS: Final = 4  # tuned GPUs drawn one above the other: they all have the same setting
# Heights in pixels of the row of a phase, and of the panels of power and of a clock (chosen).
_PHASE_PX, _POWER_PX, _CLOCK_PX = 17, 150, 90
# Share of the range of values that is free above and below them, for the labels of two points, and
# beside them (chosen).
_Y_MARGIN, _X_MARGIN = 0.14, 0.07
# How far fitted values beyond the tried ones are drawn, as shares of the range of those (chosen).
# Doubled, a curve that is steep where nothing was tried makes the rest of the figure flat.
_BEYOND: Final = 0.6
_MOST_TICKS: Final = 4  # on the axis of a panel half as wide as a page
# An unlocked clock stands one step of the axis right of the highest one; ticks keep this share of
# the range away from it, so that the word does not overlap a number.
_UNLOCKED_SHARE: Final = 0.16
_TICK_STEPS: Final = (5.0, 10.0, 20.0, 25.0, 50.0, 100.0, 200.0, 250.0, 500.0, 1000.0, 2500.0)
_QUANTITIES: Final = {"step_energy_j": "energy", "step_time_s": "time"}
_AXIS_NAMES: Final = {POWER_LIMIT: "power limit"}  # where it is not the axis "limit" of a sweep
_OTHER: Final = "elsewhere"
"""The line of a setting that lies on none of the lines that are drawn."""


def chart_tuning_power(curves: RunCurves, tuning: Tuning) -> Iterator[Chart]:
    """Power and clocks over time, with the phases of the tuning and the setting in force."""
    known = [one for one in curves.devices if one.key in tuning.devices]
    shown = [one for one in known[:_MAX_GPUS] if power_records(curves, one)]
    phases = [
        phase
        for phase in tuning.phases
        if phase.end_s > phase.start_s and phase.state is not TuningState.ENDED
    ]
    if not shown or not phases:
        return
    clocks = [
        (axis, shown[0].sensors.columns.get(_CLOCKS[axis]))
        for axis in tuning.axes
        if axis in _CLOCKS
    ]
    measured = [
        record
        for axis, envelope in clocks
        if envelope
        for record in to_thinned_records(
            {"t_s": envelope.middle_s(curves.interval.start_ns), "clock_mhz": envelope.mean},
            axis=axis,
        )
    ]
    states = [state.value for state in TuningState if any(phase.state is state for phase in phases)]
    left_out = (
        f" Only {len(shown)} of {len(known)} GPUs are drawn." if len(known) > len(shown) else ""
    )
    yield Chart(
        key=f"{TUNING_KEY}power",
        title=_power_title(tuning),
        description=(
            "What the tuner did over time and, below, power (the band spans the lowest and the "
            "highest reading) with the enforced power limit"
            + (", and the clock as read with the one it was locked to." if clocks else ".")
            + (" Dashed lines: it began to explore again." if tuning.changes else "")
            + left_out
        ),
        tables={
            "phases": record_table("Phases", "state start_s end_s steps", _merged_states(phases)),
            "settings": record_table(
                "Settings in force",
                "setting start_s end_s",
                _settings_over_time(phases, tuning),
            ),
            "power": record_table(
                "Power over time",
                "device t_s mean_w low_w high_w",
                [record for one in shown for record in power_records(curves, one)],
            ),
            "clocks": record_table("Clocks over time", "axis t_s clock_mhz", measured),
            "changes": record_table(
                "When it explored again",
                "t_s reason",
                ({"t_s": one.at_s, "reason": plain(one.reason)} for one in tuning.changes),
            ),
        },
        drawing=partial(
            _draw_power,
            states,
            [one.key for one in shown],
            tuning.axes,
            encoding.time_unit(curves.result.time_s),
        ),
    )


def _power_title(tuning: Tuning) -> str:
    explored = tuning.exploration
    took = (
        f"Exploring took {counted(explored.steps, 'step')} and {seconds(explored.time_s)}"
        if explored and explored.steps
        else "Nothing was explored"
    )
    return took if tuning.chosen is None else f"{took}; {tuning.chosen} was chosen"


def _merged_states(phases: Sequence[TuningPhase]) -> Iterator[Record]:
    for state, alike in groupby(phases, key=lambda phase: phase.state):
        run = list(alike)
        yield {
            "state": state.value,
            "start_s": run[0].start_s,
            "end_s": run[-1].end_s,
            "steps": sum(phase.steps for phase in run),
        }


def _settings_over_time(phases: Sequence[TuningPhase], tuning: Tuning) -> Iterator[Record]:
    for setting, alike in groupby(phases, key=lambda phase: setting_in_force([phase], tuning)):
        run = list(alike)
        values = {axis: _number(setting, axis) for axis in tuning.axes}
        yield {
            "setting": str(setting),
            "start_s": run[0].start_s,
            "end_s": run[-1].end_s,
            **values,
        }


def _draw_power(
    states: Sequence[str], keys: Sequence[str], axes: Sequence[str], unit: DisplayUnit
) -> alt.TopLevelMixin:
    clocks = [axis for axis in axes if axis in _CLOCKS]
    bare, last = encoding.time_axis(unit, is_bare=True), encoding.time_axis(unit)
    begin, until = unit.expression("start_s"), unit.expression("end_s")
    phases = encoding.data_layer("phases", time=begin, until=until)
    changes = encoding.time_layer("changes", unit).mark_rule(style="reference").encode(x=bare)
    rows = alt.Y("state:N").sort(list(states)).title(None).axis(labelLimit=0, grid=False)
    panels: list[Any] = [
        alt.layer(phases.mark_bar().encode(x=bare, x2="until:Q", y=rows), changes).properties(
            height=_PHASE_PX * len(states)
        )
    ]

    def in_force(axis: str, x: alt.X, title: str) -> Any:
        settings = encoding.data_layer("settings", time=begin, until=until)
        return (
            settings.transform_filter(f"datum['{axis}'] != null")
            .mark_rule(style="in_force")
            .encode(x=x, x2="until:Q", y=alt.Y(f"{axis}:Q").title(title))
        )

    for key in keys:
        x = last if key == keys[-1] and not clocks else bare
        title = "power (W)" if len(keys) == 1 else f"{key} (W)"
        power = encoding.time_layer("power", unit).transform_filter(alt.datum.device == key)
        layers = encoding.band_layers(power, x, ("low_w", "mean_w", "high_w"), title)
        if POWER_LIMIT in axes:
            layers.append(in_force(POWER_LIMIT, x, title))
        panels.append(alt.layer(*layers, changes).properties(height=_POWER_PX))
    for axis in clocks:
        x = last if axis == clocks[-1] else bare
        title = f"{AXES[axis][0]} (MHz)"
        read = encoding.time_layer("clocks", unit).transform_filter(alt.datum.axis == axis)
        y = alt.Y("clock_mhz:Q").title(title).scale(zero=False)
        layers = [read.mark_line(style="thin").encode(x=x, y=y), in_force(axis, x, title)]
        panels.append(alt.layer(*layers).properties(height=_CLOCK_PX))
    stacked: alt.VConcatChart = alt.vconcat(*panels, spacing=8).resolve_scale(x="shared")
    return stacked


def chart_tried(tuning: Tuning) -> Iterator[Chart]:
    """Energy and time of a step against each axis: what was tried, and the fitted curves."""
    for axis in tuning.axes:
        if axis in AXES and tuning.tried:
            yield _chart_axis(tuning, axis)


@dataclass(frozen=True)
class _Panel:
    """One quantity against the axis: its field, its unit, and what of the plane is drawn."""

    field: str
    unit: DisplayUnit
    frame: Frame
    above: str
    """Which of the two marked points has its label above it; the other has it below."""


def _chart_axis(tuning: Tuning, axis: str) -> Chart:
    best = best_setting(tuning)
    is_chosen = best is not None and best == tuning.chosen
    marks = {tuning.reference: "before"}
    if best is not None and best != tuning.reference:
        marks[best] = "chosen" if is_chosen else "best so far"
    lines = {_others(setting, axis): "" for setting in reversed(marks)}  # the choice's first
    for setting, mark in reversed(marks.items()):
        other = _others(setting, axis)
        lines[other] = f"{other} ({mark})" if other and len(lines) > 1 else other or "fit"
    unlocked = _unlocked_at(tuning, axis)
    tried = [_record(one, axis, lines, marks, unlocked) for one in tuning.tried]
    fitted = [
        _record(one, axis, lines, marks, unlocked)
        for one in tuning.fitted
        if _others(one.settings, axis) in lines
    ]
    fitted.sort(key=lambda it: (str(it["line"]), float(it["at"] or 0.0)))
    marked = [record for record in tried if record["mark"]]
    name, unit = _AXIS_NAMES.get(axis, AXES[axis][0]), AXES[axis][1]
    panels = [_panel(field, tried, fitted, marked) for field in _QUANTITIES]
    fields = "setting line steps step_energy_j step_time_s"
    has_fit = bool(fitted)
    return Chart(
        key=f"{TUNING_KEY}{name.lower().replace(' ', '-')}",
        title=_axis_title(name, tuning, marked),
        description=(
            f"Energy and time of a step by {name}: the settings that were tried, with 95 % "
            "intervals."
            + (
                " Lines are what was fitted to all of them, with a band of 95 %"
                + (
                    ", where the other settings are those of the choice or those from before; "
                    "open points lie on neither line."
                    if len(tuning.axes) > 1
                    else "."
                )
                if has_fit
                else ""
            )
            + " Rings mark the choice and the setting before."
        ),
        tables={
            "tried": record_table("Settings that were tried", fields, tried, titles=_TITLES),
            "fitted": record_table(
                "Fitted energy and time of a step",
                "setting line step_energy_j step_time_s",
                fitted,
                titles=_TITLES,
            ),
            "marked": record_table(
                "The choice and the setting before",
                "mark setting step_energy_j step_time_s",
                marked,
                titles=_TITLES,
            ),
        },
        drawing=partial(
            _draw_axis,
            panels,
            [
                line
                for line in lines.values()
                if any(it["line"] == line for it in (*tried, *fitted))
            ],
            f"{name} ({unit})",
            _ticks(tuning, axis, unlocked),
            unlocked,
        ),
    )


_TITLES: Final = {
    "line": "other settings",
    "step_energy_j": "energy/step",
    "step_time_s": "time/step",
}


def _record(
    one: SettingSteps | FittedSetting,
    axis: str,
    lines: Mapping[str, str],
    marks: Mapping[Setting, str],
    unlocked: float | None,
) -> Record:
    value = _number(one.settings, axis)
    return {
        "setting": str(one.settings),
        "line": lines.get(_others(one.settings, axis), _OTHER),
        "mark": marks.get(one.settings, ""),
        **({"steps": one.steps} if isinstance(one, SettingSteps) else {}),
        axis: value,
        "at": unlocked if value is None else value,
        **estimate_fields("step_energy_j", one.step_energy_j),
        **estimate_fields("step_time_s", one.step_time_s),
    }


def _axis_title(name: str, tuning: Tuning, marked: Sequence[Record]) -> str:
    """``By SM clock: a step takes 18.4 J and 119 ms at 195 W, SM 1222 MHz; 23.4 J … before``."""
    by = {str(record["mark"]): record for record in marked}
    before = by.pop("before", None)
    texts = [f"{_costs(record)} at {record['setting']}" for record in by.values()]
    if before:
        texts.append(f"{_costs(before)} {'before' if texts else 'at the setting before'}")
    if not texts:
        return f"By {name}: {counted(len(tuning.tried), 'setting')} tried"
    return f"By {name}: a step takes {'; '.join(texts)}"


def _costs(record: Record) -> str:
    energy_j, time_s = float(record["step_energy_j"] or 0.0), float(record["step_time_s"] or 0.0)
    energy, time = _step_unit(energy_j, "J"), _step_unit(time_s, "s")
    return f"{energy.format(energy_j)} {energy.name} and {time.format(time_s)} {time.name}"


def _step_unit(largest: float, unit: str) -> DisplayUnit:
    """Steps take milliseconds and joules, or much more."""
    if largest < 1:
        return DisplayUnit(f"m{unit}", 1e-3)
    return encoding.energy_unit(largest) if unit == "J" else DisplayUnit(unit)


def _others(setting: Setting, axis: str) -> str:
    """The rest of a setting, which names a line."""
    return str(Setting.of({key: setting[key] for key in setting if key != axis}))


def _number(setting: Setting, axis: str) -> float | None:
    value = setting.get(axis)
    return finite(float(value)) if isinstance(value, int | float) else None


def _settings(tuning: Tuning) -> list[Setting]:
    known: tuple[SettingSteps | FittedSetting, ...] = (*tuning.tried, *tuning.fitted)
    return [tuning.reference, *(one.settings for one in known)]


def _values(tuning: Tuning, axis: str) -> list[float]:
    values = (_number(one, axis) for one in _settings(tuning))
    return sorted({value for value in values if value is not None})


def _unlocked_at(tuning: Tuning, axis: str) -> float | None:
    """Where on the axis an unlocked clock is drawn; None where every setting has a value."""
    values = _values(tuning, axis)
    if all(_number(one, axis) is not None for one in _settings(tuning)):
        return None
    if not values:
        return 1.0  # anywhere: nothing else is on the axis
    return values[-1] + ((values[-1] - values[0]) / max(len(values) - 1, 1) or 1.0)


def _ticks(tuning: Tuning, axis: str, unlocked: float | None) -> list[float]:
    values = _values(tuning, axis)
    if not values:
        return [] if unlocked is None else [unlocked]
    low, high = values[0], values[-1]
    last = high if unlocked is None else unlocked - _UNLOCKED_SHARE * (unlocked - low)
    step = next((it for it in _TICK_STEPS if (last - low) / it <= _MOST_TICKS), high - low) or 1.0
    first = math.ceil(low / step)
    ticks = [step * at for at in range(first, first + _MOST_TICKS + 1) if step * at <= last]
    return ticks if unlocked is None else [*ticks, unlocked]


def _panel(
    field: str, tried: Sequence[Record], fitted: Sequence[Record], marked: Sequence[Record]
) -> _Panel:
    """Around all that was tried, and the fitted curves as far as they are near."""

    def values(records: Sequence[Record], *ends: str) -> list[float]:
        found = (record[f"{field}{end}"] for record in records for end in ends)
        return [float(value) for value in found if value is not None]

    ends = values([*tried, *marked], "", "_low", "_high")
    free = _BEYOND * (max(ends) - min(ends))
    near = [value for value in values(fitted, "") if min(ends) - free <= value <= max(ends) + free]
    unit = _step_unit(max(ends), "J" if field == "step_energy_j" else "s")
    ys = [value / unit.of for value in (*ends, *near)]
    xs = [float(record["at"] or 0.0) for record in (*tried, *fitted)]
    x_frame = Frame.around([(x, ys[0]) for x in xs], _X_MARGIN)
    y_frame = Frame.around([(xs[0], y) for y in ys], _Y_MARGIN)
    highest = max(marked, key=lambda it: float(it[field] or 0.0), default=None)
    return _Panel(
        field,
        unit,
        Frame(x_frame.left, x_frame.right, max(y_frame.bottom, 0.0), y_frame.top),
        str(highest["mark"]) if highest else "",
    )


def _draw_axis(
    panels: Sequence[_Panel],
    lines: Sequence[str],
    title: str,
    ticks: Sequence[float],
    unlocked: float | None,
) -> alt.TopLevelMixin:
    label = "format(datum.value, '.4~g')"
    if unlocked is not None:
        label = f"datum.value == {unlocked!r} ? 'unlocked' : {label}"
    axis = alt.Axis(title=title, values=list(ticks), labelExpr=label)
    return alt.hconcat(*(_draw_panel(panel, lines, axis) for panel in panels))


def _draw_panel(panel: _Panel, lines: Sequence[str], axis: alt.Axis) -> Any:
    name = f"{_QUANTITIES[panel.field]} per step ({panel.unit.name})"
    x = alt.X("at:Q").axis(axis).scale(panel.frame.scale("x"))
    y, low = (
        alt.Y(f"{shown}:Q").title(name).scale(panel.frame.scale("y")) for shown in ("value", "low")
    )
    tried, fitted, marked = (
        encoding.data_layer(
            table,
            value=panel.unit.expression(panel.field),
            **{
                end: f"datum['{panel.field}_{end}'] == null ? "
                f"{panel.unit.expression(panel.field)} : "
                f"{panel.unit.expression(f'{panel.field}_{end}')}"
                for end in ("low", "high")
            },
        ).encode(x=x)
        for table in ("tried", "fitted", "marked")
    )
    series = encoding.encode_lines("line", lines)
    on_line = tried.transform_filter(f"datum.line != '{_OTHER}'")
    elsewhere = tried.transform_filter(f"datum.line == '{_OTHER}'")
    layers = [
        fitted.mark_area(style="band", clip=True).encode(
            y=low, y2="high:Q", fill=encoding.encode_fill("line", lines)
        ),
        fitted.mark_line(clip=True).encode(y=y, **series),
        elsewhere.mark_rule(style="interval").encode(y=low, y2="high:Q"),
        elsewhere.mark_point(style="off_line").encode(y=y),
        on_line.mark_rule(style="interval").encode(y=low, y2="high:Q", color=series["color"]),
        on_line.mark_point(style="mean").encode(y=y, color=series["color"]),
        marked.mark_point(style="choice").encode(y=y),
        *(
            marked.transform_filter(
                f"{'' if side == 'above' else '!'}(datum.mark == '{panel.above}')"
            )
            .mark_text(style=style)
            .encode(y=y, text="mark:N")
            for side in ("above", "below")
            for style in ([f"label_{side}", "halo"], f"label_{side}")
        ),
    ]
    return encoding.layer_with_fill(*layers).properties(height=EPOCH_PANEL_PX)
