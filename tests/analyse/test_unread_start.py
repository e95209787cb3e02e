"""A run whose GPU slept or was lost at first: its first reading says nothing of that time."""

import pytest

from joulewise.analyse.run_result import analyse
from joulewise.data import Unavailable, WarningCode
from tests.helpers.run_directories import PID, START, MadeRun, S, device


def test_a_gpu_that_woke_late_has_a_warning_and_no_joules_for_its_sleep(tmp_path):
    made = MadeRun(tmp_path / "run", lead_s=-6.0)  # the first row comes six seconds in
    made.fast(
        device("gpu0", awake_ns=START + 6 * S, asleep_ns=START + 6 * S),
        lambda t: 60 + (0.1 if t % 0.04 < 0.02 else 0),
    )
    made.processes("gpu0", (6, [(PID, "python", True)])).spans(("epoch", 0, 1, 5))
    result = analyse(made.write())
    assert result.run.total.value == pytest.approx(4 * 60 + 6 * 2.5, abs=2)
    assert result.run.total.error_sampling == pytest.approx(15, abs=2)
    assert result.spans[0].total.value == pytest.approx(10)
    (warning,) = result.warnings
    assert (warning.code, warning.device) == (WarningCode.GAP, "gpu0")
    assert warning.message == "it slept for the first 6.0 s, for which 0 to 5 W are assumed"


def lost_until(tmp_path, seconds, *, ours=True):
    made = MadeRun(tmp_path / "run", lead_s=-seconds)
    lost = device("gpu0", awake_ns=START + seconds * S, unavailable=Unavailable("NVML error 999"))
    made.fast(lost, lambda t: 200 + (0.1 if t % 0.04 < 0.02 else 0))
    return analyse(made.processes("gpu0", (seconds, [(PID, "python", ours)])).write())


def test_a_gpu_that_did_not_answer_at_first_is_not_taken_for_asleep(tmp_path):
    result = lost_until(tmp_path, 4)
    assert result.run.total.value == pytest.approx(6 * 200 + 4 * 150, abs=5)
    assert result.run.total.error_sampling == pytest.approx(600, abs=5)
    (warning,) = result.warnings
    assert (warning.code, warning.device) == (WarningCode.GAP, "gpu0")
    assert warning.message == (
        "it was not read for 4.0 s at first (NVML error 999); 0 to 300 W are assumed"
    )


def test_one_that_was_lost_for_the_most_part_has_a_lower_bound_and_says_why(tmp_path):
    result = lost_until(tmp_path, 6)
    assert result.run.devices["gpu0"].energy == result.run.total
    assert result.run.total.at_least
    assert 0 < result.run.total.value < lost_until(tmp_path / "less", 1).run.total.value
    warnings = [each for each in result.warnings if each.device == "gpu0"]
    assert WarningCode.UNAVAILABLE in [each.code for each in warnings]
    assert "NVML error 999" in warnings[0].message


def test_a_gpu_outside_the_total_has_the_warning_too(tmp_path):
    result = lost_until(tmp_path, 4, ours=False)
    assert result.counted == ()
    assert WarningCode.GAP in [each.code for each in result.warnings if each.device == "gpu0"]
