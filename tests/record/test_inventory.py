"""Devices are asked in parallel before they are read, and a slow one is read by its own thread."""

import threading
from dataclasses import replace

from joulewise.data import DeviceInfo, Kind
from joulewise.record.channels import StreamLoops
from joulewise.record.inventory import take_inventory
from joulewise.record.processes import CommandProcesses
from joulewise.record.writer import RecorderNotes, Writer
from joulewise.testing.toy_device import ToyClock, ToyDevice
from tests.helpers.processes import DEADLINE_S

GPUS = 8


class Waiting(ToyDevice):
    """Answers when all of them have been asked."""

    def __init__(self, barrier):
        super().__init__(ToyClock())
        self._barrier = barrier

    def samples(self, *arguments):
        self._barrier.wait(DEADLINE_S)
        return super().samples(*arguments)


class Broken(ToyDevice):
    def samples(self, *_):
        raise ZeroDivisionError


def numbered(index):
    device = ToyDevice(ToyClock())
    device.info = DeviceInfo(f"gpu{index}", Kind.GPU, "toy", f"toy-{index}", "toy")
    return device


def test_all_devices_are_asked_in_parallel():
    barrier = threading.Barrier(GPUS)
    devices = [Waiting(barrier) for _ in range(GPUS)]
    entries = take_inventory(devices, {})
    assert [entry.device for entry in entries] == devices
    assert all(entry.has_buffer for entry in entries)


def test_what_goes_wrong_while_asking_is_the_fault_of_one():
    well, broken = take_inventory([ToyDevice(ToyClock()), Broken(ToyClock())], {})
    assert well.has_buffer
    assert not well.fault
    assert not broken.has_buffer
    assert "ZeroDivisionError" in broken.fault
    assert broken.recorded.sources  # its counter and power can be read all the same


def test_a_device_that_does_not_answer_is_not_waited_for():
    barrier = threading.Barrier(2)
    silent, well = take_inventory([Waiting(barrier), ToyDevice(ToyClock())], {}, patience_s=0.1)
    barrier.abort()
    assert well.has_buffer
    assert silent.is_slow
    assert not silent.has_buffer
    assert "had not answered" in silent.fault


def test_a_slow_device_holds_up_no_other(tmp_path):
    entries = take_inventory([numbered(index) for index in range(GPUS)], {})
    slow = [replace(entry, is_slow=entry.device.info.key in {"gpu2", "gpu5"}) for entry in entries]
    notes = RecorderNotes()
    family = CommandProcesses("run", environ={})
    lanes = StreamLoops(tmp_path, 2.5, family, notes, Writer(notes, lambda: None), environ={})
    loops = lanes.energy_loops(slow)
    reading = [
        sorted(channel.name.partition(".")[0] for channel in loop.channels)
        for loop in loops
        if loop.name == "fast"
    ]
    assert reading == [["gpu0", "gpu1", "gpu3", "gpu4", "gpu6", "gpu7"], ["gpu2"], ["gpu5"]]
