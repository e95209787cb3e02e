import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.data.sweeps import POWER_LIMIT, SM_CLOCK, WARM_UP, Setting, TrialState
from joulewise.metrics.evaluate import evaluate
from joulewise.metrics.metric import default_metrics, parse
from joulewise.metrics.result import Interval, SweepWarningCode, Verdict
from tests.helpers.sweeps import BOARD, grid, limit, sweep, trial

LIMITS = (150, 200, 250, 300)


def curve(w):
    return 100 + (300 - w) / 5, w * 80.0


def codes(result):
    return {it.code for it in result.warnings}


def test_a_grid_is_told_in_its_order():
    result = evaluate(grid(curve, LIMITS, 300, noise=0.01))
    assert [point.setting for point in result.points] == [limit(w) for w in LIMITS]
    assert [point.n for point in result.points] == [5] * 4
    assert result.reference == result.points[-1]
    assert set(result.best) == {metric.name for metric in default_metrics()}
    assert result.best["energy"].setting == limit(150)
    assert result.best["energy"].verdict is Verdict.BETTER
    assert result.best["time"].setting == limit(300)
    assert result.best["time"].verdict is Verdict.REFERENCE
    assert result.points[0].verdicts["time"] is Verdict.WORSE


def test_what_is_no_whole_run_does_not_enter():
    made = grid(curve, LIMITS, 300)
    odd = trial(limit(150), 9, 1.0, 1.0)
    others = [
        replace(odd, block=5, state=TrialState.FAILED),
        replace(odd, block=6, state=TrialState.STOPPED),
        replace(odd, block=7, state=TrialState.SKIPPED, time_s=None, energy={}),
        replace(odd, block=WARM_UP),
        replace(odd, block=8, look_s=5.0),
        replace(odd, block=9, time_s=None),
    ]
    assert evaluate(replace(made, trials=(*others, *made.trials))) == evaluate(made)


def test_a_run_made_again_counts_once():
    made = grid(curve, LIMITS, 300)
    again = replace(made.trials[0], time_s=500.0)
    result = evaluate(replace(made, trials=(*made.trials, again)))
    assert result.points[0].n == 5
    assert result.points[0].time_s.mean == pytest.approx((4 * 130 + 500) / 5)


def test_a_setting_whose_runs_all_failed_is_there_without_figures():
    made = grid(curve, LIMITS, 300)
    trials = [
        replace(it, state=TrialState.FAILED) if it.setting == limit(150) else it
        for it in made.trials
    ]
    point = evaluate(replace(made, trials=tuple(trials))).points[0]
    assert (point.n, point.time_s, point.energy_j, point.gain_j) == (0, None, None, None)
    assert set(point.scores.values()) == set(point.ratios.values()) == {None}
    assert set(point.verdicts.values()) == {Verdict.UNKNOWN}
    assert not point.pareto


def test_nothing_tried_is_nothing_found():
    result = evaluate(sweep([], limit(300), [limit(w) for w in LIMITS]))
    assert [point.n for point in result.points] == [0] * 4
    assert result.best == {}


def test_without_a_run_of_the_reference_there_are_scores_and_no_choice():
    made = grid(curve, LIMITS, 300)
    made = replace(made, trials=tuple(it for it in made.trials if it.setting != limit(300)))
    result = evaluate(made)
    assert SweepWarningCode.NO_REFERENCE in codes(result)
    assert result.choices == {"gpu": {}, "node": {}, "wall": {}}
    assert result.points[0].scores["edp"].mean == pytest.approx(130 * 12_000)


def test_without_an_energy_of_the_reference_only_its_time_is_compared():
    made = grid(curve, LIMITS, 300)
    trials = [replace(it, energy={}) if it.setting == limit(300) else it for it in made.trials]
    result = evaluate(replace(made, trials=tuple(trials)))
    assert set(result.best) == {"time"}
    assert SweepWarningCode.NO_REFERENCE in codes(result)
    assert SweepWarningCode.NO_ENERGY not in codes(result)


@pytest.mark.parametrize(("capped", "recommended_w"), [(0.0, 300), (0.5, 150), (None, 150)])
def test_a_limit_that_holds_nothing_down_is_not_recommended(capped, recommended_w):
    """Whatever the figures say: by luck one in twenty sweeps of equals has a winner."""
    trials = [
        replace(it, capped=capped if it.setting == limit(150) else capped and 0.0)
        for it in grid(curve, (150, 300), 300).trials
    ]
    result = evaluate(sweep(trials, limit(300)))
    choice = result.best["energy"]
    assert (choice.setting, choice.recommended) == (limit(150), limit(recommended_w))
    assert choice.score.high < 1
    assert choice.verdict is Verdict.BETTER, "as the interval beside it says"
    assert (choice.band is None) == (capped == 0.0)
    assert (SweepWarningCode.CONTRADICTS_CLOCKS in codes(result)) == (capped == 0.0)


def with_clocks(energy_j, lower_mhz, upper_mhz=1500.0, spread=0.001):
    """Five runs each at 250 and 300 W, of which the clocks are known and no throttle reasons."""
    trials = []
    for block in range(5):
        factor = 1 + spread * (block - 2)
        trials.append(trial(limit(300), block, 100.0, 20_000.0, clock_mhz=upper_mhz))
        trials.append(trial(limit(250), block, 100.0, energy_j * factor, clock_mhz=lower_mhz))
    return evaluate(sweep(trials, limit(300)), [parse("energy")])


def test_clocks_that_hardly_differ_do_not_overrule_an_interval():
    result = with_clocks(18_774.0, 1490.0)
    choice = result.best["energy"]
    assert choice.score.high < 0.95
    assert (choice.verdict, choice.recommended) == (Verdict.BETTER, limit(250))
    (caution,) = (it for it in result.warnings if it.code is SweepWarningCode.CONTRADICTS_CLOCKS)
    assert "250 W" in caution.message


def test_clocks_that_hardly_differ_are_the_same_load_where_the_interval_contains_1():
    result = with_clocks(19_990.0, 1490.0, spread=0.01)
    choice = result.best["energy"]
    assert choice.score.low < 1 < choice.score.high
    assert (choice.verdict, choice.recommended) == (Verdict.NOISE, limit(300))
    assert choice.is_same_load
    assert SweepWarningCode.CONTRADICTS_CLOCKS not in codes(result)


def test_a_single_run_under_a_limit_that_holds_nothing_down_is_not_recommended():
    trials = [trial(limit(w), 0, 100.0, 60.0 * w, capped=0.0) for w in (250, 300)]
    choice = evaluate(sweep(trials, limit(300))).best["energy"]
    assert (choice.verdict, choice.recommended) == (Verdict.NOISE, limit(300))


def test_where_nothing_is_known_of_the_reference_the_loads_are_not_the_same():
    trials = [
        trial(limit(w), block, 100.0, 20_000.0 - 10 * (w == 250) * block, capped=capped)
        for block in range(3)
        for w, capped in ((250, 0.0), (300, None))
    ]
    choice = evaluate(sweep(trials, limit(300))).best["energy"]
    assert choice.setting == limit(250)
    assert not choice.is_same_load


def test_what_differs_in_more_than_a_limit_is_judged_by_its_figures():
    """A batch of its own is another load, whether or not a limit does anything to it."""
    trials = [
        trial(limit(w, batch=size), block, 10.0, 500.0 if size == "64" else 1000.0, capped=0.0)
        for block in range(3)
        for w in (200, 300)
        for size in ("32", "64")
    ]
    choice = evaluate(sweep(trials, limit(300, batch="32"))).best["energy"]
    assert choice.verdict is Verdict.BETTER
    assert choice.recommended["batch"] == "64"


def test_what_does_not_differ_by_its_metric_is_not_recommended():
    """Its energy does differ, by far: it is the product with the time that does not."""
    trials = []
    for block, factor in enumerate((0.985, 1.0, 1.015)):
        trials.append(trial(limit(300), block, 10.0, 1000.0))
        trials.append(trial(limit(200), block, 11.2, 890.0 * factor))
    edp = evaluate(sweep(trials, limit(300)), [parse("edp")]).best["edp"]
    assert edp.setting == limit(200)
    assert (edp.verdict, edp.recommended) == (Verdict.NOISE, limit(300))
    assert edp.energy.high < 1


def test_a_reference_outside_the_grid_comes_first():
    made = grid(curve, (150, 200, 300), 300)
    result = evaluate(replace(made, settings=(limit(150), limit(200))))
    assert [point.setting for point in result.points] == [limit(300), limit(150), limit(200)]


def test_single_runs_are_ranked_and_not_judged():
    result = evaluate(grid(curve, LIMITS, 300, blocks=1))
    choice = result.best["energy"]
    assert SweepWarningCode.FEW_RUNS in codes(result)
    assert choice.verdict is Verdict.UNKNOWN
    assert choice.energy == Interval(pytest.approx(0.5), None, None)


def test_the_gain_of_the_board_is_told_beside_the_interval():
    point = evaluate(grid(curve, LIMITS, 300)).points[0]
    assert point.gain_j == pytest.approx(0.05 * 12_000)
    assert point.energy_j == Interval(*[pytest.approx(12_000)] * 3)


def test_joules_saved_bear_the_gain():
    saved = evaluate(grid(curve, LIMITS, 300)).best["energy"].saved_j
    assert saved == Interval(
        pytest.approx(12_000), pytest.approx(12_000 * 0.95), pytest.approx(12_000 * 1.05)
    )


def test_batch_and_limit_and_clock_at_once():
    trials = [
        trial(
            Setting.of({POWER_LIMIT: w, SM_CLOCK: clock, "batch_size": size}),
            block,
            100.0 + (300 - w) / 10 + (clock is not None) * 5 + int(size) / 10,
            w * 90.0 + (clock is None) * 1000 - int(size) * 10,
        )
        for block in range(3)
        for w in (200.0, 300.0)
        for clock in (None, 900.0)
        for size in ("32", "64")
    ]
    reference = Setting.of({POWER_LIMIT: 300.0, SM_CLOCK: None, "batch_size": "32"})
    result = evaluate(sweep(trials, reference))
    cheapest = Setting.of({POWER_LIMIT: 200.0, SM_CLOCK: 900.0, "batch_size": "64"})
    assert len(result.points) == 8
    assert result.best["energy"].setting == cheapest
    assert result.best["time"].setting == reference
    assert {point.setting for point in result.points if point.pareto} >= {reference, cheapest}
    assert len(result.fits) == 4 * 3


def test_boards_in_parallel_are_compared_each_with_itself():
    gains = {"a": 1.0, "b": 1.1}
    trials = [
        trial(limit(w), block, 10.0, w * gain, gpu=board)
        for block, (board, gain) in enumerate(gains.items())
        for w in LIMITS
    ]
    point = evaluate(sweep(trials, limit(300))).points[0]
    assert point.energy_ratio == Interval(*[pytest.approx(0.5)] * 3)


def test_several_gpus_raise_the_highest_power():
    made = grid(lambda w: (10.0, 0.0 * w + 1.0), LIMITS, 300, gpu=f"{BOARD},GPU-2")
    cost = evaluate(made, [parse("cost:0")]).points[0].scores["cost:0.0"]
    assert cost.mean == 2 * 300 * 10


def test_a_run_without_energy_still_has_a_time():
    made = grid(curve, LIMITS, 300, noise=0.01)
    trials = [
        replace(it, energy={}) if it.block == 2 and it.setting != limit(300) else it
        for it in made.trials
    ]
    result = evaluate(replace(made, trials=tuple(trials)))
    point = result.points[0]
    assert (point.n, point.time_s.mean) == (5, evaluate(made).points[0].time_s.mean)
    assert point.energy_j.mean == pytest.approx(12_000, rel=0.02)
    for choice in result.best.values():
        assert choice.energy.low <= choice.energy.mean <= choice.energy.high


def edge(made):
    return next(it for it in evaluate(made).warnings if it.code is SweepWarningCode.EDGE_OF_RANGE)


def test_a_winner_at_the_lowest_limit_tried_may_not_be_the_end():
    made = grid(curve, LIMITS, 300)
    assert "--power-limit 100:150:5" in edge(made).hint
    assert "allows no lower one" in edge(replace(made, limits_w=(150.0, 300.0, 300.0))).hint


def test_what_a_board_allows_is_not_claimed_where_the_board_is_not_known():
    made = grid(curve, LIMITS, 300)
    tried = replace(made, limits_w=(150.0, 300.0, 300.0), is_table=True)
    for unknown in (replace(made, limits_w=None), tried):
        assert "allows no lower one" not in edge(unknown).hint
        assert "where the board allows" in edge(unknown).hint


def test_a_lead_within_noise_is_no_reason_to_try_lower():
    made = grid(lambda w: (100.0, 1000.0 - (w == 150)), LIMITS, 300, noise=0.05, seed=0)
    result = evaluate(made, [parse("energy")])
    assert result.best["energy"].setting == limit(150)
    assert result.best["energy"].verdict is Verdict.NOISE
    assert SweepWarningCode.EDGE_OF_RANGE not in codes(result)


def drifting(change):
    trials = [
        trial(limit(w), block, 100.0, w * (1 + change * block / 4), start_wall_ns=1 + block)
        for block in range(5)
        for w in LIMITS
    ]
    return codes(evaluate(sweep(trials, limit(300))))


def test_drift_of_the_reference_is_told():
    assert SweepWarningCode.DRIFT in drifting(0.05)
    assert SweepWarningCode.DRIFT in drifting(-0.05)
    assert SweepWarningCode.DRIFT not in drifting(0.005)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 999), st.floats(0.01, 100), st.randoms(use_true_random=False))
def test_neither_units_nor_the_order_of_trials_matter(seed, scale, shuffler):
    made = grid(curve, LIMITS, 300, noise=0.02, seed=seed)
    trials = list(
        grid(lambda w: np.array(curve(w)) * scale, LIMITS, 300, noise=0.02, seed=seed).trials
    )
    shuffler.shuffle(trials)
    one = evaluate(made)
    two = evaluate(sweep(trials, limit(300), made.settings, (100.0, 300.0, 300.0)))
    assert {name: it.setting for name, it in one.best.items()} == {
        name: it.setting for name, it in two.best.items()
    }
    for before, after in zip(one.points, two.points, strict=True):
        assert after.verdicts == before.verdicts
        assert after.pareto == before.pareto
        assert after.energy_ratio.high == pytest.approx(before.energy_ratio.high)


def test_the_package_itself_is_light():
    script = (
        "import sys, joulewise.metrics, joulewise.metrics.metric, joulewise.metrics.result\n"
        "assert not {'numpy', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
