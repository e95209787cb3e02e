"""What there is to say of a sweep, apart from how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from joulewise.metrics.result import (
    Choice,
    Interval,
    PointResult,
    SweepResult,
    SweepWarning,
    Verdict,
)
from joulewise.metrics.rules import parse
from joulewise.metrics.view import BOUNDARIES
from joulewise.report.figures import joules, one_line, seconds
from joulewise.report.sweep_words import AXES, setting_words, value_words
from joulewise.report.tables import Column, Table

Record = Mapping[str, float | str | None]
_COUNTED = {"gpu": "GPU", "node": "node", "wall": "wall"}


@dataclass(frozen=True)
class SweepView:
    """``finding`` is the answer in a sentence for each metric; tables have the figures."""

    title: str
    facts: tuple[str, ...]
    choices: Table
    boundaries: Table
    points: Table
    findings: tuple[str, ...]
    notes: tuple[str, ...]
    cautions: tuple[SweepWarning, ...]
    commands: tuple[tuple[str, str], ...]


def view(result: SweepResult, program: str = "joulewise") -> SweepView:
    return SweepView(
        title=" · ".join(
            filter(None, (f"sweep {result.id}", one_line(result.name), result.gpu_name))
        ),
        facts=tuple(_facts(result)),
        choices=_choices(result),
        boundaries=_boundaries(result),
        points=_points(result),
        findings=tuple(_finding(choice, result) for choice in result.best.values()),
        notes=tuple(_notes(result)),
        cautions=result.cautions,
        commands=tuple(_commands(result, program)),
    )


def change(ratio: Interval | None) -> str | None:
    """A ratio to the reference as what is more or less: ``-26.4 % ± 0.3``."""
    if ratio is None:
        return None
    percent = f"{100 * (ratio.mean - 1):+.1f} %"
    half = half_width(ratio)
    return percent if half is None else f"{percent} ± {100 * half:.1f}"


def half_width(interval: Interval) -> float | None:
    if interval.low is None or interval.high is None:
        return None
    return max(interval.high - interval.mean, interval.mean - interval.low)


def _facts(result: SweepResult) -> Iterator[str]:
    runs = sum(point.n for point in result.points)
    least = min(point.n for point in result.points)
    yield (
        f"{len(result.points)} settings, {runs} runs that count ({least} or more of each); "
        f"reference {setting_words(result.reference.setting)}"
    )
    source = result.sources.get(result.boundary, "")
    resting = f" ({source})" if source else ""
    yield f"counted: {_COUNTED[result.boundary]}{resting}, per {result.per}"


def _choices(result: SweepResult) -> Table:
    axes = tuple(result.reference.setting)
    best = [(parse(name).label, choice) for name, choice in result.best.items()]
    rows = [
        (
            "reference",
            *_values(result.reference),
            *_figures(result.reference),
            None,
            None,
            None,
            "",
        ),
        *(
            (
                label,
                *_values(result.point(choice.setting)),
                *_figures(result.point(choice.setting)),
                change(choice.energy),
                change(choice.time),
                _band(choice),
                choice.verdict.value,
            )
            for label, choice in best
        ),
    ]
    return Table(
        "What each metric prefers",
        (
            Column("metric", right=False),
            *_axis_columns(axes),
            Column("mean power", "W"),
            Column("energy"),
            Column("time"),
            Column("energy against it"),
            Column("time against it"),
            Column("beats the reference at"),
            Column("verdict", right=False),
        ),
        tuple(rows),
        (
            {"metric": "reference", **_record(result.reference)},
            *(_choice_record(result, choice) for choice in result.best.values()),
        ),
    )


def _boundaries(result: SweepResult) -> Table:
    rows = []
    for name, choice in result.best.items():
        here = [change(choice.at.get(boundary)) for boundary in BOUNDARIES]
        theirs = [_chosen(result, boundary, name) for boundary in BOUNDARIES]
        rows.append((parse(name).label, setting_words(choice.setting), *here, *theirs))
    return Table(
        "The same choice for what else is counted, and what would be chosen there",
        (
            Column("metric", right=False),
            Column("chosen", right=False),
            *(Column(f"energy, {_COUNTED[boundary]}") for boundary in BOUNDARIES),
            *(Column(f"best for the {_COUNTED[boundary]}", right=False) for boundary in BOUNDARIES),
        ),
        tuple(rows),
        tuple(
            {
                "metric": choice.metric,
                **choice.setting.as_json(),
                "boundary": boundary,
                **_bounds("energy_ratio", choice.at.get(boundary)),
                **_elsewhere(result, boundary, choice.metric),
            }
            for choice in result.best.values()
            for boundary in BOUNDARIES
        ),
    )


def _points(result: SweepResult) -> Table:
    names = [name for name in result.metrics if name not in {"energy", "time"}]
    rows = [
        (
            *_values(point),
            str(point.n),
            *_figures(point),
            change(point.energy_ratio),
            change(point.time_ratio),
            *(change(point.ratios.get(name)) for name in names),
            "front" if point.pareto else "",
        )
        for point in result.points
    ]
    return Table(
        "All settings",
        (
            *_axis_columns(tuple(result.reference.setting)),
            Column("runs"),
            Column("mean power", "W"),
            Column("energy"),
            Column("time"),
            Column("energy against it"),
            Column("time against it"),
            *(Column(parse(name).label) for name in names),
            Column("Pareto", right=False),
        ),
        tuple(rows),
        tuple(
            {
                **_record(point),
                **{
                    key: value
                    for name in names
                    for key, value in _bounds(name, point.scores.get(name)).items()
                },
                "pareto": int(point.pareto),
            }
            for point in result.points
        ),
    )


def _record(point: PointResult) -> Record:
    return {
        **point.setting.as_json(),
        "runs": point.n,
        **_bounds("energy_j", point.energy_j),
        **_bounds("time_s", point.time_s),
        **_bounds("energy_ratio", point.energy_ratio),
        **_bounds("time_ratio", point.time_ratio),
    }


def _choice_record(result: SweepResult, choice: Choice) -> Record:
    band = choice.band
    return {
        "metric": choice.metric,
        **_record(result.point(choice.setting)),
        **_bounds("energy_ratio", choice.energy),
        **_bounds("time_ratio", choice.time),
        **_bounds("score_ratio", choice.score),
        "beats_from": None if band is None else band.low,
        "beats_to": None if band is None else band.high,
        "verdict": choice.verdict.value,
    }


def _elsewhere(result: SweepResult, boundary: str, metric: str) -> Record:
    choice = result.choices[boundary].get(metric)
    chosen = {} if choice is None else choice.setting.as_json()
    return {f"best_{name}": value for name, value in chosen.items()}


def _bounds(name: str, interval: Interval | None) -> Record:
    if interval is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _axis_columns(axes: tuple[str, ...]) -> Iterator[Column]:
    for name in axes:
        label, unit = AXES.get(name, (name, ""))
        yield Column(one_line(label), unit)


def _values(point: PointResult) -> list[str]:
    return [value_words(name, value) for name, value in point.setting.values]


def _figures(point: PointResult) -> tuple[str | None, str | None, str | None]:
    """Mean power, energy and time."""
    if point.energy_j is None or point.time_s is None:
        time = point.time_s and seconds(point.time_s.mean)
        return None, None, time or None
    power = f"{point.energy_j.mean / point.time_s.mean:.1f}"
    return power, _with_error(point.energy_j, joules), _with_error(point.time_s, seconds)


def _with_error(interval: Interval, words: Callable[[float], str]) -> str:
    half = half_width(interval)
    if half is None or not interval.mean:
        return words(interval.mean)
    return f"{words(interval.mean)} ± {100 * half / interval.mean:.1f} %"


def _band(choice: Choice) -> str | None:
    if choice.band is None:
        return None
    unit = AXES.get(choice.band.axis, ("", ""))[1]
    return f"{choice.band.low:g}-{choice.band.high:g} {unit}".strip()


def _chosen(result: SweepResult, boundary: str, name: str) -> str | None:
    choice = result.choices[boundary].get(name)
    return None if choice is None else setting_words(choice.setting)


def _finding(choice: Choice, result: SweepResult) -> str:
    label, setting = parse(choice.metric).label, setting_words(choice.setting)
    if choice.verdict is Verdict.REFERENCE:
        return f"{label}: nothing beats the reference, {setting}"
    said = [_more_or_less(choice.energy, "energy"), _more_or_less(choice.time, "time")]
    found = " and ".join(filter(None, said)) or "no figures"
    noise = " (within noise)" if choice.verdict is Verdict.NOISE else ""
    reference = setting_words(result.reference.setting)
    return f"{label}: {setting} takes {found} than {reference}{noise}"


def _more_or_less(ratio: Interval | None, what: str) -> str:
    if ratio is None:
        return ""
    half = half_width(ratio)
    error = "" if half is None else f" ± {100 * half:.1f}"
    return f"{100 * abs(ratio.mean - 1):.1f}{error} % {'less' if ratio.mean < 1 else 'more'} {what}"


def _notes(result: SweepResult) -> Iterator[str]:
    for fit in result.fits:
        where = setting_words(fit.where)
        at = f" at {where}" if where else ""
        if fit.problem:
            yield f"no parabola of {fit.quantity} against the limit{at}: {fit.problem}"
        elif fit.r2 is not None:
            yield (
                f"parabola of {fit.quantity} against the limit{at}: R² {fit.r2:.3f}, "
                f"adjusted {fit.adjusted_r2:.3f}, {fit.dof} degrees of freedom"
                f"{'' if fit.minimum_w is None else f', least at {fit.minimum_w:.0f} W'}"
            )
    if result.assumed:
        yield (
            f"{' and '.join(_COUNTED[boundary] for boundary in result.assumed)}: "
            "what is drawn besides the GPUs is assumed; give --overhead-w and --pue"
        )


def _commands(result: SweepResult, program: str) -> Iterator[tuple[str, str]]:
    yield f"{program} choose {result.id} --points", "every setting"
    yield f"{program} choose {result.id} --epochs 90", "what a full training takes"
