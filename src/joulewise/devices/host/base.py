"""What the devices of the host (CPUs, memory) have in common, and reading the kernel's files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from joulewise.data import DeviceInfo, Quantity, Reading, SensorInfo, Unavailable
from joulewise.devices.device import BaseDevice
from joulewise.units import NS_PER_S

_LONGEST_COUNT: Final = len(str(2**64))  # digits; the kernel counts in 64 bits
EVERY_PROCESS: Final = Unavailable("every process uses it")


class HostDevice(BaseDevice):
    """A device that counts energy; a subclass reads the count in :meth:`_energy`.

    Power is the mean between the two latest readings at least ``window_s`` apart. The first reading
    of power waits (``sleep``) until there is such a pair; no later one does.
    """

    def __init__(
        self,
        info: DeviceInfo,
        sensors: Mapping[Quantity, SensorInfo | Unavailable],
        *,
        window_s: float,
        sleep: Callable[[float], None],
    ) -> None:
        self.info = info
        self.sensors = sensors
        self.controls = {}
        self._window_s = window_s
        self._sleep = sleep
        self._since: Reading | None = None
        self._mean_w: float | Unavailable | None = None
        self._lock = threading.Lock()

    def _read(self, quantity: Quantity) -> Reading | Unavailable:
        with self._lock:
            return self._observe() if quantity is Quantity.ENERGY else self._derive(quantity)

    def _processes(self) -> Unavailable:
        return EVERY_PROCESS

    def _energy(self) -> Reading | Unavailable:
        raise NotImplementedError

    def _derive(self, quantity: Quantity) -> Reading | Unavailable:
        """A quantity that follows from the energy: power, unless a subclass has more."""
        del quantity
        return self._power()

    def _observe(self) -> Reading | Unavailable:
        """Read the energy, and update the mean power where a window has passed."""
        energy = self._energy()
        if isinstance(energy, Unavailable):
            return energy
        since = self._since
        if since is None or energy.value < since.value:
            self._since, self._mean_w = energy, None
        elif (elapsed_s := (energy.t_ns - since.t_ns) / NS_PER_S) >= self._window_s:
            mean_w = (energy.value - since.value) / elapsed_s
            self._since = energy
            self._mean_w = mean_w or Unavailable(f"its counter stood still for {elapsed_s:.3g} s")
        return energy

    def _power(self) -> Reading | Unavailable:
        energy = self._observe()
        if self._mean_w is None and isinstance(energy, Reading) and self._since is not None:
            self._sleep(self._window_s - (energy.t_ns - self._since.t_ns) / NS_PER_S)
            energy = self._observe()
        if isinstance(energy, Unavailable):
            return energy
        if isinstance(self._mean_w, float):
            return Reading(self._mean_w, energy.t_ns)
        return self._mean_w or Unavailable(f"needs two readings {self._window_s:g} s apart")


def read_text(path: Path, fix: str = "") -> str | Unavailable:
    """The text of a file of the kernel; ``fix`` is the command that makes it readable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except PermissionError:
        lasts = " (the fix lasts until the next boot)" if fix else ""
        return Unavailable(f"{path} is readable by root only{lasts}", fix)
    except FileNotFoundError:
        return Unavailable(f"{path} does not exist")
    except OSError as error:
        return Unavailable(f"{path}: {error.strerror}")


def read_int(path: Path, fix: str = "") -> int | Unavailable:
    """A file of the kernel that holds one count: a whole number from 0 on."""
    text = read_text(path, fix)
    if isinstance(text, Unavailable):
        return text
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_COUNT):
        return Unavailable(f"{path} holds {text[:40]!r}, which is not a count")
    return int(text)
