"""What a run has drawn so far, with its error."""

from array import array

import pytest

from joulewise.data import Card, DeviceInfo, Kind, Source
from joulewise.record.manifest import RecordedDevice
from joulewise.record.rows import Batch
from joulewise.record.tally import Tally
from joulewise.session.meters import energy_so_far

S = 1_000_000_000
DEVICE = RecordedDevice(
    DeviceInfo("gpu0", Kind.GPU, "a board", "uid", "nvidia"),
    sources={"energy_j": Source.MEASURED, "power_w": Source.MODELLED},
    card=Card(gain_sigma=0.1),
)


def tallied(times_s, values, since_s=0):
    tally = Tally(since_s * S)
    times = array("q", [t * S for t in times_s])
    tally.add(Batch(("t_ns", "energy_j"), (times, array("d", values))))
    return tally


def test_the_edges_may_be_off_by_a_reading_and_the_gain_by_its_own():
    energy = energy_so_far(tallied([0, 1, 2, 3, 4], [0, 10, 20, 30, 40]), DEVICE)
    assert energy.value == 40
    assert energy.error_sampling == pytest.approx(10)  # one second of four
    assert energy.error_gain == pytest.approx(1.96 * 0.1 * 40)
    assert energy.source is Source.MEASURED


def test_within_one_reading_all_is_in_doubt():
    energy = energy_so_far(tallied([0, 2], [0, 30], since_s=1), DEVICE)
    assert energy.error_sampling == pytest.approx(30)


def test_what_could_not_be_read_is_none():
    assert energy_so_far(tallied([0], [5]), DEVICE) is None
    assert energy_so_far(None, DEVICE) is None
