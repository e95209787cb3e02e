"""The tables of a sweep: what each metric prefers, what that is elsewhere, and every setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from joulewise.formatting import joules, one_line, seconds, within
from joulewise.metrics.boundary import BOUNDARIES
from joulewise.metrics.metric import parse
from joulewise.metrics.result import Choice, Interval, PointResult, SweepResult, Verdict
from joulewise.report.settings_text import (
    AXES,
    COUNTED,
    change,
    error_words,
    half_width,
    setting_words,
    simulated_words,
    value_words,
)
from joulewise.report.tables import Column, Table

Record = Mapping[str, float | str | None]
_FIGURES = (
    Column("mean power", "W", spare=5),
    Column("energy", spare=3),
    Column("energy ±", spare=6),
    Column("time", spare=2),
    Column("time ±", spare=6),
    Column("energy vs ref."),
    Column("time vs ref."),
)
_NOTHING = (None, None, None)


def choices_table(result: SweepResult) -> Table:
    best = [(parse(name).label, choice) for name, choice in result.best.items()]
    return Table(
        "What each metric prefers",
        (
            Column("metric", right=False),
            Column("verdict", right=False),
            *_axis_columns(result),
            *_FIGURES,
            Column("beats ref. at", spare=4),
        ),
        (
            ("reference", "", *_values(result.reference), *_figures(result.reference), *_NOTHING),
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
        note="; ".join(filter(None, (_error_note(result), _best_of_many_note(result)))),
        provenance=simulated_words(result.simulated),
    )


def boundaries_table(result: SweepResult) -> Table:
    """Of what is not the reference everywhere; where all was tried, what is best there, too."""
    is_whole = all(point.n for point in result.points)
    ratios = [choice.at for choice in result.best.values()]
    known = [it for it in BOUNDARIES if any(at.get(it) for at in ratios)] or list(BOUNDARIES)
    asked = result.boundary
    others = [it for it in known if it != asked and is_whole]
    rows = [
        (
            parse(name).label,
            setting_words(choice.setting),
            *(change(choice.at.get(boundary)) for boundary in known),
            *(_chosen(result, boundary, name) for boundary in others),
        )
        for name, choice in result.best.items()
        if any(_is_other(result, boundary, name) for boundary in BOUNDARIES)
    ]
    return Table(
        "The same choice for what else is counted"
        + (", and what would be chosen there" if others else ""),
        (
            Column("metric", right=False),
            Column("chosen", right=False),
            *(
                Column(f"energy {COUNTED[boundary]}", spare=at if boundary != asked else 0)
                for at, boundary in enumerate(known, 1)
            ),
            *(
                Column(f"best for {COUNTED[boundary]}", right=False, spare=1 + len(known) + at)
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
                **_elsewhere(result, boundary, choice.metric),
            }
            for choice in result.best.values()
            for boundary in BOUNDARIES
        ),
        provenance=simulated_words(result.simulated),
        name="choices-by-boundary",
    )


def points_table(result: SweepResult) -> Table:
    names = [name for name in result.metrics if name not in {"energy", "time"}]
    tried = [point for point in result.points if point.n]
    return Table(
        "All settings" if len(tried) == len(result.points) else "All settings that were tried",
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
    """What ± is here, and what it leaves out, where there is any."""
    points = [it for it in result.points if it.energy_j and half_width(it.energy_j) is not None]
    if not points:
        return ""
    said = "± is half of the 95 % interval of the mean over repeated runs"
    gains = [it.gain_j / it.energy_j.mean for it in points if it.gain_j and it.energy_j]
    if not gains:
        return said
    return (
        f"{said}; all energies share one unknown factor of the board's sensor "
        f"({within(max(gains), 1.0)}), which cancels in ratios"
    )


def _best_of_many_note(result: SweepResult) -> str:
    """Why a setting has another interval here than in the table of all settings."""
    chosen = [it for it in result.best.values() if it.verdict is not Verdict.REFERENCE]
    if all(it.energy == result.point(it.setting).energy_ratio for it in chosen):
        return ""
    return (
        "intervals against the reference allow for each choice being the best of several settings, "
        "so that they may be wider than in the table of all settings"
    )


def verdict_words(choice: Choice) -> str:
    """``EDP within noise``: beside it, the energy and the time may well differ."""
    of = f"{parse(choice.metric).label} " if choice.verdict is Verdict.NOISE else ""
    return f"{of}{choice.verdict.value}"


def bounds(name: str, interval: Interval | None) -> Record:
    """A mean and its interval as three figures of a record."""
    if interval is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}


def has_bounds(table: Table, name: str) -> bool:
    """Whether anything in it was run often enough for an interval."""
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


def _elsewhere(result: SweepResult, boundary: str, metric: str) -> Record:
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
    """None, too, where the choice does not beat the reference beyond noise: its verdict says so."""
    if choice.band is None or choice.verdict is Verdict.NOISE:
        return None
    low, high, unit = choice.band.low, choice.band.high, AXES.get(choice.band.axis, ("", ""))[1]
    return f"{low:g} {unit}" if low == high else f"{low:g}-{high:g} {unit}"


def _chosen(result: SweepResult, boundary: str, name: str) -> str | None:
    choice = result.choices[boundary].get(name)
    return None if choice is None else setting_words(choice.setting)


def _is_other(result: SweepResult, boundary: str, name: str) -> bool:
    choice = result.choices[boundary].get(name)
    return choice is not None and choice.setting != result.reference.setting
