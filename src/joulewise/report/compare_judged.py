"""Conditions of a comparison, judged: why each failed or passed, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from joulewise.errors import UsageError
from joulewise.metrics.compare_conditions import Condition, Judged, judge
from joulewise.metrics.compare_runs import Comparison
from joulewise.metrics.compare_sweeps import SweepsCompared
from joulewise.metrics.result import Interval
from joulewise.report.compare_tables import value_in, words_of
from joulewise.report.sweep_words import counted, more_or_less, setting_words

Sentence = tuple[Judged, str]


def judged_runs(
    found: Comparison, conditions: Sequence[Condition], *, sure: bool
) -> list[Sentence]:
    told = [(it, found.get(it.quantity)) for it in conditions]
    results = [(judge(it, compared, sure=sure), compared) for it, compared in told]
    return [
        (it, _sentence(it, compared.unit if compared else "", sure=sure))
        for it, compared in results
    ]


def judged_sweeps(
    found: SweepsCompared, conditions: Sequence[Condition], *, sure: bool
) -> list[Sentence]:
    """Of the settings that both have, one at which it is the case is enough."""
    return [_over_settings(found, condition, sure=sure) for condition in conditions]


def _over_settings(found: SweepsCompared, condition: Condition, *, sure: bool) -> Sentence:
    judged = [
        (judge(condition, it.get(condition.quantity), sure=sure), it.setting)
        for it in found.settings
    ]
    if not judged:
        raise UsageError(
            f"--fail-if {condition.text!r} cannot be judged: no setting was run in both",
            "sweep the same settings",
        )
    sign = -1 if condition.operator.startswith("<") else 1
    worst, setting = max(judged, key=lambda each: sign * each[0].found.mean)
    number = sum(it.is_the_case for it, _ in judged)
    where = f"; so at {number} of {counted(len(judged), 'setting')}" if number else ""
    unit = next(it.unit for it in found.settings[0].quantities if it.quantity == condition.quantity)
    said = _sentence(worst, unit, sure=sure)
    return worst, f"{said} at {setting_words(setting)}{where}"


def _sentence(it: Judged, unit: str, *, sure: bool) -> str:
    outcome = "failed" if it.is_the_case else "passed"
    is_case = "is the case" if it.is_the_case else "is not the case"
    if sure:
        is_case = is_case.replace("the case", "surely the case")
    said = f"{outcome}: {it.condition.text.strip()} {is_case}: {_found(it, unit)}"
    if it.within_noise and not sure:
        return f"{said} (by the mean; within noise of the limit, more runs would tell)"
    return said


def _found(it: Judged, unit: str) -> str:
    quantity, found = words_of(it.condition.quantity), it.found
    if it.condition.is_share:
        return f"B has {more_or_less([(_ratio(found), quantity, '')], 'A')}"
    value = value_in(unit, abs(found.mean))
    bounds = _bounds(found, unit)
    if it.condition.is_change:
        return f"B has {value} {'less' if found.mean < 0 else 'more'} {quantity} than A{bounds}"
    return f"B's {quantity} is {value}{bounds}"


def _bounds(found: Interval, unit: str) -> str:
    """As they are: a difference made of a ratio lies on no middle of its interval."""
    if found.low is None or found.high is None:
        return ""
    low, high = (value_in(unit, it) for it in (found.low, found.high))
    return f" ({low} to {high})"


def _ratio(change: Interval) -> Interval:
    low, high = (None if it is None else 1 + it for it in (change.low, change.high))
    return Interval(1 + change.mean, low, high)
