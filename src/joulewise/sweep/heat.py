"""How warm GPUs are between runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from joulewise.control.everything import every_device
from joulewise.data import Kind, Quantity, Unavailable
from joulewise.devices import Device


class Thermometer:
    """Opens the devices when it is first asked, and keeps them until ``close``."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._gpus: list[Device] | None = None

    def warmest_c(self, numbers: Sequence[int] = ()) -> float | None:
        """Of these GPUs, or all; None where none tells."""
        if self._gpus is None:
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
