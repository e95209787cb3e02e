"""Waiting between runs, so that one does not warm up the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from joulewise.data import Kind, Quantity, Unavailable
from joulewise.devices.device import Device
from joulewise.errors import UsageError
from joulewise.units import accepted_units, parse_amount

_LOOK_S: Final = 2.0
_PATIENCE_S: Final = 900.0

Sleep = Callable[[float], bool]
"""Waits so many seconds; False where there is no more reason to."""


@dataclass(frozen=True)
class CoolDown:
    """For ``wait_s``, or until no GPU of the run is warmer than ``below_c``."""

    wait_s: float = 0.0
    below_c: float | None = None

    def wait(self, warmest_c: Callable[[], float | None], sleep: Sleep) -> str:
        """Wait; what there is to say of it, where it did not do what it should."""
        if self.below_c is None:
            if self.wait_s:
                sleep(self.wait_s)
            return ""
        end_s = time.monotonic() + _PATIENCE_S
        while (now_c := warmest_c()) is not None and now_c > self.below_c:
            if time.monotonic() > end_s:
                return f"still {now_c:g} °C after {_PATIENCE_S / 60:g} min: it goes on all the same"
            if not sleep(_LOOK_S):
                return ""
        return "" if now_c is not None else "no GPU tells its temperature: it does not cool down"


def parse_cool_down(text: str) -> CoolDown:
    if not text:
        return CoolDown()
    try:
        amount = parse_amount(text, "time", "temperature")
    except ValueError as error:
        raise UsageError(
            f"{text!r} is no cool-down: {error}",
            f"give a time or a temperature, in {accepted_units('time', 'temperature')}",
        ) from None
    if amount.kind == "temperature":
        return CoolDown(below_c=amount.value)
    return CoolDown(wait_s=amount.value)


class Thermometer:
    """Opens the devices when it is first asked, and keeps them until ``close``."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._gpus: list[Device] | None = None

    def warmest_c(self, numbers: Sequence[int] = ()) -> float | None:
        """Of these GPUs, or all; None where none tells."""
        if self._gpus is None:
            from joulewise.control.deadline_device import every_device

            found = every_device(self._environ).values()
            self._gpus = [device for device in found if device.info.kind is Kind.GPU]
        keys = {f"gpu{number}" for number in numbers}
        readings = (
            gpu.read(Quantity.TEMPERATURE) for gpu in self._gpus if not keys or gpu.info.key in keys
        )
        told = [reading.value for reading in readings if not isinstance(reading, Unavailable)]
        return max(told, default=None)

    def close(self) -> None:
        for gpu in self._gpus or ():
            gpu.close()
        self._gpus = None
