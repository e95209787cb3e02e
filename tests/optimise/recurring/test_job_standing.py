"""What is best so far: one value everywhere, by what was paid; and what the policy believes."""

import json
from dataclasses import replace

import pytest

from joulewise.data.jobs import JobHistory, JobPolicyState, TryStatus
from joulewise.metrics.result import Interval
from joulewise.optimise.recurring.job_standing import (
    best_probability,
    find_beliefs,
    find_most_probable,
    find_standing,
    job_json,
    last_gpu_type,
)
from joulewise.report.charts.job import chart_job
from joulewise.report.views.job import facts, job_view
from joulewise.report.views.job_tables import saving_text
from tests.helpers.jobs import GPU_TYPE, JOB, belief, ended_try
from tests.helpers.sample_pages import embedded_data
from tests.optimise.recurring.job_runs import NEW, PYTHON, replaced

# 8 is cheaper by its tries; 16, the default, is so by the belief; 32 was stopped, 64 never tried.
TRIES = (
    ended_try(1, 16, cost=10.0),
    ended_try(2, 8, cost=9.0),
    ended_try(3, 32, TryStatus.STOPPED_EARLY, cost=1.0),
    ended_try(3, 16, number=2, cost=10.0),
)
BELIEFS = tuple(
    replace(belief(value, Interval(10.0, 9.0, 11.0)), probability_best=probability)
    for value, probability in ((8, 0.1), (16, 0.2), (32, 0.3), (64, 0.4))
)
HISTORY = JobHistory(JOB, TRIES)


def test_the_best_so_far_is_by_what_was_paid():
    standing = find_standing(HISTORY)
    assert (standing.best, standing.best_cost, standing.default_cost) == (8, 9.0, 10.0)
    assert standing.tried == (8, 16, 32)
    assert best_probability(standing, BELIEFS) == 0.1


def test_a_saving_is_stated_from_three_tries_of_each_on_with_its_interval():
    def standing(of_best, of_default):
        tries = [ended_try(at, 8, cost=cost) for at, cost in enumerate(of_best, 1)]
        tries += [ended_try(at, 16, cost=cost) for at, cost in enumerate(of_default, 10)]
        return find_standing(JobHistory(JOB, tuple(tries)))

    assert standing([6.0, 7.0], [10.0, 11.0, 12.0]).saving is None
    assert standing([6.0, 7.0, 8.0], [10.0, 11.0]).saving is None
    sure = standing([6.0, 6.5, 7.0], [10.0, 11.0, 12.0])
    assert sure.saving.mean == pytest.approx(1 - 6.5 / 11)
    assert 0 < sure.saving.low < sure.saving.mean < sure.saving.high
    assert saving_text(sure.saving).startswith("41 % less (95 % interval: ")
    noisy = standing([6.0, 9.0, 15.0], [7.0, 11.0, 14.0])
    assert noisy.saving.low < 0 < noisy.saving.high
    assert "6 % less, but within noise, (95 % interval: " in saving_text(noisy.saving)


def test_the_failed_tries_of_a_gpu_type_count_in_what_was_tried_but_in_no_cost():
    failed = ended_try(4, 8, TryStatus.FAILED, cost=1.0)
    assert find_standing(JobHistory(JOB, (*TRIES, failed))).costs == find_standing(HISTORY).costs


class BrokenStore:
    """Its policy is a plug-in that has no beliefs."""

    def policy(self, *_):
        return self

    def beliefs(self):
        raise NotImplementedError


def test_a_policy_without_beliefs_is_one_line():
    state = JobPolicyState(GPU_TYPE, 250.0, 1, {}, 0)
    said = []
    history = replace(HISTORY, definition=replace(JOB, policy="default"), policy_states=(state,))
    assert find_beliefs(BrokenStore(), history, said.append) == {}
    (line,) = said
    assert "NotImplementedError" in line


def test_what_never_reached_the_target_is_not_the_best():
    standing = find_standing(HISTORY)
    assert find_most_probable(standing, BELIEFS).batch_size == 16
    missed = find_standing(JobHistory(JOB, (TRIES[2],)))
    assert (missed.best, missed.saving) == (None, None)
    assert find_most_probable(missed, BELIEFS) is None


def test_what_other_gpu_types_cost_is_left_out():
    elsewhere = replace(ended_try(4, 32, cost=1.0), gpu_type="Tesla T4", key="other")
    at_once = replace(elsewhere, ended_wall_ns=5), replace(TRIES[0], ended_wall_ns=9)
    assert last_gpu_type(JobHistory(JOB, at_once)) == GPU_TYPE  # which was started first
    assert last_gpu_type(JobHistory(JOB, at_once[::-1])) == GPU_TYPE
    history = JobHistory(JOB, (*TRIES, elsewhere))
    assert find_standing(history).best == 32
    assert find_standing(history, GPU_TYPE).best == 8


def test_the_json_and_the_report_name_each_for_what_it_is():
    told = job_json(HISTORY, find_standing(HISTORY), {GPU_TYPE: BELIEFS})
    assert told["best"] == {"batch_size": 8}
    assert told["probability"] == 0.1
    assert told["most_probable"] == {"batch_size": 16}
    assert told["gpu_type"] == GPU_TYPE
    view = job_view(HISTORY, {GPU_TYPE: BELIEFS})
    assert "Best so far, by what was paid: batch_size 8, 9.00 J" in " ".join(facts(view))
    (title,) = [chart.title for chart in chart_job(view) if chart.key == "job-beliefs"]
    assert title.startswith("batch_size 16 costs least with a probability of 20 %")


def test_before_the_target_was_reached_the_report_names_no_best():
    view = job_view(JobHistory(JOB, (TRIES[2],)), {GPU_TYPE: BELIEFS})
    assert "Best so far" not in " ".join(facts(view))
    (title,) = [chart.title for chart in chart_job(view) if chart.key == "job-beliefs"]
    assert "none has reached the target yet" in title


def test_all_verbs_have_the_same_best(job):
    """By the built-in policy, which after one try believes most in a value that was not tried."""
    new = replaced("--policy", "default")
    environ = {"EPOCHS": json.dumps({"8": 1, "16": 3, "32": 1}), "EPOCH_S": "0.2"}
    for words in (new, ()):
        ran = job.run(*words, environ=environ)
        assert ran.returncode == 0
        told = job.told()["policy"]
        (listed,) = json.loads(job.verb("ls", "--json", "-").stdout)["jobs"]
        shown = json.loads(job.verb("show", "nightly", "--json", "-").stdout)
        assert told["best"] == listed["best"] == shown["best"]
        assert told["most_probable"] == shown["most_probable"]
        assert told["explored"] == sorted(
            {one["settings"]["batch_size"] for one in shown["history"]}
        )
        assert told["best"]["batch_size"] in told["explored"]
        assert told["most_probable"]["batch_size"] in told["explored"]
        line = f"best so far: batch_size {told['best']['batch_size']} "
        assert line in ran.stderr
        shown = job.verb("show", "nightly").stdout
        assert line in shown
        assert "Believed on" in shown
    page = job.folder / "job.html"
    assert job.verb("report", "nightly", "-o", str(page)).returncode == 0
    data = embedded_data(page.read_text())["result"]["report"]
    assert data["expected_default_cost"]["source"] == "modelled"  # it was tried once
    assert "costs least with a probability of" in page.read_text()  # the figure of the beliefs


def test_the_energy_of_a_try_is_named_beside_that_of_its_run(job):
    starts = "import time; time.sleep(0.5)\n"
    command = (*PYTHON[:2], starts + PYTHON[2], PYTHON[3])
    environ = {"EPOCHS": json.dumps({"16": 1}), "EPOCH_S": "0.3"}
    ran = job.run(*NEW, command=command, environ=environ)
    (line,) = [line for line in ran.stderr.splitlines() if "try 1:" in line and "reached" in line]
    assert "from the first epoch to the target, of " in line
    (one,) = job.told()["tries"]
    assert one["run_time_s"] > one["time_s"] + 0.5
    assert one["run_energy_j"] > one["energy_j"] > 0
