"""A run whose GPU slept at first: it is not read then, and its first reading says nothing of it."""

import pytest
from made_run import PID, START, MadeRun, S, device

from joulewise.analyse.run import analyse
from joulewise.data import Caution


def test_a_gpu_that_woke_late_is_told_of_and_gets_no_joules_for_its_sleep(tmp_path):
    made = MadeRun(tmp_path / "run", lead_s=-6.0)  # the first row comes six seconds in
    made.fast(
        device("gpu0", awake_ns=START + 6 * S), lambda t: 60 + (0.1 if t % 0.04 < 0.02 else 0)
    )
    made.processes("gpu0", (6, [(PID, "python", True)])).spans(("epoch", 0, 1, 5))
    result = analyse(made.write())
    assert result.run.total.value == pytest.approx(4 * 60 + 6 * 2.5, abs=2)
    assert result.run.total.error_sampling == pytest.approx(15, abs=2)
    assert result.spans[0].total.value == pytest.approx(10)
    (warning,) = result.warnings
    assert (warning.code, warning.device) == (Caution.GAP, "gpu0")
    assert warning.message == "it slept for the first 6.0 s, for which 0 to 5 W are assumed"
