import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.metrics import evaluate
from joulewise.metrics.intervals import ratios
from joulewise.metrics.metric import parse
from tests.helpers.sweeps import table

TIME, ENERGY = parse("time"), parse("energy")


def front(time_s, energy_j, **others):
    made = table(time_s, energy_j, **others)
    return evaluate.front(ratios(TIME, made, "gpu"), ratios(ENERGY, made, "gpu")).tolist()


def column(*values):
    return np.array(values, float)[:, None]


def test_single_runs_make_the_plain_front():
    assert front(column(10, 12, 15, 14), column(100, 80, 60, 90)) == [True, True, True, False]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=12))
def test_of_exact_figures_it_is_who_nobody_beats_in_both(pairs):
    expected = [not any(t < time and e < energy for t, e in pairs) for time, energy in pairs]
    times, energies = zip(*pairs, strict=True)
    assert front(column(*times), column(*energies)) == expected


def test_within_noise_nobody_is_beaten():
    rng = np.random.default_rng(1)
    noise = np.exp(rng.normal(0, 0.03, (2, 3, 5)))
    time_s = np.array([[100.0], [100.5], [101.0]]) * noise[0]
    energy_j = np.array([[50.0], [50.1], [50.2]]) * noise[1]
    assert front(time_s, energy_j) == [True] * 3
    assert front(time_s.mean(axis=1)[:, None], energy_j.mean(axis=1)[:, None]) != [True] * 3


def test_what_blocks_have_in_common_hides_no_difference():
    drift = np.array([1.0, 1.4, 0.7, 1.2, 0.9])
    time_s, energy_j = np.outer([100, 103], drift), np.outer([50, 52], drift)
    assert front(time_s, energy_j) == [True, False]


def test_a_noisy_reference_hides_no_difference_between_others():
    drift, noise = np.array([1.0, 1.4, 0.7, 1.2]), np.array([1.0, 0.9, 1.2, 1.1])
    time_s, energy_j = np.outer([50, 100, 103], drift), np.outer([90, 50, 52], drift)
    assert front(time_s, energy_j) == [True, True, False]
    time_s[0] *= noise
    energy_j[0] *= noise
    assert front(time_s, energy_j) == [True, True, False]


def test_better_in_one_is_not_better_in_both():
    assert front(np.full((2, 3), 10.0), [[50.0] * 3, [60.0] * 3]) == [True, True]


def test_a_difference_within_the_meters_error_beats_nobody():
    time_s, energy_j = column(10, 11), column(100, 101)
    assert front(time_s, energy_j) == [True, False]
    assert front(time_s, energy_j, error=0.05) == [True, True]


def test_settings_that_share_no_block_are_compared_by_the_reference():
    nan = np.nan
    time_s = np.array([[10.0, 10.1, 9.9, 10.0], [12, 12.1, nan, nan], [nan, nan, 15, 15.1]])
    energy_j = np.array([[100.0, 101, 99, 100], [80, 80.5, nan, nan], [nan, nan, 95, 95.5]])
    assert front(time_s, energy_j) == [True, True, False]


def test_a_setting_without_runs_is_not_on_it():
    assert front([[10.0, 10], [np.nan] * 2], [[50.0, 50], [np.nan] * 2]) == [True, False]


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100), st.floats(0.01, 100))
def test_units_do_not_matter(seed, per_second, per_joule):
    rng = np.random.default_rng(seed)
    time_s, energy_j = rng.uniform(1, 1.2, (2, 6, 4))
    assert front(time_s, energy_j) == front(time_s * per_second, energy_j * per_joule)


def test_many_settings_are_compared_in_pieces(monkeypatch):
    rng = np.random.default_rng(2)
    time_s, energy_j = rng.uniform(1, 2, (2, 40, 1))
    whole = front(time_s, energy_j)
    monkeypatch.setattr(evaluate, "_MAX_COMPARED", 7 * 40)
    assert front(time_s, energy_j) == whole
    assert not all(whole)
