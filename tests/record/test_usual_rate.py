"""How often devices are read where nobody says."""

import pytest

from joulewise.data import Unavailable
from joulewise.record.lanes import usual_rate_hz
from joulewise.testing.toy import ToyClock, ToyDevice


class WithoutBuffer(ToyDevice):
    def samples(self, *_):
        return Unavailable("no buffer")


@pytest.mark.parametrize(
    ("devices", "rate_hz"),
    [
        ([ToyDevice], 2.5),
        ([ToyDevice, ToyDevice], 2.5),
        ([WithoutBuffer], 10),
        ([ToyDevice, WithoutBuffer], 10),  # one that must be polled for its power's course
        ([], 10),
    ],
)
def test_a_driver_that_keeps_samples_spares_most_of_the_reading(devices, rate_hz):
    assert usual_rate_hz([device(ToyClock()) for device in devices]) == rate_hz
