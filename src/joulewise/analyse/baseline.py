"""The idle baseline of a device, taken from the trace itself.

An idle GPU draws one of three powers: *asleep* (no process, clocks down), *context attached* (a
process holds it and its clocks are down) and *clocks up* (it has just worked, or is held ready).
What lies before the command, after it and in its pauses is sorted into these by utilisation,
performance state, clocks and the list of processes. These are told once a second, of its last part
only: a burst in between is seen by the power readings alone, so that idle is what they find quiet.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from joulewise.analyse.arrays import Array, Bools, Floats
from joulewise.analyse.time_intervals import Stretch
from joulewise.data import Energy, Quantity, SensorProfile
from joulewise.units import Z95

USED: Final = (
    Quantity.GPU_UTILISATION.value,
    Quantity.SM_CLOCK.value,
    Quantity.PERFORMANCE_STATE.value,
)
SHORTEST_S: Final = 1.0
_BUSY_PCT: Final = 1.0
_DEEP_STATE: Final = 8  # P8 and beyond: clocks down. P0 is the fastest
_PIECE_S: Final = 0.5
_MOST_PIECES: Final = 1_000
_OF_SWING, _OF_LEVEL = 0.03, 0.05  # what readings of one idle may differ
_QUIET_SHARE: Final = 0.2  # fewer that look quiet were sampled beside their bursts
_DRIFT: Final = 0.02  # idle power follows the board's heat
_UP: Final = 0.5  # of the highest clock seen, where the driver tells no performance state


class IdleState(str, Enum):
    """Lowest power first: what a machine without the run would have drawn."""

    ASLEEP = "asleep"
    CONTEXT = "context attached"
    CLOCKS_UP = "clocks up"


@dataclass(frozen=True)
class IdleStretch(Stretch):
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
        """What is left of an energy; the board's gain is in both, so it is one factor still."""
        value = gross.value - self.power_w * time_s
        gain = gross.error_gain / gross.value if gross.value else 0.0
        sampling = math.hypot(gross.error_sampling, self.error_w * time_s)
        return Energy(value, sampling, gain * abs(value), gross.source)


def idle_stretches(
    slow: Mapping[str, Array], attached: Bools, card: SensorProfile
) -> list[IdleStretch]:
    """The idle times of a GPU, from its slow stream and whether a process held it at each row.

    A row tells of the time up to it, so that a stretch lies between its first idle row and its
    last, less what the sensor's own times may mix in from either side.
    """
    import numpy as np

    t_ns, utilisation = slow["t_ns"], slow[Quantity.GPU_UTILISATION.value]
    code = np.where(_clocks_up(slow), 2, np.where(attached, 1, 0))
    code = np.where(utilisation < _BUSY_PCT, code, -1)
    settle_ns = round(
        1e9 * sum(s or 0.0 for s in (card.window_s, card.lag_s, card.update_period_s))
    )
    edges = np.flatnonzero(np.diff(code)) + 1
    kinds = tuple(IdleState)
    found = []
    for first, end in zip([0, *edges.tolist()], [*edges.tolist(), len(code)], strict=True):
        if end > first and code[first] >= 0:
            start_ns, end_ns = int(t_ns[first]) + settle_ns, int(t_ns[end - 1]) - settle_ns
            if (end_ns - start_ns) / 1e9 >= SHORTEST_S:
                found.append(IdleStretch(start_ns, end_ns, kinds[code[first]]))
    return found


def cut(stretches: Sequence[IdleStretch]) -> list[IdleStretch]:
    """Short pieces of all of them: a burst shall spoil no more than its own."""
    piece_s = max(_PIECE_S, sum(stretch.time_s for stretch in stretches) / _MOST_PIECES)
    pieces = []
    for one in stretches:
        number = max(int(one.time_s / piece_s), 1)
        edges = [
            one.start_ns + (one.end_ns - one.start_ns) * i // number for i in range(number + 1)
        ]
        pieces += [IdleStretch(a, b, one.kind) for a, b in itertools.pairwise(edges)]
    return pieces


def quiet(pieces: Sequence[IdleStretch], mean_w: Floats, peak_w: Floats, highest_w: float) -> Bools:
    """Which pieces no burst was in: both mean and peak are near the lowest peak of their kind."""
    import numpy as np

    kinds = np.array([piece.kind.value for piece in pieces])
    peak_w = np.where(np.isnan(peak_w), mean_w, peak_w)
    times_s = np.array([piece.time_s for piece in pieces])
    found = np.zeros(len(pieces), bool)
    for kind in np.unique(kinds[np.isfinite(peak_w)]):
        mine = (kinds == kind) & np.isfinite(peak_w)
        number, level_w = mine.sum(), peak_w[mine].min()
        near_w = _OF_SWING * np.fmax(highest_w - level_w, 0.0) + _OF_LEVEL * level_w
        mine &= (peak_w <= level_w + near_w) & (np.abs(mean_w - peak_w) <= 2 * near_w)
        if times_s[mine].sum() >= SHORTEST_S and mine.sum() >= _QUIET_SHARE * number:
            found |= mine
    return found


def baselines(
    stretches: Sequence[IdleStretch], energy_j: Floats, error_j: Floats, run_w: float = math.inf
) -> dict[IdleState, Baseline]:
    """Each kind's mean watts, from the joules of its stretches; never above the run's mean."""
    import numpy as np

    found = {}
    for kind in IdleState:
        mine = [i for i, s in enumerate(stretches) if s.kind is kind and math.isfinite(energy_j[i])]
        if not mine:
            continue
        times = np.array([stretches[i].time_s for i in mine])
        joules, time_s = energy_j[mine], float(times.sum())
        power_w = float(joules.sum()) / time_s
        over_w = float(np.fmax(power_w - run_w, 0.0))
        sampling_w = float(np.sqrt(np.square(error_j[mine]).sum())) / time_s
        error_w = math.hypot(sampling_w, _DRIFT * power_w, over_w)
        if len(mine) > 1:  # heat and clocks make one idle differ from the next
            spread = np.sqrt(np.average(np.square(joules / times - power_w), weights=times))
            error_w = math.hypot(error_w, Z95 * float(spread) / math.sqrt(len(mine) - 1))
        found[kind] = Baseline(kind, power_w - over_w, error_w, time_s)
    return found


def chosen(found: Mapping[IdleState, Baseline]) -> Baseline | None:
    """The deepest idle there is."""
    return next((found[kind] for kind in IdleState if kind in found), None)


def _clocks_up(slow: Mapping[str, Array]) -> Bools:
    import numpy as np

    state = slow.get(Quantity.PERFORMANCE_STATE.value)
    clock = slow.get(Quantity.SM_CLOCK.value)
    by_clock = np.zeros(len(slow["t_ns"]), bool)
    if clock is not None and np.isfinite(clock).any():
        by_clock = clock > _UP * np.nanmax(clock)
    if state is None:
        return by_clock
    return np.where(np.isnan(state), by_clock, state < _DEEP_STATE)
