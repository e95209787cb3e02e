"""Budgets: what a run may take of energy, time or carbon, and what happens beyond.

``--budget 2kWh`` warns, ``--budget 2kWh:stop`` stops the command; the option may be given several
times. The recorder calls :meth:`BudgetWatch.look` once a second, more often when a budget may be
used up before that (:meth:`BudgetWatch.seconds_left`), and once more when the command has ended.
Each :class:`Event` that it gets goes to the process that started the command,
as a message of kind ``budget`` (:func:`as_message`); that a budget was exceeded also goes into the
manifest's notes, from where it becomes a warning of the result::

    {"state": "foreseen" | "exceeded", "budget": "2kWh:stop", "stop": true | false,
     "message": "…one line…"}

That process says ``message`` on stderr, and where ``stop`` is true it ends the command (SIGTERM,
and SIGKILL after a grace). Time it also checks by itself, since a recorder may be dead:
:func:`time_left_s` tells how long it may sleep, :func:`overdue` what there is to say then. Both
may come to the same event: ``(budget, state)`` tells whether it was said before. What the starting
process found by itself it sends to the recorder in the same shape, for :meth:`BudgetWatch.heard`.

Only the standard library is imported here, so that the starting process stays lean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from joulewise.errors import UsageError
from joulewise.units import J_PER_KWH, NS_PER_S, parse_amount

if TYPE_CHECKING:
    from joulewise.session.forecast import ForecastInterval, RunForecast

Kind = Literal["energy", "time", "carbon"]
State = Literal["foreseen", "exceeded"]

_HINT: Final = "write it as 2kWh, 500Wh, 3MJ, 30min, 2h or 500gCO2, and :stop after it to stop"


@dataclass(frozen=True)
class Budget:
    """A limit in joules (``energy``, ``carbon``) or seconds (``time``), and how it was written.

    Carbon is kept as the joules that emit it at ``gco2_per_kwh``.
    """

    text: str
    kind: Kind
    limit: float
    stop: bool = False
    gco2_per_kwh: float | None = None


@dataclass(frozen=True)
class Event:
    """A budget came into another state, which happens once each; ``at_s`` after the start."""

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


class BudgetWatch:
    """Follows a run's budgets, and tells of each change of state once."""

    def __init__(self, budgets: Iterable[Budget]) -> None:
        self._open: dict[Budget, set[State]] = {budget: set() for budget in budgets}
        self._before = (0.0, 0.0)  # seconds and joules at the last look

    def look(
        self,
        *,
        time_s: float,
        energy_j: float | None,
        outlook: RunForecast | None = None,
        ended: bool = False,
    ) -> list[Event]:
        """What is new, given what the run took so far and what is expected of the whole.

        ``energy_j`` is that of the devices that count, None where none could be read. ``ended``
        says that there is nothing left to stop. When energy was used up between two looks, it is
        taken to have grown evenly between them.
        """
        events = []
        before, self._before = self._before, (time_s, energy_j or 0.0)
        for budget, told in self._open.items():
            of_time = budget.kind == "time"
            taken = time_s if of_time else energy_j
            whole = (outlook.time_s if of_time else outlook.energy_j) if outlook else None
            if "exceeded" in told or taken is None:
                continue
            if taken > budget.limit:
                told.add("exceeded")
                crossed_s = _crossing_s(before, self._before, budget.limit)
                at_s = budget.limit if of_time else crossed_s
                events.append(_exceeded(budget, at_s, taken, stop=budget.stop and not ended))
            elif whole is not None and whole.low > budget.limit and "foreseen" not in told:
                told.add("foreseen")
                events.append(_foreseen(budget, whole))
        return events

    def seconds_left(self, energy_j: float, most_w: float) -> float | None:
        """When the next budget of energy may be used up, at that power; None where none is left."""
        limits = [
            budget.limit
            for budget, told in self._open.items()
            if budget.kind != "time" and "exceeded" not in told
        ]
        if not limits or not most_w > 0:
            return None
        return max(0.0, min(limits) - energy_j) / most_w

    def heard(self, message: Mapping[str, Any]) -> Event | None:
        """The event that another process found, unless it was told here before."""
        for budget, told in self._open.items():
            if budget.text == message["budget"] and message["state"] not in told:
                told.add(message["state"])
                state, text, stop = message["state"], message["message"], message["stop"]
                return Event(budget, state, text, stop, budget.limit)  # only time is found there
        return None


def time_left_s(budgets: Iterable[Budget], started_ns: int, now_ns: int) -> float | None:
    """How long until the next time budget is used up; None where there is none left."""
    spent_s = (now_ns - started_ns) / NS_PER_S
    left = [b.limit - spent_s for b in budgets if b.kind == "time" and b.limit >= spent_s]
    return min(left, default=None)


def overdue(budgets: Sequence[Budget], started_ns: int, now_ns: int) -> list[Event]:
    """The time budgets that are used up, whether or not it was said before."""
    time_s = (now_ns - started_ns) / NS_PER_S
    used_up = (b for b in budgets if b.kind == "time" and time_s > b.limit)
    return [_exceeded(budget, budget.limit, time_s, stop=budget.stop) for budget in used_up]


def as_message(event: Event) -> dict[str, Any]:
    return {
        "state": event.state,
        "budget": event.budget.text,
        "stop": event.stop,
        "message": event.message,
    }


def as_note(event: Event) -> dict[str, str]:
    """What run.json needs besides the message, to tell what the whole run took of the budget.

    ``limit`` is in joules or seconds, ``factor`` how many of them are one ``unit``.
    """
    budget = event.budget
    unit, factor = _unit(budget)
    after = "" if budget.kind == "time" else f" after {_time(event.at_s)}"
    return {
        "kind": "time" if budget.kind == "time" else "energy",
        "limit": repr(budget.limit),
        "unit": unit,
        "factor": repr(factor),
        "was": f"the budget of {_name(budget)} was used up{after}",
        "then": "; it stopped the command" if event.stop else "",
    }


def _crossing_s(before: tuple[float, float], now: tuple[float, float], limit_j: float) -> float:
    """When the joules were as many as the limit, between two pairs of seconds and joules."""
    (start_s, start_j), (end_s, end_j) = before, now
    if not start_j < limit_j < end_j:
        return end_s
    return start_s + (end_s - start_s) * (limit_j - start_j) / (end_j - start_j)


def _exceeded(budget: Budget, at_s: float, taken: float, *, stop: bool) -> Event:
    """``at_s`` is when it was used up, and ``taken`` what is used by now."""
    after = ""
    if budget.kind != "time":
        over = _amount(budget, taken - budget.limit)
        after = f" after {_time(at_s)}; by now {_amount(budget, taken)} are used, {over} over"
    end = "; stopping the command" if stop else ""
    message = f"the budget of {_name(budget)} is used up{after}{end}"
    return Event(budget, "exceeded", message, stop, at_s)


def _foreseen(budget: Budget, whole: ForecastInterval) -> Event:
    value, low, high = (_amount(budget, x) for x in (whole.value, whole.low, whole.high))
    return Event(
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
    amount = value / factor
    return f"{amount:.0f} {unit}" if amount >= 100 else f"{amount:.3g} {unit}"


def _unit(budget: Budget) -> tuple[str, float]:
    """As the budget was written, and how many joules or seconds one of it is."""
    amount = parse_amount(budget.text.partition(":")[0], budget.kind)
    if budget.gco2_per_kwh is None:
        return amount.unit, amount.factor
    return amount.unit, amount.factor * J_PER_KWH / budget.gco2_per_kwh


def _time(time_s: float) -> str:
    if time_s < 10:
        return f"{time_s:.2f} s"
    if time_s < 60:
        return f"{time_s:.1f} s"
    minutes, seconds = divmod(round(time_s), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    return f"{minutes // 60} h {minutes % 60} min"
