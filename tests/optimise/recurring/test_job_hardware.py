"""What a job trains on, and whether a cost can be made of it."""

import pytest

from joulewise.errors import UsageError
from joulewise.optimise.recurring.job_hardware import JobHardware, _of_gpus, check_cost
from joulewise.session.gpu_discovery import DiscoveredGpu


@pytest.mark.parametrize(("eta", "power_w"), [(0.0, 300.0), (0.5, 0.0), (1.0, 0.0)])
def test_time_or_energy_has_a_price(eta, power_w):
    check_cost(JobHardware("board", power_w), eta)


def test_time_alone_needs_a_power():
    with pytest.raises(UsageError):
        check_cost(JobHardware("no GPU", 0.0), 0.0)


def board(key, limit_w):
    return DiscoveredGpu(key, key, visible=True, default_w=limit_w, highest_w=limit_w or 0.0,
                         name="board")  # fmt: skip


def test_time_has_less_weight_where_only_some_gpus_have_a_power_limit():
    assert _of_gpus([board("gpu0", 300.0), board("gpu1", 300.0)]).note == ""
    mixed = _of_gpus([board("gpu0", 300.0), board("gpu1", None)])
    assert mixed.max_power_w == 300.0
    assert "1 of 2 GPUs has no power limit" in mixed.note
    assert "no weight" not in mixed.note
    assert "time has no weight" in _of_gpus([board("gpu0", None)]).note
