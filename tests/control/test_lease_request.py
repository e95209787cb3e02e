"""What a lease is asked for: what cannot be meant is refused in the caller's words."""

import pytest

from joulewise import control
from joulewise.control.lease import check_devices, check_settings
from joulewise.data import ControlKind
from joulewise.errors import UsageError
from tests.helpers.failing_gpus import Board


@pytest.mark.parametrize("value", ["70%", "150", True, float("nan"), float("inf"), [150]])
def test_a_setting_is_a_number(value):
    with pytest.raises(UsageError, match=r"power_limit_w must be a number") as refused:
        control.lease("gpu0", power_limit_w=value)
    assert refused.value.hint == "give a number of watts"
    with pytest.raises(UsageError, match="give a number of MHz"):
        control.lease("gpu0", sm_clock_mhz=value)


@pytest.mark.parametrize("device", [None, True, 1.5, ["gpu0", None], [b"gpu0"]])
def test_a_device_is_named_or_given(device):
    with pytest.raises(UsageError, match="is not a device"):
        control.lease(device, power_limit_w=150)


def test_nothing_is_no_lease():
    with pytest.raises(UsageError, match="a lease needs a setting"):
        control.lease("gpu0")
    with pytest.raises(UsageError, match="a lease needs a device"):
        control.lease([], power_limit_w=150)


def test_devices_by_key_by_number_and_themselves():
    board = Board()
    assert check_devices("gpu0") == ["gpu0"]
    assert check_devices(0) == ["gpu0"]
    assert check_devices(board) == [board]
    assert check_devices(range(2)) == ["gpu0", "gpu1"]
    assert check_devices(("GPU-1", 3, board)) == ["GPU-1", "gpu3", board]


def test_settings_that_are_given():
    given = {ControlKind.POWER_LIMIT: 150, ControlKind.SM_CLOCK: None}
    assert check_settings(given) == {ControlKind.POWER_LIMIT: 150.0}
