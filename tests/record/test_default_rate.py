"""How often devices are read where the user does not say."""

import pytest

from joulewise.data import Unavailable
from joulewise.record.channels import default_rate_hz
from joulewise.record.inventory import take_inventory
from joulewise.testing.toy_device import ToyClock, ToyDevice


class WithoutBuffer(ToyDevice):
    def samples(self, *_):
        return Unavailable("no buffer")


@pytest.mark.parametrize(
    ("devices", "rate_hz"),
    [
        ([ToyDevice], 10),
        ([ToyDevice] * 2, 10),
        ([ToyDevice] * 4, 5),
        ([ToyDevice] * 8, 2.5),
        ([ToyDevice] * 16, 2.5),
        ([WithoutBuffer], 10),
        ([ToyDevice] * 8 + [WithoutBuffer], 10),  # one must be polled for its power's course
        ([], 10),
    ],
)
def test_drivers_that_keep_samples_spare_readings_where_there_are_many_gpus(devices, rate_hz):
    entries = take_inventory([device(ToyClock()) for device in devices], {})
    assert default_rate_hz(entries) == rate_hz
