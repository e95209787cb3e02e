import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from joulewise.metrics.intervals import means, ratios, student
from joulewise.metrics.metric import parse
from joulewise.metrics.result import Interval, Verdict
from tests.helpers.sweeps import table

ENERGY, TIME, EDP, EDS = map(parse, ("energy", "time", "edp", "eds:2.0"))
NOISE = 0.01


def energies(rows, **others):
    return table(np.ones_like(np.asarray(rows, float)), rows, **others)


def test_a_mean_has_students_interval():
    values = np.array([[10.0, 11.0, 9.0, 10.5, 9.7]])
    low, high = stats.t.interval(0.95, 4, values.mean(), stats.sem(values[0]))
    found = means(values).interval(0)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_one_run_has_no_interval_and_none_has_no_mean():
    found = means(np.array([[3.0, np.nan], [np.nan, np.nan]]))
    assert found.interval(0) == Interval(3.0, None, None)
    assert found.interval(1) is None
    assert found.n.tolist() == [1, 0]


def test_a_spread_below_what_the_meter_can_tell_is_the_meters():
    same = means(np.array([[100.0, 100.0]]), np.array([[6.0, 8.0]]))
    assert same.half[0] == pytest.approx(5.0)  # (6² + 8²)^½ over two runs
    apart = means(np.array([[100.0, 200.0]]), np.array([[6.0, 8.0]]))
    assert apart.half[0] > 100


def test_what_a_block_has_in_common_is_not_in_a_paired_ratio():
    drift = np.array([1.0, 1.3, 0.8, 1.1])
    found = ratios(ENERGY, energies([100 * drift, 90 * drift]), "gpu")
    assert found.interval(1) == Interval(*[pytest.approx(0.9)] * 3)
    assert found.verdict(1) is Verdict.BETTER


def test_the_gain_of_a_board_cancels():
    gains = np.array([1.0, 1.0, 1.08, 1.08])
    found = ratios(ENERGY, energies([100 * gains, 95 * gains], boards=[0, 0, 1, 1]), "gpu")
    assert found.interval(1) == Interval(*[pytest.approx(0.95)] * 3)


def test_without_its_own_reference_a_run_is_compared_with_its_boards():
    reference = [100.0, 104.0, 200.0, np.nan]
    other = [np.nan, np.nan, 180.0, 180.0]
    found = ratios(ENERGY, energies([reference, other], boards=[0, 0, 1, 1]), "gpu")
    assert np.exp(found.log[1, 3]) == pytest.approx(0.9)


def test_without_a_reference_on_its_board_a_run_is_compared_with_all():
    found = ratios(ENERGY, energies([[100.0, 100.0, np.nan], [90.0, 92.0, 80.0]]), "gpu")
    elsewhere = energies([[100.0, 100.0, np.nan], [90.0, 92.0, 80.0]], boards=[0, 0, 1])
    assert ratios(ENERGY, elsewhere, "gpu").log[1].tolist() == found.log[1].tolist()


def test_one_reference_for_all_is_no_ground_for_an_interval():
    lone = energies([[100.0, np.nan, np.nan], [np.nan, 90.0, 91.0]])
    assert ratios(ENERGY, lone, "gpu").interval(1).low is None


def test_the_meter_decides_where_one_run_cannot():
    rows = [[100.0], [99.9], [80.0]]
    found = ratios(ENERGY, energies(rows, error=0.01), "gpu")
    assert found.verdict(1) is Verdict.NOISE
    assert found.verdict(2) is Verdict.UNKNOWN
    assert found.interval(2).low is None


def test_the_meters_error_enters_as_far_as_the_metric_feels_it():
    rows = np.full((2, 5), 100.0)
    whole, half, none = (
        ratios(metric, energies(rows, error=0.02), "gpu").means.half[1]
        for metric in (EDP, EDS, TIME)
    )
    assert whole == pytest.approx(np.sqrt(2) * np.log(1.02) / np.sqrt(5))
    assert half == pytest.approx(whole / 2, rel=0.01)
    assert none == 0


def test_the_reference_is_itself():
    found = ratios(EDP, energies([[100.0, 110.0], [90.0, 95.0]], error=0.05), "gpu")
    assert found.interval(0) == Interval(1.0, 1.0, 1.0)


def test_a_setting_that_is_too_slow_on_average_is_ruled_out():
    time_s = [[100.0, 100.0], [109.0, 110.5], [111.0, 111.0]]
    found = ratios(parse("slowdown:1.1"), table(time_s, np.full((3, 2), 50.0)), "gpu")
    assert found.ruled_out.tolist() == [False, False, True]
    assert found.interval(2) == Interval(np.inf)
    assert found.verdict(2) is Verdict.WORSE


SOME = st.lists(st.floats(0.5, 2.0), min_size=6, max_size=6)


@given(SOME, SOME, st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_ratios_do_not_know_units(reference, other, per_second, per_joule):
    time_s = np.array([reference[:3], other[:3]])
    energy_j = np.array([reference[3:], other[3:]])
    for metric in (ENERGY, TIME, EDP, EDS):
        one = ratios(metric, table(time_s, energy_j), "gpu")
        two = ratios(metric, table(time_s * per_second, energy_j * per_joule), "gpu")
        assert two.means.mean == pytest.approx(one.means.mean, abs=1e-9)
        assert two.means.half == pytest.approx(one.means.half, rel=1e-6, abs=1e-9)


@given(SOME, SOME)
def test_who_is_the_reference_does_not_change_who_is_better(one, other):
    rows = np.array([one, other])
    ahead = ratios(ENERGY, energies(rows), "gpu").verdict(1)
    behind = ratios(ENERGY, energies(rows, reference=1), "gpu").verdict(0)
    swapped = {Verdict.BETTER: Verdict.WORSE, Verdict.WORSE: Verdict.BETTER}
    assert behind is swapped.get(ahead, ahead)


def holds_the_truth(blocks, missing=0, tries=2500):
    rng = np.random.default_rng(5)
    inside = 0
    for _ in range(tries):
        drift = rng.normal(0, 3 * NOISE, blocks) * (not missing)
        rows = np.exp(drift + rng.normal(0, NOISE, (2, blocks))) * [[100.0], [90.0]]
        rows[0, :missing] = np.nan
        found = ratios(ENERGY, energies(rows), "gpu").interval(1)
        inside += found.low <= 0.9 <= found.high
    return inside / tries


def test_paired_intervals_of_five_hold_the_truth_19_times_in_20():
    assert 0.93 <= holds_the_truth(5) <= 0.97


@pytest.mark.parametrize("missing", [1, 3])
def test_so_they_do_where_references_are_missing(missing):
    assert 0.93 <= holds_the_truth(5, missing) <= 0.99


def test_a_percentile_bootstrap_of_five_would_not():
    rng = np.random.default_rng(6)
    runs = rng.normal(0, 1, (2000, 5))
    drawn = rng.integers(0, 5, (1000, 5))
    low, high = np.percentile(runs[:, drawn].mean(axis=2), [2.5, 97.5], axis=1)
    assert 0.80 <= ((low <= 0) & (high >= 0)).mean() <= 0.86


def test_students_factors():
    assert student(np.array([1, 4, 1000])) == pytest.approx([12.706, 2.776, 1.962], abs=1e-3)
    assert np.isnan(student(0))
