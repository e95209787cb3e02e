"""A GPU whose controls are plain values, and which fails as it is told to."""

import os
import time
from itertools import count

from joulewise.control.holds import LeaseHolder
from joulewise.data import ControlInfo, ControlKind, DeviceInfo, Kind, Unavailable
from joulewise.devices.device import BaseDevice
from joulewise.errors import DeviceError, DeviceLostError
from joulewise.process.linux import started_ticks

LIMIT, SM, MEMORY = ControlKind.POWER_LIMIT, ControlKind.SM_CLOCK, ControlKind.MEMORY_CLOCK
HOLDER = LeaseHolder(os.getpid(), os.getuid(), "python", time.time(), started_ticks(os.getpid()))
_numbers = count()  # controls are claimed on the whole machine, where other tests run, too


class Board(BaseDevice):
    """``values`` are what the controls stand at; None is a clock that nobody has locked."""

    def __init__(self, key="gpu0", limit_w=250.0, step=lambda: None):
        uid = f"GPU-{os.getpid()}-{next(_numbers)}"
        self.info = DeviceInfo(key, Kind.GPU, "Board", uid, "nvidia")
        clocks = tuple(range(500, 1501, 100))
        self.sensors = {}
        self.controls = {
            LIMIT: ControlInfo(LIMIT, 100, 300, 300),
            SM: ControlInfo(SM, 500, 1500, None, choices=clocks, readable=False),
            MEMORY: ControlInfo(MEMORY, 500, 1500, None, choices=clocks, readable=False),
        }
        self.values = {LIMIT: limit_w, SM: None, MEMORY: None}
        self.turned = []
        self.refuses = set()  # controls whose setter fails
        self.is_deaf = False  # takes limits, and does nothing
        self.is_lost = False
        self.rounds_to_w = 0.001
        self._step = step

    def _processes(self):
        return []

    def _get(self, control):
        if self.is_lost:
            return Unavailable(f"{self.info.key} is lost")
        value = self.values[control]
        return value if control is LIMIT else Unavailable("locks are not told")

    def _set(self, info, value):
        self._turn(info.control, value)

    def _reset(self, info):
        self._turn(info.control, info.default)

    def _turn(self, control, value):
        if self.is_lost:
            raise DeviceLostError(f"{self.info.key} is lost", "reset it")
        if control in self.refuses:
            raise DeviceError(f"{self.info.key} refuses {control.value}", "try again")
        self._step()
        self.turned.append((control, value))
        if not (self.is_deaf and control is LIMIT):
            if control is LIMIT:
                value = round(value / self.rounds_to_w) * self.rounds_to_w
            self.values[control] = value
        self._step()


def by_uid(*boards):
    return {board.info.uid: board for board in boards}


def kill(guardian):
    """What the kernel does when it is killed, and no more."""
    guardian._claims.keep(())
    if guardian._journal:
        os.close(guardian._journal._descriptor)
        os.close(guardian._journal._lock)
