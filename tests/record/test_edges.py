"""Where a measurement begins and ends, sensors are read until they have shown it."""

import threading
import time
from dataclasses import dataclass, field

import pytest

from joulewise.data import (
    DeviceInfo,
    DriverSample,
    Kind,
    Quantity,
    Reading,
    SensorProfile,
    Unavailable,
)
from joulewise.record.driver_samples import PowerSamples
from joulewise.record.readings import DeviceReader
from joulewise.record.sampling_loop import LoopWatchdog, SamplingLoop
from joulewise.record.schedule import NO_EDGE, Deadlines, EdgeTiming, edge_timing
from joulewise.record.writer import RecorderNotes
from joulewise.testing.toy_device import ToyClock

MS = 10**6
S = 10**9
HOUR_NS = 3600 * S
VOLTA, TURING, GA100 = (
    SensorProfile(0.020, 0.010),
    SensorProfile(0.100, 0.100),
    SensorProfile(0.100, 0.025),
)


@pytest.mark.parametrize(
    ("card", "step_ms", "lead_ms", "tail_ms"),
    [
        (VOLTA, 5, 25, 55),
        (TURING, 12.5, 112.5, 252.5),
        (GA100, 12.5, 112.5, 177.5),
        (SensorProfile(0.100, 1.0), 12.5, 112.5, 252.5),  # a one-second average: its counter is not
        (SensorProfile(), 12.5, 112.5, 152.5),
        (SensorProfile(1.0, 1.0), 20, 120, 500),
    ],
)
def test_a_board_is_read_around_an_edge_as_often_and_as_long_as_it_updates(
    card, step_ms, lead_ms, tail_ms
):
    edge = edge_timing(card)
    found = (edge.step_ns / MS, edge.lead_ns / MS, edge.tail_ns / MS)
    assert found == (step_ms, lead_ms, tail_ms)


def test_a_modelled_device_has_no_edge():
    assert edge_timing(SensorProfile(counter_period_s=0.0)) == NO_EDGE


@dataclass
class TickingGpu:
    """Shows what it was at its last tick; each quantity has ticks of its own, 100 ms apart."""

    clock: ToyClock = field(default_factory=ToyClock)
    phase_ns: dict = field(default_factory=dict)
    lost: bool = False
    info: DeviceInfo = field(default_factory=lambda: DeviceInfo("gpu0", Kind.GPU, "", "", ""))

    def read(self, quantity):
        if self.lost:
            return Unavailable("lost")
        t_ns = self.clock.now_ns
        return Reading(float((t_ns - self.phase_ns[quantity]) // (100 * MS)), t_ns)

    def samples(self, _quantity, since_us=0):
        times_us = range(0, self.clock.now_ns // 1000 + 1, 100_000)
        return [DriverSample(t_us, 1.0) for t_us in times_us if t_us > since_us]


def settles_ms(gpu, channel, end_ns):
    """When the channel is settled, read every step from the end on."""
    for _ in range(200):
        channel.serve_extra()
        if channel.is_settled(end_ns):
            return (gpu.clock.now_ns - end_ns) / MS
        gpu.clock.elapse(0.005)
    raise AssertionError("it never settled")


@pytest.mark.parametrize(
    ("counter_ms", "power_ms", "settled_ms"),
    [
        (70, 50, 70),  # both are updated late enough
        (30, 50, 130),  # the counter's first update may be of before the end: its second is not
        (70, 10, 110),
    ],
)
def test_a_device_is_settled_when_each_value_was_updated_later_than_its_lag(
    counter_ms, power_ms, settled_ms
):
    gpu = TickingGpu()
    end_ns = gpu.clock.now_ns
    gpu.phase_ns = {
        Quantity.ENERGY: end_ns + counter_ms * MS,
        Quantity.POWER: end_ns + power_ms * MS,
    }
    channel = DeviceReader(
        "gpu0",
        gpu,
        (Quantity.ENERGY, Quantity.POWER),
        RecorderNotes(),
        period_ns=100 * MS,
        edge=edge_timing(TURING),
        now_ns=lambda: gpu.clock.now_ns,
    )
    assert settles_ms(gpu, channel, end_ns) == settled_ms


def test_a_value_that_comes_back_after_a_fault_is_no_proof_of_an_update():
    gpu = TickingGpu(phase_ns={Quantity.ENERGY: 0})
    end_ns = gpu.clock.now_ns
    channel = DeviceReader(
        "gpu0", gpu, [Quantity.ENERGY], RecorderNotes(), period_ns=MS, edge=edge_timing(TURING),
        now_ns=lambda: gpu.clock.now_ns,
    )  # fmt: skip
    gpu.clock.elapse(0.05)
    channel.serve_extra()
    gpu.lost = True
    gpu.clock.elapse(0.01)
    channel.serve_extra()
    gpu.lost = False
    gpu.clock.elapse(0.01)
    channel.serve_extra()
    assert not channel.is_settled(end_ns)


def test_the_drivers_samples_are_settled_with_one_that_was_taken_late_enough():
    gpu = TickingGpu()
    end_ns = gpu.clock.now_ns + 70 * MS  # samples are taken 30 and 130 ms after
    gpu.clock.elapse(0.07)
    channel = PowerSamples(
        "gpu0.buffer",
        gpu,
        RecorderNotes(),
        edge=edge_timing(TURING),
        now_ns=lambda: gpu.clock.now_ns,
        wall_ns=lambda: gpu.clock.now_ns,
    )
    assert settles_ms(gpu, channel, end_ns) == 130


class Nobody:
    def on_missed(self, *_):
        raise AssertionError("a dense reading is no deadline")

    def on_failed(self, *_):
        raise AssertionError("nothing failed")


class Edge:
    """Counts how it is served; settled after so many extra times."""

    def __init__(self, name, edge, settled_after=10**9):
        self.name = name
        self.edge = edge
        self.due = self.extra = 0
        self.settled_after = settled_after
        self.go_on = threading.Event()
        self.go_on.set()

    def serve(self, _deadline_ns):
        self.due += 1

    def serve_extra(self):
        self.extra += 1
        assert self.go_on.wait(30)

    def is_settled(self, _end_ns):
        return self.extra >= self.settled_after

    def skip(self, _missed):
        raise AssertionError("nothing was missed")


EDGE = EdgeTiming(step_ns=2 * MS, lead_ns=40 * MS, lag_ns=10 * MS, tail_ns=60 * MS)


def watching(*channels):
    watch = LoopWatchdog()
    at_edges = {"once_more": lambda _: True, "is_awaited": True}
    watch.start([SamplingLoop("fast", channels, Deadlines(0, HOUR_NS), Nobody(), **at_edges)])
    return watch


def test_a_device_is_read_densely_until_the_command_has_started():
    channel = Edge("gpu0", EDGE)
    watch = watching(channel)
    began_s = time.monotonic()
    watch.wait_for_lead()
    assert time.monotonic() - began_s < 1.0
    while channel.extra < 2:  # at once, or when this machine has time for it
        assert time.monotonic() - began_s < 30
        time.sleep(0.005)
    watch.end_lead()
    then = channel.extra
    time.sleep(0.07)
    assert channel.extra <= then + 1, "one may have been due already"
    assert watch.end(30.0) == []


def test_at_the_end_each_device_is_read_until_it_has_settled():
    soon, late = channels = Edge("gpu0", EDGE, 1), Edge("gpu1", EDGE, 4)
    for channel in channels:
        channel.edge = EdgeTiming(step_ns=2 * MS, tail_ns=HOUR_NS)
    watch = watching(*channels)
    assert watch.end(30.0) == []
    assert (soon.extra, late.extra) == (1, 4)
    assert (soon.due, late.due) == (1, 1)


def test_nothing_is_waited_for_beyond_the_deadline_of_the_tail():
    never = Edge("gpu0", EdgeTiming(step_ns=2 * MS, tail_ns=60 * MS))
    watch = watching(never)
    end_ns = time.monotonic_ns()
    assert watch.end(30.0, end_ns) == []
    lasted_ns = time.monotonic_ns() - end_ns
    assert 60 * MS <= lasted_ns < 5 * S
    assert never.extra > 1


def test_a_tail_whose_time_is_over_already_is_one_reading():
    never = Edge("gpu0", EdgeTiming(step_ns=2 * MS, tail_ns=60 * MS))
    watch = watching(never)
    assert watch.end(30.0, time.monotonic_ns() - S) == []
    assert never.extra == 1


def test_who_hangs_in_the_tail_holds_up_no_other():
    stuck = Edge("gpu0", EdgeTiming(step_ns=2 * MS, tail_ns=HOUR_NS))
    other = Edge("gpu1", EdgeTiming(step_ns=2 * MS, tail_ns=HOUR_NS), 3)
    watch = watching(stuck, other)
    stuck.go_on.clear()
    try:
        assert watch.end(2.0) == ["gpu0"]
        assert other.extra >= 3
    finally:
        stuck.go_on.set()
        stuck.settled_after = 0
