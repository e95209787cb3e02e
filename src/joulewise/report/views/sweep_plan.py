"""What a sweep will do, and what it will take, before it starts (``sweep --dry-run``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from joulewise.data.sweeps import Setting
from joulewise.formatting import amount, fitting, joules, seconds
from joulewise.report.settings_text import runs_planned, setting_words, settings_counted
from joulewise.report.terminal.layout import indent
from joulewise.sweep.estimate import SweepEstimate, estimate
from joulewise.sweep.lifecycle import PreparedSweep, strategy
from joulewise.sweep.space import order

_SHOWN: Final = 8  # settings of a repetition that are listed (chosen: one or two lines)


@dataclass(frozen=True)
class PlanView:
    """The plan; ``blocks`` are the runs of each repetition in order, empty of a search."""

    name: str
    reference: Setting
    settings: tuple[Setting, ...]
    blocks: tuple[tuple[Setting, ...], ...]
    estimate: SweepEstimate
    is_simulated: bool = False


def plan_view(prepared: PreparedSweep, store: Path, price_per_kwh: float | None = None) -> PlanView:
    """The plan of a prepared sweep, with its estimate."""
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


def as_json(shown: PlanView) -> dict[str, Any]:
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


def draw(shown: PlanView, console: Console) -> None:
    """Draw the plan in the terminal."""
    for text in _lines(shown):
        indent(Text(fitting(text, console.encoding)), console)


def _lines(shown: PlanView) -> Iterator[str]:
    expected = shown.estimate
    name = f"{shown.name}: " if shown.name else ""
    at_once = f", {expected.lanes} at a time" if expected.lanes > 1 else ""
    settings = settings_counted(shown.settings, shown.reference)
    points = (shown.reference, *shown.settings)
    runs = runs_planned(points, expected.runs, is_search=not shown.blocks)
    as_needed = at_once if shown.blocks else ", as they are needed"
    yield f"{name}{settings}, {runs}{as_needed}"
    yield f"reference: {setting_words(shown.reference)}"
    for number, block in enumerate(shown.blocks, 1):
        first = " | ".join(map(setting_words, block[:_SHOWN]))
        rest = f" | … {len(block) - _SHOWN} more" if len(block) > _SHOWN else ""
        yield f"repetition {number}: {first}{rest}"
    if shown.is_simulated:
        yield f"the trainings would take {_totals(expected)} ({expected.basis.source})"
        yield "simulated, they take seconds"
    else:
        yield f"{_taking(expected)} ({expected.basis.source})"
    if expected.left_out:
        yield f"not included: {expected.left_out}"


def _taking(expected: SweepEstimate) -> str:
    if expected.time_s is None:
        if expected.most_s is None:
            return "it is not known how long it takes"
        return f"it takes at most {seconds(expected.most_s)}"
    return f"it takes about {_totals(expected)}"


def _totals(expected: SweepEstimate) -> str:
    """Time, energy and price, as far as they are known."""
    parts = (
        None if expected.time_s is None else seconds(expected.time_s),
        None if expected.energy_j is None else joules(expected.energy_j),
        None if expected.price is None else f"{amount(expected.price)} for that energy",
    )
    return ", ".join(filter(None, parts))
