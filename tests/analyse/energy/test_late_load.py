"""A load that begins later than its mark says, as it does where a program waits for a CPU.

``late_load.json`` has the counter (seconds, joules), the driver's samples (seconds, watts) and the
spans (start, end, joules that the board has drawn in them) of a simulated RTX 6000 on a machine
whose CPUs were all busy. Between two bursts there is a pause of 50 ms, and the second began 60 ms
after its mark. No counter was reset.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from joulewise.analyse.energy.windows import energy_of, window_energy
from tests.helpers.ideal_sensors import Sensor, device, lane, ns

RECORDED = json.loads(Path(__file__).with_name("late_load.json").read_text())
LATE_S = 17.81


@pytest.fixture(scope="module")
def measured():
    board = device(Sensor(0.1, 0.1), maximum_w=260.0, lag_s=None, counter_period_s=None)
    (poll_s, count_j), (sample_s, power_w), (start_s, end_s, truth_j) = (
        np.array(RECORDED[name]).T for name in ("polls", "samples", "spans")
    )
    fast = lane({"t_ns": ns(poll_s), "energy_j": count_j})
    buffer = lane({"t_ns": ns(sample_s), "power_w": power_w})
    found = window_energy(board, fast, buffer, ns(np.column_stack([start_s, end_s])))
    return found, [energy_of(found, row, board) for row in range(len(truth_j))]


def test_a_load_that_begins_late_is_no_reset_of_the_counter(measured):
    assert not measured[0].counter_broken.any()


def test_spans_around_it_are_within_their_error_of_the_truth(measured):
    around = [
        (truth_j, energy)
        for (start_s, end_s, truth_j), energy in zip(RECORDED["spans"], measured[1], strict=True)
        if start_s - 1e-3 <= LATE_S <= end_s + 0.1
    ]
    assert len(around) >= 3
    for truth_j, energy in around:
        assert energy.value == pytest.approx(truth_j, abs=energy.error_sampling)
