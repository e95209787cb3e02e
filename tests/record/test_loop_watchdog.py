"""Ending the loops although a driver hangs."""

import threading
from time import sleep

import pytest

from joulewise.record import sampling_loop as watch_module
from joulewise.record.sampling_loop import LoopWatchdog, SamplingLoop
from joulewise.record.schedule import Deadlines
from joulewise.units import NS_PER_MS
from tests.helpers.processes import DEADLINE_S


class Hanging:
    """A channel whose driver does not come back before it is released."""

    def __init__(self, name):
        self.name = name
        self.is_asked = threading.Event()
        self.is_released = threading.Event()

    def serve(self, _deadline_ns):
        self.is_asked.set()
        self.is_released.wait()

    def skip(self, missed):
        pass


class Nobody:
    def on_missed(self, *_):
        pass

    def on_failed(self, *_):
        raise AssertionError


@pytest.fixture
def channels():
    channels = [Hanging("gpu0"), Hanging("gpu0.buffer"), Hanging("gpu1")]
    yield channels
    for channel in channels:
        channel.is_released.set()


def loop_of(channel):
    return SamplingLoop("fast", [channel], Deadlines(0, 10 * NS_PER_MS), Nobody(), is_awaited=True)


def test_a_device_that_has_hung_for_long_is_not_waited_for(channels, monkeypatch):
    """Nor is another reading of it, which was asked for just now."""
    monkeypatch.setattr(watch_module, "_FIRST_S", 0.0)
    monkeypatch.setattr(watch_module, "_HANGS_NS", 100 * NS_PER_MS)
    before, just_now, _ = channels
    watch, names = LoopWatchdog(), []
    watch.start([loop_of(before)])
    assert before.is_asked.wait(DEADLINE_S)
    sleep(0.2)
    watch.add([loop_of(just_now)])
    assert just_now.is_asked.wait(DEADLINE_S)
    ending = threading.Thread(target=lambda: names.extend(watch.end(DEADLINE_S)))
    ending.start()
    ending.join(DEADLINE_S / 2)
    assert not ending.is_alive()
    assert names == ["gpu0", "gpu0.buffer"]


def test_a_device_that_is_slow_is_waited_for(channels, monkeypatch):
    monkeypatch.setattr(watch_module, "_FIRST_S", 0.0)
    slow, watch = channels[0], LoopWatchdog()
    watch.start([loop_of(slow)])
    assert slow.is_asked.wait(DEADLINE_S)
    threading.Timer(0.1, slow.is_released.set).start()
    assert watch.end(DEADLINE_S) == []


def test_several_that_hang_at_the_start_are_waited_for_but_once(channels, monkeypatch):
    monkeypatch.setattr(watch_module, "_FIRST_S", 0.3)
    waits_s = []
    wait = SamplingLoop.wait_for_first

    def record(loop, timeout_s):
        waits_s.append(timeout_s)
        wait(loop, timeout_s)

    monkeypatch.setattr(SamplingLoop, "wait_for_first", record)
    watch = LoopWatchdog()
    watch.start([loop_of(channel) for channel in channels])
    watch.wait_for_first()
    assert len(waits_s) == 6
    assert sum(waits_s) <= 0.3
    watch.end(0.0)
