"""How long a call of the simulated NVML takes: a driver's order of magnitude, by class of call.

The throughput of the PCIe link is counted over 20 ms while the caller waits, and the driver is
shared: the call waits besides, by a contention that changes slowly, so that calls which follow
each other wait alike. It is constant in slots of time and the same on all GPUs of a machine::

    slot = t / SLOT_NS
    wait = rint(pcie_wait_ns * max(0, 1 + SPREAD * z(seed, slot, channel 4)))

with ``z`` as in ``sensor.py``; the shim has the same formula.

Both figures are fitted. A loop over eight V100s that asks each for utilisation, clocks,
performance state, power, temperature and throughput both ways ran at 2.045 Hz with a coefficient
of variation of 15.5 % (Grzelka). Sixteen waits of 20 ms alone would give 3.0 Hz and 0.5 %.
``benchmarks/naive_loop.py`` runs that loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.simulate.sensor import noise
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

SLOT_NS: Final = 2 * NS_PER_S
"""Chosen: a few loops of half a second, so that the calls of one loop mostly share a slot."""
SPREAD: Final = 0.44
_CHANNEL: Final = 4


@dataclass(frozen=True)
class Latency:
    """How long a call takes, by class. ``pcie_wait_ns`` is the mean wait beside ``pcie_ns``."""

    identity_ns: int = 2_000
    read_ns: int = 20_000
    scan_ns: int = 200_000
    set_ns: int = 1_000_000
    pcie_ns: int = 20_000_000
    pcie_wait_ns: int = 11_200_000


NO_LATENCY: Final = Latency(0, 0, 0, 0, 0, 0)


def pcie_wait_ns(latency: Latency, seed: int, t_ns: ArrayLike) -> NDArray[np.int64]:
    """How long a throughput call at each moment waits for the driver."""
    slots = np.atleast_1d(np.asarray(t_ns, np.int64) // SLOT_NS)
    contention = np.maximum(0.0, 1.0 + SPREAD * noise(seed, slots, _CHANNEL))
    return np.asarray(np.rint(latency.pcie_wait_ns * contention).astype(np.int64))
