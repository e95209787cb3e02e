"""What there is to say of a sweep, apart from how it is drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from joulewise.metrics.contract import as_json
from joulewise.metrics.result import Choice, Fit, SweepResult, SweepWarning, Verdict
from joulewise.metrics.rules import default_metrics, parse
from joulewise.report.figures import one_line
from joulewise.report.sweep_tables import boundaries_table, choices_table, points_table
from joulewise.report.sweep_words import (
    COUNTED,
    counted,
    fit_worth,
    more_or_less,
    setting_words,
    simulated_words,
)
from joulewise.report.tables import Table


@dataclass(frozen=True)
class SweepView:
    """``findings`` are the answer in a sentence for each metric; tables have the figures."""

    title: str
    facts: tuple[str, ...]
    choices: Table
    boundaries: Table
    points: Table
    findings: tuple[str, ...]
    fits: tuple[str, ...]
    notes: tuple[str, ...]
    cautions: tuple[SweepWarning, ...]


def view(result: SweepResult) -> SweepView:
    simulated = simulated_words(result.simulated)
    words = (f"sweep {result.id}", one_line(result.name), result.gpu_name, simulated)
    return SweepView(
        title=" · ".join(filter(None, words)),
        facts=tuple(_facts(result)),
        choices=choices_table(result),
        boundaries=boundaries_table(result),
        points=points_table(result),
        findings=tuple(_findings(result)),
        fits=tuple(_fits(result.fits)),
        notes=tuple(_notes(result)),
        cautions=result.cautions,
    )


def result_json(result: SweepResult) -> dict[str, Any]:
    """The result as JSON, with what it says of each metric in words."""
    findings = {metric: _finding(choice, result) for metric, choice in result.best.items()}
    return {**as_json(result), "findings": findings}


def _facts(result: SweepResult) -> Iterator[str]:
    counts = [point.n for point in result.points]
    tried = [count for count in counts if count]
    settings = counted(len(counts), "setting")
    if tried and len(tried) < len(counts):
        settings = f"{len(tried)} of {settings}"
    reference = f"reference {setting_words(result.reference.setting)}"
    if not tried:
        yield f"{settings}, no run that counts; {reference}"
        return
    least, most = min(tried), max(tried)
    each = f"{least}" if least == most else f"{least} to {most}"
    yield f"{settings}, {counted(sum(tried), 'run')} ({each} of each); {reference}"
    source = result.sources.get(result.boundary, "")
    resting = f" ({source})" if source else ""
    yield f"counted: {COUNTED[result.boundary]}{resting}, per {result.per}"


def _findings(result: SweepResult) -> Iterator[str]:
    missing = [parse(name).label for name in result.metrics if name not in result.best]
    if missing and any(point.n for point in result.points):
        reference = setting_words(result.reference.setting)
        lacks = f"energy per {result.per}" if result.reference.n else "run to compare with"
        by = f" by {', '.join(missing)}" if result.best else ""
        yield f"no recommendation{by}: the reference, {reference}, has no {lacks}"
    unasked = result.metrics == _by_default()
    labels: dict[str, list[str]] = {}
    for choice in result.best.values():
        # That a lower limit makes nothing faster is no news to who did not ask for time.
        if not (unasked and choice.metric == "time" and choice.verdict is Verdict.REFERENCE):
            labels.setdefault(_finding(choice, result), []).append(parse(choice.metric).label)
    simulated = simulated_words(result.simulated)
    for finding, alike in labels.items():
        yield f"{'; '.join(alike)}: {finding}{simulated and f' ({simulated})'}"


@cache
def _by_default() -> tuple[str, ...]:
    return tuple(metric.name for metric in default_metrics())


def _finding(choice: Choice, result: SweepResult) -> str:
    setting, reference = setting_words(choice.setting), setting_words(result.reference.setting)
    if choice.verdict is Verdict.REFERENCE:
        return f"nothing beats the reference, {setting}"
    if choice.is_same_load and not choice.is_contradictory:
        return (
            f"keep the reference, {reference}: neither its limit nor {setting} held the clocks "
            "down, so what differs between them is noise"
        )
    ratios = ((choice.energy, "energy", ""), (choice.time, "time", ""))
    differences = more_or_less(ratios, reference) or f"no figures against {reference}"
    takes = f"{setting} takes {differences}"
    if choice.verdict is Verdict.UNKNOWN:
        return f"{takes} (too few runs to be sure)"
    if choice.verdict is Verdict.BETTER and choice.is_dismissed:
        return f"keep the reference, {reference}: {takes}, but neither limit held the clocks down"
    if choice.verdict is Verdict.BETTER:
        return takes
    label = parse(choice.metric).label
    differs = "does not differ beyond noise" if choice.verdict is Verdict.NOISE else "is worse"
    return f"keep the reference, {reference}: {takes}, and its {label} {differs}"


def _fits(fits: Sequence[Fit]) -> Iterator[str]:
    problems: dict[str, list[str]] = {}
    for fit in fits:
        if fit.problem:
            worth = fit_worth(fit)
            label = f"{parse(fit.quantity).label}{worth and f' ({worth})'}"
            problems.setdefault(fit.problem, []).append(label)
        elif fit.r2 is not None:
            where = setting_words(fit.where)
            label = parse(fit.quantity).label
            least = "" if fit.minimum_w is None else f", least at {fit.minimum_w:.0f} W"
            yield (
                f"parabola of {label} against the limit{where and f' at {where}'}: "
                f"{fit_worth(fit)}, adjusted {fit.adjusted_r2:.4f}, "
                f"{fit.dof} degrees of freedom{least}"
            )
    for problem, quantities in problems.items():
        which = ", ".join(dict.fromkeys(quantities))
        yield f"no parabola of {which} against the limit: {problem}"


def _notes(result: SweepResult) -> Iterator[str]:
    if result.assumed and result.best:
        yield (
            f"{' and '.join(COUNTED[boundary] for boundary in result.assumed)}: "
            "what is drawn besides the GPUs is assumed; give --overhead-w and --pue"
        )
