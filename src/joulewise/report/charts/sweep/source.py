"""What the figures of a sweep are made from.

What the figures of a sweep say in one line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from joulewise.data.sweeps import KNOBS, POWER_LIMIT, Setting, Sweep, Value
from joulewise.metrics.boundary import PER, View
from joulewise.metrics.metric import parse
from joulewise.metrics.result import Choice, Interval, PointResult, SweepResult, Verdict
from joulewise.metrics.trial_table import AxisSlice, TrialTable, entering, slices, tabulate
from joulewise.report.settings_text import counted, setting_words, value_words

_FAR: Final = 1.5


@dataclass(frozen=True)
class Swept:
    """A sweep, what came out of it, and what was counted."""

    sweep: Sweep
    result: SweepResult
    view: View | None

    @cached_property
    def table(self) -> TrialTable | None:
        """The single runs, if it is known what is counted of them; its rows are the points."""
        return None if self.view is None else tabulate(self.sweep, self.view)

    @cached_property
    def known(self) -> tuple[PointResult, ...]:
        """The points that have a place in the plane of time and energy."""
        return tuple(
            point for point in self.result.points if point.time_ratio and point.energy_ratio
        )

    @cached_property
    def near(self) -> tuple[PointResult, ...]:
        """Those not far beyond what matters: the front, the reference, and what is chosen.

        A batch of two can take ten times as long, and would leave the others no room.
        """
        return self._not_far([*self._wanted, self.result.reference])

    @cached_property
    def near_front(self) -> tuple[PointResult, ...]:
        """The same, where the reference itself need not be seen."""
        return self._not_far(self._wanted)

    @property
    def _wanted(self) -> list[PointResult]:
        return [point for point in self.known if point.pareto or self.chosen(point.setting)]

    def _not_far(self, matter: Sequence[PointResult]) -> tuple[PointResult, ...]:
        places = [_place(point) for point in matter if point in self.known]
        most = [max((place[axis] for place in places), default=1.0) for axis in (0, 1)]
        return tuple(
            point
            for point in self.known
            if all(it <= _FAR * far for it, far in zip(_place(point), most, strict=True))
        )

    def beyond(self, shown: Sequence[PointResult]) -> str:
        """What a figure of those that are shown says of the others."""
        rest = len(self.known) - len(shown)
        if not rest:
            return ""
        among = "" if self.result.reference in shown else ", the reference among them,"
        if rest == 1 and among:
            return " The reference, far beyond these, is left out."
        are = "is" if rest == 1 else "are"
        return f" {counted(rest, 'setting')} far beyond these{among} {are} left out."

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

    def along_limits(self) -> Iterator[AxisSlice]:
        """The limits at the reference's other settings, and at those of the first choice."""
        settings = tuple(point.setting for point in self.result.points)
        wanted = [self.result.reference.setting, *(it.setting for it in self.choices[:1])]
        for along in slices(settings, POWER_LIMIT):
            there = [row for row in along.rows if self.result.points[row].n]
            if len(there) > 1 and any(settings[row] in wanted for row in along.rows):
                yield along

    @property
    def main_slice(self) -> AxisSlice | None:
        """That of the first choice, or of the reference where nothing else is chosen."""
        along = list(self.along_limits())
        first = [choice.setting for choice in self.choices[:1]]
        there = [
            it for it in along if any(self.result.points[row].setting in first for row in it.rows)
        ]
        return next(iter((*there, *along)), None)


def swept(sweep: Sweep, result: SweepResult, view: View | None) -> Swept:
    """``view`` is what the result was made with; a boundary and a unit are guessed from it."""
    if view is None and result.per in PER:
        view = View(boundary=result.boundary, per=result.per)
    return Swept(sweep, result, view)


def runs_at(seen: Swept, store: Path, along: AxisSlice, limit_w: float) -> list[Path]:
    """The recorded runs at one of the limits, in the order of the repetitions."""
    setting = seen.result.points[along.rows[along.values.index(limit_w)]].setting
    names = [trial.run for trial in entering(seen.sweep) if trial.setting == setting]
    return [store / name for name in names if name]


def ordered(points: Sequence[PointResult], axis: str) -> list[str]:
    """The values of an axis as they are said, in the order of numbers where they are numbers."""
    values = dict.fromkeys(point.setting[axis] for point in points)
    return [value_words(axis, value) for value in sorted(values, key=_order)]


def brief(setting: Setting, varied: Sequence[str]) -> str:
    """``48, 200 W``: for a label, where the names of what varies stand elsewhere.

    What belongs to the command, such as its batch size, comes before what is set on the GPU.
    """
    names = sorted(varied, key=lambda name: name in KNOBS)
    words = [(it, setting_words(Setting.of({it: setting[it]}))) for it in names]
    return ", ".join(said if it in KNOBS else value_words(it, setting[it]) for it, said in words)


def varied(points: Sequence[PointResult]) -> list[str]:
    """The axes along which these points differ."""
    names = points[0].setting if points else ()
    return [name for name in names if len({point.setting[name] for point in points}) > 1]


def _place(point: PointResult) -> tuple[float, float]:
    both = (point.time_ratio, point.energy_ratio)
    time, energy = (math.inf if it is None else it.mean for it in both)
    return time, energy


def _order(value: Value) -> tuple[int, float, str]:
    try:
        return 0, float(value if value is not None else "inf"), ""
    except ValueError:
        return 1, 0.0, str(value)


def finding(seen: Swept) -> str:
    """The choice of the first metric that weighs time against energy, else of the first."""
    reference = setting_words(seen.result.reference.setting)
    bound = {point.binds for point in seen.known}
    if False in bound and True not in bound and varied(seen.known) == [POWER_LIMIT]:
        return f"The limit never binds: what differs from {reference} is noise"
    if not seen.choices:
        return f"Nothing that was tried beats {reference}"
    choice = next((it for it in seen.choices if it.metric != "energy"), seen.choices[0])
    return least(choice, reference)


def least(choice: Choice, reference: str) -> str:
    """Where its metric is least, what that costs, and whether it is more than noise."""
    label = parse(choice.metric).label
    said = f"{label[0].upper()}{label[1:]} is least at {setting_words(choice.setting)}"
    if choice.verdict is Verdict.NOISE:
        return f"{said}, but no further below {reference} than noise may take it"
    unsure = " (too few runs to be sure)" if choice.verdict is Verdict.UNKNOWN else ""
    costs = " and ".join(filter(None, (_more(choice.energy, "energy"), _more(choice.time, "time"))))
    return f"{said}: {costs} than {reference}{unsure}" if costs else f"{said}{unsure}"


def place(where: Setting) -> str:
    """Of what is held at one value; nothing where nothing is."""
    return setting_words(where) if where.values else ""


def at(where: Setting) -> str:
    """The same for the end of a title."""
    return f" ({place(where)})" if where.values else ""


def _more(ratio: Interval | None, what: str) -> str:
    if ratio is None:
        return ""
    return f"{100 * abs(ratio.mean - 1):.1f} % {'less' if ratio.mean < 1 else 'more'} {what}"
