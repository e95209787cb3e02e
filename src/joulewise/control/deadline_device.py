"""Every device of the machine, each of which answers in time, whatever its driver does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from joulewise.data import DriverSample, Knob, Process, Quantity, Reading, Unavailable
from joulewise.devices import Device, Options, discover
from joulewise.errors import DriverHangsError

_HIDING: Final = {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}
_DISCOVERY_S: Final = 5.0  # for each vendor's driver
_LOOK_S: Final = 1.0
_ANSWER_S: Final = 5.0
_FIX: Final = "see whether its driver hangs: dmesg"

T = TypeVar("T")


def every_device(environ: Mapping[str, str]) -> dict[str, Device]:
    """By their uids: what is to be put back may be hidden from whoever does it."""
    shown = {name: value for name, value in environ.items() if name not in _HIDING}
    found = discover(Options(environ=shown, deadline_s=_DISCOVERY_S))
    return {device.info.uid: DeadlineDevice(device) for device in found.devices}


class DeadlineDevice:
    """A device that does not keep us: what takes too long has failed, and so has what comes next.

    That goes on until the driver returns. A knob that it turns too late is still ours to put back;
    a look at a sensor keeps no knob.
    """

    def __init__(
        self, device: Device, look_s: float = _LOOK_S, answer_s: float = _ANSWER_S
    ) -> None:
        self._device = device
        self._looks = _Caller(device.info.key, look_s)
        self._turns = _Caller(device.info.key, answer_s)
        self.info = device.info
        self.sensors = device.sensors
        self.knobs = device.knobs

    def read(self, quantity: Quantity) -> Reading | Unavailable:
        return self._looks.told(lambda: self._device.read(quantity))

    def samples(
        self, quantity: Quantity, since_us: int = 0
    ) -> Sequence[DriverSample] | Unavailable:
        return self._looks.told(lambda: self._device.samples(quantity, since_us))

    def processes(self) -> Sequence[Process] | Unavailable:
        return self._turns.told(self._device.processes)

    def get(self, knob: Knob) -> float | Unavailable:
        return self._turns.told(lambda: self._device.get(knob))

    def set(self, knob: Knob, value: float) -> None:
        self._turns.done(lambda: self._device.set(knob, value))

    def put_back(self, knob: Knob, value: float) -> None:
        self._turns.done(lambda: self._device.put_back(knob, value))

    def reset(self, knob: Knob) -> None:
        self._turns.done(lambda: self._device.reset(knob))

    def close(self) -> None:
        with suppress(DriverHangsError):
            self._turns.done(self._device.close)
        self._turns.close()
        self._looks.close()


class _Caller:
    """Calls a driver in a thread of its own, and never while the call before it hangs.

    One thread for all calls: on a busy machine, a new one would have to wait for its turn.
    """

    def __init__(self, key: str, patience_s: float) -> None:
        self._key = key
        self._patience_s = patience_s
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._is_started = False
        self._last: Future[Any] = Future()
        self._last.set_result(None)

    def told(self, call: Callable[[], T | Unavailable]) -> T | Unavailable:
        try:
            return self.done(call)
        except DriverHangsError as error:
            return Unavailable(error.message, error.hint)

    def done(self, call: Callable[[], T]) -> T:
        if not self._last.done():
            raise DriverHangsError(f"{self._key}'s driver still hangs", _FIX)
        if not self._is_started:
            threading.Thread(target=_work, args=(self._calls,), daemon=True).start()
            self._is_started = True
        answer: Future[T] = Future()
        self._last = answer
        self._calls.put((answer, call))
        if not wait([answer], self._patience_s).done:
            what = f"{self._key}'s driver did not answer within {self._patience_s:g} s"
            raise DriverHangsError(what, _FIX)
        return answer.result()

    def close(self) -> None:
        self._calls.put(None)
        self._is_started = False


def _work(calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]) -> None:
    while asked := calls.get():
        answer, call = asked
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001  # it is raised where it was called
            answer.set_exception(error)
