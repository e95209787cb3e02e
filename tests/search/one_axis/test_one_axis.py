"""The adaptive search along one control, on a board whose truth is known."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import pytest

from joulewise.data.sweeps import CONFIRMING, POWER_LIMIT, SM_CLOCK, Setting
from joulewise.errors import UsageError
from joulewise.metrics.boundary import View
from joulewise.metrics.metric import parse
from joulewise.search.objective import PosteriorSamples, judge
from joulewise.search.one_axis.adaptive import BUDGET, PAIRS, OneAxisSearch
from tests.helpers.known_boards import LIMITS_W, Board, make_search, objective, run_search


@pytest.mark.parametrize("metric", ["energy", "edp", "eds:2.0"])
def test_search_finds_the_best_setting_and_is_sure(metric):
    board = Board(noise=0.005)
    strategy, trials = run_search(board, metric)
    said = strategy.sure["metrics"][parse(metric).name]
    assert board.loss(said["settings"], metric) <= 0.01
    assert said["sure"]
    assert said["tolerance"] == 0.01
    assert len(trials) == strategy.sure["runs"] <= BUDGET
    assert strategy.left == 0


def test_choosing_the_reference_needs_no_confirming_runs():
    strategy, trials = run_search(Board(), "time")
    said = strategy.sure["metrics"]["time"]
    assert said["is_reference"]
    assert said["sure"]
    assert said["saving"] is said["slowdown"] is None
    assert all(trial.block < CONFIRMING for trial in trials)


def test_choice_respects_the_maximum_slowdown():
    board = Board(noise=0.005)
    said = run_search(board, "slowdown:1.1")[0].sure["metrics"]["slowdown:1.1"]
    slowdown = board.truth(said["settings"][POWER_LIMIT])[0] / board.truth(LIMITS_W[-1])[0]
    assert slowdown <= 1.1 * 1.01
    least, free = (board.truth(limit_w)[1] for limit_w in (said["settings"][POWER_LIMIT], 300.0))
    assert least < 0.9 * free


def test_cost_metric_without_a_power_limit_is_refused():
    with pytest.raises(UsageError, match="highest power limit"):
        run_search(Board(), "cost:0.5")
    board = Board(noise=0.005)
    said = run_search(board, "cost:0.5", max_power_w=300.0)[0].sure["metrics"]["cost:0.5"]
    assert board.loss(said["settings"], "cost:0.5") <= 0.01


def test_several_metrics_share_their_runs():
    board, metrics = Board(noise=0.005), ("energy", "edp", "eds:2.0")
    strategy, trials = run_search(board, *metrics)
    alone = sum(len(run_search(board, metric)[1]) for metric in metrics)
    assert len(trials) < 0.75 * alone
    for metric in metrics:
        said = strategy.sure["metrics"][metric]
        assert board.loss(said["settings"], metric) <= 0.01
        assert said["saving"]["pairs"] == PAIRS


def test_saving_is_computed_from_confirming_pairs_only():
    board = Board(noise=0.02)
    strategy, trials = run_search(board, "energy")
    said = strategy.sure["metrics"]["energy"]
    chosen, reference = Setting.of(said["settings"]), board.settings[-1]
    fresh = {(it.setting, it.block): it for it in trials if it.block >= CONFIRMING}
    assert {setting for setting, _ in fresh} == {chosen, reference}
    energies = {key: trial.energy["gpu"].value for key, trial in fresh.items()}
    blocks = range(CONFIRMING, CONFIRMING + PAIRS)
    ratios = [energies[chosen, block] / energies[reference, block] for block in blocks]
    assert said["saving"]["mean"] == pytest.approx(1 - fmean(ratios), abs=0.002)
    assert said["saving"]["low"] < said["saving"]["mean"] < said["saving"]["high"]
    times = {key: trial.time_s for key, trial in fresh.items()}
    slower = fmean(times[chosen, block] / times[reference, block] for block in blocks)
    assert said["slowdown"]["mean"] == pytest.approx(slower - 1, abs=0.002)


def test_noisy_search_ends_without_being_sure():
    strategy, trials = run_search(Board(noise=0.15), "edp", tolerance=0.01)
    assert len(trials) <= BUDGET
    said = strategy.sure["metrics"]["edp"]
    assert not said["sure"]
    assert said["probability"] < 0.95


def test_number_of_runs_grows_with_uncertainty():
    assert len(run_search(Board(noise=0.002), "energy")[1]) == 7 + 2 * PAIRS
    assert len(run_search(Board(noise=0.15), "edp", tolerance=0.01)[1]) == BUDGET


def test_choice_is_the_most_probable_not_the_best_mean():
    worlds = np.array([[0.0, 0.009, 0.5]] * 97 + [[0.03, 0.0, 0.5]] * 3)
    quiet = np.full(len(worlds), 0.01)
    samples = PosteriorSamples(np.zeros(worlds.shape), np.log1p(worlds), quiet, quiet)
    judged = judge(samples, parse("energy"), reference=2, candidates=range(3), tolerance=0.01)
    assert (judged.chosen, judged.probability) == (1, 1.0)


def test_search_keeps_to_its_budget():
    _, trials = run_search(Board(noise=0.03), "edp", tolerance=0.01, budget=13)
    assert len(trials) == 13


def test_tolerance_is_given_or_follows_from_the_noise():
    assert run_search(Board(noise=0.05), "edp")[0].sure["metrics"]["edp"]["tolerance"] > 0.01
    strategy, _ = run_search(Board(noise=0.05), "edp", tolerance=0.03)
    assert strategy.sure["metrics"]["edp"]["tolerance"] == 0.03


def test_power_of_the_node_favours_faster_settings():
    board = Board(noise=0.005)
    at = {}
    for boundary in ("gpu", "node"):
        strategy, _ = run_search(board, "energy", view=View(boundary, overhead_w=400.0))
        at[boundary] = strategy.sure["metrics"]["energy"]["settings"][POWER_LIMIT]
    assert at["node"] > at["gpu"] + 30


def test_a_limit_that_never_binds_is_known_from_few_runs():
    """Nothing is to be gained: all limits are alike, and the reference stays."""
    board = Board(need_w=90.0, floor_w=20.0, noise=0.03, tells_capped=True)
    strategy, trials = run_search(board, "energy", tolerance=0.005)
    said = strategy.sure["metrics"]["energy"]
    assert said["is_reference"]
    assert said["probability"] == 1.0
    assert len(trials) < 10


def test_clocks_are_searched_too():
    settings = [Setting.of({SM_CLOCK: 100.0 * clock}) for clock in range(5, 16)]
    reference = Setting.of({SM_CLOCK: None})
    board = Board(axis=SM_CLOCK, noise=0.005)
    strategy = OneAxisSearch(settings, reference, objective("edp"))
    while planned := strategy.ask(()):
        strategy.tell(board.run(planned))
    said = strategy.sure["metrics"]["edp"]

    def score(clock_mhz):
        time_s, energy_j = board.truth(clock_mhz)
        return time_s * energy_j

    best = min(score(setting[SM_CLOCK]) for setting in settings)
    assert score(said["settings"][SM_CLOCK]) <= 1.01 * best


def test_a_fine_grid_is_thinned():
    board = Board(limits_w=tuple(float(limit_w) for limit_w in range(100, 301)))
    strategy, trials = run_search(board, "edp")
    assert board.loss(strategy.sure["metrics"]["edp"]["settings"], "edp") <= 0.01
    assert {trial.setting for trial in trials} <= set(board.settings)


@pytest.mark.parametrize(
    ("settings", "about"),
    [
        (
            [{POWER_LIMIT: 150.0, SM_CLOCK: 900.0}, {POWER_LIMIT: 200.0, SM_CLOCK: 990.0}],
            "one axis",
        ),
        ([{"batch_size": "32"}, {"batch_size": "64"}], "one axis"),
    ],
)
def test_other_axes_are_refused(settings, about):
    points = [Setting.of(it) for it in settings]
    with pytest.raises(UsageError, match=about):
        OneAxisSearch(points, points[0], objective("edp"))


def test_invalid_arguments_are_refused():
    points = Board().settings
    with pytest.raises(UsageError, match="too few"):
        make_search(points, "edp", budget=8)
    with pytest.raises(UsageError, match="tolerance"):
        make_search(points, "edp", tolerance=0.0)
    with pytest.raises(UsageError, match="metric"):
        make_search(points)
