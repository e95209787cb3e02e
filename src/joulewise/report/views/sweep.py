"""What is shown of a sweep: its plan, its result, what failed and why, how sure a search is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from joulewise.data import QualityWarning
from joulewise.data.sweeps import WARM_UP, RunCounts, Setting, Sweep, Trial, TrialState
from joulewise.formatting import one_line, plain
from joulewise.metrics.boundary import NODE, WALL
from joulewise.metrics.metric import default_metrics, parse
from joulewise.metrics.result import (
    Choice,
    ParabolaFit,
    SweepResult,
    Verdict,
    as_json,
)
from joulewise.report.settings_text import (
    BOUNDARY_NAMES,
    boundary_words,
    counted,
    describe_ratios,
    fit_quality,
    runs_words,
    setting_words,
    simulated_words,
)
from joulewise.report.tables import Table
from joulewise.report.views.projection import resume_command
from joulewise.report.views.sweep_tables import boundaries_table, choices_table, points_table
from joulewise.sweep.stored_sweeps import FINISHED, LOGS, RUNNING
from joulewise.sweep.trial import log_name

if TYPE_CHECKING:
    from joulewise.sweep.estimate import SweepEstimate
    from joulewise.sweep.lifecycle import PreparedSweep


@dataclass(frozen=True)
class SweepView:
    """A sweep's result: ``findings`` are a sentence for each objective, tables the figures."""

    title: str
    facts: tuple[str, ...]
    choices: Table
    boundaries: Table
    points: Table
    findings: tuple[str, ...]
    fits: tuple[str, ...]
    notes: tuple[str, ...]
    warnings: tuple[QualityWarning, ...]


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
        warnings=result.warnings,
    )


def result_json(result: SweepResult) -> dict[str, Any]:
    """The result as JSON, with the finding by each metric as a sentence."""
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
        yield f"{settings}, no run that finished; {reference}"
        return
    least, most = min(tried), max(tried)
    repeats = f"{least}" if least == most else f"{least} to {most}"
    yield f"{settings}, {counted(sum(tried), 'run')} ({repeats} of each); {reference}"
    yield boundary_words(result.boundary, result.sources.get(result.boundary, ""), result.per)


def _findings(result: SweepResult) -> Iterator[str]:
    missing = [parse(name).label for name in result.metrics if name not in result.best]
    if missing and any(point.n for point in result.points):
        reference = setting_words(result.reference.setting)
        lacks = f"energy per {result.per}" if result.reference.n else "run to compare with"
        by = f" by {', '.join(missing)}" if result.best else ""
        yield f"no recommendation{by}: the reference, {reference}, has no {lacks}"
    is_default = result.metrics == _default_metric_names()
    # Metrics that choose the same with the same figures share a sentence.
    labels: dict[str, list[str]] = {}
    for choice in result.best.values():
        # That a lower limit makes nothing faster is only worth a sentence if time was asked for.
        if not (is_default and choice.metric == "time" and choice.verdict is Verdict.REFERENCE):
            labels.setdefault(_finding(choice, result), []).append(parse(choice.metric).label)
    simulated = simulated_words(result.simulated)
    for finding, alike in labels.items():
        yield f"{'; '.join(alike)}: {finding}{simulated and f' ({simulated})'}"


@cache
def _default_metric_names() -> tuple[str, ...]:
    return tuple(metric.name for metric in default_metrics())


def _finding(choice: Choice, result: SweepResult) -> str:
    setting, reference = setting_words(choice.setting), setting_words(result.reference.setting)
    if choice.verdict is Verdict.REFERENCE:
        return f"nothing beats the reference, {setting}"
    if choice.is_same_load and not choice.is_contradictory:
        return (
            f"keep the reference, {reference}: neither its limit nor {setting} lowered the clocks, "
            "so the difference between them is noise"
        )
    ratios = ((choice.energy, "energy", ""), (choice.time, "time", ""))
    differences = describe_ratios(ratios, reference) or f"no figures against {reference}"
    takes = f"takes {differences}"
    if choice.verdict is Verdict.UNKNOWN:
        return f"{setting} {takes} (too few runs to be sure)"
    if choice.verdict is Verdict.BETTER and choice.is_dismissed:
        return (
            f"keep the reference, {reference}: {setting} {takes}, but neither limit lowered the "
            "clocks"
        )
    if choice.verdict is Verdict.BETTER:
        return f"{setting} {takes}"
    label = parse(choice.metric).label
    if choice.verdict is Verdict.NOISE:
        verdict = f"but by {label} the two differ by no more than noise"
    else:
        verdict = f"and is worse by {label}"
    return f"keep the reference, {reference}: {setting} {takes}, {verdict}"


def _fits(fits: Sequence[ParabolaFit]) -> Iterator[str]:
    """A line for each quadratic fit against the power limit, and one for each reason against it."""
    problems: dict[tuple[str, str], list[str]] = {}
    has_several = len({fit.where for fit in fits}) > 1
    for fit in fits:
        if fit.problem:
            quality = fit_quality(fit)
            label = f"{parse(fit.quantity).label}{quality and f' ({quality})'}"
            where = setting_words(fit.where) if has_several else ""
            problems.setdefault((where, fit.problem), []).append(label)
        elif fit.r2 is not None:
            where = setting_words(fit.where)
            label = parse(fit.quantity).label
            minimum = "" if fit.minimum_w is None else f": minimum at {fit.minimum_w:.0f} W"
            at = f" at {where}" if where else ""
            yield f"Quadratic fit of {label} to the limit{at} ({fit_quality(fit)}){minimum}"
    # Problems that are the same in several places share a line.
    alike: dict[tuple[str, str], list[str]] = {}
    for (where, problem), quantities in problems.items():
        alike.setdefault((", ".join(dict.fromkeys(quantities)), problem), []).append(where)
    for (which, problem), places in alike.items():
        at = f" at {'; '.join(places)}" if has_several else ""
        yield f"No quadratic fit of {which} to the limit{at}: {problem}"


def _notes(result: SweepResult) -> Iterator[str]:
    if result.assumed and result.best:
        node, wall = (result.sources.get(boundary, "") for boundary in (NODE, WALL))
        if NODE in result.assumed and node:
            wall = wall.replace(node, "the energy of the node", 1)
        sources = {NODE: node, WALL: wall}
        listed = "; ".join(f"{BOUNDARY_NAMES[it]} = {sources[it]}" for it in result.assumed)
        yield f"What is counted: {listed} (your own values: --overhead-w, --pue)"


# So many settings or kinds of failure are listed, and lines of a log (chosen: an overview that
# stays on one screen). Doubled, the finding scrolls off a small terminal if much has failed.
_SHOWN: Final = 5
_TAIL: Final = 3


@dataclass(frozen=True)
class SweepOutcome:
    """How a sweep went; ``problems`` are each a line and the lines that belong under it.

    ``search`` are sentences on how sure the search is of its choices.
    """

    notes: tuple[str, ...]
    problems: tuple[tuple[str, tuple[str, ...]], ...]
    search: tuple[str, ...]


def sweep_outcome(
    sweep: Sweep, folder: Path | None = None, metrics: Sequence[str] = ()
) -> SweepOutcome:
    """Describe how a sweep went.

    ``folder`` is that of the sweep, with its logs; ``metrics`` are those that are shown.
    """
    return SweepOutcome(
        notes=(*_course_notes(sweep), *_other_metrics_note(sweep, metrics)),
        problems=tuple(_problems(sweep, folder)),
        search=tuple(_search(sweep)),
    )


def search_as_json(sweep: Sweep, folder: Path | None = None) -> dict[str, Any]:
    """The state of a sweep in JSON: what failed, what was skipped or stopped, and its search."""
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
    """How far an unfinished sweep is; empty where it is finished."""
    if sweep.state == FINISHED:
        return ""
    resume = "" if sweep.state == RUNNING else "; run the same command again to resume it"
    if sweep.asked.get("adaptive"):
        how_far = f"{runs_words(RunCounts.of(sweep.trials))} of a search"
    else:
        done = sum(trial.block != WARM_UP for trial in sweep.trials)
        points = len({*sweep.settings, sweep.reference})
        how_far = f"{done} of {points * sweep.asked.get('repeat', 1)} runs"
    return f"{sweep.state}: {how_far}{resume}"


def _course_notes(sweep: Sweep) -> Iterator[str]:
    if note := unfinished(sweep):
        yield note
    for verb, state in (("skipped", TrialState.SKIPPED), ("stopped early", TrialState.STOPPED)):
        trials = _of(sweep, state)
        if trials:
            yield f"{verb}: {_settings(trials, sweep)}, {_reasons(trials)}"
    if looks := RunCounts.of(sweep.trials).looks:
        yield (
            f"in addition, {counted(looks, 'short trial')} that only guided the search; they are "
            "not in these figures"
        )


def _other_metrics_note(sweep: Sweep, metrics: Sequence[str]) -> Iterator[str]:
    searched = sweep.sure.get("metrics", {})
    others = [name for name in metrics if name not in searched]
    if searched and others:
        yield (
            f"the search was for the best by {', '.join(searched)}; by {', '.join(others)}, only "
            "the settings that it tried are compared"
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
        yield f"failed: {len(groups) - _SHOWN} more, each for another reason", ()


def _by_reason(trials: Iterable[Trial]) -> Iterator[tuple[str, list[Trial]]]:
    by_reason: dict[str, list[Trial]] = {}
    for trial in trials:
        by_reason.setdefault(trial.reason, []).append(trial)
    yield from by_reason.items()


def _settings(trials: Sequence[Trial], sweep: Sweep) -> str:
    """The settings of some trials in the order of the grid, and the number of trials."""
    wanted = {trial.setting for trial in trials}
    settings = [it for it in dict.fromkeys((*sweep.settings, *wanted)) if it in wanted]
    more = f" and {len(settings) - _SHOWN} more" if len(settings) > _SHOWN else ""
    listed = " | ".join(map(setting_words, settings[:_SHOWN]))
    return f"{listed}{more} ({counted(len(trials), 'run')})"


def _reasons(trials: Sequence[Trial]) -> str:
    reasons = list(dict.fromkeys(trial.reason for trial in trials))
    return f"{'for example' if len(reasons) > 1 else 'because'}: {one_line(reasons[0])}"


def _log(trial: Trial, folder: Path | None) -> str | None:
    path = folder and folder / LOGS / log_name(trial.planned)
    return str(path) if path and path.is_file() else None


def _search(sweep: Sweep) -> Iterator[str]:
    """Sentences on how sure a search is; none of a sweep over a grid."""
    search = sweep.sure
    if not search:
        return
    counts = RunCounts.of(sweep.trials)
    after = f" after {runs_words(counts)}" if counts.begun else ""
    if search.get("reason"):
        yield f"not sure{after}: {one_line(str(search['reason']))}"
    for name, verdict in search.get("metrics", {}).items():
        yield _search_verdict(verdict, parse(name).label, after)


def _search_verdict(verdict: Mapping[str, Any], label: str, after: str) -> str:
    setting = setting_words(Setting.of(verdict["settings"]))
    chosen = f"the reference, {setting}," if verdict.get("is_reference") else setting
    tolerance = verdict.get("tolerance")
    near = "the best" if tolerance is None else f"within {100 * tolerance:.2g} % of the best"
    if verdict.get("sure"):
        pairs = (verdict.get("saving") or {}).get("pairs")
        # The runs of the pairs are among those that are counted.
        fresh = f"; {pairs} pairs of these runs came after the search, and measured the saving"
        return f"{label}: sure{after} that {chosen} is {near}{fresh if pairs else ''}"
    probability = verdict.get("probability")
    odds = "" if probability is None else f" (probability {100 * probability:.0f} %)"
    return (
        f"{label}: not sure{after} that {chosen} is {near}{odds}; "
        "--tolerance accepts a larger difference"
    )


@dataclass(frozen=True)
class PlanView:
    """What a sweep will do and take (``sweep --dry-run``).

    ``blocks`` are the runs of each repetition in order, empty of a search.
    """

    name: str
    reference: Setting
    settings: tuple[Setting, ...]
    blocks: tuple[tuple[Setting, ...], ...]
    estimate: SweepEstimate
    is_simulated: bool = False


def plan_view(prepared: PreparedSweep, store: Path, price_per_kwh: float | None = None) -> PlanView:
    """The plan of a prepared sweep, with its estimate."""
    from joulewise.sweep.estimate import estimate
    from joulewise.sweep.lifecycle import strategy
    from joulewise.sweep.space import order

    asked, space = prepared.asked, prepared.space
    repetitions = 0 if asked.adaptive else asked.repeat
    lanes = prepared.lanes
    runs = strategy(asked, space, lanes).left if asked.adaptive else None
    return PlanView(
        asked.name,
        space.reference,
        space.settings,
        tuple(tuple(order(space, asked, block)) for block in range(repetitions)),
        estimate(asked, space, store, lanes=lanes, runs=runs, price_per_kwh=price_per_kwh),
        is_simulated=asked.simulated is not None,
    )


def plan_json(shown: PlanView) -> dict[str, Any]:
    """The plan in JSON."""
    expected = shown.estimate
    return {
        "name": shown.name,
        "reference": shown.reference.as_json(),
        "settings": len(shown.settings),
        "runs": expected.runs,
        "lanes": expected.lanes,
        "simulated": shown.is_simulated,
        "time_s": expected.time_s,
        "most_s": expected.most_s,
        "energy_j": expected.energy_j,
        "price": expected.price,
        "basis": expected.basis.source,
        "left_out": expected.left_out,
        "plan": [[setting.as_json() for setting in block] for block in shown.blocks],
    }
