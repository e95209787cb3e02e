"""Budgets: limits on a run's energy, time or carbon, and what happens beyond them.

``--budget 2kWh`` warns, ``--budget 2kWh:stop`` stops the command; the option may be repeated.
:func:`judge` is the only judge: for the events of a run, its live view and its result. The recorder
has a :class:`BudgetWatch`, and checks it once a second, more often when a budget may be used up
before that (:meth:`BudgetWatch.seconds_left`), and once more when the command has ended. Each event
goes to the process that started the command, as a message of kind ``budget``; that a budget was
exceeded is also noted in the manifest, from where it becomes a warning of the result::

    {"state": "foreseen" | "exceeded", "budget": "2kWh:stop", "stop": true | false,
     "message": "…one line…"}

That process prints ``message`` on stderr, and ends the command where ``stop`` is true (SIGTERM,
then SIGKILL). It has a watch of its own for budgets of time, since the recorder may be dead, and
sends what it finds to the recorder in the same form (:meth:`BudgetWatch.add_external`). Both may
find the same event: ``(budget, state)`` identifies it.

Nothing heavy is imported here, so that the starting process stays small.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from joulewise.errors import UsageError
from joulewise.formatting import seconds
from joulewise.units import J_PER_KWH, parse_amount

if TYPE_CHECKING:
    from joulewise.data.runs import ForecastInterval, RunForecast

Kind = Literal["energy", "time", "carbon"]
State = Literal["foreseen", "exceeded"]
Verdict = Literal[State, "possible", "sufficient"]

_HINT: Final = "write it as 2kWh, 500Wh, 3MJ, 30min, 2h or 500gCO2; 2kWh:stop also ends the command"


@dataclass(frozen=True)
class Budget:
    """A limit in joules (``energy``, ``carbon``) or seconds (``time``), and its text.

    A limit of carbon is the energy in joules that emits it at ``gco2_per_kwh``.
    """

    text: str
    kind: Kind
    limit: float
    stop: bool = False
    gco2_per_kwh: float | None = None


@dataclass(frozen=True)
class BudgetEvent:
    """A budget entered a state, which happens once for each; ``at_s`` after the start."""

    budget: Budget
    state: State
    message: str
    stop: bool = False
    at_s: float = 0.0


def parse_budget(text: str, gco2_per_kwh: float | None = None) -> Budget:
    """Read ``2kWh``, ``30min``, ``500gCO2`` or one of them with ``:stop``."""
    written, colon, action = (part.strip() for part in text.partition(":"))
    try:
        amount = parse_amount(written, *get_args(Kind))
    except ValueError as error:
        raise UsageError(f"cannot read the budget {text!r}: {error}", _HINT) from None
    if colon and action != "stop":
        raise UsageError(f"cannot read the budget {text!r}", _HINT)
    if not 0 < amount.value < math.inf:
        raise UsageError(f"a budget of {text!r}", "it must be more than nothing")
    plain = f"{amount.number}{amount.unit}{':stop' if colon else ''}"
    kind: Kind = amount.kind  # type: ignore[assignment]
    if kind != "carbon":
        return Budget(plain, kind, amount.value, bool(colon))
    if gco2_per_kwh is None or not 0 < gco2_per_kwh < math.inf:
        raise UsageError(
            f"a budget of {plain} needs to know how much the grid emits",
            "add --gco2-per-kwh with your grid's figure",
        )
    limit_j = amount.value / gco2_per_kwh * J_PER_KWH
    return Budget(plain, kind, limit_j, bool(colon), gco2_per_kwh)


def judge(limit: float, taken: float, low: float = -math.inf, high: float = math.inf) -> Verdict:
    """Whether a limit is exceeded by what was taken, or will be by the whole run.

    ``low`` and ``high`` are the interval that is expected for the whole run, infinite where it is
    not known. All four are in joules or seconds.
    """
    if taken > limit:
        return "exceeded"
    if low > limit:
        return "foreseen"
    return "possible" if high > limit else "sufficient"


class BudgetWatch:
    """Judges a run's budgets, and reports each change of state once."""

    def __init__(self, budgets: Iterable[Budget]) -> None:
        self._open: dict[Budget, set[State]] = {budget: set() for budget in budgets}
        self._before = (0.0, 0.0)  # seconds and joules at the last check

    def check(
        self,
        *,
        time_s: float,
        energy_j: float | None,
        forecast: RunForecast | None = None,
        ended: bool = False,
    ) -> list[BudgetEvent]:
        """The new events, given what the run has used and what is expected for the whole.

        ``energy_j`` is that of the counted devices; None where it is unknown, and only time is
        judged. ``ended``: there is nothing left to stop. Between two checks, energy is taken to
        have grown linearly.
        """
        events = []
        before, self._before = self._before, (time_s, energy_j or 0.0)
        for budget, reported in self._open.items():
            of_time = budget.kind == "time"
            taken = time_s if of_time else energy_j
            whole = (forecast.time_s if of_time else forecast.energy_j) if forecast else None
            if "exceeded" in reported or taken is None:
                continue
            verdict = judge(budget.limit, taken, whole.low if whole else -math.inf)
            if verdict == "exceeded":
                reported.add(verdict)
                crossed_s = _crossing_s(before, self._before, budget.limit)
                at_s = budget.limit if of_time else crossed_s
                events.append(_exceeded(budget, at_s, taken, stop=budget.stop and not ended))
            elif whole and verdict == "foreseen" and verdict not in reported:
                reported.add(verdict)
                events.append(_foreseen(budget, whole))
        return events

    def seconds_left(self, energy_j: float, most_w: float) -> float | None:
        """Seconds until the next energy budget is used up at that power; None for never."""
        limits = [
            budget.limit
            for budget, reported in self._open.items()
            if budget.kind != "time" and "exceeded" not in reported
        ]
        if not limits or not most_w > 0:
            return None
        return max(0.0, min(limits) - energy_j) / most_w

    def time_left_s(self, time_s: float) -> float | None:
        """Seconds until the next time budget is used up; None where none is left."""
        left = [b.limit - time_s for b in self._open if b.kind == "time" and b.limit >= time_s]
        return min(left, default=None)

    def add_external(self, message: Mapping[str, Any]) -> BudgetEvent | None:
        """The event that another process found, unless it was reported here before."""
        for budget, reported in self._open.items():
            if budget.text == message["budget"] and message["state"] not in reported:
                reported.add(message["state"])
                state, text, stop = message["state"], message["message"], message["stop"]
                return BudgetEvent(budget, state, text, stop, budget.limit)  # always of time
        return None


def as_message(event: BudgetEvent) -> dict[str, Any]:
    return {
        "state": event.state,
        "budget": event.budget.text,
        "stop": event.stop,
        "message": event.message,
    }


def as_note(event: BudgetEvent) -> dict[str, str]:
    """The fields of the note in run.json, from which the result's warning is made.

    ``limit`` is in joules or seconds; one ``unit`` is ``factor`` of them.
    """
    budget = event.budget
    unit, factor = _unit(budget)
    after = "" if budget.kind == "time" else f" after {seconds(event.at_s)}"
    return {
        "kind": "time" if budget.kind == "time" else "energy",
        "limit": repr(budget.limit),
        "unit": unit,
        "factor": repr(factor),
        "was": f"the budget of {_name(budget)} was used up{after}",
        "then": "; it stopped the command" if event.stop else "",
    }


def describe_whole_run(note: Mapping[str, str], energy_j: float, time_s: float) -> str:
    """What the whole run took of a noted budget; empty where that is not known.

    A budget is taken for used up by what is known at that moment: all readings together may show
    less, within the time between two of them.
    """
    try:
        limit, factor = float(note["limit"]), float(note["factor"])
        taken = time_s if note["kind"] == "time" else energy_j
        amounts = [_in_unit(each / factor, note["unit"]) for each in (taken, taken - limit)]
    except (KeyError, ValueError):  # recorded by a joulewise that did not write it
        return ""
    used, over = amounts
    was, then = note.get("was", ""), note.get("then", "")
    if judge(limit, taken) == "exceeded":
        return f"{was}; the whole run took {used}, {over} too much{then}"
    return f"{was}, as was estimated at that moment; all readings together show {used}{then}"


def _crossing_s(before: tuple[float, float], now: tuple[float, float], limit_j: float) -> float:
    """When the limit was reached: linear between two pairs of seconds and joules."""
    (start_s, start_j), (end_s, end_j) = before, now
    if not start_j < limit_j < end_j:
        return end_s
    return start_s + (end_s - start_s) * (limit_j - start_j) / (end_j - start_j)


def _exceeded(budget: Budget, at_s: float, taken: float, *, stop: bool) -> BudgetEvent:
    """``at_s`` is when it was used up, ``taken`` what has been used by now."""
    after = ""
    if budget.kind != "time":
        over = _amount(budget, taken - budget.limit)
        after = f" after {seconds(at_s)}; {_amount(budget, taken)} are used so far, {over} too much"
    end = "; stopping the command" if stop else ""
    message = f"the budget of {_name(budget)} is used up{after}{end}"
    return BudgetEvent(budget, "exceeded", message, stop, at_s)


def _foreseen(budget: Budget, whole: ForecastInterval) -> BudgetEvent:
    value, low, high = (_amount(budget, x) for x in (whole.value, whole.low, whole.high))
    return BudgetEvent(
        budget,
        "foreseen",
        f"the budget of {_name(budget)} will be exceeded: "
        f"{value} expected for the whole run ({low} to {high})",
    )


def _name(budget: Budget) -> str:
    return budget.text.partition(":")[0]


def _amount(budget: Budget, value: float) -> str:
    """In the unit in which the budget was written."""
    unit, factor = _unit(budget)
    return _in_unit(value / factor, unit)


def _in_unit(amount: float, unit: str) -> str:
    return f"{amount:.0f} {unit}" if amount >= 100 else f"{amount:.3g} {unit}"


def _unit(budget: Budget) -> tuple[str, float]:
    """As the budget was written, and how many joules or seconds one of it is."""
    amount = parse_amount(budget.text.partition(":")[0], budget.kind)
    if budget.gco2_per_kwh is None:
        return amount.unit, amount.factor
    return amount.unit, amount.factor * J_PER_KWH / budget.gco2_per_kwh
