"""Where a run's joules went: GPU, CPU, RAM; what idling would have drawn, and what work added."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from joulewise.data import RunResult, Source


class Part(str, Enum):
    """Of a device's energy. Whole is what nobody can divide: its idle power is not known."""

    IDLE = "idle"
    DYNAMIC = "dynamic"
    WHOLE = "not divided"


@dataclass(frozen=True)
class Share:
    """Joules of one device, of those that count."""

    device: str
    kind: str
    part: Part
    energy_j: float
    error_j: float
    source: Source


def breakdown(result: RunResult) -> list[Share]:
    """Every device that counts and was read; an idle part only where its baseline is known."""
    return [share for key in result.counted for share in _shares(result, key)]


def _shares(result: RunResult, key: str) -> Iterator[Share]:
    use = result.run.devices[key]
    if use.energy is None:
        return
    kind = key.rpartition("/")[2].rstrip("0123456789")
    if use.net is None:
        yield Share(key, kind, Part.WHOLE, use.energy.value, use.energy.error, use.energy.source)
        return
    source = use.energy.source
    # The board's gain is one factor of both; the rest of the error is that of the baseline.
    idle_j = use.energy.value - use.net.value
    gain_j = use.energy.error_gain - use.net.error_gain
    sampling_j = max(use.net.error_sampling**2 - use.energy.error_sampling**2, 0.0) ** 0.5
    yield Share(key, kind, Part.IDLE, idle_j, (gain_j**2 + sampling_j**2) ** 0.5, source)
    yield Share(key, kind, Part.DYNAMIC, use.net.value, use.net.error, source)
