"""What is shown of a tuning: what won and why, what it saves, what exploring took, what was tried.

Computed once for the terminal, the page and the live view.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from joulewise.data.sweeps import Setting
from joulewise.data.tuning import (
    ProgramMetric,
    Saving,
    SettingSteps,
    StepEstimate,
    Tuning,
    TuningEnd,
    TuningPhase,
    TuningState,
)
from joulewise.errors import JoulewiseError
from joulewise.formatting import capitalised, joules, plain, seconds
from joulewise.metrics.metric import Reference, parse
from joulewise.report.settings_text import counted
from joulewise.report.tables import Column, Table

_METHOD_NAMES: Final = {
    "trials": "the measured steps at both settings",
    "fit": "the curves fitted to all measured steps",
    "proof": "blocks of steps at both settings in turn (--prove)",
    "checks": "later steps at the setting before (--keep-checking)",
}
# Where the saving is not the difference of the means in the table.
_OTHER_THAN_TABLE: Final = {
    "fit": "too few steps at the chosen setting were measured",
    "proof": "the table has the means of all steps",
    "checks": "the table has the means of all steps",
}
# The probability is that the choice is so near to the best, in percent, without and with a bound on
# the slowdown: the tolerances of `TuningObjective`, which loads numpy.
TOLERANCE_PERCENT: Final = 1
TOLERANCE_AT_BOUND_PERCENT: Final = 2
_ALMOST_SURE: Final = 0.999  # a probability is by a few hundred samples, and never shown as 1
# Rows of the table of what was tried, best first (chosen: it fits a terminal of 24 lines).
_MOST_ROWS: Final = 8
_DIGITS: Final = 3  # of a mean: what steps of one setting differ by is seen in the third
_SEARCHING: Final = frozenset({TuningState.WARMING_UP, TuningState.EXPLORING})
_SETTLED: Final = frozenset({TuningState.HOLDING, TuningState.CHECKING})


@dataclass(frozen=True)
class TuningView:
    """A title, the finding, facts below it, and the table of what was tried.

    A page has every setting (``all_tried``), and in place of some of the facts, as which only
    ``context`` remains, what was saved and what exploring took (``account``), and when it explored
    again (``changes``).
    """

    title: str
    finding: str
    facts: tuple[str, ...]
    context: tuple[str, ...]
    tried: Table
    notes: tuple[str, ...]
    all_tried: Table
    account: Table
    changes: Table


def tuning_view(tuning: Tuning) -> TuningView:
    return TuningView(
        title=f"tuning by {tuning.metric}, over {_axes(tuning)}",
        finding=_finding(tuning),
        facts=(*_reasons(tuning), *_account(tuning), *_state(tuning)),
        context=(*_reasons(tuning), *_state(tuning)),
        tried=_tried_table(tuning, _MOST_ROWS),
        notes=tuple(map(plain, tuning.notes)),
        all_tried=_tried_table(tuning, len(tuning.tried)),
        account=_account_table(tuning),
        changes=_changes_table(tuning),
    )


def tuner_state(tuning: Tuning) -> str:
    """What a tuner is doing, in one line.

    ``tuning: exploring, 34 steps, now 200 W, SM 1200 MHz; best so far 190 W, SM 1110 MHz``.
    """
    if tuning.early_end is not None:
        return f"{early_end_text(tuning.early_end)}; {_finding(tuning)}"
    if tuning.state is TuningState.ENDED:
        return f"tuning has ended: {_finding(tuning)}"
    if tuning.state in _SETTLED and tuning.chosen is not None:
        held = tuning.chosen == tuning.reference
        saved = (
            f"; {tuning.chosen} {saving_text(tuning.saving)}" if tuning.saving and not held else ""
        )
        return f"tuning: {tuning.state.value}, {_spent_steps(tuning)}, {_now(tuning)}{saved}"
    best = best_setting(tuning)
    so_far = "" if best is None else f"; best so far {_named(best, tuning)}"
    return f"tuning: {tuning.state.value}, {_spent_steps(tuning)}, {_now(tuning)}{so_far}"


def early_end_text(end: TuningEnd) -> str:
    """When and why a tuning ended before its command, and what became of its settings."""
    settings = {
        True: "the settings from before are back",
        False: "the settings from before may not be back: joulewise restore",
        None: "its guardian, or the next joulewise command, puts the settings from before back",
    }
    return (
        f"tuning ended after {seconds(end.at_s)}: {plain(end.reason)}; {settings[end.is_restored]}"
    )


def best_setting(tuning: Tuning) -> Setting | None:
    """The setting chosen; while none is, the best by the metric of those tried, if it is known."""
    if tuning.chosen is not None and tuning.state not in _SEARCHING:
        return tuning.chosen
    tried = {one.settings: one for one in tuning.tried}
    before = tried.get(tuning.reference)
    if before is None:
        return tuning.chosen
    reference = Reference(before.step_time_s.mean, before.step_energy_j.mean)
    longest = float("inf") if tuning.max_slowdown is None else tuning.max_slowdown
    try:
        metric = parse(tuning.metric)
        scores = {
            setting: float(metric.score(one.step_time_s.mean, one.step_energy_j.mean, reference))
            for setting, one in tried.items()
            if setting == tuning.reference or one.step_time_s.mean <= longest * reference.time_s
        }
    except (JoulewiseError, ArithmeticError):  # not installed here; or it needs the highest limit
        return tuning.chosen
    return min(scores, key=lambda setting: scores[setting])


def is_choice_old(tuning: Tuning) -> bool:
    """Whether the job changed after the choice, and no other was made since."""
    searched = [phase for phase in tuning.phases if phase.state is not TuningState.ENDED]
    return tuning.chosen is not None and bool(searched) and searched[-1].state in _SEARCHING


def _spent_steps(tuning: Tuning) -> str:
    """The steps of the last phases in the same state; holding and checking alternate."""
    alike = _SETTLED if tuning.state in _SETTLED else {tuning.state}
    last = takewhile(lambda phase: phase.state in alike, reversed(tuning.phases))
    return counted(sum(phase.steps for phase in last), "step")


def _now(tuning: Tuning) -> str:
    in_force = setting_in_force(tuning.phases[-1:], tuning)
    return f"now {_named(in_force, tuning)}"


def setting_in_force(phases: Sequence[TuningPhase], tuning: Tuning) -> Setting:
    """That of the last of these phases; the one from before where the tuner had set nothing."""
    return (phases[-1].settings if phases else None) or tuning.reference


def _named(setting: Setting, tuning: Tuning) -> str:
    return f"{setting} (as before)" if setting == tuning.reference else str(setting)


def saving_text(saving: Saving) -> str:
    """``saves 24.1 ± 0.6 % of the energy, for 2.0 ± 0.3 % more time``."""
    energy, time = saving.energy, saving.time
    verb = "saves" if energy.value >= 0 else "takes"
    more = "" if energy.value >= 0 else " more"
    slower = "for {} more time" if time.value < 0 else "in {} less time"
    spent = slower.format(_percent(abs(time.value), time.error))
    fitted = " (by the fitted curves)" if saving.method == "fit" else ""
    share = _percent(abs(energy.value), energy.error)
    return f"{verb} {share}{more} of the energy, {spent}{fitted}"


def _finding(tuning: Tuning) -> str:
    if tuning.chosen is None:
        why = "" if tuning.early_end is not None else f": {plain(tuning.reason)}"
        return capitalised(f"nothing was chosen{why}")
    if tuning.chosen == tuning.reference:
        return f"{tuning.chosen}, the setting before, was kept: {plain(tuning.reason)}"
    saved = f" {saving_text(tuning.saving)}" if tuning.saving else " was chosen"
    return f"{tuning.chosen}{saved}"


def _reasons(tuning: Tuning) -> Iterator[str]:
    if tuning.chosen is None:
        return
    is_old = is_choice_old(tuning)
    if tuning.chosen != tuning.reference:
        why = "before the steps changed" if is_old else f"because {tuning.reason}"
        yield f"chosen {plain(why)}; compared with {tuning.reference}, the setting before"
    if tuning.probability and not is_old:
        is_bounded = tuning.max_slowdown is not None
        tolerance = TOLERANCE_AT_BOUND_PERCENT if is_bounded else TOLERANCE_PERCENT
        yield (
            f"probability that no other setting is better by more than {tolerance} %: "
            f"{100 * min(tuning.probability, _ALMOST_SURE):.1f} %"
        )


def _account(tuning: Tuning) -> Iterator[str]:
    """What the tables ``account`` and ``changes`` have, too."""
    if tuning.saving and tuning.saving.method in _METHOD_NAMES:
        yield f"the saving is known by {_method(tuning.saving)}"
    if tuning.exploration and tuning.exploration.steps:
        yield _exploration(tuning)
    for change in tuning.changes:
        yield f"explored again after {seconds(change.at_s)}: {plain(change.reason)}"


def _state(tuning: Tuning) -> Iterator[str]:
    for metric in tuning.program_metrics:
        yield _metric_text(metric)
    if tuning.early_end is not None:
        yield early_end_text(tuning.early_end)
    if tuning.state is not TuningState.ENDED:
        yield f"now: {tuning.state.value}"
    if tuning.step_source:
        yield f"steps are known by the {tuning.step_source.value}; energy is of {_counted(tuning)}"


def _method(saving: Saving) -> str:
    """What the saving rests on, and how that differs from the means in the table."""
    name = _METHOD_NAMES.get(saving.method, saving.method)
    pairs = f", {counted(saving.pairs, 'comparison')}" if saving.pairs else ""
    other = _OTHER_THAN_TABLE.get(saving.method, "")
    return f"{name}{pairs}{'; ' if other else ''}{other}"


def _exploration(tuning: Tuning) -> str:
    assert tuning.exploration  # noqa: S101  # by _account()
    explored = tuning.exploration
    text = f"exploring took {explored.steps} steps, {seconds(explored.time_s)}"
    if explored.energy_j is not None:
        text += f" and {joules(explored.energy_j)}"
    if explored.extra_energy_j is not None and explored.extra_time_s is not None:
        more_j, more_s = explored.extra_energy_j, explored.extra_time_s
        text += (
            f": {joules(abs(more_j))} {_than(more_j)} and {seconds(abs(more_s))} {_than(more_s)} "
            "than the same number of steps at the chosen setting"
        )
    return text


def _metric_text(metric: ProgramMetric) -> str:
    before, chosen = metric.reference.mean, metric.chosen.mean
    verdict = {
        True: "they differ",
        False: "no difference is seen",
        None: "too few values at both settings in turn to compare",
    }
    values = f"{plain(metric.name)} {before:.4g} at the setting before, {chosen:.4g} at the chosen"
    return f"the program logged {values}: {verdict[metric.differs]}"


def _than(difference: float) -> str:
    return "less" if difference < 0 else "more"


def _counted(tuning: Tuning) -> str:
    rest = f" with {tuning.overhead_w:g} W besides" if tuning.overhead_w else ""
    return (", ".join(tuning.devices) or "the GPUs") + rest


def _axes(tuning: Tuning) -> str:
    names = {"power_limit_w": "power limits", "sm_clock_mhz": "SM clocks"}
    return " and ".join(names.get(axis, "memory clocks") for axis in tuning.axes)


def _tried_table(tuning: Tuning, most_rows: int) -> Table:
    shown = sorted(tuning.tried, key=lambda one: one.step_energy_j.mean)
    chosen = [one for one in shown if one.settings in (tuning.chosen, tuning.reference)]
    rest = [one for one in shown if one not in chosen]
    rows = sorted(
        [*chosen, *rest[: max(0, most_rows - len(chosen))]],
        key=lambda one: one.step_energy_j.mean,
    )
    return Table(
        "Settings that were tried",
        (
            Column("setting", right=False),
            Column("steps", spare=2),
            Column("time/step"),
            Column("energy/step"),
            Column("power", spare=1),
        ),
        tuple(_row(one, tuning) for one in rows),
        tuple(_record(one) for one in tuning.tried),
        note=", ".join(_tried_notes(tuning, len(shown) - len(rows))),
        name="tuning",
    )


def _tried_notes(tuning: Tuning, hidden: int) -> Iterator[str]:
    if hidden:
        yield f"{counted(hidden, 'more setting')} tried"
    if tuning.chosen is not None and all(one.settings != tuning.chosen for one in tuning.tried):
        yield f"{tuning.chosen} (chosen) by the fitted curves, without measured steps"
    if tuning.changes:
        yield "settings tried before it explored again are left out"


def _row(one: SettingSteps, tuning: Tuning) -> tuple[str, ...]:
    mark = _mark(one.settings, tuning)
    power_w = one.step_energy_j.mean / one.step_time_s.mean
    return (
        f"{one.settings}{mark}",
        str(one.steps),
        _estimate(one.step_time_s, 1e3, "ms"),
        _estimate(one.step_energy_j, 1.0, "J"),
        f"{power_w:.0f} W",
    )


def _mark(setting: Setting, tuning: Tuning) -> str:
    if setting == tuning.chosen:
        return " (chosen)"
    return " (before)" if setting == tuning.reference else ""


def _record(one: SettingSteps) -> dict[str, float | str | None]:
    return {
        **one.settings.as_json(),
        "steps": one.steps,
        **estimate_fields("step_time_s", one.step_time_s),
        **estimate_fields("step_energy_j", one.step_energy_j),
    }


def estimate_fields(name: str, value: StepEstimate) -> dict[str, float | None]:
    """The fields of a record: the mean as ``name``, and the ends of its interval."""
    return {name: value.mean, f"{name}_low": value.low, f"{name}_high": value.high}


def _account_table(tuning: Tuning) -> Table:
    """What was saved and how that is known, and what exploring took."""
    rows: list[tuple[str, str]] = []
    record: dict[str, float | str | None] = {}
    if saving := tuning.saving:
        names = {"energy": saving.energy, "time": saving.time}
        for name, share in names.items():
            what = f"{name} saved" if share.value >= 0 else f"more {name}"
            rows.append((what, _percent(abs(share.value), share.error)))
            record |= {f"saved_{name}_share": share.value, f"saved_{name}_error": share.error}
        rows.append(("known by", _method(saving)))
        record |= {"method": saving.method, "comparisons": saving.pairs}
    if (explored := tuning.exploration) and explored.steps:
        took = [seconds(explored.time_s)]
        if explored.energy_j is not None:
            took.append(joules(explored.energy_j))
        rows.append(("exploring", ", ".join((counted(explored.steps, "step"), *took))))
        if explored.extra_energy_j is not None and explored.extra_time_s is not None:
            more_j, more_s = explored.extra_energy_j, explored.extra_time_s
            cost = f"{joules(abs(more_j))} {_than(more_j)}, {seconds(abs(more_s))} {_than(more_s)}"
            rows.append(("than as many steps at the chosen setting", cost))
        record |= {
            "exploring_steps": explored.steps,
            "exploring_time_s": explored.time_s,
            "exploring_energy_j": explored.energy_j,
            "exploring_extra_time_s": explored.extra_time_s,
            "exploring_extra_energy_j": explored.extra_energy_j,
        }
    return Table(
        "What tuning saved, and what exploring took",
        (Column("what", right=False), Column("how much", right=False)),
        tuple(rows),
        (record,) if record else (),
        note="After ± is the half-width of a 95 % interval." if tuning.saving else "",
        name="tuning-account",
    )


def _changes_table(tuning: Tuning) -> Table:
    return Table(
        "When it explored again",
        (Column("at", right=False), Column("why", right=False)),
        tuple((seconds(change.at_s), plain(change.reason)) for change in tuning.changes),
        tuple({"at_s": change.at_s, "reason": change.reason} for change in tuning.changes),
        name="tuning-changes",
    )


def _estimate(value: StepEstimate, factor: float, unit: str) -> str:
    mean = value.mean * factor
    decimals = max(0, _DIGITS - len(str(int(mean))))
    if value.low is None or value.high is None:
        return f"{mean:.{decimals}f} {unit}"
    half = (value.high - value.low) / 2 * factor
    if 0 < half < 0.5 * 10**-decimals:
        decimals += 1  # else it would be shown as 0
    return f"{mean:.{decimals}f} ± {half:.{decimals}f} {unit}"


def _percent(share: float, error: float) -> str:
    return f"{100 * share:.1f} ± {100 * error:.1f} %"
