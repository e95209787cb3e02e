"""What there is to say of a sweep, apart from how it is drawn.

How a sweep went: what failed and why, what was left out, and what a search says of itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from joulewise.data.sweeps import WARM_UP, RunCounts, Setting, Sweep, Trial, TrialState
from joulewise.formatting import one_line, plain
from joulewise.metrics.boundary import NODE, WALL
from joulewise.metrics.metric import default_metrics, parse
from joulewise.metrics.result import (
    Choice,
    ParabolaFit,
    SweepResult,
    SweepWarning,
    Verdict,
    as_json,
)
from joulewise.report.settings_text import (
    COUNTED,
    counted,
    fit_worth,
    more_or_less,
    runs_words,
    setting_words,
    simulated_words,
)
from joulewise.report.tables import Table
from joulewise.report.views.projection import resume_command
from joulewise.report.views.sweep_tables import boundaries_table, choices_table, points_table
from joulewise.sweep.stored_sweeps import FINISHED, LOGS, RUNNING
from joulewise.sweep.trial import log_name


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


def sweep_view(result: SweepResult) -> SweepView:
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
    if choice.verdict is Verdict.NOISE:
        differs = f"does not differ from it beyond noise ({differences})"
    else:
        differs = f"is worse ({differences})"
    return f"keep the reference, {reference}: by {label}, {setting} {differs}"


def _fits(fits: Sequence[ParabolaFit]) -> Iterator[str]:
    problems: dict[tuple[str, str], list[str]] = {}
    has_several = len({fit.where for fit in fits}) > 1
    for fit in fits:
        if fit.problem:
            worth = fit_worth(fit)
            label = f"{parse(fit.quantity).label}{worth and f' ({worth})'}"
            where = setting_words(fit.where) if has_several else ""
            problems.setdefault((where, fit.problem), []).append(label)
        elif fit.r2 is not None:
            where = setting_words(fit.where)
            label = parse(fit.quantity).label
            least = "" if fit.minimum_w is None else f", least at {fit.minimum_w:.0f} W"
            yield (
                f"parabola of {label} against the limit{where and f' at {where}'}: "
                f"{fit_worth(fit)}, adjusted {fit.adjusted_r2:.4f}, "
                f"{fit.dof} degrees of freedom{least}"
            )
    alike: dict[tuple[str, str], list[str]] = {}
    for (where, problem), quantities in problems.items():
        alike.setdefault((", ".join(dict.fromkeys(quantities)), problem), []).append(where)
    for (which, problem), places in alike.items():
        at = f" at {'; '.join(places)}" if has_several else ""
        yield f"no parabola of {which} against the limit{at}: {problem}"


def _notes(result: SweepResult) -> Iterator[str]:
    if result.assumed and result.best:
        node, wall = (result.sources.get(boundary, "") for boundary in (NODE, WALL))
        if NODE in result.assumed and node:
            wall = wall.replace(node, "that of the node", 1)
        told = {NODE: node, WALL: wall}
        listed = [f"{COUNTED[boundary]}: {told[boundary]}" for boundary in result.assumed]
        yield f"{'; '.join(listed)}; give your own with --overhead-w and --pue"


_SHOWN: Final = 5
_TAIL: Final = 3


@dataclass(frozen=True)
class Went:
    """``problems`` are each a line and what belongs under it; ``search`` are sentences."""

    notes: tuple[str, ...]
    problems: tuple[tuple[str, tuple[str, ...]], ...]
    search: tuple[str, ...]


def went(sweep: Sweep, folder: Path | None = None, metrics: Sequence[str] = ()) -> Went:
    """``folder`` is the sweep's, where its logs are; ``metrics`` are those that are shown."""
    return Went(
        notes=(*_sweep_went_notes(sweep), *_unsearched(sweep, metrics)),
        problems=tuple(_problems(sweep, folder)),
        search=tuple(_search(sweep)),
    )


def search_as_json(sweep: Sweep, folder: Path | None = None) -> dict[str, Any]:
    return {
        "state": sweep.state,
        "resume_command": resume_command(sweep),
        "failed": [
            {
                **_place(trial),
                "attempts": trial.attempts,
                "exit_code": trial.exit_code,
                "run": trial.run,
                "log": _log(trial, folder),
                "log_tail": trial.log_tail,
            }
            for trial in _of(sweep, TrialState.FAILED)
        ],
        "skipped": [_place(trial) for trial in _of(sweep, TrialState.SKIPPED)],
        "stopped": [_place(trial) for trial in _of(sweep, TrialState.STOPPED)],
        "search": dict(sweep.sure) or None,
    }


def _place(trial: Trial) -> dict[str, Any]:
    block = None if trial.block == WARM_UP else trial.block
    return {"settings": trial.setting.as_json(), "block": block, "reason": trial.reason}


def _of(sweep: Sweep, state: TrialState) -> list[Trial]:
    return [trial for trial in sweep.trials if trial.state is state]


def unfinished(sweep: Sweep) -> str:
    """How far a sweep is that has not come to its end; empty where it has."""
    if sweep.state == FINISHED:
        return ""
    on = "" if sweep.state == RUNNING else "; the command that began it goes on with it"
    if sweep.asked.get("adaptive"):
        how_far = f"{runs_words(RunCounts.of(sweep.trials))} of a search"
    else:
        made = sum(trial.block != WARM_UP for trial in sweep.trials)
        points = len({*sweep.settings, sweep.reference})
        how_far = f"{made} of {points * sweep.asked.get('repeat', 1)} runs"
    return f"{sweep.state}: {how_far}{on}"


def _sweep_went_notes(sweep: Sweep) -> Iterator[str]:
    if note := unfinished(sweep):
        yield note
    for verb, state in (("skipped", TrialState.SKIPPED), ("stopped early", TrialState.STOPPED)):
        trials = _of(sweep, state)
        if trials:
            yield f"{verb}: {_settings(trials, sweep)}, {_reasons(trials)}"
    if looks := RunCounts.of(sweep.trials).looks:
        yield (
            f"besides, {counted(looks, 'short look')} that only led the search: "
            "no figure here is from them"
        )


def _unsearched(sweep: Sweep, metrics: Sequence[str]) -> Iterator[str]:
    searched = sweep.sure.get("metrics", {})
    others = [name for name in metrics if name not in searched]
    if searched and others:
        yield (
            f"the search was for {', '.join(searched)}: by {', '.join(others)} only what it "
            "happened to try is compared"
        )


def _problems(sweep: Sweep, folder: Path | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    groups = list(_by_reason(_of(sweep, TrialState.FAILED)))
    for reason, trials in groups[:_SHOWN]:
        last = trials[-1]
        log = _log(last, folder)
        tail = [plain(line) for line in last.log_tail.rstrip().splitlines()[-_TAIL:]]
        yield (
            f"failed: {_settings(trials, sweep)}: {one_line(reason)}",
            (*(f"| {line}" for line in tail), *((f"log: {log}",) if log else ())),
        )
    if len(groups) > _SHOWN:
        yield f"failed: {len(groups) - _SHOWN} more, each otherwise", ()


def _by_reason(trials: Iterable[Trial]) -> Iterator[tuple[str, list[Trial]]]:
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        found.setdefault(trial.reason, []).append(trial)
    yield from found.items()


def _settings(trials: Sequence[Trial], sweep: Sweep) -> str:
    """In the order of the grid, and how many runs those are."""
    those = {trial.setting for trial in trials}
    which = [it for it in dict.fromkeys((*sweep.settings, *those)) if it in those]
    more = f" and {len(which) - _SHOWN} more" if len(which) > _SHOWN else ""
    named = " | ".join(map(setting_words, which[:_SHOWN]))
    return f"{named}{more} ({counted(len(trials), 'run')})"


def _reasons(trials: Sequence[Trial]) -> str:
    reasons = list(dict.fromkeys(trial.reason for trial in trials))
    return f"{'such as' if len(reasons) > 1 else 'since'}: {one_line(reasons[0])}"


def _log(trial: Trial, folder: Path | None) -> str | None:
    path = folder and folder / LOGS / log_name(trial.planned)
    return str(path) if path and path.is_file() else None


def _search(sweep: Sweep) -> Iterator[str]:
    told = sweep.sure
    if not told:
        return
    counts = RunCounts.of(sweep.trials)
    after = f" after {runs_words(counts)}" if counts.begun else ""
    if told.get("reason"):
        yield f"not sure{after}: {one_line(str(told['reason']))}"
    for name, verdict in told.get("metrics", {}).items():
        yield _verdict(verdict, parse(name).label, after)


def _verdict(told: Mapping[str, Any], label: str, after: str) -> str:
    setting = setting_words(Setting.of(told["settings"]))
    chosen = f"the reference, {setting}," if told.get("is_reference") else setting
    tolerance = told.get("tolerance")
    near = "" if tolerance is None else f"within {100 * tolerance:.2g} %"
    if told.get("sure"):
        pairs = (told.get("saving") or {}).get("pairs")
        fresh = f"; what it saves is from {pairs} fresh pairs with the reference" if pairs else ""
        return f"sure{near and f', {near}'}: {chosen} by {label}{after}{fresh}"
    probability = told.get("probability")
    odds = "" if probability is None else f", at {100 * probability:.0f} %"
    aim = f"that it is {near} of the best{odds}" if near else "that it is the best"
    return f"not sure {aim}: {chosen} by {label}{after}; --tolerance allows for more"
