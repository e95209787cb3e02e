"""The idle baseline of a GPU, taken from the trace itself.

An idle GPU draws one of three powers: *asleep* (no process, clocks down), *context attached* (a
process holds it and its clocks are down) and *clocks up* (it has just worked, or is held ready).
What lies before the command, after it and in its pauses is sorted into these by utilisation,
performance state, clocks and the list of processes. These are read once a second, and show the
last part of that second only: a burst in between is seen by the power readings alone, so that only
what they find quiet counts as idle.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from joulewise.analyse.chunks import Array, Bools, Floats
from joulewise.analyse.time_intervals import TimeInterval
from joulewise.data import Energy, Quantity, SensorProfile
from joulewise.units import NS_PER_S, Z95

USED: Final = (
    Quantity.GPU_UTILISATION.value,
    Quantity.SM_CLOCK.value,
    Quantity.PERFORMANCE_STATE.value,
)
# All of these are chosen.
# The shortest idle time that counts: two polls of the slow stream lie in it.
MIN_IDLE_S: Final = 1.0
# NVML's utilisation is in whole percents; below this no kernel ran.
_BUSY_PCT: Final = 1.0
# P8 and beyond: clocks down. P0 is the fastest (NVML).
_DEEP_STATE: Final = 8
# Idle time is judged in pieces: a burst spoils no more than its own. Doubled, programs that use the
# GPU twice a second seem never idle.
_PIECE_S: Final = 0.5
_MAX_PIECES: Final = 1_000
# Readings of one idle state differ by at most these shares: of the range up to the run's highest
# power, and of the idle power.
_RANGE_SHARE, _LEVEL_SHARE = 0.03, 0.05
# If less than this share of the pieces looks quiet, they were sampled beside their bursts.
_MIN_QUIET_SHARE: Final = 0.2
# Idle power follows the board's temperature: this share of it is added to the error.
_DRIFT_SHARE: Final = 0.02
# Clocks are up above this share of the highest that was seen, where no performance state is read.
_CLOCKS_UP_SHARE: Final = 0.5


class IdleState(str, Enum):
    """Kinds of idle, lowest power first: what a machine without the run would have drawn."""

    ASLEEP = "asleep"
    CONTEXT = "context attached"
    CLOCKS_UP = "clocks up"


@dataclass(frozen=True)
class IdleInterval(TimeInterval):
    """A time in which the device was idle in one way."""

    kind: IdleState = IdleState.ASLEEP


@dataclass(frozen=True)
class Baseline:
    """Idle watts of one kind with their sampling error (95 %), and the time they rest on."""

    kind: IdleState
    power_w: float
    error_w: float
    time_s: float

    def net(self, gross: Energy, time_s: float) -> Energy:
        """The energy above idle: E - P₀ · t. The gain is one factor of both, and stays so."""
        value = gross.value - self.power_w * time_s
        gain = gross.error_gain / gross.value if gross.value else 0.0
        sampling = math.hypot(gross.error_sampling, self.error_w * time_s)
        return Energy(value, sampling, gain * abs(value), gross.source)


def find_idle(
    slow: Mapping[str, Array], attached: Bools, profile: SensorProfile
) -> list[IdleInterval]:
    """The idle times of a GPU, from its slow stream and whether a process held it at each row.

    A row tells of the time up to it, so that an interval lies between its first idle row and its
    last, less what the sensor's own times may mix in from either side.
    """
    t_ns, utilisation = slow["t_ns"], slow[Quantity.GPU_UTILISATION.value]
    code = np.where(_clocks_up(slow), 2, np.where(attached, 1, 0))
    code = np.where(utilisation < _BUSY_PCT, code, -1)
    times_s = (profile.window_s, profile.lag_s, profile.update_period_s)
    settle_ns = round(NS_PER_S * sum(time_s or 0.0 for time_s in times_s))
    edges = np.flatnonzero(np.diff(code)) + 1
    kinds = tuple(IdleState)
    intervals = []
    for first, end in zip([0, *edges.tolist()], [*edges.tolist(), len(code)], strict=True):
        if end > first and code[first] >= 0:
            start_ns, end_ns = int(t_ns[first]) + settle_ns, int(t_ns[end - 1]) - settle_ns
            if (end_ns - start_ns) / NS_PER_S >= MIN_IDLE_S:
                intervals.append(IdleInterval(start_ns, end_ns, kinds[code[first]]))
    return intervals


def split_idle(intervals: Sequence[IdleInterval]) -> list[IdleInterval]:
    """Short pieces of all intervals, so that a burst spoils no more than its own piece."""
    piece_s = max(_PIECE_S, sum(interval.time_s for interval in intervals) / _MAX_PIECES)
    pieces = []
    for interval in intervals:
        number = max(int(interval.time_s / piece_s), 1)
        edges = [interval.start_ns + interval.time_ns * i // number for i in range(number + 1)]
        pieces += [IdleInterval(a, b, interval.kind) for a, b in itertools.pairwise(edges)]
    return pieces


def find_quiet(
    pieces: Sequence[IdleInterval], mean_w: Floats, peak_w: Floats, highest_w: float
) -> Bools:
    """Which pieces no burst was in: both mean and peak are near the lowest peak of their kind."""
    kinds = np.array([piece.kind.value for piece in pieces])
    peak_w = np.where(np.isnan(peak_w), mean_w, peak_w)
    times_s = np.array([piece.time_s for piece in pieces])
    quiet = np.zeros(len(pieces), bool)
    for kind in np.unique(kinds[np.isfinite(peak_w)]):
        of_kind = (kinds == kind) & np.isfinite(peak_w)
        number, level_w = of_kind.sum(), peak_w[of_kind].min()
        near_w = _RANGE_SHARE * np.fmax(highest_w - level_w, 0.0) + _LEVEL_SHARE * level_w
        of_kind &= (peak_w <= level_w + near_w) & (np.abs(mean_w - peak_w) <= 2 * near_w)
        is_long = times_s[of_kind].sum() >= MIN_IDLE_S
        if is_long and of_kind.sum() >= _MIN_QUIET_SHARE * number:
            quiet |= of_kind
    return quiet


def baselines(
    pieces: Sequence[IdleInterval], energy_j: Floats, error_j: Floats, run_w: float = math.inf
) -> dict[IdleState, Baseline]:
    """Each kind's mean watts, from the joules of its pieces; never above the run's mean.

    The error is made up of the sampling errors, the drift with temperature, what was cut off to
    stay below the run, and the standard error of the pieces about their mean.
    """
    by_kind = {}
    for kind in IdleState:
        rows = [i for i, p in enumerate(pieces) if p.kind is kind and math.isfinite(energy_j[i])]
        if not rows:
            continue
        times_s = np.array([pieces[i].time_s for i in rows])
        joules, time_s = energy_j[rows], float(times_s.sum())
        power_w = float(joules.sum()) / time_s
        over_w = float(np.fmax(power_w - run_w, 0.0))
        sampling_w = float(np.sqrt(np.square(error_j[rows]).sum())) / time_s
        error_w = math.hypot(sampling_w, _DRIFT_SHARE * power_w, over_w)
        if len(rows) > 1:  # heat and clocks make one idle differ from the next
            spread = np.sqrt(np.average(np.square(joules / times_s - power_w), weights=times_s))
            error_w = math.hypot(error_w, Z95 * float(spread) / math.sqrt(len(rows) - 1))
        by_kind[kind] = Baseline(kind, power_w - over_w, error_w, time_s)
    return by_kind


def choose_baseline(by_kind: Mapping[IdleState, Baseline]) -> Baseline | None:
    """The deepest idle there is."""
    return next((by_kind[kind] for kind in IdleState if kind in by_kind), None)


def _clocks_up(slow: Mapping[str, Array]) -> Bools:
    state = slow.get(Quantity.PERFORMANCE_STATE.value)
    clock = slow.get(Quantity.SM_CLOCK.value)
    by_clock = np.zeros(len(slow["t_ns"]), bool)
    if clock is not None and np.isfinite(clock).any():
        by_clock = clock > _CLOCKS_UP_SHARE * np.nanmax(clock)
    if state is None:
        return by_clock
    return np.where(np.isnan(state), by_clock, state < _DEEP_STATE)
