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

_POLL_S: Final = 2.0
# After this long the next run starts on a GPU that is still warm. Chosen: a board that is not cool
# after a quarter of an hour has another load, or stands in a warm room.
_TIMEOUT_S: Final = 900.0

Sleep = Callable[[float], bool]
"""Waits for so many seconds; False where the waiting was cancelled."""


@dataclass(frozen=True)
class CoolDown:
    """A pause of ``wait_s``, or until no GPU of the run is warmer than ``below_c``."""

    wait_s: float = 0.0
    below_c: float | None = None

    def wait(self, warmest_c: Callable[[], float | None], sleep: Sleep) -> str:
        """Wait, and return a remark for the user where the GPUs could not cool down."""
        if self.below_c is None:
            if self.wait_s:
                sleep(self.wait_s)
            return ""
        end_s = time.monotonic() + _TIMEOUT_S
        while (now_c := warmest_c()) is not None and now_c > self.below_c:
            if time.monotonic() > end_s:
                return f"still {now_c:g} °C after {_TIMEOUT_S / 60:g} min; continuing anyway"
            if not sleep(_POLL_S):
                return ""
        return "" if now_c is not None else "no GPU reports its temperature; not waiting for it"


def parse_cool_down(text: str) -> CoolDown:
    """Read ``60s``, ``2min`` or ``50C``; empty text means no pause."""
    if not text:
        return CoolDown()
    try:
        amount = parse_amount(text, "time", "temperature")
    except ValueError as error:
        raise UsageError(
            f"{text!r} is not a cool-down: {error}",
            f"give a time or a temperature, in {accepted_units('time', 'temperature')}",
        ) from None
    if amount.kind == "temperature":
        return CoolDown(below_c=amount.value)
    return CoolDown(wait_s=amount.value)


class Thermometer:
    """Reads GPU temperatures; opens the devices at the first reading, until ``close``."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._gpus: list[Device] | None = None

    def warmest_c(self, numbers: Sequence[int] = ()) -> float | None:
        """The highest temperature of these GPUs, or of all; None where none can be read."""
        if self._gpus is None:
            from joulewise.control.deadline_device import open_all_devices

            devices = open_all_devices(self._environ).values()
            self._gpus = [device for device in devices if device.info.kind is Kind.GPU]
        keys = {f"gpu{number}" for number in numbers}
        readings = (
            gpu.read(Quantity.TEMPERATURE) for gpu in self._gpus if not keys or gpu.info.key in keys
        )
        known = (reading.value for reading in readings if not isinstance(reading, Unavailable))
        return max(known, default=None)

    def close(self) -> None:
        for gpu in self._gpus or ():
            gpu.close()
        self._gpus = None
