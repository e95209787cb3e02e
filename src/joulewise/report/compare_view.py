"""What there is to say of a comparison, apart from how it is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from joulewise.metrics.compare import Compared, Outcome
from joulewise.metrics.compare_runs import CompareCaution, CompareWarning, Comparison, Side
from joulewise.metrics.compare_sweeps import SweepsCompared, range_of
from joulewise.metrics.compare_values import ENERGY, TIME
from joulewise.metrics.compare_work import RUN
from joulewise.metrics.result import Interval, SweepResult
from joulewise.metrics.rules import parse
from joulewise.report.compare_tables import (
    choices_table,
    differences_table,
    provenance,
    quantities_table,
    settings_table,
)
from joulewise.report.figures import one_line
from joulewise.report.sweep_words import COUNTED, counted, more_or_less, setting_words
from joulewise.report.tables import Table

_UNSURE: Final = {Outcome.NOISE: "within noise", Outcome.UNKNOWN: "too few runs to be sure"}
_NAME: Final = 60
_IDS: Final = 3


@dataclass(frozen=True)
class CompareView:
    """``finding`` is the answer in a sentence, the first of ``tables`` has it in figures."""

    title: str
    facts: tuple[str, ...]
    tables: tuple[Table, ...]
    finding: str
    cautions: tuple[CompareWarning, ...]


def view_of_runs(found: Comparison) -> CompareView:
    differing = (differences_table(found),) if found.differences else ()
    return CompareView(
        title=f"{one_line(found.b.name, _NAME)} against {one_line(found.a.name, _NAME)}",
        facts=(_side("A", found.a), _side("B", found.b)),
        tables=(quantities_table(found), *differing),
        finding=_with_notes(_finding(found), found),
        cautions=found.cautions,
    )


def view_of_sweeps(found: SweepsCompared) -> CompareView:
    settings = (settings_table(found),) if found.settings else ()
    return CompareView(
        title=f"sweep {_sweep_name(found.b)} against sweep {_sweep_name(found.a)}",
        facts=tuple(_sweep_facts(found)),
        tables=(*settings, choices_table(found)),
        finding=_with_notes(_sweeps_finding(found), found),
        cautions=found.cautions,
    )


def _with_notes(finding: str, found: Comparison | SweepsCompared) -> str:
    said = provenance(found)
    notes = [said] if said else []
    if any(it.code is CompareCaution.WORK_NOT_KNOWN for it in found.cautions):
        notes.append("per run; whether both did the same work is not known")
    return f"{finding} ({'; '.join(notes)})" if notes else finding


def _finding(found: Comparison) -> str:
    """Of the same work, where the sides did not do the same and spans tell how much they did."""
    work = found.work.per
    per = f"/{work}" if work != RUN and found.get(f"{TIME}/{work}") else ""
    compared = [(found.get(f"{quantity}{per}"), quantity) for quantity in (ENERGY, TIME)]
    is_noise = all(it and it.verdict is Outcome.NOISE for it, _ in compared)
    said = [_said(it, quantity, is_told=is_noise) for it, quantity in compared]
    whole = more_or_less(said, "A")
    if not whole:
        return "nothing of B can be compared with A"
    why = f"; {found.bounded}, and not compared" if found.bounded else ""
    unsure = "no difference beyond noise: " if is_noise else ""
    return f"{unsure}{f'per {work} ' if per else ''}B takes {whole}{why}"


def _said(it: Compared | None, what: str, *, is_told: bool) -> tuple[Interval | None, str, str]:
    """A ratio, its quantity, and that it is unsure unless that ``is_told`` already."""
    if it is None:
        return None, what, ""
    return it.ratio, what, "" if is_told else _UNSURE.get(it.verdict, "")


def _side(letter: str, side: Side) -> str:
    ids = [one_line(run.id, _NAME) for run in side.runs]
    listed = ", ".join(ids[:_IDS]) + (", …" if len(ids) > _IDS else "")
    return f"{letter}: {one_line(side.name, _NAME)}, {counted(len(ids), 'run')} ({listed})"


def _sweep_name(result: SweepResult) -> str:
    return one_line(result.name or result.id, _NAME)


def _sweep_facts(found: SweepsCompared) -> Iterator[str]:
    for letter, result in (("A", found.a), ("B", found.b)):
        runs = counted(sum(point.n for point in result.points), "run")
        words = filter(None, (result.id, one_line(result.name), result.gpu_name))
        reference = setting_words(result.reference.setting)
        yield f"{letter}: {' · '.join(words)}, {runs}; reference {reference}"
    source = found.a.sources.get(found.a.boundary, "")
    resting = f" ({source})" if source else ""
    yield f"counted: {COUNTED[found.a.boundary]}{resting}, per {found.a.per}"
    for letter, only in (("A", found.only_a), ("B", found.only_b)):
        if only:
            yield f"only in {letter}: {_some([setting_words(it) for it in only])}"


def _sweeps_finding(found: SweepsCompared) -> str:
    same: list[str] = []
    other: list[str] = []
    for it in found.choices:
        if it.a and it.b:
            (same if it.a.setting == it.b.setting else other).append(parse(it.metric).label)
    said = []
    if found.settings:
        where = f"at the {counted(len(found.settings), 'setting')} that both have"
        per = "" if found.a.per == RUN else f"per {found.a.per}, "
        said = [f"{per}{where} B takes {_over(found)} than A"]
    if other:
        said.append(f"another setting is chosen by {', '.join(other)}")
    if same:
        said.append(_same_choice(same, is_all=not other))
    return "; ".join(said) or "nothing of B can be compared with A"


def _same_choice(metrics: Sequence[str], *, is_all: bool) -> str:
    if not is_all:
        return f"the same by {', '.join(metrics)}"
    which = "every metric" if len(metrics) > 1 else metrics[0]
    return f"{which} chooses the same setting in both"


def _over(found: SweepsCompared) -> str:
    said = []
    for quantity in (ENERGY, TIME):
        span = range_of(found, quantity)
        if span is not None and span.low is not None and span.high is not None:
            verdicts = [it.verdict for each in found.settings if (it := each.get(quantity))]
            said.append(f"{_between(span.low, span.high)} {quantity}{_unsure_at(verdicts)}")
    return " and ".join(said)


def _unsure_at(verdicts: Sequence[Outcome]) -> str:
    """At how many settings the verdict is none, empty where at every one it is."""
    said = [
        f"{outcome.value} at {'all' if number == len(verdicts) else number} of them"
        for outcome in (Outcome.NOISE, Outcome.UNKNOWN)
        if (number := verdicts.count(outcome))
    ]
    return f" ({', '.join(said)})" if said else ""


def _between(low: float, high: float) -> str:
    """Ratios as what is more or less, from the least to the most."""
    least, most = (
        f"{100 * abs(it - 1):.1f} % {'less' if it < 1 else 'more'}" for it in (low, high)
    )
    if least == most:
        return least
    if (low < 1) == (high < 1):
        word = least.rpartition(" ")[2]
        first, second = sorted(abs(it - 1) for it in (low, high))
        return f"{100 * first:.1f} to {100 * second:.1f} % {word}"
    return f"{least} to {most}"


def _some(words: Sequence[str]) -> str:
    return "; ".join(words[:_IDS]) + (f" and {len(words) - _IDS} more" if len(words) > _IDS else "")
