"""The update period of a sensor, from polls that are faster than it.

The period is found by folding: the mean cosine of the gaps between changes, at the phase that a
candidate period gives them, is 1 where all gaps are multiples of it (a Rayleigh periodogram of the
gaps). A straight line through the numbered changes then makes it exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.data import Unavailable
from joulewise.record.sensor_profiles import CalibratedValue
from joulewise.units import Z95

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LEAST_CHANGES: Final = 12  # chosen: fewer gaps fold on many periods by chance
_POLLS_PER_PERIOD: Final = 2.5  # of the shortest period; below two, polls skip values (Nyquist)
_PROMPT: Final = 3.0  # polls: a machine that is busy delays some of them by many
# How sharply the changes must fold: 0 is chance; a late poll here and there leaves 0.9.
_SHARP: Final = 0.6
_AS_SHARP: Final = 0.9  # of the sharpest: the longest such period counts, not a half of it
_CANDIDATES_PER_E: Final = 200  # candidate periods for each factor of e, 0.5 % apart
_LONGEST_PERIODS: Final = 5  # gaps of more are left out: a rough period does not number them
_WITHIN_A_TICK: Final = 0.25  # of a period: by as much a change may be seen too early or late


@dataclass(frozen=True)
class SensorClock:
    """The update period of a sensor, and each new value with the time at which it was made.

    Values that equal the one before are left out: their time is unknown.
    """

    period_s: CalibratedValue
    t_s: NDArray[np.float64]
    value: NDArray[np.float64]


def find_ticks(t_s: NDArray[np.float64], value: NDArray[np.float64]) -> SensorClock | Unavailable:
    """Find the updates in values polled at ``t_s`` (ascending); NaN where there was no answer.

    An update lies between two polls with different values. Updates that repeat a value, and polls
    that are late, leave the other changes on one grid of the period.
    """
    good = np.isfinite(value)
    t_s, value = t_s[good], value[good]
    at = np.flatnonzero(np.diff(value)) + 1
    if at.size < _LEAST_CHANGES:
        return Unavailable(f"it had {at.size} new values, too few to find its update period")
    before_s, after_s = t_s[at - 1], t_s[at]
    middle_s, width_s = (before_s + after_s) / 2, after_s - before_s
    poll_s = float(np.median(np.diff(t_s)))
    prompt = width_s <= _PROMPT * poll_s
    rough_s = _fold(
        np.diff(middle_s[prompt] if prompt.sum() >= _LEAST_CHANGES else middle_s), poll_s
    )
    if rough_s is None:
        return Unavailable(
            f"its new values are not periodic, or come faster than every {poll_s * 1e3:.2g} ms"
        )
    clear = width_s < rough_s * 2 * _WITHIN_A_TICK
    if clear.sum() < _LEAST_CHANGES:
        return Unavailable("the polls came too late to separate one new value from the next")
    period_s, first_s, number = _grid(middle_s[clear], rough_s)
    # Where the sensor's clock jitters, the two polls bound the time.
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
    # Gaps of many periods fold on any period that is roughly right.
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
    """Period, time of update 0, and the number of each update.

    Numbered from gap to gap at first; then by straight lines through all of them.
    """
    number = np.concatenate([[0.0], np.cumsum(np.rint(np.diff(middle_s) / rough_s))])
    period_s, first_s = np.polyfit(number, middle_s, 1)
    for _ in range(3):
        number = np.rint((middle_s - first_s) / period_s)
        off = np.abs(middle_s - first_s - number * period_s)
        is_near = off <= 3 * np.median(off)
        period_s, first_s = np.polyfit(number[is_near], middle_s[is_near], 1)
    return float(period_s), float(first_s), number


def _with_error(
    period_s: float, off_s: NDArray[np.float64], number: NDArray[np.float64]
) -> CalibratedValue:
    """The period with the error of the regression, and of a slow drift between its halves."""
    lever = np.sqrt(((number - number.mean()) ** 2).sum())
    scatter = Z95 * off_s.std() / lever
    half = off_s.size // 2
    bend = abs(np.median(off_s[:half]) - np.median(off_s[half:])) / max(1.0, np.ptp(number) / 2)
    return CalibratedValue(period_s, float(np.hypot(scatter, bend)))
