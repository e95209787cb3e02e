"""The integral of the power readings between any two of some moments, and what it may miss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.course import Course
from joulewise.analyse.highest import highest_between
from joulewise.analyse.timing import Timing
from joulewise.analyse.usual import READINGS
from joulewise.units import NS_PER_S, Z95

if TYPE_CHECKING:
    from numpy.typing import NDArray

# What a counter may be off by while nothing checks it.
_UNCHECKED: Final = 0.01
_WHOLE: Final = 0.99
# A sensor's window may be a third shorter, beside its period, than the tables have both.
_SEEN_AT_LEAST: Final = 0.67


@dataclass(frozen=True)
class Integral:
    """Moments are named by their place in ``times_ns``. ``range_w``: what may be drawn at all."""

    times_ns: NDArray[np.int64]
    course: Course
    timing: Timing
    range_w: tuple[float, float]

    def place(self, times_ns: NDArray[np.int64]) -> NDArray[np.intp]:
        return np.searchsorted(self.times_ns, times_ns)

    def time_s(self, start: NDArray[np.intp], end: NDArray[np.intp]) -> NDArray[np.float64]:
        return np.asarray((self.times_ns[end] - self.times_ns[start]) / NS_PER_S)

    def energy_j(self, start: NDArray[np.intp], end: NDArray[np.intp]) -> NDArray[np.float64]:
        return np.asarray(self.course.energy_j[end] - self.course.energy_j[start])

    def error_j(self, start: NDArray[np.intp], end: NDArray[np.intp]) -> NDArray[np.float64]:
        """A 95 % half-width.

        Each reading stands for as long as it was held, and is off by what readings that follow
        each other differ. Those of a short window may happen to lie close together: what is usual
        around it counts as so many more readings would. At the edges nobody knows to which side a
        change belongs; in a gap the device may have drawn anything that it can.
        """
        course, timing = self.course, self.timing
        news = np.maximum(course.news[end] - course.news[start], 1)
        time_s = self.time_s(start, end)
        held_s = timing.held_s or np.maximum(time_s / news, timing.step_s)
        rough_w2 = np.maximum(course.rough_w2[end] - course.rough_w2[start], 0.0)
        usual_w2 = news * (course.usual_w2[start] + course.usual_w2[end]) / 2
        rough_w2 += np.maximum(usual_w2 - rough_w2, 0.0) * READINGS / (READINGS + news)
        swing_w2 = course.swing_w[start] ** 2 + course.swing_w[end] ** 2
        known_s = np.minimum(course.read_s, np.maximum(time_s, 2 * READINGS * held_s))
        noise_j2 = _student(known_s / held_s) ** 2 * rough_w2 / 2 * held_s**2
        seen = np.sqrt(noise_j2 + Z95**2 * swing_w2 * timing.place_s**2)
        return np.asarray(seen + self._room_j(*self._unread(start, end)))

    def unread_s(self, start: NDArray[np.intp], end: NDArray[np.intp]) -> NDArray[np.float64]:
        """Time in which nothing was read, or always the same."""
        return self._unread(start, end)[0]

    def unchecked_j(self, start: NDArray[np.intp], end: NDArray[np.intp]) -> NDArray[np.float64]:
        """What a counter may be off by where there were no readings beside it."""
        return _UNCHECKED * self._unread(start, end)[1]

    def blind_j(self, start: NDArray[np.intp], end: NDArray[np.intp]) -> NDArray[np.float64]:
        """What readings cannot exclude that average only a share of the time.

        A load in step with the sensor shows it always the same face.
        """
        unseen = 1 - min(_SEEN_AT_LEAST * self.timing.seen, 1.0)
        room_j = self._room_j(self.time_s(start, end), self.energy_j(start, end))
        return np.asarray(unseen * room_j)

    def gap_s(self, start: NDArray[np.intp], end: NDArray[np.intp]) -> NDArray[np.float64]:
        return np.asarray(self.course.gap_s[end] - self.course.gap_s[start])

    def still_s(self, start: NDArray[np.intp], end: NDArray[np.intp]) -> NDArray[np.float64]:
        return np.asarray(self.course.still_s[end] - self.course.still_s[start])

    def peak_w(self, start: NDArray[np.intp], end: NDArray[np.intp]) -> NDArray[np.float64]:
        return highest_between(self.course.peak_w, self.course.reading_w, start, end)

    def stuck(self, start: NDArray[np.intp], end: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Whether a sensor that has shown that it can move did not, all the time."""
        return np.asarray(self.still_s(start, end) > _WHOLE * self.time_s(start, end))

    @property
    def news_hz(self) -> float | None:
        """New values a second."""
        time_s = (self.times_ns[-1] - self.times_ns[0]) / NS_PER_S
        return float((self.course.news[-1] - self.course.news[0]) / time_s) if time_s else None

    def _unread(
        self, start: NDArray[np.intp], end: NDArray[np.intp]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Seconds without a reading, or with one that stood still, and what stands in for them."""
        course = self.course
        time_s, energy_j = course.gap_s + course.still_s, course.gap_j + course.still_j
        return time_s[end] - time_s[start], energy_j[end] - energy_j[start]

    def _room_j(
        self, time_s: NDArray[np.float64], energy_j: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """How far from ``energy_j`` the device can have been in that time."""
        low_w, high_w = self.range_w
        room_j = np.maximum(high_w * time_s - energy_j, energy_j - low_w * time_s)
        return np.asarray(np.maximum(room_j, 0.0) * (time_s > 0))


def _student(readings: NDArray[np.float64]) -> NDArray[np.float64]:
    """What ``Z95`` grows to where as few readings told how far they lie apart."""
    degrees = np.maximum(2 / 3 * readings, 2)
    return np.asarray(Z95 + (2.37 + 2.82 / degrees) / degrees)
