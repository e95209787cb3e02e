"""What a run has drawn so far, with its error, from what the recorder reads anyway."""

from __future__ import annotations

from joulewise.data import Energy
from joulewise.record.manifest import RecordedDevice
from joulewise.record.tally import Tally
from joulewise.units import Z95


def energy_so_far(tally: Tally | None, device: RecordedDevice) -> Energy | None:
    """None where it could not be read."""
    drawn = tally.sum if tally else None
    if drawn is None:
        return None
    # The readings at both ends may be off by as much as the time between two.
    edges_j = drawn.energy_j * drawn.interval_s / max(drawn.time_s, drawn.interval_s)
    gain_j = Z95 * device.card.gain_sigma * drawn.energy_j
    return Energy(drawn.energy_j, edges_j, gain_j, device.sources[drawn.quantity.value])
