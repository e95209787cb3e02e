"""What a run has drawn so far, with its error."""

import math
from array import array
from dataclasses import replace

import pytest

from joulewise.budget import BudgetWatch, parse_budget
from joulewise.data import DeviceInfo, Kind, SensorProfile, Source
from joulewise.record.statistics import RunningTotal
from joulewise.session.recording import energy_so_far, estimate_draw
from joulewise.store.arrow_stream import Batch
from joulewise.store.manifest import RecordedDevice

S = 1_000_000_000
DEVICE = RecordedDevice(
    DeviceInfo("gpu0", Kind.GPU, "a board", "uid", "nvidia"),
    sources={"energy_j": Source.MEASURED, "power_w": Source.MODELLED},
    card=SensorProfile(gain_sigma=0.1),
)


def summed(times_s, values, since_s=0):
    running_total = RunningTotal(since_s * S)
    times = array("q", [t * S for t in times_s])
    running_total.add(Batch(("t_ns", "energy_j"), (times, array("d", values))))
    return running_total


def test_the_edges_may_be_off_by_a_reading_and_the_gain_by_its_own():
    energy = energy_so_far(summed([0, 1, 2, 3, 4], [0, 10, 20, 30, 40]), DEVICE)
    assert energy.value == 40
    assert energy.error_sampling == pytest.approx(10)  # one second of four
    assert energy.error_gain == pytest.approx(1.96 * 0.1 * 40)
    assert energy.source is Source.MEASURED


def test_within_one_reading_all_is_in_doubt():
    energy = energy_so_far(summed([0, 2], [0, 30], since_s=1), DEVICE)
    assert energy.error_sampling == pytest.approx(30)


def test_what_could_not_be_read_is_none():
    assert energy_so_far(summed([0], [5]), DEVICE) is None
    assert energy_so_far(None, DEVICE) is None


UNREAD = replace(DEVICE, info=replace(DEVICE.info, key="gpu1"))


def drawn_beside_an_unread_device(now_s, unread=UNREAD):
    """gpu0 draws 10 W; gpu1 was asked once a second, and never answered."""
    times_s = range(now_s + 1)
    running_totals = {
        "gpu0": summed(times_s, [10.0 * t for t in times_s]),
        "gpu1": summed(times_s, [math.nan] * len(times_s)),
    }
    return estimate_draw(running_totals, [DEVICE, unread], ("gpu0", "gpu1"), now_s * S)


def test_what_a_device_will_tell_first_is_not_known_in_its_first_seconds():
    assert drawn_beside_an_unread_device(1).most_w == math.inf


def test_a_device_that_never_answers_does_not_keep_a_budget_busy():
    draw = drawn_beside_an_unread_device(60)
    assert draw.energy_j == pytest.approx(600)
    watch = BudgetWatch([parse_budget("100MWh")])
    assert watch.seconds_left(draw.energy_j, draw.most_w) > 1e6


@pytest.mark.parametrize("now_s", [1, 60])
def test_a_device_that_does_not_answer_may_draw_its_maximum(now_s):
    draw = drawn_beside_an_unread_device(now_s, replace(UNREAD, maximum_w=300.0))
    assert draw.most_w == pytest.approx(100 + 300)
