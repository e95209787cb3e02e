"""What a try cost, by its run on disk."""

import math
from types import SimpleNamespace

import pytest

from joulewise.analyse.run_result import analyse
from joulewise.data.jobs import JobDefinition, JobTarget, TryStatus
from joulewise.optimise.recurring import try_runner
from joulewise.optimise.recurring.target_progress import TargetProgress
from joulewise.optimise.recurring.try_cost import measure_try
from joulewise.optimise.recurring.try_runner import WatchedRun, run_try
from joulewise.units import NS_PER_S
from tests.helpers.run_directories import MadeRun, device

JOB = JobDefinition("j", "b", (8,), 8, JobTarget("acc", 0.5, is_at_least=True), 3, 0.5, "p", 0)
# Two epochs of 4 s, at 200 W on the GPU and a maximum power of 300 W.
EPOCH_COST = 4 * (0.5 * 200 + 0.5 * 300)


def make_run(folder, until_s=math.inf):
    """A run of 10 s whose GPU was read until ``until_s``."""
    made = MadeRun(folder / "run")
    made.fast(device("gpu0"), lambda _: 200.0, until_s=until_s)
    made.spans(("epoch", 0, 1, 5), ("epoch", 1, 5, 9))
    return made.write()


def measure(run):
    result = analyse(run)
    start_ns = result.run.span.start_ns
    windows_ns = tuple(
        (start_ns + begin * NS_PER_S, start_ns + end * NS_PER_S) for begin, end in ((1, 5), (5, 9))
    )
    progress = TargetProgress(2, 2, windows_ns[-1][1], 2, 0.5, windows_ns, windows_ns[0][0], 2)
    return measure_try(run, result, progress, eta=0.5, max_power_w=300.0)


def test_the_cost_is_that_of_its_epochs(tmp_path):
    cost = measure(make_run(tmp_path))
    assert cost.cost == pytest.approx(2 * EPOCH_COST, rel=0.02)
    assert cost.epoch_cost == pytest.approx(EPOCH_COST, rel=0.02)
    assert cost.run_energy_j == pytest.approx(2000, rel=0.02)
    assert not cost.is_at_least


def test_what_was_read_of_a_gpu_that_was_lost_is_a_lower_bound(tmp_path):
    cost = measure(make_run(tmp_path, until_s=6.0))
    assert cost.is_at_least
    assert cost.run_energy_j is None
    assert cost.epoch_cost == pytest.approx(EPOCH_COST, rel=0.02)  # of the epoch that was read


def test_a_lower_bound_is_no_cost_of_a_try(tmp_path, monkeypatch):
    run, said = make_run(tmp_path, until_s=6.0), []
    ended = SimpleNamespace(exit_status=0, run=run, result=analyse(run))
    watched = WatchedRun(ended, is_asked=False, out_of_memory="")
    monkeypatch.setattr(try_runner, "run_watched", lambda *_, **__: watched)
    settings = SimpleNamespace(max_power_w=300.0, stop_at_target=False, pattern=None,
                               say=said.append)  # fmt: skip
    outcome = run_try(JOB, 8, None, settings, tags=()).outcome
    assert outcome.status is TryStatus.FAILED  # nothing was logged
    assert (outcome.cost, outcome.energy_j, outcome.epoch_cost) == (None, None, None)
    assert outcome.time_s == pytest.approx(10, rel=0.02)
    assert "could not be read throughout" in said[0]
