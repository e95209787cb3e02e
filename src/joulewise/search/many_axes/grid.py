"""The settings of several axes as places: how far they are apart, and which share a command.

A power limit and a locked clock do one thing: they hold the clock that a board runs at.

Whichever of the two is lower rules, and what the other is at is all the same. A belief that takes
them for two axes has to learn that fold from runs; here it is told of it, and left to learn what
clock a limit allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.data.sweeps import KNOBS, POWER_LIMIT, SM_CLOCK, Setting, Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

_APART: Final = 0.5  # of the whole length of an axis, for words that have no order


@dataclass(frozen=True)
class SearchAxis:
    """``values`` go up where they are ``ordered``; words that are no numbers have no order."""

    name: str
    values: tuple[Value, ...]
    ordered: bool

    @classmethod
    def of(cls, name: str, points: Iterable[Setting]) -> SearchAxis:
        values = list(dict.fromkeys(point[name] for point in points))
        heights = {value: _height(name, value) for value in values}
        if any(height is None for height in heights.values()):
            return cls(name, tuple(values), ordered=False)
        return cls(name, tuple(sorted(values, key=lambda it: heights[it] or 0.0)), ordered=True)


@dataclass(frozen=True)
class Places:
    """All settings that may be run, the reference (number ``reference``) among them.

    Only ``axes`` along which they differ count. Settings of one ``work`` run the same command: only
    knobs differ.
    """

    points: tuple[Setting, ...]
    reference: int
    axes: tuple[SearchAxis, ...]

    @classmethod
    def of(cls, settings: Sequence[Setting], reference: Setting) -> Places:
        points = tuple(dict.fromkeys((*settings, reference)))
        axes = (SearchAxis.of(name, points) for name in reference)
        return cls(
            points, points.index(reference), tuple(axis for axis in axes if len(axis.values) > 1)
        )

    @cached_property
    def numbers(self) -> dict[Setting, int]:
        return {point: at for at, point in enumerate(self.points)}

    @cached_property
    def steps(self) -> NDArray[np.int64]:
        """Of each point (row), which value of each axis it has."""
        columns = []
        for axis in self.axes:
            number = {value: at for at, value in enumerate(axis.values)}
            columns.append([number[point[axis.name]] for point in self.points])
        return np.asarray(np.array(columns, dtype=np.int64).T)

    @cached_property
    def coordinates(self) -> NDArray[np.float64]:
        """Each ordered axis from 0 to 1; of every other one column a value."""
        return self.at(self.steps)

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """The number of the axis that each coordinate belongs to."""
        return tuple(
            at
            for at, axis in enumerate(self.axes)
            for _ in range(1 if axis.ordered else len(axis.values))
        )

    def at(self, steps: NDArray[np.int64]) -> NDArray[np.float64]:
        columns = []
        for axis, its in zip(self.axes, steps.T, strict=True):
            if axis.ordered:
                columns.append(its / (len(axis.values) - 1))
            else:
                columns.extend(_APART * (its == value) for value in range(len(axis.values)))
        return np.asarray(np.array(columns, dtype=float).T)

    def nearest(self, wanted: Sequence[int], allowed: Sequence[int]) -> int:
        """The allowed point nearest to these values of the axes, which may be none together."""
        there = self.at(np.array([wanted], dtype=np.int64))
        apart = ((self.coordinates[list(allowed)] - there) ** 2).sum(axis=1)
        return allowed[int(apart.argmin())]

    @cached_property
    def works(self) -> NDArray[np.int64]:
        """The number of each point's work."""
        found: dict[tuple[tuple[str, str], ...], int] = {}
        return np.array(
            [found.setdefault(tuple(it.words.items()), len(found)) for it in self.points]
        )

    @cached_property
    def homes(self) -> tuple[int, ...]:
        """Of each work the point at the reference's knobs, or the nearest to it."""
        knobs = [at for at, axis in enumerate(self.axes) if axis.name in KNOBS]
        here = self.steps[self.reference, knobs]
        found = []
        for work in range(int(self.works.max()) + 1):
            points = np.flatnonzero(self.works == work)
            wanted = self.steps[points[0]].copy()
            wanted[knobs] = here
            found.append(self.nearest(wanted.tolist(), points.tolist()))
        return tuple(found)

    @property
    def has_knobs(self) -> bool:
        return any(axis.name in KNOBS for axis in self.axes)


def _height(name: str, value: Value) -> float | None:
    """A knob that is left alone is at its highest; None where a word is no number."""
    if value is None:
        return inf
    try:
        return float(value)
    except ValueError:
        return None if name not in KNOBS else inf


if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_FREE: Final = 1.02  # where a clock that is left alone is put, over the highest that is asked about
_SHARP: Final = 24.0  # how sharply the lower of the two rules
_USUAL: Final = (
    (0.0, 0.3),  # the logarithm of the clock that the highest limit allows
    (np.log(0.7), 0.3),  # that of the power of core power that the clock goes with
    (0.25, 0.15),  # the share of the highest limit that does not go with the clock
)
_OWN: Final = 0.15  # how much the command's own values change the clock that a limit allows
_LEAST_CORE: Final = 0.1


@dataclass(frozen=True)
class Clock:
    """Of each point the limit and the lock, over the highest, and its place along other axes.

    ``columns`` are the numbers of the axes of :meth:`coordinates`: the clock, the others, and at
    last limit and lock themselves, along which a surface departs from all this by little.
    """

    limits: Array
    locks: Array
    others: Array
    knobs: Array
    columns: tuple[int, ...]

    @classmethod
    def of(cls, places: Places) -> Clock | None:
        """None where the two are not both among the axes."""
        names = [axis.name for axis in places.axes]
        if not {POWER_LIMIT, SM_CLOCK} <= set(names):
            return None
        limits, locks = (_heights(places, name) for name in (POWER_LIMIT, SM_CLOCK))
        at = np.array(places.columns)
        is_knob = np.isin(at, [names.index(POWER_LIMIT), names.index(SM_CLOCK)])
        axes = [1 + number for number in np.unique(at[~is_knob], return_inverse=True)[1]]
        last = max(axes, default=0)
        return cls(
            np.minimum(limits, 1.0),
            np.minimum(locks, _FREE),
            places.coordinates[:, ~is_knob],
            places.coordinates[:, is_knob],
            (0, *axes, last + 1, last + 2),
        )

    @cached_property
    def usual(self) -> tuple[Array, Array]:
        """The middle of each trait of a board and its load, and its spread."""
        traits = [*_USUAL, *[(0.0, _OWN)] * self.others.shape[1]]
        middle, spread = np.array(traits).T
        return middle, spread

    def coordinates(self, traits: Array) -> Array:
        highest, power, fixed, *own = traits
        core = np.maximum((self.limits - fixed) / (1 - fixed), _LEAST_CORE)
        allowed = highest + np.exp(power) * np.log(core) + self.others @ np.array(own)
        locks = np.log(self.locks)
        clock = -np.logaddexp(-_SHARP * allowed, -_SHARP * locks) / _SHARP
        return np.column_stack([1 - clock / locks.min(), self.others, self.knobs])


def _heights(places: Places, name: str) -> Array:
    """Over the highest that is asked about; what is left alone is above all."""
    values = (point[name] for point in places.points)
    heights = np.array([it if isinstance(it, float | int) else inf for it in values])
    return np.asarray(heights / heights[np.isfinite(heights)].max())
