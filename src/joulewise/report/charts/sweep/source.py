"""What the figures of a sweep are made from, and sentences that their titles share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from joulewise.data.sweeps import CONTROL_AXES, POWER_LIMIT, Setting, Sweep, Value
from joulewise.metrics.boundary import PER, View
from joulewise.metrics.metric import parse
from joulewise.metrics.result import Choice, Interval, PointResult, SweepResult, Verdict
from joulewise.metrics.trial_table import AxisSlice, TrialTable, completed_trials, slices, tabulate
from joulewise.report.settings_text import counted, setting_words, value_words

# A setting that takes more than so many times the time or energy of all that matter is left out of
# the plane (chosen). A batch of two can take ten times as long: it would leave the others no space.
_FAR: Final = 1.5


@dataclass(frozen=True)
class SweptData:
    """A sweep, its result, and the view (boundary, unit of work) that it was evaluated with."""

    sweep: Sweep
    result: SweepResult
    view: View | None

    @cached_property
    def table(self) -> TrialTable | None:
        """The single runs, a row for each point; None where the view is not known."""
        return None if self.view is None else tabulate(self.sweep, self.view)

    @cached_property
    def known(self) -> tuple[PointResult, ...]:
        """The points that have both a time and an energy."""
        return tuple(
            point for point in self.result.points if point.time_ratio and point.energy_ratio
        )

    @cached_property
    def near(self) -> tuple[PointResult, ...]:
        """Points not far beyond the Pareto front, the chosen settings and the reference."""
        return self._not_far_beyond([*self._front_and_chosen, self.result.reference])

    @cached_property
    def near_front(self) -> tuple[PointResult, ...]:
        """Points not far beyond the Pareto front and the chosen settings."""
        return self._not_far_beyond(self._front_and_chosen)

    @property
    def _front_and_chosen(self) -> list[PointResult]:
        return [point for point in self.known if point.pareto or self.chosen_by(point.setting)]

    def _not_far_beyond(self, points: Sequence[PointResult]) -> tuple[PointResult, ...]:
        ratios = [_ratios(point) for point in points if point in self.known]
        most_time, most_energy = (
            _FAR * max((pair[axis] for pair in ratios), default=1.0) for axis in (0, 1)
        )
        return tuple(
            point
            for point in self.known
            if _ratios(point)[0] <= most_time and _ratios(point)[1] <= most_energy
        )

    def omitted_text(self, shown: Sequence[PointResult]) -> str:
        """The sentence on the points that a figure leaves out; empty where there are none."""
        omitted = len(self.known) - len(shown)
        if not omitted:
            return ""
        among = "" if self.result.reference in shown else ", among them the reference,"
        if omitted == 1 and among:
            return " The reference is far outside the figure and is not drawn."
        are = "is" if omitted == 1 else "are"
        return f" {counted(omitted, 'setting')}{among} {are} far outside the figure and not drawn."

    def chosen_by(self, setting: Setting) -> list[str]:
        """The labels of the metrics by which this setting is the best."""
        return [parse(choice.metric).label for choice in self.choices if choice.setting == setting]

    @property
    def choices(self) -> list[Choice]:
        """The best setting by each metric, where it is not the reference; not by time alone."""
        return [
            choice
            for name, choice in self.result.best.items()
            if choice.verdict is not Verdict.REFERENCE and name != "time"
        ]

    def limit_slices(self) -> Iterator[AxisSlice]:
        """The power limits at the reference's other settings, and at those of the first choice."""
        settings = tuple(point.setting for point in self.result.points)
        wanted = [self.result.reference.setting, *(choice.setting for choice in self.choices[:1])]
        for along in slices(settings, POWER_LIMIT):
            with_runs = [row for row in along.rows if self.result.points[row].n]
            if len(with_runs) > 1 and any(settings[row] in wanted for row in along.rows):
                yield along

    @property
    def main_slice(self) -> AxisSlice | None:
        """The power limits around the first choice, else around the reference."""
        limit_slices = list(self.limit_slices())
        first = [choice.setting for choice in self.choices[:1]]
        around_choice = [
            along
            for along in limit_slices
            if any(self.result.points[row].setting in first for row in along.rows)
        ]
        return next(iter((*around_choice, *limit_slices)), None)

    def runs_at(self, store: Path, along: AxisSlice, limit_w: float) -> list[Path]:
        """The recorded runs at one power limit, in the order of the repetitions."""
        setting = self.result.points[along.rows[along.values.index(limit_w)]].setting
        names = [trial.run for trial in completed_trials(self.sweep) if trial.setting == setting]
        return [store / name for name in names if name]

    @property
    def reference_text(self) -> str:
        """The setting of the reference."""
        return setting_words(self.result.reference.setting)


def swept_data(sweep: Sweep, result: SweepResult, view: View | None) -> SweptData:
    """Without a ``view``, boundary and unit of work are taken from the result where possible."""
    if view is None and result.per in PER:
        view = View(boundary=result.boundary, per=result.per)
    return SweptData(sweep, result, view)


def varied_axes(points: Sequence[PointResult]) -> list[str]:
    """The axes along which these points differ."""
    names = points[0].setting if points else ()
    return [name for name in names if len({point.setting[name] for point in points}) > 1]


def axis_values(points: Sequence[PointResult], axis: str) -> list[str]:
    """The values of an axis as text, sorted by number where they are numbers."""
    values = dict.fromkeys(point.setting[axis] for point in points)
    return [value_words(axis, value) for value in sorted(values, key=_sort_key)]


def _sort_key(value: Value) -> tuple[int, float, str]:
    try:
        return 0, float(value if value is not None else "inf"), ""
    except ValueError:
        return 1, 0.0, str(value)


def short_label(setting: Setting, axes: Sequence[str]) -> str:
    """``48, 200 W``: the values of these axes, whose names stand elsewhere in the figure.

    Parameters of the command, such as its batch size, come before settings of the GPU.
    """
    return ", ".join(
        setting_words(Setting.of({axis: setting[axis]}))
        if axis in CONTROL_AXES
        else value_words(axis, setting[axis])
        for axis in sorted(axes, key=lambda axis: axis in CONTROL_AXES)
    )


def _ratios(point: PointResult) -> tuple[float, float]:
    time, energy = (
        math.inf if ratio is None else ratio.mean
        for ratio in (point.time_ratio, point.energy_ratio)
    )
    return time, energy


def summarise_finding(data: SweptData) -> str:
    """The choice by the first metric that weighs time against energy, else by the first one."""
    reference = data.reference_text
    binding = {point.binds for point in data.known}
    if False in binding and True not in binding and varied_axes(data.known) == [POWER_LIMIT]:
        return f"No power limit is reached: differences from {reference} are noise"
    if not data.choices:
        return f"No tested setting is better than {reference}"
    choice = next((each for each in data.choices if each.metric != "energy"), data.choices[0])
    return describe_choice(choice, reference)


def describe_choice(choice: Choice, reference: str) -> str:
    """Where the metric is lowest, what that saves or costs, and whether it exceeds the noise."""
    label = parse(choice.metric).label
    lowest = f"{label[0].upper()}{label[1:]} is lowest at {setting_words(choice.setting)}"
    if choice.verdict is Verdict.NOISE:
        return f"{lowest}, but the difference from {reference} is within noise"
    unsure = " (too few runs to be sure)" if choice.verdict is Verdict.UNKNOWN else ""
    changes = [
        f"{change_text(ratio)} {name}"
        for ratio, name in ((choice.energy, "energy"), (choice.time, "time"))
        if ratio is not None
    ]
    return (
        f"{lowest}: {' and '.join(changes)} than {reference}{unsure}"
        if changes
        else lowest + unsure
    )


def change_text(ratio: Interval) -> str:
    """``12.3 % less``."""
    return f"{100 * abs(ratio.mean - 1):.1f} % {'less' if ratio.mean < 1 else 'more'}"


def fixed_text(where: Setting) -> str:
    """The settings that are fixed in a slice; empty where none is."""
    return setting_words(where) if where.values else ""


def title_suffix(where: Setting) -> str:
    """The same for the end of a title."""
    return f" ({fixed_text(where)})" if where.values else ""
