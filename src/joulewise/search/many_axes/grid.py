"""The settings of several axes as points of a space, and which of them run the same command.

A power limit and a locked clock do one thing: they hold down the clock that a board runs at, and
the lower of the two counts. A model with two axes would have to learn that fold from runs;
:class:`ClockModel` makes one axis of them, the resulting clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.data.sweeps import CONTROL_AXES, POWER_LIMIT, SM_CLOCK, Setting, Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# Distance of words without an order, over the length of an axis of numbers: two different ones are
# 0.7 of it apart. Chosen: nearer than the ends of an axis, so that one tells something of another.
_WORD_DISTANCE: Final = 0.5
_UNLOCKED: Final = 1.02  # position of an unlocked clock: just above the highest candidate
# How sharply the lower of limit and lock decides the clock. Chosen: about 3 % of the clock are
# rounded off, as boards do near their limit; the logarithm of a sum stays differentiable.
_SHARPNESS: Final = 24.0
# Prior mean and standard deviation of each parameter of the board and its load; chosen to span the
# boards that can be simulated.
_PARAMETERS: Final = (
    (0.0, 0.3),  # logarithm of the clock that the highest limit allows
    (np.log(0.7), 0.3),  # that of the exponent p of clock ~ core power ** p
    (0.25, 0.15),  # share of the highest limit that does not depend on the clock
)
_OWN_SPREAD: Final = 0.15  # of how a parameter of the command changes the clock that a limit allows
_LEAST_CORE_SHARE: Final = 0.1  # of core power: its logarithm stays finite, whatever the fit tries


@dataclass(frozen=True)
class SearchAxis:
    """The values of an axis; ascending where they are ``ordered``, as only numbers are."""

    name: str
    values: tuple[Value, ...]
    ordered: bool

    @classmethod
    def of(cls, name: str, points: Iterable[Setting]) -> SearchAxis:
        values = list(dict.fromkeys(point[name] for point in points))
        levels = {value: _level(name, value) for value in values}
        if any(level is None for level in levels.values()):
            return cls(name, tuple(values), ordered=False)
        return cls(name, tuple(sorted(values, key=lambda it: levels[it] or 0.0)), ordered=True)


@dataclass(frozen=True)
class SearchGrid:
    """All settings that may be run, the reference (with the index ``reference``) among them.

    Only ``axes`` along which they differ count. Settings of one *variant* run the same command:
    they differ in controls only.
    """

    points: tuple[Setting, ...]
    reference: int
    axes: tuple[SearchAxis, ...]

    @classmethod
    def of(cls, settings: Sequence[Setting], reference: Setting) -> SearchGrid:
        points = tuple(dict.fromkeys((*settings, reference)))
        axes = (SearchAxis.of(name, points) for name in reference)
        varied = tuple(axis for axis in axes if len(axis.values) > 1)
        return cls(points, points.index(reference), varied)

    @cached_property
    def index(self) -> dict[Setting, int]:
        return {point: at for at, point in enumerate(self.points)}

    @cached_property
    def steps(self) -> NDArray[np.int64]:
        """For each point (row) the number of its value on each axis (column)."""
        columns = []
        for axis in self.axes:
            number = {value: step for step, value in enumerate(axis.values)}
            columns.append([number[point[axis.name]] for point in self.points])
        return np.asarray(np.array(columns, dtype=np.int64).T)

    @cached_property
    def coordinates(self) -> Array:
        """Ordered axes from 0 to 1, and of every other axis one column for each value."""
        return self._locate(self.steps)

    @cached_property
    def columns(self) -> tuple[int, ...]:
        """For each coordinate the number of its axis."""
        return tuple(
            number
            for number, axis in enumerate(self.axes)
            for _ in range(1 if axis.ordered else len(axis.values))
        )

    def _locate(self, steps: NDArray[np.int64]) -> Array:
        columns = []
        for axis, numbers in zip(self.axes, steps.T, strict=True):
            if axis.ordered:
                columns.append(numbers / (len(axis.values) - 1))
            else:
                values = range(len(axis.values))
                columns.extend(_WORD_DISTANCE * (numbers == value) for value in values)
        return np.asarray(np.array(columns, dtype=float).T)

    def nearest(self, steps: Sequence[int], allowed: Sequence[int]) -> int:
        """The allowed point nearest to these values of the axes, which need not be a setting."""
        target = self._locate(np.array([steps], dtype=np.int64))
        squared = ((self.coordinates[list(allowed)] - target) ** 2).sum(axis=1)
        return allowed[int(squared.argmin())]

    @cached_property
    def variants(self) -> NDArray[np.int64]:
        """The number of each point's variant."""
        numbers: dict[tuple[tuple[str, str], ...], int] = {}
        return np.array(
            [numbers.setdefault(tuple(it.words.items()), len(numbers)) for it in self.points]
        )

    @cached_property
    def bases(self) -> tuple[int, ...]:
        """For each variant the point nearest to the reference's controls: that of its whole run."""
        controls = [at for at, axis in enumerate(self.axes) if axis.name in CONTROL_AXES]
        bases = []
        for variant in range(int(self.variants.max()) + 1):
            points = np.flatnonzero(self.variants == variant)
            steps = self.steps[points[0]].copy()
            steps[controls] = self.steps[self.reference, controls]
            bases.append(self.nearest(steps.tolist(), points.tolist()))
        return tuple(bases)

    @property
    def has_controls(self) -> bool:
        return any(axis.name in CONTROL_AXES for axis in self.axes)


def _level(name: str, value: Value) -> float | None:
    """A value as a number; a control that is left alone is at its highest. None for a word."""
    if value is None:
        return inf
    try:
        return float(value)
    except ValueError:
        return None if name not in CONTROL_AXES else inf


@dataclass(frozen=True)
class ClockModel:
    """Power limit and clock lock as one axis: the clock that results.

    ``limits`` and ``locks`` are over the highest ones, ``others`` the coordinates along all other
    axes, ``controls`` those of limit and lock themselves. ``columns`` are the numbers of the axes
    of :meth:`coordinates`: the clock, the others, and last limit and lock, along which a surface
    may depart from the model a little.
    """

    limits: Array
    locks: Array
    others: Array
    controls: Array
    columns: tuple[int, ...]

    @classmethod
    def of(cls, grid: SearchGrid) -> ClockModel | None:
        """None where the two are not both among the axes."""
        names = [axis.name for axis in grid.axes]
        if not {POWER_LIMIT, SM_CLOCK} <= set(names):
            return None
        limits, locks = (_relative_levels(grid, name) for name in (POWER_LIMIT, SM_CLOCK))
        at = np.array(grid.columns)
        is_control = np.isin(at, [names.index(POWER_LIMIT), names.index(SM_CLOCK)])
        axes = [1 + number for number in np.unique(at[~is_control], return_inverse=True)[1]]
        last = max(axes, default=0)
        return cls(
            np.minimum(limits, 1.0),
            np.minimum(locks, _UNLOCKED),
            grid.coordinates[:, ~is_control],
            grid.coordinates[:, is_control],
            (0, *axes, last + 1, last + 2),
        )

    @cached_property
    def prior(self) -> tuple[Array, Array]:
        """Mean and standard deviation of each parameter of the board and its load."""
        own = [(0.0, _OWN_SPREAD)] * self.others.shape[1]
        mean, spread = np.array([*_PARAMETERS, *own]).T
        return mean, spread

    def coordinates(self, parameters: Array) -> Array:
        """The coordinates of all points for these parameters."""
        highest, log_exponent, fixed, *own = parameters
        core = np.maximum((self.limits - fixed) / (1 - fixed), _LEAST_CORE_SHARE)
        allowed = highest + np.exp(log_exponent) * np.log(core) + self.others @ np.array(own)
        locks = np.log(self.locks)
        # A smooth minimum of the two logarithms.
        clock = -np.logaddexp(-_SHARPNESS * allowed, -_SHARPNESS * locks) / _SHARPNESS
        return np.column_stack([1 - clock / locks.min(), self.others, self.controls])


def _relative_levels(grid: SearchGrid, name: str) -> Array:
    """Values of a control over the highest candidate; infinite where it is left alone."""
    values = (point[name] for point in grid.points)
    levels = np.array([value if isinstance(value, float | int) else inf for value in values])
    return np.asarray(levels / levels[np.isfinite(levels)].max())
