"""A counter that stands still: a live GPU draws power, so its sensors have stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.lanes import readable
from joulewise.analyse.silences import Standstills
from joulewise.analyse.stretch import Stretch
from joulewise.data import Kind, Quantity
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from joulewise.analyse.lanes import Rows
    from joulewise.record.manifest import RecordedDevice

_PERIODS: Final = 10
_SHORTEST_S: Final = 2.0
_COUNT: Final = Quantity.ENERGY.value


def frozen(device: RecordedDevice, fast: Rows | None, run: Stretch) -> Stretch | None:
    """The longest time in which a GPU's counter showed the same, if that cannot be."""
    source = device.sources.get(_COUNT)
    is_counted = source is not None and source.is_sensor
    if fast is None or device.info.kind is not Kind.GPU or not is_counted:
        return None
    least_s = max(_PERIODS * (device.card.counter_period_s or 0.0), _SHORTEST_S)
    still: Standstills | None = None
    last_ns, last_j = 0, 0.0
    for chunk in readable(fast.chunks(("t_ns", _COUNT)), _COUNT):
        within = slice(*np.searchsorted(chunk["t_ns"], (run.start_ns, run.end_ns + 1)))
        t_ns, count_j = chunk["t_ns"][within], chunk[_COUNT][within]
        if not len(t_ns):
            continue
        if still is None:
            still = Standstills(least_s * NS_PER_S, int(t_ns[0]))
        else:
            still.look(np.array([last_ns, t_ns[0]]), np.array([last_j]), count_j[:1] != last_j)
        still.look(t_ns, count_j, count_j[1:] != count_j[:-1])
        last_ns, last_j = int(t_ns[-1]), float(count_j[-1])
    if still is None:
        return None
    still.end(last_ns, last_j)
    return still.longest
