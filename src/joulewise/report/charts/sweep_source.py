"""What the figures of a sweep are made from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from joulewise.data.sweeps import POWER_LIMIT, Setting, Sweep, Value
from joulewise.metrics.result import Choice, PointResult, SweepResult, Verdict
from joulewise.metrics.rules import parse
from joulewise.metrics.slices import Slice, slices
from joulewise.metrics.table import Table, tabulate
from joulewise.metrics.view import PER, View
from joulewise.report.sweep_words import value_words


@dataclass(frozen=True)
class Swept:
    """A sweep, what came out of it, and what was counted."""

    sweep: Sweep
    result: SweepResult
    view: View | None

    @cached_property
    def table(self) -> Table | None:
        """The single runs, if it is known what is counted of them; its rows are the points."""
        return None if self.view is None else tabulate(self.sweep, self.view)

    @cached_property
    def known(self) -> tuple[PointResult, ...]:
        """The points that have a place in the plane of time and energy."""
        return tuple(
            point for point in self.result.points if point.time_ratio and point.energy_ratio
        )

    def chosen(self, setting: Setting) -> list[str]:
        """The labels of the metrics that prefer this setting to the reference."""
        return [parse(choice.metric).label for choice in self.choices if choice.setting == setting]

    @property
    def choices(self) -> list[Choice]:
        """What metrics prefer to the reference; how to be fastest is no news."""
        return [
            choice
            for name, choice in self.result.best.items()
            if choice.verdict is not Verdict.REFERENCE and name != "time"
        ]

    def along_limits(self) -> Iterator[Slice]:
        """The limits at the reference's other settings, and at those of the first choice."""
        settings = tuple(point.setting for point in self.result.points)
        wanted = [self.result.reference.setting, *(it.setting for it in self.choices[:1])]
        for along in slices(settings, POWER_LIMIT):
            there = [row for row in along.rows if self.result.points[row].n]
            if len(there) > 1 and any(settings[row] in wanted for row in along.rows):
                yield along


def swept(sweep: Sweep, result: SweepResult, view: View | None) -> Swept:
    """``view`` is what the result was made with; a boundary and a unit are guessed from it."""
    if view is None and result.per in PER:
        view = View(boundary=result.boundary, per=result.per)
    return Swept(sweep, result, view)


def ordered(points: Sequence[PointResult], axis: str) -> list[str]:
    """The values of an axis as they are said, in the order of numbers where they are numbers."""
    values = dict.fromkeys(point.setting[axis] for point in points)
    return [value_words(axis, value) for value in sorted(values, key=_order)]


def _order(value: Value) -> tuple[int, float, str]:
    try:
        return 0, float(value if value is not None else "inf"), ""
    except ValueError:
        return 1, 0.0, str(value)
