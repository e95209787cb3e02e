import math

import numpy as np
import pytest

from joulewise.data.sweeps import POWER_LIMIT, SM_CLOCK, Setting
from joulewise.search.many_axes.gaussian_process import GaussianProcessPosterior, Observation
from joulewise.search.many_axes.grid import ClockModel, SearchGrid
from tests.helpers.search_surfaces import REFERENCE, SETTINGS, setting

WHERE = np.linspace(0, 1, 8)[:, None]


def time_s(at):
    return 100 * math.exp(0.3 * (1 - WHERE[at, 0]) ** 2)


def seen(at, factor=1.0, block=0, *, variant=0, board="0", is_probe=False):
    return Observation(
        at, variant, block, board, is_probe, math.log(factor * time_s(at)), math.log(200)
    )


def ratio(runs, one, other):
    posterior = GaussianProcessPosterior.fit(runs, WHERE, (0,))
    expected = np.exp(posterior.time.mean(WHERE[[one, other]]))
    return expected[0] / expected[1]


def test_drift_between_blocks_is_corrected():
    slower = [1.0, 1.02, 0.985, 1.015]
    runs = [
        seen(at, factor, block)
        for block, factor in enumerate(slower)
        for at in (7, 2 * block, (3 * block + 1) % 7)
    ]
    assert ratio(runs, 4, 2) == pytest.approx(time_s(4) / time_s(2), rel=0.005)


def test_slower_board_is_not_mistaken_for_a_slower_setting():
    runs = [seen(at, block=at) for at in (0, 3, 7)]
    runs += [seen(at, 1.1, block=at + 10, board="slow") for at in (2, 5, 7)]
    assert ratio(runs, 2, 0) == pytest.approx(time_s(2) / time_s(0), rel=0.01)


def test_probes_predict_the_ratios_of_whole_runs():
    runs = [seen(7), *(seen(at, 0.8, is_probe=True) for at in (0, 2, 4, 6, 7))]
    assert ratio(runs, 2, 7) == pytest.approx(time_s(2) / time_s(7), rel=0.01)


def test_posterior_is_wider_away_from_observations():
    samples = GaussianProcessPosterior.fit([seen(at) for at in (0, 1, 2)], WHERE, (0,)).sample(
        WHERE, 0
    )
    spread = (samples.log_time - samples.log_time[:, [0]]).std(axis=0)
    assert spread[7] > 5 * spread[1]
    assert samples.log_time.shape == samples.log_power.shape == (200, 8)


def test_search_grid_contains_the_reference_and_variant_bases():
    grid = SearchGrid.of(SETTINGS, REFERENCE)
    assert [axis.name for axis in grid.axes] == [*REFERENCE]
    assert grid.axes[1].values[-1] is None  # an unlocked clock is the highest
    assert grid.coordinates.min() == 0
    assert grid.coordinates.max() == 1
    bases = [grid.points[at] for at in grid.bases]
    assert {it["batch_size"]: it for it in bases} == {
        "32": REFERENCE,
        "64": setting(300.0, 1500.0, "64"),
        "128": setting(300.0, 1500.0, "128"),
    }


def test_nearest_allowed_point():
    grid = SearchGrid.of(SETTINGS, REFERENCE)
    wanted = grid.steps[grid.reference] - (1, 0, 0)
    at = grid.nearest(wanted.tolist(), range(len(SETTINGS)))
    assert grid.points[at] == setting(275.0, 1500.0)


def test_unordered_values_are_equally_far_apart():
    settings = [Setting.of({POWER_LIMIT: 200.0, "kind": word}) for word in ("a", "b", "c")]
    grid = SearchGrid.of(settings, settings[0])
    assert [axis.name for axis in grid.axes] == ["kind"]
    assert not grid.axes[0].ordered
    apart = {
        round(float(np.linalg.norm(one - other)), 6)
        for at, one in enumerate(grid.coordinates)
        for other in grid.coordinates[:at]
    }
    assert len(apart) == 1
    assert not grid.has_controls


def folded(grid):
    """Seconds and watts of a training that goes with the clock alone, whatever holds it."""
    clocks = np.array(
        [min(it[SM_CLOCK] or 1530.0, 5.1 * it[POWER_LIMIT]) / 1530 for it in grid.points]
    )
    return 100 * (0.4 + 0.6 / clocks), 60 + 200 * clocks**2.5


def test_clock_model_predicts_limit_and_lock_together():
    """Looks at either alone tell what both come to together, where nobody looked."""
    points = [setting(p, c) for p in range(150, 301, 10) for c in range(900, 1501, 50)]
    grid = SearchGrid.of(points, REFERENCE)
    time, power = folded(grid)
    alone = [
        at
        for at, it in enumerate(grid.points)
        if at == grid.reference or it[POWER_LIMIT] == 300 or it[SM_CLOCK] == 1500
    ]
    runs = [
        Observation(at, 0, 0, "0", False, math.log(time[at]), math.log(power[at])) for at in alone
    ]

    def off(clock):
        posterior = GaussianProcessPosterior.fit(runs, grid.coordinates, grid.columns, clock)
        return np.abs(np.exp(posterior.time.mean(posterior.coordinates)) / time - 1).max()

    assert off(ClockModel.of(grid)) < 0.02
    assert off(None) > 0.04


def test_clock_model_needs_both_axes():
    limits = [Setting.of({POWER_LIMIT: p, "batch_size": "32"}) for p in (150.0, 200.0, 300.0)]
    assert ClockModel.of(SearchGrid.of(limits, limits[-1])) is None
    batches = ClockModel.of(SearchGrid.of(SETTINGS, REFERENCE))
    assert batches.columns == (0, 1, 2, 3)
    assert batches.coordinates(batches.prior[0]).shape == (len(SETTINGS) + 1, 4)
