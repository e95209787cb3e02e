"""What a run has drawn so far, with its error, from what the recorder reads anyway."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from joulewise.data import Energy
from joulewise.record.manifest import RecordedDevice
from joulewise.record.tally import Tally
from joulewise.units import NS_PER_S, Z95

# How much more than now a device may draw in a moment where nobody knows its maximum. Chosen: an
# idle GPU draws about a tenth of its limit. Twice as much means that a budget is looked at often
# for twice as long before it is used up.
_RISE: Final = 10.0
# For how long a device that has told nothing yet may draw any power. Chosen: a sensor or a model is
# read at least once a second. Twice as long, and a budget is looked at often for twice as long
# where a device never answers.
_FIRST_READING_S: Final = 5.0


@dataclass(frozen=True)
class Draw:
    """What a run has used up to now, in joules, and the most that all devices together may draw."""

    energy_j: float
    most_w: float


def draw_now(
    tallies: Mapping[str, Tally],
    devices: Collection[RecordedDevice],
    counted: Collection[str],
    now_ns: int,
) -> Draw | None:
    """The joules of the ``counted`` devices up to now; None where none of them was read.

    A device that is not counted yet may be any moment: all of them are in the most, except those
    that never answered and whose maximum nobody knows.
    """
    read = {d.info.key: tallies[d.info.key] for d in devices if d.info.key in tallies}
    energies_j = [read[key].energy_at(now_ns) for key in counted if key in read]
    known_j = [energy_j for energy_j in energies_j if energy_j is not None]
    most_w = sum(_most_w(read[d.info.key], d, now_ns) for d in devices if d.info.key in read)
    return Draw(sum(known_j), most_w) if known_j else None


def _most_w(tally: Tally, device: RecordedDevice, now_ns: int) -> float:
    power_w = tally.power_w
    if power_w is None and device.maximum_w is not None:
        return device.maximum_w
    if power_w is None:  # nobody knows what it will tell first, if it ever does
        is_new = now_ns - tally.since_ns < _FIRST_READING_S * NS_PER_S
        return math.inf if is_new else 0.0
    return max(power_w, _RISE * power_w if device.maximum_w is None else device.maximum_w)


def energy_so_far(tally: Tally | None, device: RecordedDevice) -> Energy | None:
    """None where it could not be read."""
    drawn = tally.sum if tally else None
    if drawn is None:
        return None
    # The readings at both ends may be off by as much as the time between two.
    edges_j = drawn.energy_j * drawn.interval_s / max(drawn.time_s, drawn.interval_s)
    gain_j = Z95 * device.card.gain_sigma * drawn.energy_j
    return Energy(drawn.energy_j, edges_j, gain_j, device.sources[drawn.quantity.value])
