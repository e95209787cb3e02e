"""Whether a power limit does anything: one above all need never binds, one below the floor fails.

Clocks can be lowered only so far. What a board draws at its lowest clock is the floor of that
load, and no limit brings it below.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

from joulewise.data import Knob, Quantity, Reading
from joulewise.devices import Device

_IDLE: Final = 0x1  # of NVML's reasons for lower clocks
_CAPPED: Final = 0x4
_ENOUGH: Final = 5
_NEARLY_ALWAYS: Final = 0.95
_WELL_ABOVE: Final = 1.05
_PERIOD_S: Final = 1.0


class Binding(str, Enum):
    """What is odd about a limit."""

    NEVER = "it never binds"
    BELOW_FLOOR = "it is below the floor"


def binding(limit_w: float, reasons: Iterable[int], mean_w: float | None) -> Binding | None:
    """From NVML's reasons for lower clocks, looked at now and then, and the power meanwhile.

    None where the limit does its work, or too little was seen under load.
    """
    loaded = [bits for bits in reasons if not bits & _IDLE]
    if len(loaded) < _ENOUGH:
        return None
    capped = sum(bool(bits & _CAPPED) for bits in loaded) / len(loaded)
    if capped == 0:
        return Binding.NEVER
    above = mean_w is not None and mean_w > _WELL_ABOVE * limit_w
    return Binding.BELOW_FLOOR if capped >= _NEARLY_ALWAYS and above else None


class Watch:
    """Looks at capped devices once a second while a lease lasts."""

    def __init__(
        self,
        devices: Sequence[Device],
        enforced: Mapping[str, Mapping[Knob, float]],
        period_s: float = _PERIOD_S,
    ) -> None:
        limits = {key: values.get(Knob.POWER_LIMIT) for key, values in enforced.items()}
        self._looks = [
            _Looks(device, limit_w)
            for device in devices
            if (limit_w := limits.get(device.info.key)) and device.info.vendor == "nvidia"
        ]
        self._period_s = period_s
        self._ends = threading.Event()
        if self._looks:
            threading.Thread(target=self._watch, name="joulewise-lease", daemon=True).start()

    def end(self) -> tuple[str, ...]:
        """What there is to say of the limits."""
        self._ends.set()
        return tuple(filter(None, (looks.said() for looks in self._looks)))

    def _watch(self) -> None:
        while not self._ends.wait(self._period_s):
            for looks in self._looks:
                looks.look()


class _Looks:
    def __init__(self, device: Device, limit_w: float) -> None:
        self._device = device
        self._limit_w = limit_w
        self._reasons: list[int] = []
        self._sum_w = 0.0

    def look(self) -> None:
        reasons, power = self._device.read(Quantity.THROTTLE), self._device.read(Quantity.POWER)
        if isinstance(reasons, Reading) and isinstance(power, Reading):
            self._sum_w += power.value
            self._reasons.append(int(reasons.value))

    def said(self) -> str:
        reasons = list(self._reasons)
        mean_w = self._sum_w / len(reasons) if reasons else None
        found = binding(self._limit_w, reasons, mean_w)
        if found is None:
            return ""
        key, limit = self._device.info.key, f"{self._limit_w:g} W"
        if found is Binding.NEVER:
            return f"{key} never needed more than its limit of {limit}: {found.value}"
        return f"{key} drew {mean_w:.0f} W under a limit of {limit}: {found.value}"
