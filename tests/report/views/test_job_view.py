"""What is shown of a recurring job, against figures computed by hand."""

import math
from dataclasses import replace
from statistics import fmean, stdev

import numpy as np
import pytest
from scipy.stats import t as student_t

from joulewise.data.jobs import JobHistory, TryStatus
from joulewise.metrics.result import Interval
from joulewise.optimise.recurring.job_saving import (
    CostSource,
    default_cost,
    find_saving,
    mean_cost,
    recurrence_costs,
)
from joulewise.report.views.job import finding, job_view, notes, view_json
from joulewise.report.views.job_tables import (
    account_table,
    interval_less,
    recurrences_table,
    tries_table,
)
from tests.helpers.jobs import GPU_TYPE, JOB, belief, ended_try

# The default, 16, thrice; then a try of 8 is stopped early, and another one reaches the target.
TRIES = (
    ended_try(1, 16, cost=10.0, energy_j=30.0, time_s=1.0),
    ended_try(2, 16, cost=12.0, energy_j=36.0, time_s=2.0),
    ended_try(3, 16, cost=14.0, energy_j=42.0, time_s=3.0),
    ended_try(4, 8, TryStatus.STOPPED_EARLY, cost=5.0, energy_j=15.0, time_s=0.5),
    ended_try(4, 8, number=2, cost=3.0, energy_j=9.0, time_s=0.5),
)


def view_of(*tries, beliefs=()):
    return job_view(JobHistory(JOB, tries), {GPU_TYPE: tuple(beliefs)})


def test_a_recurrence_costs_what_all_of_its_tries_cost():
    view = view_of(*TRIES)
    assert [one.cost for one in view.recurrences] == [10.0, 12.0, 14.0, 8.0]
    assert [len(one.tries) for one in view.recurrences] == [1, 1, 1, 2]
    assert view.running_mean("cost") == [10.0, 11.0, 12.0, 11.0]
    assert view.running_mean("energy_j") == [30.0, 33.0, 36.0, 33.0]
    assert view.running_mean("time_s") == [1.0, 1.5, 2.0, 1.75]


def test_the_saving_is_against_the_measured_default_with_welchs_interval():
    saving = view_of(*TRIES).saving
    paid, default = [10.0, 12.0, 14.0, 8.0], [10.0, 12.0, 14.0]
    assert saving.default.source is CostSource.MEASURED
    assert saving.default.cost.mean == pytest.approx(12.0)
    assert saving.share.mean == pytest.approx(1 - 11 / 12)
    of_paid, of_default = ((stdev(one) / fmean(one)) ** 2 / len(one) for one in (paid, default))
    dof = (of_paid + of_default) ** 2 / (of_paid**2 / 3 + of_default**2 / 2)
    half = student_t.ppf(0.975, dof) * math.sqrt(of_paid + of_default)
    assert saving.share.low == pytest.approx(1 - 11 / 12 * math.exp(half), rel=1e-3)
    assert saving.share.high == pytest.approx(1 - 11 / 12 * math.exp(-half), rel=1e-3)
    assert "8 % less than at the default, batch_size 16, but" in finding(view_of(*TRIES))


def test_a_recurrence_that_misses_the_target_is_paid_for_all_the_same():
    """Its cost is shared by those that reach it: 36 J for three, where four were paid for."""
    missed = ended_try(4, 8, TryStatus.MISSED, cost=6.0)
    view = view_of(*TRIES[:3], missed)
    assert view.saving.paid.mean == pytest.approx((10 + 12 + 14 + 6) / 3)
    assert view.saving.share.mean == pytest.approx(1 - 14 / 12)
    assert mean_cost([5.0], [False]) is None


@pytest.mark.parametrize(
    ("status", "cost"),
    [
        (TryStatus.RUNNING, None),
        (TryStatus.EXPIRED, None),
        (TryStatus.FAILED, 1.0),
        (TryStatus.CRASHED, None),
    ],
)
def test_what_is_not_known_or_no_result_of_the_choice_counts_in_no_mean(status, cost):
    view = view_of(*TRIES, ended_try(5, 8, status, cost=cost))
    assert not view.recurrences[-1].counts
    assert view.recurrences[-1].cost == cost
    assert view.saving == view_of(*TRIES).saving
    assert view.running_mean("cost")[-1] == 11.0
    assert any(text.startswith("Left out of all means: 1 recurrence ") for text in notes(view))


def test_there_is_one_cost_of_the_default_also_where_it_missed_the_target():
    missed = ended_try(5, 16, TryStatus.MISSED, cost=20.0, energy_j=60.0, time_s=6.0)
    view = view_of(*TRIES, missed)
    assert view.saving.default.cost.mean == pytest.approx((10 + 12 + 14 + 20) / 3)
    assert view.default_mean("cost") == pytest.approx(view.saving.default.cost.mean)
    assert view.default_mean("energy_j") == pytest.approx((30 + 36 + 42 + 60) / 3)
    assert account_table(view).rows[1][0] == "at the default, 4 tries"


def test_a_default_that_was_tried_too_seldom_is_modelled_by_the_policy():
    seldom = [replace(one, settings=TRIES[3].settings) for one in TRIES[:2]]
    tries = (TRIES[0], *(replace(one, recurrence=at) for at, one in enumerate(seldom, 2)))
    default = belief(16, Interval(20.0, 16.0, 25.0))
    view = view_of(*tries, beliefs=[belief(8, Interval(9.0, 8.0, 10.0)), default])
    assert view.saving.default.source is CostSource.MODELLED
    assert view.saving.default.interval == default.cost
    assert view.saving.share.mean == pytest.approx(1 - fmean([10, 10, 12]) / 20)
    assert view.saving.default.cost.error == pytest.approx(math.log(25 / 16) / (2 * 1.959964))
    assert any("modelled" in text and "only 1 of" in text for text in notes(view))
    assert ("at the default, modelled", "20.0 J", None, None) in account_table(view).rows
    assert view_json(view)["expected_default_cost"]["source"] == "modelled"


def test_a_default_that_was_stopped_early_is_no_measurement():
    stopped = ended_try(5, 16, TryStatus.STOPPED_EARLY, cost=50.0)
    tries = (*TRIES, stopped, ended_try(5, 8, number=2, cost=3.0))
    assert default_cost(JobHistory(JOB, tries), GPU_TYPE, ()) is None
    view = view_of(*tries, beliefs=[belief(16, Interval(20.0, 16.0, 25.0))])
    assert view.saving.default.source is CostSource.MODELLED
    assert any("stopped early" in text for text in notes(view))


@pytest.mark.parametrize(
    ("tries", "reason"),
    [
        (TRIES[:2], "2 recurrences are too few to state a saving"),
        (TRIES[:1], "1 recurrence is too few to state a saving"),
        (
            tuple(ended_try(at, 8, cost=3.0) for at in range(1, 5)),
            "what the default costs is not known: it was tried too seldom",
        ),
        (
            (ended_try(1, 8, TryStatus.MISSED, cost=3.0),),
            "no recurrence has reached the target yet",
        ),
    ],
)
def test_too_little_has_a_reason_in_place_of_a_number(tries, reason):
    view = view_of(*tries)
    assert view.saving.share is None
    assert reason in finding(view)
    assert view_json(view)["saving_so_far"] is None
    assert view_json(view)["no_saving_because"] == reason


def test_a_job_that_never_ran_says_so():
    assert finding(view_of()) == "No recurrence of job nightly has ended yet"


def test_other_gpu_types_are_in_no_figure():
    elsewhere = replace(ended_try(1, 16, cost=999.0), gpu_type="Tesla T4", key="other")
    view = view_of(elsewhere, *TRIES)
    assert view.gpu_type == GPU_TYPE
    assert view.saving == view_of(*TRIES).saving
    assert any("1 of 6 tries were on other GPU types" in text for text in notes(view))


def test_the_points_of_the_plane_are_means_of_the_tries_that_reached_the_target():
    small, default = view_of(*TRIES).points
    assert (small.n, small.time_s, small.energy_j) == (1, Interval(0.5), Interval(9.0))
    half = student_t.ppf(0.975, 2) * 1.0 / math.sqrt(3)
    assert default.n == 3
    assert default.time_s.mean == pytest.approx(2.0)
    assert default.time_s.high == pytest.approx(2.0 + half, rel=1e-3)
    assert default.energy_j.mean == pytest.approx(36.0)
    assert (small.pareto, default.pareto) == (True, False)


def test_two_values_of_which_neither_is_better_in_both_are_on_the_front():
    view = view_of(
        ended_try(1, 8, cost=1.0, energy_j=10.0, time_s=4.0),
        ended_try(2, 16, cost=1.0, energy_j=20.0, time_s=2.0),
        ended_try(3, 32, cost=1.0, energy_j=21.0, time_s=5.0),
    )
    assert [point.pareto for point in view.points] == [True, True, False]


def test_tables_have_every_recurrence_and_try():
    view = view_of(*TRIES)
    assert recurrences_table(view).rows[-1][1:5] == ("2", "8, 8", "reached", "8.00 J")
    table = tries_table(view)
    assert [record["outcome"] for record in table.records][-2:] == ["stopped early", "reached"]
    assert sum(record["cost_j"] for record in table.records) == pytest.approx(44.0)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (Interval(0.3, 0.12, 0.45), "12 to 45 % less"),
        (Interval(0.3, -0.3, 0.45), "30 % more to 45 % less"),
        (Interval(-0.3, -0.5, -0.1), "10 to 50 % more"),
    ],
)
def test_the_ends_of_a_saving_are_read_in_words(share, text):
    assert interval_less(share) == text


def test_the_interval_of_the_saving_holds_the_truth_nineteen_times_in_twenty():
    """Epochs are log-normal; so are costs. 6 of 25 recurrences are at the default."""
    random, spread, hits, jobs = np.random.default_rng(7), 0.3, 0, 400
    truth = 1 - (6 * 100 + 19 * 60) / (25 * 100)
    for _ in range(jobs):
        costs = np.exp(random.normal(-(spread**2) / 2, spread, 25)) * ([100] * 6 + [60] * 19)
        history = JobHistory(
            JOB,
            tuple(
                ended_try(at + 1, 16 if at < 6 else 8, cost=float(cost))
                for at, cost in enumerate(costs)
            ),
        )
        saving = find_saving(
            recurrence_costs(history, GPU_TYPE), default_cost(history, GPU_TYPE, ())
        )
        hits += saving.share.low <= truth <= saving.share.high
    # The shared tries make it wider than needed; 0.93 is 2 standard errors below 0.95.
    assert 0.93 <= hits / jobs <= 0.995
