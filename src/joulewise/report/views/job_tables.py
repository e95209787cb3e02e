"""The tables of a recurring job, and the words for its savings and probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from joulewise.data.jobs import JobDefinition, TryStatus
from joulewise.data.sweeps import Setting
from joulewise.formatting import joules, seconds
from joulewise.metrics.result import Interval
from joulewise.optimise.recurring.policy.interface import BatchSizeBelief
from joulewise.report.settings_text import counted
from joulewise.report.tables import Column, Table, number_columns, text_columns
from joulewise.units import digits

if TYPE_CHECKING:
    from joulewise.report.views.job import JobView

# Shares that would be rounded to 0 or 100 %.
_ALMOST_NEVER: Final = 0.005  # half a percent
_ALMOST_SURE: Final = 0.995  # half a percent less than all
OUTCOMES: Final = {
    TryStatus.REACHED: "reached",
    TryStatus.STOPPED_EARLY: "stopped early",
    TryStatus.MISSED: "missed",
    TryStatus.CRASHED: "out of memory",
    TryStatus.FAILED: "failed",
    TryStatus.EXPIRED: "worker lost",
    TryStatus.RUNNING: "running",
}
"""What became of a try, in the order in which it is listed."""


def account_table(view: JobView) -> Table:
    """Mean cost, energy and time of reaching the target, so far and at the default."""
    columns = (*text_columns("mean"), *number_columns("cost", "energy", "time"))
    fields = ("cost", "energy_j", "time_s")
    ended = sum(one.counts for one in view.recurrences)
    rows: list[tuple[str | None, ...]] = []
    so_far = [(view.running_mean(field) or [None])[-1] for field in fields]
    rows.append((f"so far, {counted(ended, 'recurrence')}", *_amounts(*so_far)))
    at_default = [view.default_mean(field) for field in fields]
    count = view.default_count
    name = f"at the default, {'1 try' if count == 1 else f'{count} tries'}"
    rows.append((name, *_amounts(*at_default)))
    modelled = view.modelled_default
    if modelled is not None:
        rows.append(("at the default, modelled", *_amounts(modelled, None, None)))
    records: list[dict[str, float | str | None]] = [
        dict(zip(("mean", "cost_j", *fields[1:]), (label, *values), strict=True))
        for label, values in (
            ("so far", so_far),
            ("default measured", at_default),
            ("default modelled", (modelled, None, None)),
        )
    ]
    return Table(
        "Cost, energy and time of reaching the target",
        columns,
        tuple(rows),
        tuple(records),
        note="what all tries took, for each that reached the target; at the default, those that "
        "ran to their end",
    )


def _amounts(
    cost: float | None, energy_j: float | None, time_s: float | None
) -> tuple[str | None, ...]:
    return (
        None if cost is None else joules(cost),
        None if energy_j is None else joules(energy_j),
        None if time_s is None else seconds(time_s),
    )


def recurrences_table(view: JobView) -> Table:
    """A row for each recurrence."""
    columns = (
        *number_columns("recurrence", "tries"),
        *text_columns(view.job.parameter, "outcome"),
        *number_columns("cost", "energy", "time", "mean cost so far"),
    )
    rows: list[tuple[str | None, ...]] = []
    records: list[dict[str, float | str | None]] = []
    for one, mean in zip(view.recurrences, view.running_mean("cost"), strict=True):
        values = ", ".join(str(view.history.value_of(each)) for each in one.tries)
        outcome = OUTCOMES[one.tries[-1].status]
        amounts = _amounts(one.cost, one.energy_j, one.time_s)
        mean_text = None if mean is None else joules(mean)
        rows.append((str(one.number), str(len(one.tries)), values, outcome, *amounts, mean_text))
        records.append(
            {
                "recurrence": one.number,
                "tries": len(one.tries),
                view.job.parameter: values,
                "outcome": outcome,
                "cost_j": one.cost,
                "energy_j": one.energy_j,
                "time_s": one.time_s,
                "mean_cost_j": mean,
            }
        )
    return Table("Recurrences", columns, tuple(rows), tuple(records))


def tries_table(view: JobView) -> Table:
    """A row for each try: what was tried, and what came of it."""
    job = view.job
    columns = (
        *number_columns("recurrence", "try", job.parameter),
        *text_columns("other settings", "outcome"),
        *number_columns("epochs", f"best {job.target.metric}", "cost", "energy", "time"),
        *text_columns("run"),
    )
    rows: list[tuple[str | None, ...]] = []
    records: list[dict[str, float | str | None]] = []
    for one in view.tries:
        value, others = view.history.value_of(one), dict(one.settings.as_json())
        del others[job.parameter]
        settings = str(Setting.of(others)) if others else None
        rows.append(
            (
                str(one.recurrence),
                str(one.number),
                str(value),
                settings,
                OUTCOMES[one.status],
                None if one.epochs is None else str(one.epochs),
                None if one.metric_value is None else f"{one.metric_value:.4g}",
                *_amounts(one.cost, one.energy_j, one.time_s),
                one.run,
            )
        )
        records.append(
            {
                "recurrence": one.recurrence,
                "try": one.number,
                job.parameter: value,
                "settings": settings,
                "outcome": OUTCOMES[one.status],
                "epochs": one.epochs,
                "metric_value": one.metric_value,
                "cost_j": one.cost,
                "energy_j": one.energy_j,
                "time_s": one.time_s,
                "run": one.run,
            }
        )
    return Table("Every try", columns, tuple(rows), tuple(records))


def beliefs_table(job: JobDefinition, gpu_type: str, beliefs: Sequence[BatchSizeBelief]) -> Table:
    """What the policy believes of each value on a GPU type."""
    columns = (
        Column(job.parameter),
        *number_columns("tries", "reaches the target", "epochs", "cost of one epoch", "cost"),
        Column("best"),
    )
    rows = tuple(
        (
            str(belief.batch_size),
            str(belief.tries),
            f"{100 * belief.reached_share.mean:.0f} %"
            if belief.is_usable
            else unusable_text(belief),
            _with_interval(belief.epochs),
            None if belief.epoch_cost is None else joules(belief.epoch_cost),
            None if belief.cost is None else joules(belief.cost.mean),
            probability_text(belief.probability_best),
        )
        for belief in beliefs
    )
    records = tuple(
        {
            job.parameter: belief.batch_size,
            "tries": belief.tries,
            "is_usable": int(belief.is_usable),
            "reached_share": belief.reached_share.mean,
            "epochs": belief.epochs.mean if belief.epochs else None,
            "epoch_cost_j": belief.epoch_cost,
            "cost_j": belief.cost.mean if belief.cost else None,
            "cost_j_low": belief.cost.low if belief.cost else None,
            "cost_j_high": belief.cost.high if belief.cost else None,
            "probability_best": belief.probability_best,
        }
        for belief in beliefs
    )
    note = "best: the probability that no other value costs less"
    if any(not belief.is_usable and not belief.tries for belief in beliefs):
        note += "; left out: a smaller one ran out of memory"
    return Table(f"Believed on {gpu_type}", columns, rows, records, note=note)


def unusable_text(belief: BatchSizeBelief) -> str:
    """Why a value is not tried: it did not fit in memory, or a smaller one did not."""
    return OUTCOMES[TryStatus.CRASHED] if belief.tries else "left out"


def saving_share(saving: Interval) -> str:
    """``12 %``; ``12 % (noise)`` where its interval holds 0."""
    return f"{100 * saving.mean:.0f} %{' (noise)' * is_noise(saving)}"


def saving_text(saving: Interval) -> str:
    """``12 % less, but within noise, (95 % interval: 4 % more to 26 % less)``."""
    noise = ", but within noise," if is_noise(saving) else ""
    return f"{percent_less(saving.mean)}{noise} (95 % interval: {interval_less(saving)})"


def is_noise(saving: Interval) -> bool:
    """Whether its interval holds 0."""
    low, high = _ends(saving)
    return low <= 0 <= high


def percent_less(share: float) -> str:
    """``12 % less``; of a share below 0, ``12 % more``."""
    return f"{abs(100 * share):.0f} % {'less' if share >= 0 else 'more'}"


def interval_less(share: Interval) -> str:
    """``4 to 36 % less``, or ``30 % more to 45 % less``."""
    low, high = _ends(share)
    if (low < 0) == (high < 0):
        least, most = sorted((abs(low), abs(high)))
        return f"{100 * least:.0f} to {percent_less(most if low >= 0 else -most)}"
    return f"{percent_less(low)} to {percent_less(high)}"


def _ends(share: Interval) -> tuple[float, float]:
    low, high = share.low, share.high
    return share.mean if low is None else low, share.mean if high is None else high


def probability_text(share: float) -> str:
    """As a percentage; never 0 or 100 %, as it comes from a finite number of draws."""
    if share < _ALMOST_NEVER:
        return "less than 1 %"
    return f"{100 * share:.0f} %" if share < _ALMOST_SURE else "more than 99 %"


def _with_interval(interval: Interval | None) -> str | None:
    if interval is None:
        return None
    if interval.low is None or interval.high is None:
        return digits(interval.mean)
    return f"{digits(interval.mean)} ({digits(interval.low)}-{digits(interval.high)})"
