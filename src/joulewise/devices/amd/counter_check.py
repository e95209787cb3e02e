"""Checks energy counters against power: a counter that runs at a wrong rate is refused.

amdsmi's energy counter cannot be trusted without a check:

[1] ROCm/amdsmi issue 38 and ml-energy/zeus issue 113: on some GPUs it disagrees with power by large
    factors. Zeus refuses it beyond a factor of ten, and integrates power instead.
[2] AMDResearch/hpcfund issue 21 (MI100) and ROCm/rocm_smi_lib issue 180 (MI210): it stands still
    while a program runs. Radeons of the 9000 series report 0 (ollama/ollama issue 9633).
[3] ROCm/legacy-rocm-build issue 1649: the driver reads its sensors at most once a millisecond.
[4] ROCm/rocm_smi_lib, "Power Queries": older GPUs report an average of power, newer ones the power
    of the moment.

Method: counter and power are polled, and the energy that the counter gained from one of its steps
to another is compared with bounds of the integral of power over the same time. Between two readings
power is assumed to lie between them, so that a changing load widens the bounds by itself. No
statistics are needed, and what the bounds leave open is watched for longer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeVar

from joulewise.units import NS_PER_S

# The counter and the readings of power come from one sensor. Chosen: far above what two readings
# of one sensor differ by, and below the smallest wrong factor that is known, which is two (a die
# that reports for two). With 1.5 a factor of two would pass where the bounds are wide.
TOLERANCE: Final = 1.25
# Bounds whose ratio is larger decide nothing. With the tolerance (1.25 x 1.6 = 2), a counter that
# is off by a factor of 2 or more is never accepted. Doubled, one that is off by 4 could be.
_WIDEST: Final = 1.6
# Power is reported in whole watts, rounded or truncated.
_ROUNDED_UP_W: Final = 0.5
_TRUNCATED_W: Final = 1.0
# An average of power lags behind the counter by up to its window, which AMD does not state; that of
# the clocks is a second. Twice as long makes the check less often decisive while load changes.
AVERAGE_LAG_S: Final = 1.0
# Chosen: half of what a user notices as a delay. Polls miss at most one interval at either end of
# 40: 5 %. Twice as long, half of that.
_WATCHED_S: Final = 0.4
# Time for three such watches: a refuted counter is watched again, an undecided one for longer.
_MAXIMUM_S: Final = 1.3
_POLL_S: Final = 0.01
# Ends the watch where a clock stands still, as in a test; else time does.
_MAX_POLLS: Final = 400
# The pause between polls varies from half to one and a half of _POLL_S, by the fractional parts of
# multiples of the golden ratio, so that no load keeps in step with the polls.
_GOLDEN: Final = 0.6180339887

NO_POWER: Final = "not checked against power, which this GPU does not report"
UNDECIDED: Final = (
    "not checked against power: its load changed while it was watched, or it draws a few watts only"
)


@dataclass(frozen=True)
class Poll:
    """The counter as read between ``start_ns`` and ``end_ns``, and the power of that time."""

    start_ns: int
    end_ns: int
    energy_j: float
    power_w: float | None


@dataclass(frozen=True)
class CounterComparison:
    """The energy that the counter gained, and what it should have gained by the power readings."""

    counted_j: float
    likely_j: float
    low_j: float
    high_j: float

    @property
    def factor(self) -> float:
        """The counter's rate as a multiple of the power that was read."""
        return self.counted_j / self.likely_j

    @property
    def is_refuted(self) -> bool:
        return self.counted_j > TOLERANCE * self.high_j or self.counted_j * TOLERANCE < self.low_j

    @property
    def is_decisive(self) -> bool:
        return self.high_j <= _WIDEST * self.low_j


@dataclass(frozen=True)
class CounterVerdict:
    """The result for one counter.

    ``factor`` is set where the counter is wrong: its rate relative to power, 0 where it stands
    still. ``note`` says why a counter could not be checked, else it is empty.
    """

    factor: float | None = None
    power_w: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Probe:
    """How the counter and the power of one GPU are read; both may raise.

    ``read_w`` is None where the GPU does not report power, ``lag_s`` the window of an average.
    """

    read_j: Callable[[], float]
    read_w: Callable[[], float] | None
    lag_s: float = 0.0


def compare(polls: list[Poll], lag_s: float = 0.0) -> CounterComparison | None:
    """Compare counter and power from the counter's first step to its last; None without two steps.

    All polls have a power.
    """
    steps = [i for i, (a, b) in enumerate(pairwise(polls), 1) if a.energy_j != b.energy_j]
    if len(steps) < 2 or steps[-1] - steps[0] < 2:
        return None
    first, last = steps[0], steps[-1]
    low_j = high_j = likely_j = 0.0
    for i, (a, b) in enumerate(pairwise(polls[: last + 1])):
        low_w, high_w = sorted((a.power_w or 0.0, b.power_w or 0.0))
        # A step was made between the poll before it and the end of the poll that shows it.
        start_ns = a.end_ns if i == first else a.start_ns
        end_ns = b.end_ns if i == last - 1 else b.start_ns
        if i >= first - 1:
            high_j += (high_w + _TRUNCATED_W) * (end_ns - a.start_ns) / NS_PER_S
        if i >= first:
            likely_j += (low_w + high_w) / 2 * (b.start_ns - a.start_ns) / NS_PER_S
        if first <= i < last - 1:
            low_j += max(0.0, low_w - _ROUNDED_UP_W) * (b.start_ns - start_ns) / NS_PER_S
    powers = [poll.power_w or 0.0 for poll in polls[: last + 1]]
    lagging_j = lag_s * (max(powers) - min(powers) + _TRUNCATED_W)
    counted_j = polls[last].energy_j - polls[first].energy_j
    return CounterComparison(counted_j, likely_j, max(0.0, low_j - lagging_j), high_j + lagging_j)


class CounterWatch:
    """Follows one counter until its ``verdict`` is known.

    One that is refuted is watched a second time, from there on: only what is refuted twice, by
    the same factor, is wrong. A load that just changed does not look the same twice.
    """

    def __init__(self, lag_s: float = 0.0) -> None:
        self.verdict: CounterVerdict | None = None
        self._lag_s = lag_s
        self._polls: list[Poll] = []
        self._first: Poll | None = None
        self._last: Poll | None = None
        self._moves = False
        self._suspected: float | None = None

    def add(self, poll: Poll) -> None:
        self._first = self._first or poll
        self._moves = self._moves or poll.energy_j != self._first.energy_j
        self._last = poll
        if poll.power_w is not None:
            self._polls.append(poll)
            self._judge()

    def finish(self, *, has_power: bool) -> CounterVerdict:
        """The verdict when no more polls come."""
        if self.verdict is not None:
            return self.verdict
        if self._first is None or self._last is None:
            return CounterVerdict(note=UNDECIDED)
        watched_s = (self._last.end_ns - self._first.start_ns) / NS_PER_S
        if not self._moves and watched_s >= _WATCHED_S:
            return CounterVerdict(factor=0.0, power_w=self._last.power_w)
        return CounterVerdict(note=UNDECIDED if has_power else NO_POWER)

    @property
    def moves(self) -> bool:
        return self._moves

    def _judge(self) -> None:
        watched_ns = self._polls[-1].end_ns - self._polls[0].start_ns
        if watched_ns < _WATCHED_S * NS_PER_S:
            return
        comparison = compare(self._polls, self._lag_s)
        if comparison is None or comparison.likely_j <= 0:
            return
        if comparison.is_refuted:
            factor = comparison.factor
            if self._suspected is not None and _is_same(factor, self._suspected):
                self.verdict = CounterVerdict(factor, self._polls[-1].power_w)
            self._suspected = factor
            self._polls = self._polls[-1:]
        elif comparison.is_decisive:
            self.verdict = CounterVerdict()


def _is_same(factor: float, other: float) -> bool:
    if factor <= 0 or other <= 0:
        return factor <= 0 and other <= 0
    return max(factor, other) <= TOLERANCE * min(factor, other)


_Key = TypeVar("_Key", bound=Hashable)


def check_counters(
    probes: Mapping[_Key, Probe], now_ns: Callable[[], int], sleep: Callable[[float], None]
) -> dict[_Key, CounterVerdict]:
    """Watch all counters in one pass: 0.4 s for any number of GPUs, up to 1.3 s if one is wrong.

    One thread polls them in turn: threads of their own would be no faster, since they would wait
    for the same driver. Never raises: a reading that fails is left out.
    """
    watches = {key: CounterWatch(probe.lag_s) for key, probe in probes.items()}
    pending = dict(probes)
    start_ns = now_ns()
    for turn in range(_MAX_POLLS):
        for key, probe in list(pending.items()):
            watch = watches[key]
            poll = _poll(probe, now_ns)
            if poll is not None:
                watch.add(poll)
            if watch.verdict is not None or (probe.read_w is None and watch.moves):
                del pending[key]
        if not pending or now_ns() - start_ns >= _MAXIMUM_S * NS_PER_S:
            break
        sleep(_POLL_S * (0.5 + turn * _GOLDEN % 1))
    return {key: watches[key].finish(has_power=probes[key].read_w is not None) for key in probes}


def _poll(probe: Probe, now_ns: Callable[[], int]) -> Poll | None:
    try:
        start_ns = now_ns()
        energy_j = probe.read_j()
        end_ns = now_ns()
    except Exception:  # noqa: BLE001  # whatever a driver's library does, opening goes on
        return None
    if probe.read_w is None:
        return Poll(start_ns, end_ns, energy_j, None)
    try:
        return Poll(start_ns, end_ns, energy_j, probe.read_w())
    except Exception:  # noqa: BLE001
        return None
