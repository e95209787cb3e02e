"""A board's gain from a wall meter: how much more the wall sees when the GPU says it draws more.

The rest of the node is a constant that may drift; what is between the board and the wall is the
power supply's efficiency. So the meter is a straight line in what the boards say, and its slope
is 1 / (efficiency x gain). The meter's clock and the time over which it averages are found too,
as those under which the line fits best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.wall_meter import Meter
from joulewise.data import Unavailable
from joulewise.record.cards import Figure

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# Fans, regulators and the core that feeds the GPU draw more when it works: a part of the slope
# (95 %) that is not the board's.
REST_SHARE: Final = 0.02

_LEAST_SWING_W: Final = 10.0
_FOLLOWS: Final = 0.8
_FEWEST: Final = 20
_LEVEL: Final = 0.1
_MOST_AHEAD_S: Final = 60.0
_AVERAGES: Final = (0.1, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0, 5.0)
_PARTS: Final = 10
_STUDENT_95: Final = 2.26


@dataclass(frozen=True)
class Drawn:
    """What a board says it has drawn by each moment."""

    t_s: Array
    energy_j: Array

    def mean_w(self, start_s: Array, end_s: Array) -> Array:
        used_j = np.interp(end_s, self.t_s, self.energy_j)
        used_j -= np.interp(start_s, self.t_s, self.energy_j)
        return np.asarray(used_j / (end_s - start_s))


@dataclass(frozen=True)
class Gains:
    """``gains`` is one for each board, or why it cannot be told; the meter's clock is ahead."""

    gains: tuple[Figure | Unavailable, ...]
    ahead_s: float
    average_s: float


def fit_gains(meter: Meter, boards: Sequence[Drawn], efficiency: Figure) -> Gains | Unavailable:
    """All boards at once: a node has several, and each must be told from the others."""
    interval_s = float(np.median(np.diff(meter.t_s)))
    averages_s = [interval_s * factor for factor in _AVERAGES]
    found = _aligned(
        meter, boards, np.arange(-_MOST_AHEAD_S, _MOST_AHEAD_S, interval_s / 4), averages_s
    )
    if found is None:
        return Unavailable("the meter's log and the recording have no minute in common")
    fine = found.ahead_s + interval_s * np.linspace(-0.5, 0.5, 41)
    found = _aligned(meter, boards, fine, np.geomspace(0.6, 1.6, 9) * found.average_s) or found
    moved_w = np.ptp(found.columns[:, 2:], axis=0)
    level = found.kept(_level(found, boards, interval_s))
    if found.left > 1 - _FOLLOWS or moved_w.max() < _LEAST_SWING_W:
        return Unavailable(
            f"the meter follows the GPU by only {1 - found.left:.0%}: the node had other work, "
            "or its log is of another time"
        )
    if level.power_w.size < _FEWEST:
        return Unavailable(
            f"the load was steady for only {level.power_w.size} of the meter's readings: "
            "it takes pauses and loads of several of them"
        )
    slopes = level.solved()[2:]
    part = np.arange(level.power_w.size) * _PARTS // level.power_w.size
    without = np.array([level.kept(part != i).solved()[2:] for i in range(_PARTS)])
    spread = np.sqrt((_PARTS - 1) / _PARTS * ((without - without.mean(0)) ** 2).sum(0))
    gains = tuple(
        _gain(slope, _STUDENT_95 * error, swing_w, efficiency)
        for slope, error, swing_w in zip(slopes, spread, _own_swings_w(level), strict=True)
    )
    return Gains(gains, found.ahead_s, found.average_s)


def _gain(slope: float, error: float, swing_w: float, efficiency: Figure) -> Figure | Unavailable:
    if swing_w < _LEAST_SWING_W or slope <= 0 or error > slope / 2:
        return Unavailable("this board's load moved too little, or only together with another's")
    gain = 1 / (efficiency.value * slope)
    relative = np.sqrt(
        (error / slope) ** 2 + (efficiency.error / efficiency.value) ** 2 + REST_SHARE**2
    )
    return Figure(float(gain), float(gain * relative))


def _own_swings_w(line: _Line) -> list[float]:
    """By how much each board moved that no other did: what tells it from them."""
    swings_w = []
    for at in range(2, line.columns.shape[1]):
        column, others = line.columns[:, at], np.delete(line.columns, at, axis=1)
        shared, *_ = np.linalg.lstsq(others, column, rcond=None)
        alone = np.std(column - others @ shared) / max(np.std(column), 1e-9)
        swings_w.append(float(np.ptp(column) * alone))
    return swings_w


@dataclass(frozen=True)
class _Line:
    """The meter against the boards, for one clock and one averaging time."""

    ahead_s: float
    average_s: float
    end_s: Array
    power_w: Array
    columns: Array

    def kept(self, keep: NDArray[np.bool_]) -> _Line:
        parts = (self.end_s[keep], self.power_w[keep], self.columns[keep])
        return _Line(self.ahead_s, self.average_s, *parts)

    def solved(self) -> Array:
        found, *_ = np.linalg.lstsq(self.columns, self.power_w, rcond=None)
        return np.asarray(found)

    @property
    def left(self) -> float:
        """The share of the meter's variance that the boards do not explain."""
        residual = self.power_w - self.columns @ self.solved()
        return float(residual.var() / max(self.power_w.var(), 1e-12))


def _aligned(
    meter: Meter, boards: Sequence[Drawn], ahead_s: Array, averages_s: Sequence[float] | Array
) -> _Line | None:
    """The likeliest of all; a clock under which less of the log is used must fit the better."""
    best, likeliest = None, 0.0
    for average_s in averages_s:
        for ahead in ahead_s:
            line = _line(meter, boards, float(ahead), float(average_s))
            if line is None:
                continue
            likely = -line.power_w.size * np.log(max(line.left, 1e-9))
            if likely > likeliest:
                best, likeliest = line, likely
    return best


def _line(meter: Meter, boards: Sequence[Drawn], ahead_s: float, average_s: float) -> _Line | None:
    end_s = meter.t_s - ahead_s
    start_s = end_s - average_s
    known = (start_s >= max(b.t_s[0] for b in boards)) & (end_s <= min(b.t_s[-1] for b in boards))
    if known.sum() < _FEWEST:
        return None
    start_s, end_s = start_s[known], end_s[known]
    drift = (end_s - end_s.mean()) / np.ptp(end_s)
    said_w = [board.mean_w(start_s, end_s) for board in boards]
    columns = np.column_stack([np.ones_like(drift), drift, *said_w])
    return _Line(ahead_s, average_s, end_s, meter.power_w[known], columns)


def _level(line: _Line, boards: Sequence[Drawn], margin_s: float) -> NDArray[np.bool_]:
    """Where no board's load changed for some time around: there the exact clock does not matter."""
    start_s = line.end_s - line.average_s
    level = np.ones(line.end_s.size, bool)
    for board in boards:
        means_w = np.array(
            [
                board.mean_w(start_s - margin_s, start_s),
                board.mean_w(start_s, line.end_s),
                board.mean_w(line.end_s, line.end_s + margin_s),
            ]
        )
        level &= np.ptp(means_w, axis=0) <= _LEVEL * max(np.ptp(means_w[1]), _LEAST_SWING_W)
    return level
