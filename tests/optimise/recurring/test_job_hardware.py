"""What a job trains on, and whether a cost can be made of it."""

import pytest

from joulewise.errors import UsageError
from joulewise.optimise.recurring.job_hardware import JobHardware, check_cost


@pytest.mark.parametrize(("eta", "power_w"), [(0.0, 300.0), (0.5, 0.0), (1.0, 0.0)])
def test_time_or_energy_has_a_price(eta, power_w):
    check_cost(JobHardware("board", power_w), eta)


def test_time_alone_needs_a_power():
    with pytest.raises(UsageError):
        check_cost(JobHardware("no GPU", 0.0), 0.0)
