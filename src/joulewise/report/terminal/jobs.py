"""Draws recurring jobs in the terminal: a recurrence that is over, and the list of jobs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console

from joulewise.data.jobs import JobDefinition, TryStatus
from joulewise.formatting import joules, one_line, seconds
from joulewise.optimise.recurring.job_standing import (
    JobStanding,
    best_probability,
    find_most_probable,
)
from joulewise.optimise.recurring.policy.interface import BatchSizeBelief
from joulewise.optimise.recurring.recurrence import RecurrenceResult, RecurrenceTry
from joulewise.optimise.recurring.try_watch import StopReason
from joulewise.report.settings_text import counted
from joulewise.report.tables import Column, Table, number_columns
from joulewise.report.terminal.layout import Sheet
from joulewise.report.views.job_tables import (
    beliefs_table,
    probability_text,
    saving_share,
    saving_text,
)
from joulewise.units import digits

_STATUS = {
    TryStatus.REACHED: "reached the target",
    TryStatus.MISSED: "missed the target",
    TryStatus.STOPPED_EARLY: "was stopped early",
    TryStatus.CRASHED: "crashed",
    TryStatus.FAILED: "failed",
    TryStatus.EXPIRED: "was lost",
    TryStatus.RUNNING: "is running",
}


def describe_try(job: JobDefinition, one: RecurrenceTry) -> Iterator[str]:
    """What became of a try: a line, and what to do about it where something is to be done."""
    outcome, finished = one.outcome, one.finished
    parts = [f"{job.parameter} {_value(job, one)} {_STATUS[outcome.status]}"]
    if outcome.status is TryStatus.REACHED:
        parts[0] += f" in epoch {outcome.epochs}"
    elif outcome.epochs:
        best = outcome.metric_value
        shown = "" if best is None else f", best {job.target.metric} {digits(best)}"
        parts[0] += f" after {counted(outcome.epochs, 'epoch')}{shown}"
    if finished.problem:
        parts.append(finished.problem)
    if outcome.energy_j is not None and outcome.time_s is not None:
        parts.append(
            f"{joules(outcome.energy_j)} in {seconds(outcome.time_s)} {_describe_extent(one)}"
        )
    yield f"try {one.job_try.number}: {'; '.join(parts)}"
    is_unlogged = outcome.run is not None and not outcome.exit_code and not finished.is_cancelled
    if outcome.status is TryStatus.FAILED and is_unlogged:
        metric = job.target.metric
        name = metric if metric.isidentifier() else "NAME"
        yield (
            f"log it with joulewise.log({name}=...) once an epoch (Keras, Lightning and Hugging "
            f"Face do), or name one that is logged in --target"
        )


def _describe_extent(one: RecurrenceTry) -> str:
    """Of which part of the run the energy and time of a try are, and what the whole run took."""
    cost = one.finished.cost
    begin = "the first epoch" if cost is None or cost.has_epochs else "the start"
    extent = f"from {begin} to the {'target' if one.is_reached else 'end'}"
    if cost is None or cost.run_energy_j is None or cost.run_time_s is None:
        return extent
    return f"{extent}, of {joules(cost.run_energy_j)} in {seconds(cost.run_time_s)} of its run"


def _describe_best(standing: JobStanding, beliefs: Sequence[BatchSizeBelief]) -> Iterator[str]:
    """The best value so far, by what was paid; and what the policy believes of it."""
    job, best = standing.job, standing.best
    if best is None or standing.best_cost is None:
        yield f"best so far: none, as no {job.parameter} has reached the target"
        return
    text = f"best so far: {job.parameter} {best} costs {joules(standing.best_cost)} for each target"
    if best == job.default:
        text += ", and is the default"
    elif standing.saving is not None:
        text += f", {saving_text(standing.saving)} than the default, {job.default}"
    elif standing.default_cost is not None:
        text += (
            f"; the default, {job.default}, costs {joules(standing.default_cost)}, and one of them "
            "was tried too seldom to compare them"
        )
    yield text
    likely, probability = find_most_probable(standing, beliefs), best_probability(standing, beliefs)
    if likely is None or probability is None:
        return
    if likely.batch_size == best:
        yield (
            f"the policy believes with a probability of {probability_text(probability)} that it "
            "costs least"
        )
    else:
        most, of_best = map(probability_text, (likely.probability_best, probability))
        yield (
            f"most probably best, as the policy believes: {likely.batch_size} ({most}; {best}: "
            f"{of_best})"
        )


def draw_recurrence(
    result: RecurrenceResult, console: Console, program: str, jobs_words: str = ""
) -> None:
    """Draw what a recurrence took, what is believed now, and what to run next.

    ``jobs_words`` are the words of a command that name the job store, where they are needed.
    """
    job, sheet = result.job, Sheet(console)
    energy_j, time_s, cost = (result.total(name) for name in ("energy_j", "time_s", "cost"))
    console.print()
    how = "reached" if result.is_reached else "did not reach"
    tries = "1 try" if len(result.tries) == 1 else f"{len(result.tries)} tries"
    sheet.line(
        f"recurrence {result.number} of job {one_line(job.name)} {how} {job.target.text} in "
        f"{tries}",
        "bold",
        0,
    )
    if energy_j is not None and time_s is not None and cost is not None:
        sheet.line(
            f"energy {joules(energy_j)}, time {seconds(time_s)}, cost {joules(cost)} "
            f"(eta {job.eta:g}); each try from its first epoch on, to the target"
        )
    if result.tries[-1].finished.stop is StopReason.REACHED:
        sheet.line("the command was ended at the target")
    if result.standing is not None:
        for line in _describe_best(result.standing, result.beliefs):
            sheet.line(line)
    last = result.tries[-1].outcome.run
    if last:
        sheet.paste(f"{program} show {last}", "the run of the last try")
    shown = f"job show{jobs_words} {shlex.quote(job.name)}"
    sheet.paste(f"{program} {shown}", "what was tried, and what is believed")


def draw_jobs(standings: Sequence[JobStanding], console: Console) -> None:
    """Draw the list of jobs: a line each."""
    columns = (
        Column("job", right=False),
        *number_columns("recurrences", "tries"),
        Column("best so far", right=False),
        *number_columns("cost", "saving"),
        Column("target", right=False, spare=1),
    )
    rows = tuple(_job_row(standing) for standing in standings)
    note = (
        "cost: what all tries at the best took from their first epoch on, for each time that it "
        "reached the target; saving: against the same at the default, from three tries of each on"
    )
    Sheet(console).blocks(Table("", columns, rows, note=note))


def _job_row(standing: JobStanding) -> tuple[str, ...]:
    job, saving = standing.job, standing.saving
    best = "-" if standing.best is None else f"{job.parameter} {standing.best}"
    return (
        one_line(job.name),
        str(standing.recurrences),
        str(standing.tries),
        best,
        "-" if standing.best_cost is None else joules(standing.best_cost),
        "-" if saving is None else saving_share(saving),
        job.target.text,
    )


def draw_job(
    standing: JobStanding, beliefs: Mapping[str, Sequence[BatchSizeBelief]], console: Console
) -> None:
    """Draw what was tried for a job, and the belief of its policy on each type of GPU."""
    job, sheet = standing.job, Sheet(console)
    sheet.line(f"job {one_line(job.name)}: {job.target.text} within {job.max_epochs} epochs",
               "bold", 0)  # fmt: skip
    tries = "1 try" if standing.tries == 1 else f"{standing.tries} tries"
    sheet.line(
        f"{counted(standing.recurrences, 'recurrence')}, {tries}; eta {job.eta:g}, policy "
        f"{job.policy}; default {job.parameter} {job.default}",
        "dim",
    )
    for gpu_type, of_type in beliefs.items():
        sheet.table(beliefs_table(job, gpu_type, of_type))
    if standing.tries:
        console.print()
        for line in _describe_best(standing, beliefs.get(standing.gpu_type, ())):
            sheet.line(line, "bold", 0)


def _value(job: JobDefinition, one: RecurrenceTry) -> str:
    return str(one.job_try.settings[job.parameter])
