"""The tables of a sweep: the best setting per objective, by boundary, and every setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from joulewise.formatting import joules, one_line, seconds, within
from joulewise.metrics.boundary import BOUNDARIES
from joulewise.metrics.metric import parse
from joulewise.metrics.result import Choice, Interval, PointResult, SweepResult, Verdict
from joulewise.report.settings_text import (
    AXES,
    BOUNDARY_NAMES,
    change,
    error_words,
    half_width,
    setting_words,
    simulated_words,
    value_words,
)
from joulewise.report.tables import Column, Table, number_columns, text_columns

Record = Mapping[str, float | str | None]
_FIGURES = (
    Column("mean power", "W", spare=5),
    Column("energy", spare=3),
    Column("energy ±", spare=6),
    Column("time", spare=2),
    Column("time ±", spare=6),
    *number_columns("energy vs ref.", "time vs ref."),
)
_NO_RATIOS = (None, None, None)  # of the reference, which is not compared with itself


def choices_table(result: SweepResult) -> Table:
    """The best setting by each metric, beside the reference."""
    best = [(parse(name).label, choice) for name, choice in result.best.items()]
    return Table(
        "Best setting per objective",
        (
            *text_columns("objective", "verdict"),
            *_axis_columns(result),
            *_FIGURES,
            Column("beats ref. at", spare=4),
        ),
        (
            (
                "reference",
                "",
                *_values(result.reference),
                *_figures(result.reference),
                *_NO_RATIOS,
            ),
            *(
                (
                    label,
                    verdict_words(choice),
                    *_values(result.point(choice.setting)),
                    *_figures(result.point(choice.setting)),
                    *_against(choice),
                    _band(choice),
                )
                for label, choice in best
            ),
        ),
        (
            {"metric": "reference", **_record(result.reference)},
            *(_choice_record(result, choice) for choice in result.best.values()),
        ),
        note=". ".join(filter(None, (_error_note(result), _best_of_many_note(result)))),
        provenance=simulated_words(result.simulated),
    )


def boundaries_table(result: SweepResult) -> Table:
    """What each choice saves at every system boundary, and what would be best there.

    Without metrics that choose the reference everywhere. What is best at another boundary is only
    known where every setting was tried.
    """
    is_whole = all(point.n for point in result.points)
    ratios = [choice.at for choice in result.best.values()]
    known = [it for it in BOUNDARIES if any(at.get(it) for at in ratios)] or list(BOUNDARIES)
    evaluated = result.boundary
    others = [it for it in known if it != evaluated and is_whole]
    # A metric that prefers the reference at every boundary has nothing to say here.
    rows = [
        (
            parse(name).label,
            setting_words(choice.setting),
            *(change(choice.at.get(boundary)) for boundary in known),
            *(_best_there(result, boundary, name) for boundary in others),
        )
        for name, choice in result.best.items()
        if any(_is_not_reference(result, boundary, name) for boundary in BOUNDARIES)
    ]
    return Table(
        f"Savings by system boundary ({', '.join(BOUNDARY_NAMES[boundary] for boundary in known)})",
        (
            *text_columns("objective", "best setting"),
            *(
                Column(
                    f"energy, {BOUNDARY_NAMES[boundary]}", spare=at if boundary != evaluated else 0
                )
                for at, boundary in enumerate(known, 1)
            ),
            *(
                Column(
                    f"best for {BOUNDARY_NAMES[boundary]}", right=False, spare=1 + len(known) + at
                )
                for at, boundary in enumerate(others)
            ),
        ),
        tuple(rows),
        tuple(
            {
                "metric": choice.metric,
                **choice.setting.as_json(),
                "boundary": boundary,
                **bounds("energy_ratio", choice.at.get(boundary)),
                **_best_there_record(result, boundary, choice.metric),
            }
            for choice in result.best.values()
            for boundary in BOUNDARIES
        ),
        provenance=simulated_words(result.simulated),
        name="choices-by-boundary",
    )


def points_table(result: SweepResult) -> Table:
    """Every setting that was tried, with its scores against the reference."""
    names = [name for name in result.metrics if name not in {"energy", "time"}]
    tried = [point for point in result.points if point.n]
    return Table(
        "All settings" if len(tried) == len(result.points) else "Settings that were tried",
        (
            *_axis_columns(result),
            Column("Pareto", right=False),
            Column("runs", spare=4),
            *_FIGURES,
            *(Column(parse(name).label, spare=8) for name in names),
        ),
        tuple(
            (
                *_values(point),
                "front" if point.pareto else "",
                str(point.n),
                *_figures(point),
                change(point.energy_ratio),
                change(point.time_ratio),
                *(change(point.ratios.get(name)) for name in names),
            )
            for point in tried
        ),
        tuple(
            {
                **_record(point),
                **{
                    key: value
                    for name in names
                    for key, value in bounds(name, point.scores.get(name)).items()
                },
                "pareto": int(point.pareto),
            }
            for point in result.points
        ),
        note=_error_note(result),
        provenance=simulated_words(result.simulated),
        keys=len(result.reference.setting.values),
    )


def _error_note(result: SweepResult) -> str:
    """What ± means, and which error it leaves out; empty where there is no interval."""
    points = [it for it in result.points if it.energy_j and half_width(it.energy_j) is not None]
    if not points:
        return ""
    note = "± is the half-width of the 95 % confidence interval of the mean"
    gains = [it.gain_j / it.energy_j.mean for it in points if it.gain_j and it.energy_j]
    if not gains:
        return note
    return (
        f"{note}. It leaves out the calibration error of the sensor ({within(max(gains), 1.0)}), "
        "which is the same for all settings and cancels in ratios"
    )


def _best_of_many_note(result: SweepResult) -> str:
    """Why an interval differs from that in the table of all settings; empty if none does."""
    # The winner of many is too good on average (winner's curse): metrics.winner corrects for it.
    chosen = [it for it in result.best.values() if it.verdict is not Verdict.REFERENCE]
    if all(it.energy == result.point(it.setting).energy_ratio for it in chosen):
        return ""
    return (
        "The intervals against the reference allow for the fact that the best of several settings "
        "was selected"
    )


def verdict_words(choice: Choice) -> str:
    """The verdict; ``EDP within noise`` names the metric, since time and energy may differ."""
    metric = f"{parse(choice.metric).label} " if choice.verdict is Verdict.NOISE else ""
    return f"{metric}{choice.verdict.value}"


def bounds(name: str, interval: Interval | None) -> Record:
    """A mean and its interval as three fields of a record."""
    if interval is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}


def has_bounds(table: Table, name: str) -> bool:
    """Whether any record of a table has an interval of that quantity."""
    return any(record[f"{name}_low"] is not None for record in table.records)


def _record(point: PointResult) -> Record:
    return {
        **point.setting.as_json(),
        "runs": point.n,
        **bounds("energy_j", point.energy_j),
        **bounds("time_s", point.time_s),
        **bounds("energy_ratio", point.energy_ratio),
        **bounds("time_ratio", point.time_ratio),
    }


def _choice_record(result: SweepResult, choice: Choice) -> Record:
    band = choice.band
    return {
        "metric": choice.metric,
        **_record(result.point(choice.setting)),
        **bounds("energy_ratio", choice.energy),
        **bounds("time_ratio", choice.time),
        **bounds("score_ratio", choice.score),
        "beats_from": None if band is None else band.low,
        "beats_to": None if band is None else band.high,
        "verdict": choice.verdict.value,
        **{f"recommended_{name}": it for name, it in choice.recommended.as_json().items()},
    }


def _best_there_record(result: SweepResult, boundary: str, metric: str) -> Record:
    choice = result.choices[boundary].get(metric)
    chosen = {} if choice is None else choice.setting.as_json()
    return {f"best_{name}": value for name, value in chosen.items()}


def _axis_columns(result: SweepResult) -> Iterator[Column]:
    for name in result.reference.setting:
        label, unit = AXES.get(name, (name, ""))
        yield Column(one_line(label), unit)


def _values(point: PointResult) -> list[str]:
    return [value_words(name, value) for name, value in point.setting.values]


def _figures(point: PointResult) -> tuple[str | None, ...]:
    """Mean power, energy and time, with their errors."""
    power = None
    if point.energy_j is not None and point.time_s is not None:
        power = f"{point.energy_j.mean / point.time_s.mean:.1f}"
    return power, *_with_error(point.energy_j, joules), *_with_error(point.time_s, seconds)


def _with_error(
    interval: Interval | None, words: Callable[[float], str]
) -> tuple[str | None, str | None]:
    if interval is None:
        return None, None
    return words(interval.mean), error_words(interval)


def _against(choice: Choice) -> tuple[str | None, str | None]:
    """Energy and time against the reference, which is not compared with itself."""
    if choice.verdict is Verdict.REFERENCE:
        return None, None
    return change(choice.energy), change(choice.time)


def _band(choice: Choice) -> str | None:
    """The range of an axis that beats the reference, ``150-250 W``; None within noise."""
    if choice.band is None or choice.verdict is Verdict.NOISE:
        return None
    low, high, unit = choice.band.low, choice.band.high, AXES.get(choice.band.axis, ("", ""))[1]
    return f"{low:g} {unit}" if low == high else f"{low:g}-{high:g} {unit}"


def _best_there(result: SweepResult, boundary: str, metric: str) -> str | None:
    choice = result.choices[boundary].get(metric)
    return None if choice is None else setting_words(choice.setting)


def _is_not_reference(result: SweepResult, boundary: str, metric: str) -> bool:
    choice = result.choices[boundary].get(metric)
    return choice is not None and choice.setting != result.reference.setting
