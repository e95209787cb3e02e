"""Whether a GPU did more while the command ran than it does idle, and when.

A process that uses a GPU for 50 ms comes and goes between two reads of the driver's list. What it
does to the GPU stays visible for longer: drivers keep seconds of samples, the energy counter misses
nothing, and clocks stay up for some seconds after the last kernel.

The idle level is the lowest reading of the recording, before the command or during it. A reading is
*active* where it lies above that by more than a margin. Activity that goes on from before the
command's start is not the command's, as long as it does not rise further.

Streams are read block by block, so that a run of weeks takes no more memory than one of hours.
Whether there was activity follows from the highest reading once the idle level is known; a second
pass is for GPUs that were active before the command began.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from joulewise.analyse.chunks import Array, ChunkReader, Indices, Ints, OpenStream
from joulewise.analyse.time_intervals import TimeInterval, TimeSet
from joulewise.data import Quantity
from joulewise.store.layout import StreamKind
from joulewise.units import NS_PER_S

# Readings of the sensor that were taken after the command ended still show its last moments: up to
# the longest update period and lag of known boards (0.1 s and some 0.05 s). Twice as long would
# take in what the next command does.
_TAIL_NS: Final = round(0.3 * NS_PER_S)
# A single reading below all others, such as one of a driver that fails, is no idle level. Chosen;
# doubled, a GPU that is idle for 3 % of the recording seems always active.
_IDLE_QUANTILE: Final = 0.02
# The state just before the command: the last update of a slow sensor (0.1 s), and some.
_BEFORE_NS: Final = round(0.15 * NS_PER_S)
# Mean power is taken from the counter over at least this time: four updates of 0.1 s.
_COUNTED_NS: Final = round(0.4 * NS_PER_S)
# Utilisation is of up to a second before its value changes (NVML API Reference, nvmlUtilization_t),
# and is shown for as long: what is read sooner than this after the start may be of before.
UTILISATION_NS: Final = 2 * NS_PER_S
# Clocks stay up for 2 s and more after a kernel (`hold_s` of the simulated boards), so that power
# which is read at least this often shows every use. Chosen; longer gaps might hide a short one.
LONGEST_GAP_S: Final = 2.0


@dataclass(frozen=True)
class Margin:
    """By how much a reading must exceed the idle level to be activity: absolute, or a share."""

    least: float
    share: float = 0.0

    def above(self, level: float) -> float:
        return level + max(self.least, self.share * level)


# Idle power wanders by some percent with temperature and by a watt or two from reading to reading;
# clocks that go up add 45 % and more on the known boards (42 to 65 W on a V100, 43 to 62 W on an
# A100, 14 to 26 W on an RTX 6000, 1 to 10 W on a laptop). Chosen in between.
_MARGINS: Final = {
    Quantity.POWER: Margin(3.0, 0.2),
    Quantity.GPU_POWER: Margin(3.0, 0.2),
    # Mean power from the counter: an update of 0.1 s more or less in 0.4 s, and the margin above.
    Quantity.ENERGY: Margin(3.0, 0.8),
    # A share of time: where no kernel runs it is 0. NVML rounds to whole percents.
    Quantity.GPU_UTILISATION: Margin(0.5),
    # Performance states are hundreds of MHz apart; boost steps are 15 MHz.
    Quantity.SM_CLOCK: Margin(100.0, 0.2),
    # A CUDA context takes some 100 MB and more (chosen below that).
    Quantity.MEMORY_USED: Margin(64e6),
}
_POWERS: Final = (Quantity.POWER, Quantity.ENERGY)
# What shows every use where it is read often: on a module, the GPU's part and its clock.
_OF_MODULE: Final = (Quantity.GPU_POWER, Quantity.SM_CLOCK)
# The streams of each quantity: what is polled, and what drivers keep.
_LANES: Final = (
    (StreamKind.FAST, (*_POWERS, Quantity.GPU_POWER)),
    (StreamKind.BUFFER, (Quantity.POWER,)),
    (
        StreamKind.SLOW,
        (Quantity.GPU_UTILISATION, Quantity.SM_CLOCK, Quantity.MEMORY_USED, Quantity.GPU_POWER),
    ),
    (StreamKind.BUFFER_GPU_UTILISATION, (Quantity.GPU_UTILISATION,)),
    (StreamKind.BUFFER_SM_CLOCK, (Quantity.SM_CLOCK,)),
)
_NEVER: Final = TimeSet(np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True)
class Activity:
    """Whether a GPU was active in a run because of something that began in it.

    ``is_unexplained`` says whether it was at a time when nobody else is known to have computed on
    it. ``is_complete`` says whether readings are so close, from the start to the end, that no use
    can have escaped them.
    """

    is_active: bool = False
    is_unexplained: bool = False
    is_complete: bool = False


@dataclass(frozen=True)
class _Block:
    """Readings of one quantity in the order of their times; none is NaN."""

    t_ns: Ints
    values: Array

    def up_to(self, t_ns: int) -> int:
        """The number of readings up to a moment, itself among them."""
        return int(np.searchsorted(self.t_ns, t_ns, side="right"))

    def part(self, start: int, end: int | None = None) -> _Block:
        return _Block(self.t_ns[start:end], self.values[start:end])


def activity(
    open_stream: OpenStream,
    key: str,
    run: TimeInterval,
    explained: TimeSet = _NEVER,
    *,
    is_module: bool = False,
) -> Activity:
    """What the streams of a device show of its activity from the start to the end of ``run``.

    ``explained`` is when others computed on it. The power of a whole module says nothing of its
    GPU, since it rises with the CPU's load: there the GPU's part is taken.
    """
    ignored = _POWERS if is_module else ()
    watched = _OF_MODULE if is_module else _POWERS
    signals = [
        _Signal(rows, quantity, run, explained)
        for stream, quantities in _LANES
        if (rows := open_stream(key, stream)) is not None
        for quantity in quantities
        if quantity.value in rows.columns and quantity not in ignored
    ]
    for signal in signals:
        signal.read()
    was_active = any(signal.was_active for signal in signals)
    shown = [signal.activity(was_active=was_active) for signal in signals]
    return Activity(
        any(each.is_active for each in shown),
        any(each.is_unexplained for each in shown),
        _is_complete([each.gaps for each in signals if each.quantity in watched], run),
    )


class _Signal:
    """One quantity of one stream, read from its first block to its last."""

    def __init__(
        self, rows: ChunkReader, quantity: Quantity, run: TimeInterval, explained: TimeSet
    ) -> None:
        self.quantity = quantity
        self.gaps = _Gaps(run)
        self._rows = rows
        self._run = run
        self._explained = explained
        self._idle = _LowQuantile(rows.rows)
        self._last_before: float | None = None
        self._first_during: float | None = None
        self._at_first = -math.inf  # the highest while it may be of the time before the start
        self._just_before = -math.inf  # the highest, where any reading was that late
        self._peak = -math.inf
        self._peak_unexplained = -math.inf

    def read(self) -> None:
        for block in self._blocks():
            self._idle.add(block.values)
            if self.quantity in (*_POWERS, *_OF_MODULE):
                self.gaps.add(block.t_ns)
            start = block.up_to(self._run.start_ns)
            if start:
                self._last_before = float(block.values[start - 1])
                recent = block.values[block.up_to(self._run.start_ns - _BEFORE_NS) : start]
                if len(recent):
                    self._just_before = max(float(recent.max()), self._just_before)
            during = block.part(start, block.up_to(self._run.end_ns + _TAIL_NS))
            if len(during.values):
                if self._first_during is None:
                    self._first_during = float(during.values[0])
                first = during.values[: during.up_to(self._run.start_ns + UTILISATION_NS)]
                self._at_first = max(self._at_first, float(first.max(initial=-math.inf)))
                self._peak = max(self._peak, float(during.values.max()))
                # A reading that is not above the peak so far changes nothing.
                higher = during.values > self._peak_unexplained
                outside = ~self._explained.holds(during.t_ns[higher])
                new = during.values[higher][outside]
                self._peak_unexplained = float(new.max(initial=self._peak_unexplained))

    @property
    def was_active(self) -> bool:
        """Whether the GPU was active when the command started, by this quantity."""
        return self._last_before is not None and self._last_before > self._active_above()

    def activity(self, *, was_active: bool) -> Activity:
        """Once all has been read; ``was_active`` says what other quantities show of before.

        Clocks and utilisation are first read when the command has started. On a GPU that was active
        already, that first reading is still of what was before.
        """
        if not self._idle.number:
            return Activity()
        active = self._active_above()
        if was_active and self.quantity is Quantity.GPU_UTILISATION:
            return self._later(active)
        before = self._last_before
        if before is None and was_active:
            before = self._first_during
        if before is not None and before > active:
            before = max(before, self._just_before)
            return self._further(active, _MARGINS[self.quantity].above(before))
        return Activity(self._peak > active, self._peak_unexplained > active)

    def _later(self, active: float) -> Activity:
        """For a GPU that was active before, by readings of the command's time alone."""
        before = max(self._just_before, self._at_first)
        if self._last_before is not None:
            before = max(before, self._last_before)
        further = _MARGINS[self.quantity].above(before) if before > active else active
        return self._further(active, further, self._run.start_ns + UTILISATION_NS)

    def _active_above(self) -> float:
        is_share = self.quantity is Quantity.GPU_UTILISATION
        return _MARGINS[self.quantity].above(0.0 if is_share else self._idle.value())

    def _further(self, active: float, further: float, start_ns: int | None = None) -> Activity:
        """For a GPU that was active already: while that goes on, only what rises further counts.

        ``start_ns`` is from when on readings count, otherwise the start of the run.
        """
        start_ns = self._run.start_ns if start_ns is None else start_ns
        is_active = was_quiet = False
        for block in self._blocks():
            start, end = map(block.up_to, (start_ns, self._run.end_ns + _TAIL_NS))
            during = block.part(start, end)
            values = during.values.astype(float)
            quiet = np.flatnonzero(values <= active)
            until = 0 if was_quiet else int(quiet[0]) if len(quiet) else len(values)
            was_quiet |= bool(len(quiet))
            risen = np.flatnonzero(
                np.append(values[:until] > further, values[until:] > active).astype(bool)
            )
            is_active |= bool(len(risen))
            if not self._explained.holds(during.t_ns[risen]).all():
                return Activity(True, True)
        return Activity(is_active)

    def _blocks(self) -> Iterator[_Block]:
        blocks = _read_blocks(self._rows, self.quantity.value)
        return _mean_powers(blocks) if self.quantity is Quantity.ENERGY else blocks


def _read_blocks(rows: ChunkReader, name: str) -> Iterator[_Block]:
    for chunk in rows.chunks(("t_ns", name)):
        t_ns, values = chunk["t_ns"], chunk[name]
        is_read = np.isfinite(values)
        yield _Block(t_ns, values) if is_read.all() else _Block(t_ns[is_read], values[is_read])


def _mean_powers(counter: Iterable[_Block]) -> Iterator[_Block]:
    """The mean power between two readings of the energy counter, at the second of them."""
    last_ns, last_j = np.zeros(0, np.int64), np.zeros(0)
    for block in counter:
        first = int(np.searchsorted(block.t_ns, last_ns[0] + _COUNTED_NS)) if len(last_ns) else 0
        rows = _apart(block.t_ns, first, _COUNTED_NS)
        t_ns = np.append(last_ns, block.t_ns[rows])
        count_j = np.append(last_j, block.values[rows])
        power_w = np.diff(count_j) / (np.diff(t_ns) / NS_PER_S)
        is_sane = power_w >= 0  # a counter may be reset
        yield _Block(t_ns[1:][is_sane], power_w[is_sane])
        last_ns, last_j = t_ns[-1:], count_j[-1:]


def _apart(t_ns: Ints, first: int, least_ns: int) -> Indices:
    """The rows ``first``, the next that is ``least_ns`` later or more, and so on.

    Each row points to the one that would come after it. Pointers are followed from all rows that
    are known so far at once, and are doubled in length each time (pointer jumping).
    """
    end = len(t_ns)
    rows = np.array([first] if first < end else [], np.intp)
    following = np.append(np.searchsorted(t_ns, t_ns + least_ns), end)
    while len(rows) and (following[rows] < end).any():
        rows = np.append(rows, following[rows])
        rows = rows[: np.searchsorted(rows, end)]
        following = following[following]
    return rows


class _LowQuantile:
    """The quantile ``_IDLE_QUANTILE`` of a stream of values; only the lowest ones are kept."""

    def __init__(self, most: int) -> None:
        """``most`` bounds the number of values that will come."""
        self.number = 0
        self._size = math.floor(_IDLE_QUANTILE * max(most - 1, 0)) + 2
        self._lowest: Array = np.zeros(0)
        self._bound = math.inf

    def add(self, values: Array) -> None:
        self.number += len(values)
        low = values[values < self._bound]
        self._lowest = np.append(self._lowest, low) if len(self._lowest) else low
        if len(self._lowest) > self._size:
            self._lowest = np.partition(self._lowest, self._size - 1)[: self._size]
            self._bound = float(self._lowest[-1])

    def value(self) -> float:
        """The quantile, interpolated linearly as numpy does."""
        rank = _IDLE_QUANTILE * (self.number - 1)
        row = math.floor(rank)
        around = np.sort(self._lowest)[row : row + 2].astype(float)
        return float(np.quantile(around, rank - row)) if len(around) > 1 else float(around[0])


class _Gaps:
    """Times of a run without a reading, those longer than ``LONGEST_GAP_S``."""

    def __init__(self, run: TimeInterval) -> None:
        self._run = run
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self._parts: list[Ints] = []

    def add(self, t_ns: Ints) -> None:
        if not len(t_ns):
            return
        before_ns = self._run.start_ns if self.last_ns is None else self.last_ns
        self.first_ns = int(t_ns[0]) if self.first_ns is None else self.first_ns
        self.last_ns = int(t_ns[-1])
        self._add_gaps(np.append(before_ns, t_ns))

    def bounds_ns(self) -> Ints:
        """Start and end of each, once all has been read."""
        last_ns = self._run.start_ns if self.last_ns is None else self.last_ns
        self._add_gaps(np.array([last_ns, self._run.end_ns]))
        return np.concatenate([np.zeros((0, 2), np.int64), *self._parts])

    def _add_gaps(self, t_ns: Ints) -> None:
        t_ns = np.clip(t_ns, self._run.start_ns, self._run.end_ns)
        rows = np.flatnonzero(np.diff(t_ns) > LONGEST_GAP_S * NS_PER_S)
        if len(rows):
            self._parts.append(np.column_stack([t_ns[rows], t_ns[rows + 1]]))


def _is_complete(signals: Sequence[_Gaps], run: TimeInterval) -> bool:
    """Whether at least one of them was read in every ``LONGEST_GAP_S``, from start to end."""
    read = [each for each in signals if each.first_ns is not None and each.last_ns is not None]
    if not read:
        return False
    if min(each.first_ns or 0 for each in read) > run.start_ns:
        return False
    if max(each.last_ns or 0 for each in read) < run.end_ns:
        return False
    # A gap of all is where one of each overlap. Edges in their order, ends before starts.
    gaps_ns = np.concatenate([each.bounds_ns() for each in read])
    edges_ns = gaps_ns.T.reshape(-1)
    steps = np.repeat([1, -1], len(gaps_ns))
    order = np.lexsort([steps, edges_ns])
    is_all = np.cumsum(steps[order])[:-1] == len(read)
    return not (np.diff(edges_ns[order])[is_all] > LONGEST_GAP_S * NS_PER_S).any()
