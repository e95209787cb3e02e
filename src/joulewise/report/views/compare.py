"""What is shown of a comparison: facts, tables, the finding, and the verdicts on conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from joulewise.compare.conditions import ConditionVerdict, FailCondition, judge
from joulewise.compare.judgement import ComparedQuantity, CompareOutcome
from joulewise.compare.quantities import ENERGY, RUN, TIME
from joulewise.compare.result_json import judged_json, runs_json, sweeps_json
from joulewise.compare.runs import CompareWarningCode, Comparison, Side, compare_runs
from joulewise.compare.sweeps import SweepComparison, compare_sweeps, range_of
from joulewise.data import QualityWarning
from joulewise.data.sweeps import Sweep
from joulewise.errors import UsageError
from joulewise.formatting import one_line
from joulewise.metrics.boundary import GPU, View, resolve_boundary
from joulewise.metrics.metric import parse
from joulewise.metrics.result import Interval, SweepResult
from joulewise.report.compare_sides import load_sides
from joulewise.report.settings_text import boundary_words, counted, describe_ratios, setting_words
from joulewise.report.tables import Table
from joulewise.report.views.compare_tables import (
    choices_table,
    differences_table,
    provenance,
    quantities_table,
    settings_table,
    value_in,
    words_of,
)

_UNSURE: Final = {
    CompareOutcome.NOISE: "within noise",
    CompareOutcome.UNKNOWN: "too few runs to be sure",
}
# Characters of a name, and ids or settings that are listed (chosen: the facts of a side fit on a
# line of 120 columns).
_NAME: Final = 60
_IDS: Final = 3


@dataclass(frozen=True)
class CompareView:
    """A comparison; ``finding`` is the answer in a sentence, the first table has the figures."""

    title: str
    facts: tuple[str, ...]
    tables: tuple[Table, ...]
    finding: str
    warnings: tuple[QualityWarning, ...]


def view_of_runs(comparison: Comparison) -> CompareView:
    """What to show of a comparison of runs."""
    differing = (differences_table(comparison),) if comparison.differences else ()
    return CompareView(
        title=f"{one_line(comparison.b.name, _NAME)} against {one_line(comparison.a.name, _NAME)}",
        facts=(_side("A", comparison.a), _side("B", comparison.b)),
        tables=(quantities_table(comparison), *differing),
        finding=_with_notes(_finding(comparison), comparison),
        warnings=comparison.warnings,
    )


def view_of_sweeps(comparison: SweepComparison) -> CompareView:
    """What to show of a comparison of sweeps."""
    settings = (settings_table(comparison),) if comparison.settings else ()
    return CompareView(
        title=f"sweep {_sweep_name(comparison.b)} against sweep {_sweep_name(comparison.a)}",
        facts=tuple(_sweep_facts(comparison)),
        tables=(*settings, choices_table(comparison)),
        finding=_with_notes(_sweeps_finding(comparison), comparison),
        warnings=comparison.warnings,
    )


def _with_notes(finding: str, comparison: Comparison | SweepComparison) -> str:
    notes = list(filter(None, [provenance(comparison)]))
    if any(it.code is CompareWarningCode.WORK_NOT_KNOWN for it in comparison.warnings):
        notes.append("per run; it is not known whether both did the same work")
    return f"{finding} ({'; '.join(notes)})" if notes else finding


def _finding(comparison: Comparison) -> str:
    """B against A in a sentence; per epoch, step or sample where the sides differ in work."""
    work = comparison.work.per
    per = f"/{work}" if work != RUN and comparison.get(f"{TIME}/{work}") else ""
    compared = [(comparison.get(f"{quantity}{per}"), quantity) for quantity in (ENERGY, TIME)]
    is_noise = all(it and it.verdict is CompareOutcome.NOISE for it, _ in compared)
    ratios = [_ratio_with_note(it, quantity, is_noise=is_noise) for it, quantity in compared]
    whole = describe_ratios(ratios, "A")
    if not whole:
        return "nothing of B can be compared with A"
    why = f"; {comparison.bounded} and is not compared" if comparison.bounded else ""
    unsure = "no difference beyond noise: " if is_noise else ""
    return f"{unsure}{f'per {work} ' if per else ''}B takes {whole}{why}"


def _ratio_with_note(
    compared: ComparedQuantity | None, what: str, *, is_noise: bool
) -> tuple[Interval | None, str, str]:
    """A ratio, its quantity, and a note if it is unsure and the sentence does not say so."""
    if compared is None:
        return None, what, ""
    return compared.ratio, what, "" if is_noise else _UNSURE.get(compared.verdict, "")


def _side(letter: str, side: Side) -> str:
    ids = [one_line(run.id, _NAME) for run in side.runs]
    listed = ", ".join(ids[:_IDS]) + (", …" if len(ids) > _IDS else "")
    return f"{letter}: {one_line(side.name, _NAME)}, {counted(len(ids), 'run')} ({listed})"


def _sweep_name(result: SweepResult) -> str:
    return one_line(result.name or result.id, _NAME)


def _sweep_facts(comparison: SweepComparison) -> Iterator[str]:
    for letter, result in (("A", comparison.a), ("B", comparison.b)):
        runs = counted(sum(point.n for point in result.points), "run")
        words = filter(None, (result.id, one_line(result.name), result.gpu_name))
        reference = setting_words(result.reference.setting)
        yield f"{letter}: {' · '.join(words)}, {runs}; reference {reference}"
    result = comparison.a
    yield boundary_words(result.boundary, result.sources.get(result.boundary, ""), result.per)
    for letter, only in (("A", comparison.only_a), ("B", comparison.only_b)):
        if only:
            yield f"only in {letter}: {_some([setting_words(it) for it in only])}"


def _sweeps_finding(comparison: SweepComparison) -> str:
    same: list[str] = []
    other: list[str] = []
    for it in comparison.choices:
        if it.a and it.b:
            (same if it.a.setting == it.b.setting else other).append(parse(it.metric).label)
    parts = []
    if comparison.settings:
        where = f"at the {counted(len(comparison.settings), 'setting')} that both have"
        per = "" if comparison.a.per == RUN else f"per {comparison.a.per}, "
        parts = [f"{per}{where}, B takes {_ranges(comparison)} than A"]
    if other:
        parts.append(f"the best setting differs for {', '.join(other)}")
    if same:
        parts.append(_same_choice(same, is_all=not other))
    return "; ".join(parts) or "nothing of B can be compared with A"


def _same_choice(metrics: Sequence[str], *, is_all: bool) -> str:
    if not is_all:
        return f"it is the same for {', '.join(metrics)}"
    which = "every objective" if len(metrics) > 1 else metrics[0]
    return f"the best setting is the same in both for {which}"


def _ranges(comparison: SweepComparison) -> str:
    """The ranges of the ratios of energy and time over all settings."""
    ranges = []
    for quantity in (ENERGY, TIME):
        span = range_of(comparison, quantity)
        if span is not None and span.low is not None and span.high is not None:
            verdicts = [it.verdict for point in comparison.settings if (it := point.get(quantity))]
            ranges.append(f"{_between(span.low, span.high)} {quantity}{_unsure_at(verdicts)}")
    return " and ".join(ranges)


def _unsure_at(verdicts: Sequence[CompareOutcome]) -> str:
    """At how many settings there is no verdict; empty where there is one at all of them."""
    unsure = [
        f"{outcome.value} at {'all' if number == len(verdicts) else number} of them"
        for outcome in (CompareOutcome.NOISE, CompareOutcome.UNKNOWN)
        if (number := verdicts.count(outcome))
    ]
    return f" ({', '.join(unsure)})" if unsure else ""


def _between(low: float, high: float) -> str:
    """A range of ratios: ``0.7 to 1.3 % less``, ``0.5 % less to 0.1 % more``."""
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


Sentence = tuple[ConditionVerdict, str]


def judged_runs(
    comparison: Comparison, conditions: Sequence[FailCondition], *, sure: bool
) -> list[Sentence]:
    """The verdict on each condition with a sentence; ``sure`` judges the whole interval."""
    compared = [(it, comparison.get(it.quantity)) for it in conditions]
    verdicts = [(judge(it, quantity, sure=sure), quantity) for it, quantity in compared]
    return [
        (it, _sentence(it, quantity.unit if quantity else "", sure=sure))
        for it, quantity in verdicts
    ]


def judged_sweeps(
    comparison: SweepComparison, conditions: Sequence[FailCondition], *, sure: bool
) -> list[Sentence]:
    """The same for two sweeps: it is enough that a condition holds at one common setting."""
    return [_over_settings(comparison, condition, sure=sure) for condition in conditions]


def _over_settings(
    comparison: SweepComparison, condition: FailCondition, *, sure: bool
) -> Sentence:
    judged = [
        (judge(condition, it.get(condition.quantity), sure=sure), it.setting)
        for it in comparison.settings
    ]
    if not judged:
        raise UsageError(
            f"--fail-if {condition.text!r} cannot be judged: the sweeps have no setting in common",
            "sweep the same settings",
        )
    # The setting that is farthest beyond the limit speaks for all.
    sign = -1 if condition.operator.startswith("<") else 1
    worst, setting = max(judged, key=lambda pair: sign * pair[0].found.mean)
    number = sum(it.is_the_case for it, _ in judged)
    where = f"; so at {number} of {counted(len(judged), 'setting')}" if number else ""
    unit = next(
        it.unit for it in comparison.settings[0].quantities if it.quantity == condition.quantity
    )
    return worst, f"{_sentence(worst, unit, sure=sure)} at {setting_words(setting)}{where}"


def _sentence(verdict: ConditionVerdict, unit: str, *, sure: bool) -> str:
    outcome = "failed" if verdict.is_the_case else "passed"
    certainty = "surely " if sure else ""
    holds = f"is {certainty}true" if verdict.is_the_case else f"is not {certainty}true"
    sentence = f"{outcome}: {verdict.condition.text.strip()} {holds}: {_value_found(verdict, unit)}"
    if verdict.within_noise and not sure:
        return f"{sentence} (by the mean; the limit is within noise: repeat the runs to be sure)"
    return sentence


def _value_found(verdict: ConditionVerdict, unit: str) -> str:
    quantity, found = words_of(verdict.condition.quantity), verdict.found
    if verdict.condition.is_share:
        return f"B has {describe_ratios([(_ratio(found), quantity, '')], 'A')}"
    value = value_in(unit, abs(found.mean))
    bounds = _bounds(found, unit)
    if verdict.condition.is_change:
        return f"B has {value} {'less' if found.mean < 0 else 'more'} {quantity} than A{bounds}"
    return f"B's {quantity} is {value}{bounds}"


def _bounds(found: Interval, unit: str) -> str:
    """The interval in brackets; not as ±, since that of a ratio is not symmetric."""
    if found.low is None or found.high is None:
        return ""
    low, high = (value_in(unit, it) for it in (found.low, found.high))
    return f" ({low} to {high})"


def _ratio(change: Interval) -> Interval:
    low, high = (None if it is None else 1 + it for it in (change.low, change.high))
    return Interval(1 + change.mean, low, high)


@dataclass(frozen=True)
class CompareOptions:
    """What to compare by: ``conditions`` that must not hold; the rest is for sweeps.

    None takes the value that the sweeps were made with.
    """

    conditions: tuple[FailCondition, ...] = ()
    sure: bool = False
    by: tuple[str, ...] = ()
    boundary: str | None = None
    overhead_w: float | None = None
    pue: float | None = None


NOTHING_ASKED: Final = CompareOptions()


@dataclass(frozen=True)
class ComparisonResult:
    """A comparison with its view and the verdicts on conditions; ``payload`` is its JSON."""

    found: Comparison | SweepComparison
    view: CompareView
    judged: tuple[Sentence, ...]
    payload: dict[str, Any]

    @property
    def has_failed(self) -> bool:
        """Whether any condition holds that must not."""
        return any(it.is_the_case for it, _ in self.judged)


def compared(
    store: Path, a: str, b: str, asked: CompareOptions = NOTHING_ASKED
) -> ComparisonResult:
    """Compare what two names refer to; a condition that cannot be judged is a UsageError."""
    of_a, of_b = load_sides(store, a, b)
    if isinstance(of_a, Sweep) and isinstance(of_b, Sweep):
        return compared_sweeps(of_a, of_b, asked)
    assert isinstance(of_a, Side) and isinstance(of_b, Side)  # noqa: S101, PT018  # by load_sides()
    return compared_runs(of_a, of_b, asked)


def compared_runs(a: Side, b: Side, asked: CompareOptions = NOTHING_ASKED) -> ComparisonResult:
    """Compare two sides of runs."""
    if asked.by or (asked.boundary, asked.overhead_w, asked.pue) != (None, None, None):
        raise UsageError(
            "--by, --boundary, --overhead-w and --pue are for sweeps, and these are runs",
            "leave them out: for runs every device is compared, and the total",
        )
    comparison = compare_runs(a, b)
    judged = judged_runs(comparison, asked.conditions, sure=asked.sure)
    return _with_json(comparison, view_of_runs(comparison), judged, runs_json(comparison))


def compared_sweeps(a: Sweep, b: Sweep, asked: CompareOptions = NOTHING_ASKED) -> ComparisonResult:
    """Compare two sweeps, at the boundary that both were made for unless another is given."""
    boundary = resolve_boundary(asked.boundary or _common_boundary(a, b), a, b)
    overhead_w, pue = (
        (a.asked.get(name) if given is None and a.asked.get(name) == b.asked.get(name) else given)
        for name, given in (("overhead_w", asked.overhead_w), ("pue", asked.pue))
    )
    metrics = [parse(text) for text in asked.by]
    comparison = compare_sweeps(a, b, metrics, View(boundary, overhead_w=overhead_w, pue=pue))
    judged = judged_sweeps(comparison, asked.conditions, sure=asked.sure)
    return _with_json(comparison, view_of_sweeps(comparison), judged, sweeps_json(comparison))


def _common_boundary(a: Sweep, b: Sweep) -> str:
    """The boundary of both sweeps; the GPUs, which both have, where they differ."""
    asked = {str(sweep.asked.get("boundary", GPU)) for sweep in (a, b)}
    return asked.pop() if len(asked) == 1 else GPU


def _with_json(
    comparison: Comparison | SweepComparison,
    view: CompareView,
    judged: Sequence[Sentence],
    payload: dict[str, Any],
) -> ComparisonResult:
    whole = {**payload, "finding": view.finding, "conditions": judged_json(judged)}
    return ComparisonResult(comparison, view, tuple(judged), whole)
