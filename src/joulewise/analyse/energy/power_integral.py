"""The integral of the power readings between any two of some moments, and what it may miss.

What a lane of power says up to each of some moments, in one pass over its chunks.

A reading belongs to the time since the one before it. A reading that is repeated is held by that
rule for as long as it was shown, however often it was asked for. Where nothing was read for
long, the mean of both sides stands in, and the time counts as a gap.

The highest reading of any windows, however they overlap.

Stretches of a lane of power in which nothing new was told: no reading, or always the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.analyse.chunks import Block, ChunkReader, Room, blocks, readable
from joulewise.analyse.energy.noise import READINGS, rows_around, usual_w2
from joulewise.analyse.time_intervals import Stretch
from joulewise.units import NS_PER_S, Z95

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from joulewise.analyse.energy.sensor_timing import ReadingTiming

_RULE: Final = 20


class Silences:
    """Stretches, each with the power that stands for it."""

    def __init__(self) -> None:
        self._parts: list[NDArray[np.float64]] = []

    def add(self, start_ns: NDArray[Any], end_ns: NDArray[Any], power_w: NDArray[Any]) -> None:
        if len(start_ns):
            self._parts.append(np.stack([start_ns, end_ns, power_w]))

    @property
    def number(self) -> int:
        return sum(part.shape[1] for part in self._parts)

    @property
    def bounds_ns(self) -> NDArray[np.float64]:
        """Start and end of each."""
        return np.asarray(np.concatenate([np.empty((3, 0)), *self._parts], axis=1)[:2].T)

    @property
    def longest(self) -> Stretch | None:
        if not self._parts:
            return None
        start_ns, end_ns, _ = np.concatenate(self._parts, axis=1)
        most = np.argmax(end_ns - start_ns)
        return Stretch(int(start_ns[most]), int(end_ns[most]))

    def up_to(self, times_ns: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Their seconds and joules up to each moment."""
        if not self._parts:
            return np.zeros(len(times_ns)), np.zeros(len(times_ns))
        start_ns, end_ns, power_w = np.concatenate(self._parts, axis=1)
        edges_ns = np.stack([start_ns, end_ns], axis=1).reshape(-1)
        lasting_s = (end_ns - start_ns) / NS_PER_S
        return (
            np.interp(times_ns, edges_ns, _stairs(lasting_s)),
            np.interp(times_ns, edges_ns, _stairs(lasting_s * power_w)),
        )


class Standstills(Silences):
    """Those in which the reading did not move for ``long_ns``."""

    def __init__(self, long_ns: float, first_ns: int) -> None:
        super().__init__()
        self._long_ns = long_ns
        self._moved_ns = first_ns
        self._moves = 0

    def look(
        self, t_ns: NDArray[np.int64], power_w: NDArray[Any], moved: NDArray[np.bool_]
    ) -> None:
        """Rows in order, and whether another value came after each of them."""
        moves = np.count_nonzero(moved)
        if not moves:
            return
        self._moves += moves
        # As a rule it moves in every row: only those around a standstill are looked at.
        begin = np.flatnonzero(moved[1:] < moved[:-1]) + 1
        end = np.flatnonzero(moved[1:] > moved[:-1]) + 1
        end = np.append(0, end) if moved[0] else end
        since_ns = np.append(self._moved_ns, t_ns[begin])[: len(end)]
        long = np.flatnonzero(t_ns[end] - since_ns > self._long_ns)
        self.add(since_ns[long], t_ns[end[long]], power_w[end[long]])
        self._moved_ns = int(t_ns[len(moved) if moved[-1] else begin[-1]])

    def end(self, last_ns: int, last_w: float) -> None:
        if last_ns - self._moved_ns > self._long_ns:
            self.add(np.array([self._moved_ns]), np.array([last_ns]), np.array([last_w]))

    @property
    def odd(self) -> bool:
        """Whether this sensor moves as a rule, so that one which does not must be stuck."""
        return self._moves >= _RULE * max(self.number, 1)


def _stairs(parts: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of the parts before each and after each."""
    return np.repeat(np.append(0.0, np.cumsum(parts)), 2)[1:-1]


if TYPE_CHECKING:
    from numpy.typing import NDArray

_FEW: Final = 256
_ENOUGH: Final = 1 << 12
_MOST_AROUND: Final = 64
MISSED_READINGS: Final = 2.5
"""Polls come late now and then: one that is missing is no gap yet."""

# A sensor that shows the very same for so many periods, and so long, is stuck.
_STILL: Final = 20
_STILL_NS: Final = NS_PER_S


@dataclass(frozen=True)
class CumulativePower:
    """At each moment what has come since the first reading, and what stands around it.

    Before the first reading and after the last, those go on, and the time is a gap.
    ``still_s`` is time in which a sensor that can move did not, for long.
    ``rough_w2`` adds up the squared steps from reading to reading, ``news`` counts those that
    are steps at all, ``usual_w2`` is what such a step squared is around the moment as a rule.
    ``reading_w`` is the reading that the moment belongs to, ``peak_w`` the highest from there up
    to the next moment's, ``swing_w`` how far readings around the moment lie apart once their
    trend is taken out. ``read_s`` is the time from the first reading to the last.
    """

    energy_j: NDArray[np.float64]
    rough_w2: NDArray[np.float64]
    news: NDArray[np.int64]
    usual_w2: NDArray[np.float64]
    gap_s: NDArray[np.float64]
    gap_j: NDArray[np.float64]
    still_s: NDArray[np.float64]
    still_j: NDArray[np.float64]
    reading_w: NDArray[np.float64]
    peak_w: NDArray[np.float64]
    swing_w: NDArray[np.float64]
    lowest_w: float
    highest_w: float
    read_s: float


def still_ns(step_ns: float) -> float:
    """How long a sensor with new values every ``step_ns`` may show the same before it is stuck."""
    return max(step_ns * _STILL, _STILL_NS)


def typical_step_ns(lane: ChunkReader) -> float:
    """The time between rows at most moments, by the first of them.

    The median of the steps, each weighted with its length: a lane is read densely for a moment
    where a run begins and ends, and those rows are many and short.
    """
    found: list[NDArray[np.int64]] = []
    for chunk in lane.chunks(("t_ns",)):
        found.append(chunk["t_ns"][:_ENOUGH])
        if sum(map(len, found)) >= _ENOUGH:
            break
    steps = np.sort(np.diff(np.concatenate(found)[:_ENOUGH])) if found else np.empty(0)
    steps = steps[steps > 0]  # a damaged file has times that go back
    if not len(steps):
        return 0.0
    up_to = np.cumsum(steps)
    return float(steps[np.searchsorted(up_to, up_to[-1] / 2)])


def bounds_ns(lane: ChunkReader) -> tuple[int, int]:
    """The times of the first and the last row; twice 0 where there is none."""
    first_ns = last_ns = None
    for chunk in lane.chunks(("t_ns",)):
        if len(chunk["t_ns"]):
            first_ns = int(chunk["t_ns"][0]) if first_ns is None else first_ns
            last_ns = int(chunk["t_ns"][-1])
    return first_ns or 0, last_ns or 0


def follow(
    lane: ChunkReader, times_ns: NDArray[np.int64], *, step_ns: float, period_ns: float
) -> CumulativePower | None:
    """The course at these moments, which ascend; None of a lane without a reading.

    ``step_ns`` is the time between rows, ``period_ns`` that between new values.
    """
    pass_ = _Pass(times_ns, max(step_ns, period_ns))
    around = int(np.clip(np.ceil(2 * period_ns / max(step_ns, 1)), 2, _MOST_AROUND))
    reach = rows_around(step_ns, period_ns)
    chunks = readable(lane.chunks(("t_ns", "power_w")), "power_w")
    for block in blocks(chunks, max(around, reach) + 1):
        pass_.take(block, around, reach)
    return pass_.course()


def without_readings(times_ns: NDArray[np.int64], power_w: float) -> CumulativePower:
    """The course of a device whose power nobody read: constant, as far as anybody knows."""
    passed_s = (times_ns - times_ns[0]) / NS_PER_S
    zero, same = np.zeros(len(times_ns)), np.full(len(times_ns), power_w)
    news = np.zeros(len(times_ns), np.int64)
    energy_j = passed_s * power_w
    return CumulativePower(
        *(energy_j, zero, news, zero, passed_s, energy_j, zero, zero),
        *(same, same, zero, power_w, 2 * power_w, 0.0),
    )


class _Pass:
    def __init__(self, times_ns: NDArray[np.int64], step_ns: float) -> None:
        size = len(times_ns)
        self._times_ns = times_ns
        self._room = Room()
        self._gap_ns = step_ns * MISSED_READINGS
        self._still_ns = still_ns(step_ns)
        self._energy_wns = np.zeros(size)
        self._rough_w2 = np.zeros(size)
        self._news = np.zeros(size, np.int64)
        self._usual_w2 = np.zeros(size)
        self._reading_w = np.zeros(size)
        self._peak_w = np.full(size, -np.inf)
        self._swing_w = np.zeros(size)
        self._sums: tuple[float, float, int] = (0.0, 0.0, 0)
        self._range_w = (np.inf, -np.inf)
        self._gaps = Silences()
        self._done = 0
        self._first: tuple[int, float] | None = None
        self._last: tuple[int, float] = (0, 0.0)
        self._still = Standstills(self._still_ns, 0)

    def take(self, block: Block, around: int, reach: int) -> None:
        t_ns, power_w = block.columns["t_ns"], block.columns["power_w"]
        if block.end <= block.first:
            return
        if self._first is None:
            self._begin(int(t_ns[0]), float(power_w[0]))
        start = max(block.first, 1)
        if block.end > start:
            self._add(t_ns[start - 1 : block.end], power_w, start, around, reach)
        self._last = int(t_ns[block.end - 1]), float(power_w[block.end - 1])

    def course(self) -> CumulativePower | None:
        if self._first is None:
            return None
        last_ns, last_w = self._last
        late = slice(self._done, None)
        beyond_ns = self._times_ns[late] - last_ns
        energy_wns, rough_w2, news = self._sums
        self._energy_wns[late] = energy_wns + beyond_ns * last_w
        self._rough_w2[late] = rough_w2
        self._news[late] = news
        self._mark(late, last_w)
        if self._done:
            self._peak_w[self._done - 1] = max(self._peak_w[self._done - 1], last_w)
        self._still.end(last_ns, last_w)
        still = self._still if self._still.odd else Silences()
        return CumulativePower(
            self._energy_wns / NS_PER_S,
            self._rough_w2,
            self._news,
            self._usual_w2,
            *self._gap(),
            *still.up_to(self._times_ns),
            self._reading_w,
            self._peak_w,
            self._swing_w,
            float(self._range_w[0]),
            float(self._range_w[1]),
            (last_ns - self._first[0]) / NS_PER_S,
        )

    def _begin(self, first_ns: int, first_w: float) -> None:
        self._first = first_ns, first_w
        self._range_w = first_w, first_w
        self._still = Standstills(self._still_ns, first_ns)
        self._done = int(np.searchsorted(self._times_ns, first_ns, "right"))
        early = slice(0, self._done)
        self._energy_wns[early] = (self._times_ns[early] - first_ns) * first_w
        self._mark(early, first_w)

    def _mark(self, where: slice, power_w: float) -> None:
        self._reading_w[where] = self._peak_w[where] = power_w

    def _add(
        self, t_ns: NDArray[np.int64], around_w: NDArray[Any], start: int, around: int, reach: int
    ) -> None:
        """Rows ``start`` and on of ``around_w``; ``t_ns`` begins with the row before them."""
        rows = len(t_ns) - 1
        power_w = around_w[start : start + rows]
        lasting = np.subtract(t_ns[1:], t_ns[:-1], out=self._room.of("lasting", rows, np.int64))
        energy = np.multiply(power_w, lasting, out=self._room.of("energy", rows, np.float64))
        if lasting.max() > self._gap_ns:
            self._bridge(t_ns, around_w[start - 1 : start + rows], lasting, energy)
        before_w = around_w[start - 1 : start + rows - 1]
        steps = np.subtract(power_w, before_w, out=self._room.of("steps", rows, power_w.dtype))
        moved = steps != 0
        self._still.look(t_ns, before_w, moved)

        here = slice(self._done, int(np.searchsorted(self._times_ns, t_ns[-1], "right")))
        self._done = here.stop
        times = self._times_ns[here]
        at = np.searchsorted(t_ns[1:], times, "left")
        cuts, which = np.unique(np.append(0, at), return_inverse=True)
        which = which.reshape(-1)[1:]

        changed = _counts(moved, cuts)
        np.multiply(steps, steps, out=steps)
        sums = [
            np.add.reduceat(energy, cuts),
            np.add.reduceat(steps, cuts, dtype=np.float64),
            changed,
        ]
        before = [np.cumsum(part) - part for part in sums]
        peaks = np.maximum.reduceat(power_w, cuts)

        into_ns = times - t_ns[at]
        self._energy_wns[here] = (
            self._sums[0] + before[0][which] + into_ns * (energy[at] / np.maximum(lasting[at], 1))
        )
        self._rough_w2[here] = self._sums[1] + before[1][which]
        self._news[here] = self._sums[2] + before[2][which]
        self._reading_w[here] = power_w[at]
        self._put_peaks(here, at, peaks, which, power_w)
        self._look_around(here, around_w, at + start, around)
        self._usual_w2[here] = usual_w2(around_w, at + start, reach)
        self._sums = (
            self._sums[0] + float(sums[0].sum()),
            self._sums[1] + float(sums[1].sum()),
            self._sums[2] + int(changed.sum()),
        )
        self._range_w = (
            min(self._range_w[0], float(power_w.min())),
            max(self._range_w[1], float(peaks.max())),
        )

    def _put_peaks(
        self,
        here: slice,
        at: NDArray[np.intp],
        peaks: NDArray[Any],
        which: NDArray[np.intp],
        power_w: NDArray[Any],
    ) -> None:
        if here.start and (not len(at) or at[0] > 0):
            self._peak_w[here.start - 1] = max(self._peak_w[here.start - 1], peaks[0])
        if len(at):
            same = np.append(at[1:] == at[:-1], False)
            self._peak_w[here] = np.where(same, power_w[at], peaks[which])

    def _look_around(
        self, here: slice, power_w: NDArray[Any], rows: NDArray[np.intp], around: int
    ) -> None:
        offsets = np.arange(-around, around + 1)
        near = power_w[np.clip(rows[:, None] + offsets, 0, len(power_w) - 1)]
        slope = near @ offsets / (offsets @ offsets)
        near -= slope[:, None] * offsets
        self._swing_w[here] = np.ptp(near, axis=1)

    def _bridge(
        self,
        t_ns: NDArray[np.int64],
        power_w: NDArray[Any],
        lasting: NDArray[np.int64],
        energy: NDArray[np.float64],
    ) -> None:
        gaps = np.flatnonzero(lasting > self._gap_ns)
        mean_w = (power_w[gaps] + power_w[gaps + 1]) / 2
        energy[gaps] = mean_w * lasting[gaps]
        self._gaps.add(t_ns[gaps], t_ns[gaps + 1], mean_w)

    def _gap(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Unread time up to each moment, and what was put in its place."""
        first_ns, first_w = self._first or (0, 0.0)
        last_ns, last_w = self._last
        early = np.minimum(self._times_ns - first_ns, 0) / NS_PER_S
        late = np.maximum(self._times_ns - last_ns, 0) / NS_PER_S
        gap_s, gap_j = self._gaps.up_to(self._times_ns)
        return gap_s + early + late, gap_j + early * first_w + late * last_w


def _counts(moved: NDArray[np.bool_], cuts: NDArray[np.intp]) -> NDArray[np.int64]:
    """How many rows moved, between cuts."""
    if len(cuts) > _FEW:
        return np.add.reduceat(moved, cuts, dtype=np.int64)
    ends = np.append(cuts[1:], len(moved))
    parts = [np.count_nonzero(moved[a:b]) for a, b in zip(cuts, ends, strict=True)]
    return np.array(parts, np.int64)


if TYPE_CHECKING:
    from numpy.typing import NDArray


def highest_between(
    stretch_w: NDArray[np.float64],
    reading_w: NDArray[np.float64],
    start: NDArray[np.intp],
    end: NDArray[np.intp],
) -> NDArray[np.float64]:
    """The highest from time ``start`` to time ``end``.

    ``stretch_w[i]`` is the highest from time ``i`` up to the next; ``reading_w[i]`` is that at
    ``i``. Windows are looked up in tables of stretches of 1, 2, 4 ... times.
    """
    highest = reading_w[end].copy()
    length = end - start
    table, size = stretch_w, 1
    while True:
        fits = (length >= size) & (length < 2 * size)
        both = np.maximum(table[start[fits]], table[end[fits] - size])
        highest[fits] = np.maximum(highest[fits], both)
        size *= 2
        if not (length >= size).any():
            return np.asarray(highest)
        table = np.maximum(table[: -(size // 2)], table[size // 2 :])


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
    course: CumulativePower
    timing: ReadingTiming
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
