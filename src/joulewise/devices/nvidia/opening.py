"""Opening GPUs beside each other: a thread for each, so that a slow one holds up no other.

A GPU is initialised by the first call that concerns it. Without persistence mode that takes a
second or more, and a board that fails may take much longer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Final

from joulewise.data import DeviceInfo
from joulewise.devices import FINDER
from joulewise.devices.nvidia import session
from joulewise.devices.nvidia.faults import Fault
from joulewise.devices.nvidia.silent import SilentGpu
from joulewise.devices.protocol import Device
from joulewise.devices.visible import GpuIdentity
from joulewise.errors import DeviceError

# A GPU that has answered once is initialised, and one call takes 0.1 to 2 ms then. Chosen: a driver
# that takes 500 times as long hangs, as far as a command that waits for it is concerned. Twice as
# long delays a command by as much where a driver hangs.
_STALLED_S: Final = 1.0
_LATE: Final = Fault(
    DeviceError,
    "its driver had not answered when the recording began",
    "keep drivers loaded with `sudo nvidia-smi -pm 1`; if it stays slow, see `dmesg | grep -i xid`",
)

OnAnswer = Callable[[], None]
"""Called whenever the driver has answered, however it did."""


class Deadline:
    """Shares of the time that discovery may take; None where it may take any."""

    def __init__(self, time_s: float | None) -> None:
        self._time_s = time_s
        self._start_s = monotonic()

    def end_s(self, share: float) -> float | None:
        return None if self._time_s is None else self._start_s + share * self._time_s


@dataclass(frozen=True)
class Candidate:
    """A GPU that may be opened; ``fault`` is why it cannot be, ``asleep`` that it may not be."""

    identity: GpuIdentity
    handle: Any = None
    fault: Fault | None = None
    asleep: bool = False


OpenGpu = Callable[[Candidate, OnAnswer], Device]


class Opening:
    """One GPU on its way: identified first, then opened once it is known to be wanted.

    ``identify`` and ``open_gpu`` are called in a thread of its own, which holds NVML meanwhile.
    What they raise is a fault of this GPU alone. Whoever starts it opens or dismisses it, which
    its thread waits for.
    """

    def __init__(self, index: int, identify: Callable[[int, OnAnswer], Candidate]) -> None:
        self._index = index
        self._identify = identify
        self._open: OpenGpu | None = None
        self._candidate: Candidate | None = None
        self._device: Device | None = None
        self._is_identified = threading.Event()
        self._is_wanted = threading.Event()
        self._is_opened = threading.Event()
        self._answered_s: float | None = None
        self._thread = threading.Thread(target=self._run, name=FINDER, daemon=True)

    def start(self) -> Opening:
        session.acquire()  # at once, since whoever starts it holds NVML
        self._thread.start()
        return self

    def candidate(self, end_s: float | None) -> Candidate:
        """What is known of it by then: one that has not answered has its index alone."""
        self._await(self._is_identified, end_s)
        return self._candidate or Candidate(GpuIdentity(self._index, ""), fault=_LATE)

    @property
    def is_late(self) -> bool:
        """Whether it has not even said which GPU it is."""
        return self._candidate is None

    def open(self, open_gpu: OpenGpu) -> None:
        self._open = open_gpu
        if not self.is_late:  # since it said who it is, it was not asked
            self._answered()
        self._is_wanted.set()

    def dismiss(self, end_s: float | None) -> None:
        """Where it was not opened, see to it that NVML is let go, unless that takes longer."""
        if self._open is None:
            self._is_wanted.set()
            if not self.is_late:
                self._await(self._is_opened, end_s)

    def device(self, end_s: float | None) -> Device | None:
        """The GPU as of then; None where it is on its way still."""
        self._await(self._is_opened, end_s)
        return self._device

    def _await(self, event: threading.Event, end_s: float | None) -> None:
        """Wait until the event, but not beyond ``end_s``, nor for a driver that has stalled."""
        while not event.is_set():
            if end_s is None:
                event.wait()
                return
            # Before the first answer the GPU is being initialised, which may take long.
            now_s = monotonic()
            since_s = now_s if self._answered_s is None else self._answered_s
            left_s = min(end_s, since_s + _STALLED_S) - now_s
            if left_s <= 0:
                return
            event.wait(left_s)

    def _answered(self) -> None:
        self._answered_s = monotonic()

    def _run(self) -> None:
        try:
            self._candidate = self._identified()
            self._is_identified.set()
            self._is_wanted.wait()
            if self._open:
                self._device = self._opened(self._open, self._candidate)
        finally:
            self._is_identified.set()
            self._is_opened.set()
            session.release()

    def _identified(self) -> Candidate:
        try:
            return self._identify(self._index, self._answered)
        except Exception as error:  # noqa: BLE001  # a bug must not cost the other GPUs
            return Candidate(GpuIdentity(self._index, ""), fault=_unexpected(error))

    def _opened(self, open_gpu: OpenGpu, candidate: Candidate) -> Device:
        try:
            return open_gpu(candidate, self._answered)
        except Exception as error:  # noqa: BLE001  # likewise
            faulty = replace(candidate, handle=None, fault=_unexpected(error))
            return open_gpu(faulty, self._answered)


def _unexpected(error: Exception) -> Fault:
    what = f"unexpected {type(error).__name__}: {error}"
    return Fault(DeviceError, what, "please report this as a bug")


class LateGpu(SilentGpu):
    """A GPU whose driver has not answered in time; it is there as soon as that has."""

    is_late = True


def late_gpu(info: DeviceInfo, opening: Opening, look: Callable[[], Device | None]) -> LateGpu:
    """``look`` opens it again should it have answered, but with a fault."""

    def answer() -> Device | None:
        device = opening.device(end_s=0)
        return look() if isinstance(device, SilentGpu) else device

    return LateGpu(info, _LATE, answer)
