"""Blocks of steps: the unit in which live tuning measures.

A block is a number of clean steps at one setting, long enough for the power sensor. Its steps may
lie in several epochs, with validation between them, which does not count. It is compared with
blocks at other settings, so that all blocks are built by the same rules:

- no step that began before the setting was changed, none while the sensor and the governor settle,
  and at least one whole step after the change left out
- after a pause (validation, the end of an epoch) not the first step, and no slow ones after it
- steps that repeat in a period (gradient accumulation) only in whole periods
- no rare stall, in which the job did something else
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Protocol

import numpy as np

from joulewise.units import NS_PER_S

# Steps of one stretch touch; a longer wait is a pause. Chosen: what a loop does between marks.
_PAUSE_S: Final = 0.005
_PAUSE_SHARE: Final = 0.05  # of the step before, where that is longer
# Stretches of fewer steps are used whole: leaving out the first would leave too little.
_SHORT_STRETCH_STEPS: Final = 4
# After a pause, steps this much slower than usual are still the start (caches, data loading), but
# not more than so many: a job that became slower stays slower. Chosen.
_SLOW_START: Final = 1.1
_MOST_SLOW_STEPS: Final = 5
# A step this many times longer than usual is a stall, if no more than this share of steps is.
_STALL: Final = 3.0
_STALL_SHARE: Final = 0.05
_LEAST_KNOWN_STEPS: Final = 5  # before anything is called usual
_LEAST_STEPS_FOR_STALLS: Final = 20
# Periods are looked for up to 16 steps, in the last 64: gradient accumulation beyond is rare, and
# blocks are then long enough to average it.
MAX_PERIOD: Final = 16
_PERIOD_STEPS: Final = 64
# Steps have a period if their place in it explains this share of their variance, and if they differ
# by more than this at all.
_EXPLAINED: Final = 0.75
_LEAST_VARIATION: Final = 0.03
_KEPT_STEPS: Final = 201  # whose median is the usual time at a setting


class TimedStep(Protocol):
    """A step of the job by the monotonic clock."""

    @property
    def start_ns(self) -> int: ...

    @property
    def end_ns(self) -> int: ...


def known_since_ns(step: TimedStep) -> int:
    """From when on the setting must have held: where a step is known by a mean, since its start."""
    since_ns = getattr(step, "known_since_ns", None)
    return step.start_ns if since_ns is None else since_ns


@dataclass(frozen=True)
class StepBlock:
    """Clean steps at the candidate ``index``; ``windows_ns`` are the stretches that they fill."""

    index: int
    steps: int
    windows_ns: tuple[tuple[int, int], ...]

    @property
    def start_ns(self) -> int:
        return self.windows_ns[0][0]

    @property
    def end_ns(self) -> int:
        return self.windows_ns[-1][1]

    @property
    def time_s(self) -> float:
        """The time of all its steps together."""
        return sum(end - start for start, end in self.windows_ns) / NS_PER_S

    @property
    def step_time_s(self) -> float:
        return self.time_s / self.steps


class BlockBuilder:
    """Collects steps, in the order in which they ended, into blocks.

    ``shortest_block_s`` may be changed; it is the least time of a block's steps if they lie in one
    stretch. Every stretch has two ends at which the sensor may be wrong: with n stretches a block
    is √n times as long, so that its relative error stays the same.
    """

    def __init__(self, shortest_block_s: float, settle_s: float) -> None:
        self.shortest_block_s = shortest_block_s
        self.period = 1
        self._settle_ns = round(settle_s * NS_PER_S)
        self._index: int | None = None
        self._since_ns = 0
        self._whole_steps = 0  # since the change of setting
        self._last_end_ns: int | None = None
        self._stretch_steps = 0
        self._stretches: deque[int] = deque(maxlen=9)
        self._slow_steps = 0
        self._usual: dict[int, deque[float]] = defaultdict(lambda: deque(maxlen=_KEPT_STEPS))
        self._stalls = self._seen = 0
        self._recent: deque[float] = deque(maxlen=_PERIOD_STEPS)
        self._windows: list[tuple[int, int]] = []
        self._steps = 0
        self._is_open = False  # whether the last window may be extended

    def forget(self) -> None:
        """Forget how long steps usually take: the job has changed."""
        self._usual.clear()
        self._drop()

    def add(self, step: TimedStep, index: int | None, since_ns: int) -> StepBlock | None:
        """Add a step at a candidate that is in force since then; the block that it completes.

        ``index`` is None where the setting is none of the candidates.
        """
        if (index, since_ns) != (self._index, self._since_ns):
            self._index, self._since_ns, self._whole_steps = index, since_ns, 0
            self._recent.clear()
            self._drop()
        pause = self._note_pause(step)
        finished = self._finish() if pause and self._has_short_stretches else None
        if index is not None and known_since_ns(step) >= since_ns:
            self._whole_steps += 1
            self._add_whole(step, index)
        else:
            self._is_open = False
        if finished is None and not self._has_short_stretches:
            finished = self._finish()
        return finished

    @property
    def _has_short_stretches(self) -> bool:
        lengths = self._stretches
        return bool(lengths) and median(lengths) < _SHORT_STRETCH_STEPS

    def _note_pause(self, step: TimedStep) -> bool:
        last_ns, self._last_end_ns = self._last_end_ns, step.end_ns
        step_s = (step.end_ns - step.start_ns) / NS_PER_S
        longest_s = max(_PAUSE_S, _PAUSE_SHARE * step_s)
        if last_ns is not None and (step.start_ns - last_ns) / NS_PER_S <= longest_s:
            self._stretch_steps += 1
            return False
        if last_ns is not None:
            self._stretches.append(self._stretch_steps)
        self._stretch_steps, self._slow_steps = 1, 0
        self._recent.clear()
        self._is_open = False
        return last_ns is not None

    def _add_whole(self, step: TimedStep, index: int) -> None:
        step_s = (step.end_ns - step.start_ns) / NS_PER_S
        settled_ns = self._since_ns + self._settle_ns
        if self._whole_steps == 1 or known_since_ns(step) < settled_ns:
            self._is_open = False
            return
        self._recent.append(step_s)
        if len(self._recent) >= 6 and self._stretch_steps % 4 == 0:
            self.period = find_period(self._recent)
        usual = self._usual[index]
        if self._is_start_of_stretch(step_s, usual) or self._is_stall(step_s, usual):
            self._is_open = False
            return
        usual.append(step_s)
        if self._is_open:
            self._windows[-1] = (self._windows[-1][0], step.end_ns)
        else:
            self._windows.append((step.start_ns, step.end_ns))
        self._is_open = True
        self._steps += 1

    def _is_start_of_stretch(self, step_s: float, usual: Sequence[float]) -> bool:
        if self._has_short_stretches:
            return False
        if self._stretch_steps == 1:
            self._slow_steps = 1
            return True
        is_slow = (
            self._slow_steps == self._stretch_steps - 1
            and self._slow_steps < _MOST_SLOW_STEPS
            and self.period == 1
            and len(usual) >= _LEAST_KNOWN_STEPS
            and step_s > _SLOW_START * median(usual)
        )
        self._slow_steps += is_slow
        return is_slow

    def _is_stall(self, step_s: float, usual: Sequence[float]) -> bool:
        self._seen += 1
        if len(usual) < _LEAST_KNOWN_STEPS or step_s <= _STALL * median(usual):
            return False
        self._stalls += 1
        is_rare = self._stalls <= _STALL_SHARE * self._seen
        return self._seen >= _LEAST_STEPS_FOR_STALLS and is_rare

    def _finish(self) -> StepBlock | None:
        if not self._windows or self._index is None:
            return None
        block = StepBlock(self._index, self._steps, tuple(self._windows))
        # 1 ns a window is rounding: five steps of 0.2 s are a second.
        shortest_s = self.shortest_block_s * math.sqrt(len(self._windows)) - 1e-9 * self._steps
        if block.time_s < shortest_s or self._steps % self.period:
            return None
        self._drop()
        return block

    def _drop(self) -> None:
        self._windows, self._steps, self._is_open = [], 0, False


def find_period(times_s: Sequence[float]) -> int:
    """After how many steps their times repeat: 1 where they do not.

    The shortest period whose means by place in it leave less than a quarter of the variance (an
    analysis of variance, with its degrees of freedom).
    """
    times = np.log(np.maximum(np.asarray(times_s, float), 1e-9))
    count = len(times)
    total = float(times.var(ddof=1)) if count > 1 else 0.0
    if total <= _LEAST_VARIATION**2:
        return 1
    for period in range(2, min(MAX_PERIOD, count // 3) + 1):
        place = np.arange(count) % period
        sizes = np.bincount(place)
        means = np.bincount(place, times) / sizes
        rest = float(((times - means[place]) ** 2).sum()) / (count - period)
        if rest <= (1 - _EXPLAINED) * total:
            return period
    return 1
