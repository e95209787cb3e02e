"""When a sensor makes new values, from polls that come faster than it makes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.data import Unavailable
from joulewise.record.sensor_profiles import CalibratedValue
from joulewise.units import Z95

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FEWEST: Final = 12
_POLLS_PER_PERIOD: Final = 2.5
_PROMPT: Final = 3.0  # polls: a machine that is busy delays some of them by many
# How sharply the changes must fold: 0 is chance; a late poll here and there leaves 0.9.
_SHARP: Final = 0.6
_AS_SHARP: Final = 0.9
_CANDIDATES_PER_E: Final = 200
_LONGEST_PERIODS: Final = 5
_WITHIN_A_TICK: Final = 0.25


@dataclass(frozen=True)
class SensorClock:
    """The sensor's clock, and each new value with the moment at which it was made.

    Values that equal the one before are not in ``value``: nothing shows when they were made.
    """

    period_s: CalibratedValue
    t_s: NDArray[np.float64]
    value: NDArray[np.float64]


def find_ticks(t_s: NDArray[np.float64], value: NDArray[np.float64]) -> SensorClock | Unavailable:
    """``value`` as polled at ``t_s``, ascending; NaN where there was no answer.

    A change tells that a tick lies between two polls. Ticks that repeat a value, polls that are
    late and polls that beat with the period all leave the rest on one grid.
    """
    good = np.isfinite(value)
    t_s, value = t_s[good], value[good]
    at = np.flatnonzero(np.diff(value)) + 1
    if at.size < _FEWEST:
        return Unavailable(f"it showed {at.size} new values, too few to tell how often they come")
    before_s, after_s = t_s[at - 1], t_s[at]
    middle_s, width_s = (before_s + after_s) / 2, after_s - before_s
    poll_s = float(np.median(np.diff(t_s)))
    prompt = width_s <= _PROMPT * poll_s
    rough_s = _fold(np.diff(middle_s[prompt] if prompt.sum() >= _FEWEST else middle_s), poll_s)
    if rough_s is None:
        return Unavailable(
            f"its new values come in no steady rhythm, or faster than every {poll_s * 1e3:.2g} ms"
        )
    clear = width_s < rough_s * 2 * _WITHIN_A_TICK
    if clear.sum() < _FEWEST:
        return Unavailable("the polls came too late to tell one new value from the next")
    period_s, first_s, number = _grid(middle_s[clear], rough_s)
    # Where a sensor's own clock wavers, what was seen overrules the grid.
    grid_s = first_s + number * period_s
    seen_s = np.clip(grid_s, before_s[clear], after_s[clear])
    return SensorClock(
        _with_error(period_s, middle_s[clear] - grid_s, number), seen_s, value[at][clear]
    )


def _fold(gap_s: NDArray[np.float64], poll_s: float) -> float | None:
    """The longest period of which all gaps are multiples, roughly."""
    low_s, high_s = poll_s * _POLLS_PER_PERIOD, float(np.quantile(gap_s, 0.9)) * 1.2
    if high_s <= low_s:
        return None
    count = int(np.log(high_s / low_s) * _CANDIDATES_PER_E) + 2
    candidate_s = np.geomspace(low_s, high_s, count)
    # Gaps of many periods know nothing of a rough one.
    weight = gap_s[:, None] < candidate_s * _LONGEST_PERIODS
    folded = np.cos(2 * np.pi * gap_s[:, None] / candidate_s)
    score = (folded * weight).sum(0) / np.maximum(weight.sum(0), 1)
    score[weight.sum(0) < gap_s.size / 4] = 0.0
    if score.max() < _SHARP:
        return None
    # A half and a third of the period fold as well, a little less sharply at best.
    peaks = (score >= np.roll(score, 1)) & (score >= np.roll(score, -1))
    best = np.flatnonzero(peaks & (score >= _AS_SHARP * score.max()))
    rough_s = float(candidate_s[best[-1]]) if best.size else float(candidate_s[score.argmax()])
    near = gap_s[gap_s < rough_s * _LONGEST_PERIODS]
    periods = np.rint(near / rough_s)
    return float(np.median(near[periods > 0] / periods[periods > 0]))


def _grid(
    middle_s: NDArray[np.float64], rough_s: float
) -> tuple[float, float, NDArray[np.float64]]:
    """Period, time of tick 0, and the number of each tick.

    From gap to gap at first; then over the whole, whose long lever makes the period exact.
    """
    number = np.concatenate([[0.0], np.cumsum(np.rint(np.diff(middle_s) / rough_s))])
    period_s, first_s = np.polyfit(number, middle_s, 1)
    for _ in range(3):
        number = np.rint((middle_s - first_s) / period_s)
        off = np.abs(middle_s - first_s - number * period_s)
        usual = off <= 3 * np.median(off)
        period_s, first_s = np.polyfit(number[usual], middle_s[usual], 1)
    return float(period_s), float(first_s), number


def _with_error(
    period_s: float, off_s: NDArray[np.float64], number: NDArray[np.float64]
) -> CalibratedValue:
    """The regression's error; what wavers slowly shows in the halves, and is added."""
    lever = np.sqrt(((number - number.mean()) ** 2).sum())
    scatter = Z95 * off_s.std() / lever
    half = off_s.size // 2
    bend = abs(np.median(off_s[:half]) - np.median(off_s[half:])) / max(1.0, np.ptp(number) / 2)
    return CalibratedValue(period_s, float(np.hypot(scatter, bend)))
