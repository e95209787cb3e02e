"""A driver's samples on our clock, whatever happens to the wall clock."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.data import DeviceInfo, DriverSample, Kind, Quantity, Unavailable
from joulewise.devices.device import BaseDevice
from joulewise.record.driver_samples import PowerSamples
from joulewise.record.writer import RecorderNotes

S, MS = 10**9, 10**6
PERIOD_NS = 20 * MS
RING = 120
WALL_NS = 1_750_000_000 * S


@dataclass
class Clocks:
    """Ours, and one on the wall that can be set."""

    now_ns: int = 1000 * S
    ahead_ns: int = WALL_NS

    def ours(self):
        return self.now_ns

    def wall(self):
        return self.now_ns + self.ahead_ns


GPU = DeviceInfo("gpu0", Kind.GPU, "GPU", "GPU-0", "none")


@dataclass
class Driver(BaseDevice):
    """Takes a sample every 20 ms, keeps 120, and stamps them with the wall clock or its own."""

    clocks: Clocks
    own_ns: int | None = None
    info: DeviceInfo = GPU
    taken: list = field(default_factory=list)
    broken: bool = False

    def elapse(self, ns):
        end_ns = self.clocks.now_ns + ns
        while (due_ns := (len(self.taken) + 1) * PERIOD_NS + 1000 * S) <= end_ns:
            ahead_ns = self.clocks.ahead_ns if self.own_ns is None else self.own_ns
            stamp_us = (due_ns + ahead_ns) // 1000
            self.taken.append((due_ns, DriverSample(stamp_us, float(len(self.taken)))))
        self.clocks.now_ns = end_ns

    def _samples(self, _quantity: Quantity, since_us: int):
        if self.broken:
            return Unavailable("it is lost")
        return [sample for _, sample in self.taken[-RING:] if sample.t_us > since_us]


def rows(buffered):
    batch = buffered.rows.take()
    return list(zip(*batch.values, strict=True)) if batch else []


def check(driver, found, tolerance_ns=1000):
    """Each sample is there once, in order, at the time at which it was taken."""
    assert [value for _, value in found] == [sample.value for _, sample in driver.taken]
    late_ns = [
        abs(t_ns - due_ns) for (t_ns, _), (due_ns, _) in zip(found, driver.taken, strict=True)
    ]
    assert max(late_ns) <= tolerance_ns


def buffered_of(driver):
    return PowerSamples(
        "gpu0.buffer",
        driver,
        RecorderNotes(driver.clocks.ours),
        now_ns=driver.clocks.ours,
        wall_ns=driver.clocks.wall,
    )


def test_ten_minutes_at_50_hz_none_dropped_and_none_doubled():
    driver = Driver(Clocks())
    buffered, found = buffered_of(driver), []
    for _ in range(600):
        driver.elapse(S)
        buffered.serve(driver.clocks.now_ns)
        found += rows(buffered)
    assert len(found) == 30_000
    check(driver, found)


@settings(deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.integers(1, 2_200).map(lambda ms: ms * MS),
            st.one_of(
                st.just(0),
                st.integers(5 * MS, 3 * S),
                st.integers(-3 * S, -5 * MS),
                st.sampled_from([3600 * S, -3600 * S, -86_400 * S]),
            ),
        ),
        min_size=1,
        max_size=12,
    ),
    own=st.booleans(),
)
def test_a_wall_clock_that_is_set_moves_no_sample(steps, own):
    driver = Driver(Clocks(), own_ns=WALL_NS if own else None)
    buffered = buffered_of(driver)
    driver.elapse(S)
    buffered.serve(driver.clocks.now_ns)
    found = rows(buffered)
    for wait_ns, set_ns in steps:
        driver.elapse(wait_ns // 2)
        driver.clocks.ahead_ns += set_ns
        driver.elapse(wait_ns - wait_ns // 2)
        buffered.serve(driver.clocks.now_ns)
        found += rows(buffered)
        for _ in range(2):  # nobody sets a clock every second
            driver.elapse(S)
            buffered.serve(driver.clocks.now_ns)
            found += rows(buffered)
    check(driver, found)


def test_a_driver_with_a_clock_of_its_own_has_just_taken_its_newest():
    driver = Driver(Clocks(), own_ns=5 * S)
    buffered, found = buffered_of(driver), []
    for _ in range(5):
        driver.elapse(1_010 * MS)
        buffered.serve(driver.clocks.now_ns)
        found += rows(buffered)
    check(driver, found, tolerance_ns=PERIOD_NS)


def test_a_fault_is_noted_once_and_buffered_samples_follow_afterwards():
    driver = Driver(Clocks())
    notes = RecorderNotes(driver.clocks.ours)
    clocks = {"now_ns": driver.clocks.ours, "wall_ns": driver.clocks.wall}
    buffered = PowerSamples("gpu0.buffer", driver, notes, **clocks)
    for broken in (False, True, True, False):
        driver.broken = broken
        driver.elapse(700 * MS)
        buffered.serve(driver.clocks.now_ns)
    check(driver, rows(buffered))
    assert [(note["code"], note["message"]) for note in notes.all()] == [
        ("device_unavailable", "it is lost")
    ]


@pytest.mark.parametrize("set_ns", [3600 * S, -3600 * S])
def test_a_clock_set_just_before_a_drain_of_one_sample(set_ns):
    driver = Driver(Clocks())
    buffered = buffered_of(driver)
    driver.elapse(S)
    buffered.serve(driver.clocks.now_ns)
    driver.clocks.ahead_ns += set_ns
    driver.elapse(PERIOD_NS)
    buffered.serve(driver.clocks.now_ns)
    check(driver, rows(buffered))
