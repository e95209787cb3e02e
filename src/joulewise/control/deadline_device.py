"""All devices of the machine, wrapped so that calls return in time even if a driver hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from joulewise.data import ControlKind, DriverSample, Process, Quantity, Reading, Unavailable
from joulewise.devices import Device, Options, discover
from joulewise.errors import DriverHangsError

_HIDING_VARIABLES: Final = {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}
_DISCOVERY_S: Final = 5.0  # for each vendor's driver
# Chosen: reading a sensor takes milliseconds, setting a limit may take a second on a busy GPU.
# Doubled, a hung driver keeps the guardian from serving others for twice as long.
_READ_DEADLINE_S: Final = 1.0
_WRITE_DEADLINE_S: Final = 5.0
_FIX: Final = "run dmesg to see whether its driver hangs"

T = TypeVar("T")


def open_all_devices(environ: Mapping[str, str]) -> dict[str, Device]:
    """All devices by their uids, also those that the environment hides from programs."""
    unhidden = {name: value for name, value in environ.items() if name not in _HIDING_VARIABLES}
    found = discover(Options(environ=unhidden, deadline_s=_DISCOVERY_S))
    return {device.info.uid: DeadlineDevice(device) for device in found.devices}


class DeadlineDevice:
    """Wraps a device so that every call returns within a deadline.

    After a timeout calls fail at once until the driver returns. A change that the driver makes too
    late is still in the journal and will be restored. Reading a sensor blocks no change.
    """

    def __init__(
        self,
        device: Device,
        read_deadline_s: float = _READ_DEADLINE_S,
        write_deadline_s: float = _WRITE_DEADLINE_S,
    ) -> None:
        self._device = device
        self._reads = _DriverThread(device.info.key, read_deadline_s)
        self._writes = _DriverThread(device.info.key, write_deadline_s)
        self.info = device.info
        self.sensors = device.sensors
        self.controls = device.controls

    def read(self, quantity: Quantity) -> Reading | Unavailable:
        return self._reads.read_or_unavailable(lambda: self._device.read(quantity))

    def samples(
        self, quantity: Quantity, since_us: int = 0
    ) -> Sequence[DriverSample] | Unavailable:
        return self._reads.read_or_unavailable(lambda: self._device.samples(quantity, since_us))

    def processes(self) -> Sequence[Process] | Unavailable:
        return self._writes.read_or_unavailable(self._device.processes)

    def get(self, control: ControlKind) -> float | Unavailable:
        return self._writes.read_or_unavailable(lambda: self._device.get(control))

    def set(self, control: ControlKind, value: float) -> None:
        self._writes.call_driver(lambda: self._device.set(control, value))

    def put_back(self, control: ControlKind, value: float) -> None:
        self._writes.call_driver(lambda: self._device.put_back(control, value))

    def reset(self, control: ControlKind) -> None:
        self._writes.call_driver(lambda: self._device.reset(control))

    def close(self) -> None:
        with suppress(DriverHangsError):
            self._writes.call_driver(self._device.close)
        self._writes.close()
        self._reads.close()


class _DriverThread:
    """Calls a driver in a thread of its own, and never while the call before it hangs.

    One thread serves all calls: on a busy machine, starting one for each would delay them.
    """

    def __init__(self, key: str, deadline_s: float) -> None:
        self._key = key
        self._deadline_s = deadline_s
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._is_started = False
        self._last_answer: Future[Any] = Future()
        self._last_answer.set_result(None)

    def read_or_unavailable(self, call: Callable[[], T | Unavailable]) -> T | Unavailable:
        try:
            return self.call_driver(call)
        except DriverHangsError as error:
            return Unavailable(error.message, error.hint)

    def call_driver(self, call: Callable[[], T]) -> T:
        if not self._last_answer.done():
            raise DriverHangsError(f"{self._key}'s driver still hangs", _FIX)
        if not self._is_started:
            threading.Thread(target=_serve_calls, args=(self._calls,), daemon=True).start()
            self._is_started = True
        answer: Future[T] = Future()
        self._last_answer = answer
        self._calls.put((answer, call))
        if not wait([answer], self._deadline_s).done:
            what = f"{self._key}'s driver did not answer within {self._deadline_s:g} s"
            raise DriverHangsError(what, _FIX)
        return answer.result()

    def close(self) -> None:
        self._calls.put(None)
        self._is_started = False


def _serve_calls(calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]) -> None:
    while item := calls.get():
        answer, call = item
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001  # raised in the calling thread
            answer.set_exception(error)
