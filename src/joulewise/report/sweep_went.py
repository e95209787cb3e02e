"""How a sweep went: what failed and why, what was left out, and what a search says of itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from joulewise.data.sweeps import WARM_UP, RunCounts, Setting, Sweep, Trial, TrialState
from joulewise.metrics.rules import parse
from joulewise.report.figures import one_line, plain
from joulewise.report.sweep_outlook import resume_command
from joulewise.report.sweep_words import counted, runs_words, setting_words
from joulewise.sweep.naming import log_name
from joulewise.sweep.store import FINISHED, LOGS, RUNNING

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
        notes=(*_notes(sweep), *_unsearched(sweep, metrics)),
        problems=tuple(_problems(sweep, folder)),
        search=tuple(_search(sweep)),
    )


def as_json(sweep: Sweep, folder: Path | None = None) -> dict[str, Any]:
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


def _notes(sweep: Sweep) -> Iterator[str]:
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
