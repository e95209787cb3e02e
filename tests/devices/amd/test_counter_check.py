"""AMD's energy counters are compared with power when a GPU is opened."""

from __future__ import annotations

import re
from itertools import accumulate
from math import exp, floor

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from joulewise.data import Quantity, SensorInfo, Unavailable
from joulewise.devices.amd import counter_check
from joulewise.devices.amd.counter_check import (
    AVERAGE_LAG_S,
    NO_POWER,
    UNDECIDED,
    Poll,
    Probe,
    check_counters,
    compare,
)
from joulewise.testing import ToyClock
from tests.helpers.documented_amdsmi import NOT_SUPPORTED, Board

S = 1_000_000_000
BUSY = [(0, 90), (1.2, 500)]  # the clock starts at 1 s: the load comes 0.2 s into the watch


def energy(device):
    return device.sensors[Quantity.ENERGY]


def opened(install, find, *boards):
    install(*boards)
    return find()


@pytest.mark.parametrize(
    "board",
    [
        Board(0),
        Board(0, "mi210"),
        Board(0, step_s=0.1),
        Board(0, step_s=0.15),
        Board(0, rate=1.1),
        Board(0, rate=0.9),
        Board(0, load=BUSY),
        Board(0, load=BUSY, step_s=0.1),
        Board(0, load=BUSY, lag_s=0.1),
        Board(0, "mi210", load=BUSY, lag_s=0.3),
        Board(0, load=[(0, 90), *((1 + i / 10, 90 + 500 * (i % 2)) for i in range(20))]),
    ],
    ids=lambda board: f"{board.name} rate {board.rate} step {board.step_s} lag {board.lag_s}",
)
def test_a_right_counter_is_kept(install, find, board):
    (device,) = opened(install, find, board)
    assert isinstance(energy(device), SensorInfo)
    assert not isinstance(device.read(Quantity.ENERGY), Unavailable)


def test_a_right_counter_takes_less_than_half_a_second_on_a_node_of_eight(install, find, clock):
    start_ns = clock.now_ns
    devices = opened(install, find, *(Board(number) for number in range(8)))
    assert [energy(device).note for device in devices] == [""] * 8
    assert clock.now_ns - start_ns < 0.5 * S


@pytest.mark.parametrize("rate", [1 / 15.3, 0.5, 1.5, 2, 15.3])
@pytest.mark.parametrize("model", ["mi300x", "mi210"])
@pytest.mark.parametrize("step_s", [0.001, 0.1])
def test_a_counter_at_a_wrong_rate_is_refused(install, find, rate, model, step_s):
    (device,) = opened(install, find, Board(0, model, rate=rate, step_s=step_s))
    refused = energy(device)
    assert isinstance(refused, Unavailable)
    match = re.fullmatch(
        r"the energy counter runs at ([\d.]+) times the power that the GPU reports", refused.reason
    )
    assert float(match[1]) == pytest.approx(rate, rel=0.04)
    assert "integrated instead" in refused.fix
    assert device.read(Quantity.ENERGY) == refused
    assert isinstance(device.sensors[Quantity.POWER], SensorInfo)


def test_a_wrong_counter_is_refused_while_the_load_changes(install, find):
    (device,) = opened(install, find, Board(0, load=BUSY, rate=2))
    assert "runs at 2 times" in energy(device).reason


def test_one_wrong_counter_delays_all_by_little_and_spoils_no_other(install, find, clock):
    start_ns = clock.now_ns
    boards = [Board(number, rate=2 if number == 3 else 1) for number in range(8)]
    devices = opened(install, find, *boards)
    wrong = [device.info.key for device in devices if isinstance(energy(device), Unavailable)]
    assert wrong == ["gpu3"]
    assert clock.now_ns - start_ns < 1.4 * S


def test_a_counter_that_stands_still_is_refused(install, find):
    (device,) = opened(install, find, Board(0, rate=0))
    assert energy(device).reason == "the energy counter does not move while the GPU reports 139 W"


def test_a_counter_that_runs_backwards_is_refused(install, find):
    (device,) = opened(install, find, Board(0, rate=-1))
    assert energy(device).reason == "the energy counter runs backwards"


def test_a_counter_that_moves_about_once_a_second_is_not_known_to_be_wrong(install, find):
    (device,) = opened(install, find, Board(0, step_s=0.9))
    assert energy(device).note == UNDECIDED


def test_a_gpu_that_does_not_report_power_keeps_its_counter_unchecked(install, find):
    board = Board(0)
    board.load = [(0, 100)]
    board.power = dict.fromkeys(board.power, "N/A")
    (device,) = opened(install, find, board)
    assert isinstance(device.sensors[Quantity.POWER], Unavailable)
    assert energy(device).note == NO_POWER


def test_a_gpu_without_power_whose_counter_stands_still_has_neither(install, find):
    board = Board(0, rate=0)
    board.power = dict.fromkeys(board.power, "N/A")
    (device,) = opened(install, find, board)
    assert energy(device).reason == "the energy counter does not move"
    assert "integrated" not in energy(device).fix


def test_a_gpu_that_draws_next_to_nothing_keeps_its_counter_unchecked(install, find):
    (device,) = opened(install, find, Board(0, load=[(0, 1.9)]))
    assert energy(device).note == UNDECIDED


def test_a_gpu_without_a_counter_is_not_watched(install, find, clock):
    fake = install(Board(0))
    fake.failing["amdsmi_get_energy_count"] = NOT_SUPPORTED
    start_ns = clock.now_ns
    (device,) = find()
    assert "times the power" not in energy(device).reason
    assert clock.now_ns == start_ns


@pytest.mark.parametrize("fault", [RuntimeError, KeyError, ZeroDivisionError])
@pytest.mark.parametrize("function", ["amdsmi_get_energy_count", "amdsmi_get_power_info"])
def test_what_fails_while_a_counter_is_watched_fails_nothing_else(install, find, fault, function):
    fake = install(Board(0))
    answer, calls = getattr(fake, function), iter(range(1_000))

    def fail_later(board):
        if next(calls) > 5:
            raise fault
        return answer(board)

    setattr(fake, function, fail_later)
    (device,) = find()
    assert isinstance(energy(device), SensorInfo)


def test_a_clock_that_stands_still_ends_the_watch():
    probes = {"gpu0": Probe(lambda: 1.0, lambda: 100.0)}
    assert check_counters(probes, lambda: 0, lambda _: None)["gpu0"].note == UNDECIDED


def test_bounds_of_a_steady_load():
    polls = [Poll(i * S // 100, i * S // 100, float(i), 100.0) for i in range(41)]
    comparison = compare(polls)
    assert (comparison.counted_j, comparison.likely_j) == (39, pytest.approx(39))
    assert comparison.low_j == pytest.approx(0.38 * 99.5)
    assert comparison.high_j == pytest.approx(0.40 * 101)
    assert compare(polls[:2]) is None


class Machine:
    """A load, a counter that follows it at ``rate``, and readings of power, on a clock of its own.

    ``segments`` are (seconds, watts), repeated; with ``tau_s`` the power is an exponential average.
    """

    def __init__(self, segments, *, rate=1.0, step_s=0.001, tau_s=0.0, call_s=0.0, late_s=0.0):
        self.clock = ToyClock()
        self.start_ns = self.clock.now_ns
        self.segments, self.rate, self.step_s = segments, rate, step_s
        self.tau_s, self.call_s, self.late_s = tau_s, call_s, late_s
        self.ends_s = list(accumulate(time_s for time_s, _ in segments))

    def time_s(self):
        return (self.clock.now_ns - self.start_ns) / S

    def _pieces(self, until_s):
        at_s = 0.0
        while at_s < until_s:
            for time_s, watts in self.segments:
                if at_s < until_s:
                    yield min(time_s, until_s - at_s), watts
                at_s += time_s

    def read_j(self):
        self.clock.elapse(self.call_s / 2)
        shown_s = floor(self.time_s() / self.step_s) * self.step_s
        joules = self.rate * sum(s * w for s, w in self._pieces(shown_s))
        self.clock.elapse(self.call_s / 2)
        return floor(joules * 1e6 / 15.259) * 15.259 / 1e6

    def read_w(self):
        watts = average_w = self.segments[0][1]
        for time_s, watts in self._pieces(self.time_s()):
            keep = exp(-time_s / self.tau_s) if self.tau_s else 0.0
            average_w = keep * average_w + (1 - keep) * watts
        return float(int(average_w if self.tau_s else watts))

    def sleep(self, seconds):
        self.clock.elapse(seconds + self.late_s)

    def verdict(self):
        probe = Probe(self.read_j, self.read_w, AVERAGE_LAG_S if self.tau_s else 0.0)
        verdicts = check_counters({"gpu0": probe}, lambda: self.clock.now_ns, self.sleep)
        return verdicts["gpu0"]


# How long a call takes, and how late a sleep ends.
DELAYS = st.fixed_dictionaries({"call_s": st.floats(0, 0.002), "late_s": st.floats(0, 0.005)})
STEPS = st.sampled_from([0.001, 0.003, 0.02, 0.1, 0.15])


@settings(max_examples=150, deadline=None)
@given(
    segments=st.lists(st.tuples(st.floats(0.03, 2), st.integers(2, 750)), min_size=1, max_size=8),
    rate=st.floats(0.85, 1.15),
    step_s=STEPS,
    tau_s=st.sampled_from([0.0, 0.0, 0.05, 0.3, 1.0]),
    delays=DELAYS,
)
@example([(0.3, 100), (1.5, 700)], 1.0, 0.001, 1.0, {})
@example([(0.03, 30), (0.03, 750)], 1.0, 0.1, 0.0, {"call_s": 0.001, "late_s": 0.005})
def test_a_right_counter_is_never_refused(segments, rate, step_s, tau_s, delays):
    machine = Machine(segments, rate=rate, step_s=step_s, tau_s=tau_s, **delays)
    assert machine.verdict().factor is None


@settings(max_examples=150, deadline=None)
@given(
    segments=st.lists(st.tuples(st.floats(0.2, 2), st.integers(20, 750)), min_size=1, max_size=8),
    rate=st.one_of(st.floats(0.001, 0.5), st.floats(2, 100)),
    step_s=st.sampled_from([0.001, 0.003, 0.02]),
    delays=DELAYS,
)
def test_a_counter_off_by_a_factor_of_two_is_always_refused(segments, rate, step_s, delays):
    highest = max(watts for _, watts in segments)
    assume(highest <= 3 * min(watts for _, watts in segments))
    factor = Machine(segments, rate=rate, step_s=step_s, **delays).verdict().factor
    assert factor is not None
    assert factor == pytest.approx(rate, rel=0.25)


@settings(max_examples=100, deadline=None)
@given(
    watts=st.integers(100, 750),
    rate=st.one_of(st.floats(0.001, 0.6), st.floats(1.5, 100)),
    step_s=st.sampled_from([0.001, 0.003, 0.02, 0.1]),
    tau_s=st.sampled_from([0.0, 0.3]),
    delays=DELAYS,
)
def test_at_a_steady_load_a_smaller_factor_is_always_refused(watts, rate, step_s, tau_s, delays):
    factor = Machine([(1, watts)], rate=rate, step_s=step_s, tau_s=tau_s, **delays).verdict().factor
    assert factor == pytest.approx(rate, rel=0.1)


@settings(max_examples=100, deadline=None)
@given(
    segments=st.lists(st.tuples(st.floats(0.03, 2), st.integers(2, 750)), min_size=1, max_size=8),
    rate=st.one_of(st.floats(0.001, 0.5), st.floats(2, 100)),
    delays=DELAYS,
)
def test_a_counter_off_by_a_factor_of_two_is_never_taken_for_right(segments, rate, delays):
    outcome = Machine(segments, rate=rate, **delays).verdict()
    assert outcome.factor is not None or outcome.note == UNDECIDED


def test_the_polls_keep_step_with_no_load(monkeypatch):
    """A load of the same period as the polls, of which they would else see one phase only."""
    wave = [(0.005, 100), (0.005, 500)]
    assert Machine(wave).verdict().factor is None
    monkeypatch.setattr(counter_check, "_GOLDEN", 0.0)
    monkeypatch.setattr(counter_check, "_POLL_S", 0.02)  # times one half
    assert Machine(wave).verdict().factor is not None
