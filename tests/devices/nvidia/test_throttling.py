import pytest

from joulewise.devices.nvidia.throttling import Binding, judge_limit

IDLE, FREE, CAPPED = 0x1, 0x0, 0x4


@pytest.mark.parametrize(
    ("reasons", "mean_w", "expected"),
    [
        ([FREE] * 10, 120, Binding.NEVER),
        ([FREE] * 9 + [CAPPED], 149, None),
        ([CAPPED] * 10, 149, None),
        ([CAPPED] * 10, 190, Binding.BELOW_FLOOR),
        ([CAPPED] * 10, 155, None),
        ([CAPPED] * 8 + [FREE] * 2, 190, None),
        ([CAPPED] * 10, None, None),
        ([FREE] * 4, 120, None),
        ([IDLE] * 50 + [FREE] * 4, 60, None),
        ([IDLE | CAPPED] * 50 + [FREE] * 5, 60, Binding.NEVER),
        ([], None, None),
    ],
)
def test_a_limit_binds_or_not(reasons, mean_w, expected):
    assert judge_limit(150, reasons, mean_w) is expected
