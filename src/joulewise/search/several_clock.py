"""A power limit and a locked clock do one thing: they hold the clock that a board runs at.

Whichever of the two is lower rules, and what the other is at is all the same. A belief that takes
them for two axes has to learn that fold from runs; here it is told of it, and left to learn what
clock a limit allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.data.sweeps import POWER_LIMIT, SM_CLOCK
from joulewise.search.several_space import Places

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
