"""The idle baseline of a device, taken from the trace itself.

An idle GPU draws one of three powers: *asleep* (no process, clocks down), *context attached* (a
process holds it and its clocks are down) and *clocks up* (it has just worked, or is held ready).
What lies before the command, after it and in its pauses is sorted into these by utilisation,
performance state, clocks and the list of processes. These are told once a second, of its last part
only: a burst in between is seen by the power readings alone, so that idle is what they find quiet.

What a GPU drew before it could be read: asleep, where reading would wake it, or lost.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.analyse.time_intervals import Stretch
from joulewise.data import Caution, Energy, Quantity, RunWarning, SensorProfile
from joulewise.units import NS_PER_S, Z95

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    slow: Mapping[str, NDArray[Any]], attached: NDArray[np.bool_], card: SensorProfile
) -> list[IdleStretch]:
    """The idle times of a GPU, from its slow lane and whether a process held it at each row.

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


def quiet(
    pieces: Sequence[IdleStretch],
    mean_w: NDArray[np.float64],
    peak_w: NDArray[np.float64],
    highest_w: float,
) -> NDArray[np.bool_]:
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
    stretches: Sequence[IdleStretch],
    energy_j: NDArray[np.float64],
    error_j: NDArray[np.float64],
    run_w: float = math.inf,
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


def _clocks_up(slow: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
    import numpy as np

    state = slow.get(Quantity.PERFORMANCE_STATE.value)
    clock = slow.get(Quantity.SM_CLOCK.value)
    by_clock = np.zeros(len(slow["t_ns"]), bool)
    if clock is not None and np.isfinite(clock).any():
        by_clock = clock > _UP * np.nanmax(clock)
    if state is None:
        return by_clock
    return np.where(np.isnan(state), by_clock, state < _DEEP_STATE)


if TYPE_CHECKING:
    from numpy.typing import NDArray

    from joulewise.analyse.energy.windows import WindowEnergy
    from joulewise.store.manifest import RecordedDevice

# Without its supply a board draws nothing, and some watts where its memory is kept alive.
MOST_W: Final = 5.0
_UNSEEN: Final = 0.5


def with_silence(
    found: WindowEnergy, windows_ns: NDArray[np.int64], device: RecordedDevice
) -> WindowEnergy:
    """``found`` is of the windows as far as the device was read in them.

    While the kernel had it suspended it drew next to nothing; else it may have drawn anything, and
    what was unseen for the most part has no energy.
    """
    time_s = (windows_ns[:, 1] - windows_ns[:, 0]) / NS_PER_S
    silent_s, asleep_s = (_before(windows_ns, t_ns) for t_ns in _ends_ns(device))
    unseen_s = silent_s - asleep_s
    most_w = np.nan if device.maximum_w is None else device.maximum_w
    unseen_j = np.where(unseen_s > 0, most_w / 2 * unseen_s, 0.0)
    likely_j = MOST_W / 2 * asleep_s + np.where(unseen_s > _UNSEEN * time_s, np.nan, unseen_j)
    energy_j = found.energy_j + likely_j
    never_read = (silent_s > 0) & (silent_s == time_s)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_w = np.where(silent_s > 0, energy_j / time_s, found.mean_w)
    return replace(
        found,
        energy_j=energy_j,
        error_sampling_j=np.hypot(found.error_sampling_j, likely_j),
        mean_w=mean_w,
        peak_w=np.where(never_read, np.nan, found.peak_w),
        counter_j=found.counter_j + likely_j,
        integral_j=found.integral_j + likely_j,
        too_short=found.too_short & ~never_read,
    )


def silent_at_first(
    device: RecordedDevice, run: Stretch, *, is_bound: bool = False
) -> Iterator[RunWarning]:
    """``is_bound``: its energy is a lower bound, and that it was not read is said with that."""
    window_ns = np.array([[run.start_ns, run.end_ns]])
    silent_s, asleep_s = (float(_before(window_ns, t_ns)[0]) for t_ns in _ends_ns(device))
    if asleep_s > 0:
        yield RunWarning(
            Caution.GAP,
            f"it slept for the first {asleep_s:.1f} s, for which 0 to {MOST_W:g} W are assumed",
            "nobody reads a GPU that sleeps, since that would wake it",
            device.info.key,
        )
    if silent_s > asleep_s and not is_bound:
        after = "then" if asleep_s else "at first"
        why = f" ({device.unavailable.reason})" if device.unavailable and not asleep_s else ""
        most = "" if device.maximum_w is None else f", for which 0 to {device.maximum_w:g} W stand"
        yield RunWarning(
            Caution.GAP,
            f"it was not read for {silent_s - asleep_s:.1f} s {after}{why}{most}",
            "measure again: the error is as wide as what it may have drawn unseen",
            device.info.key,
        )


def _ends_ns(device: RecordedDevice) -> tuple[int, int]:
    """Up to when it was not read, and up to when it slept."""
    return device.awake_ns or 0, device.asleep_ns or 0


def _before(windows_ns: NDArray[np.int64], t_ns: int) -> NDArray[np.float64]:
    """Seconds of each window before a moment."""
    return np.asarray(np.diff(np.minimum(windows_ns, t_ns), axis=1)[:, 0] / NS_PER_S)
