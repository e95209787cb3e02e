import pytest

from joulewise.data.sweeps import POWER_LIMIT, SM_CLOCK, Setting
from joulewise.metrics.boundary import View
from joulewise.metrics.evaluate import evaluate
from joulewise.metrics.metric import parse
from joulewise.metrics.result import Band
from tests.helpers.sweeps import grid, limit, sweep, trial

EDS = parse("eds:1.5")
LIMITS = range(150, 301, 10)


def curve(w):
    """The lower the limit the less the energy, and the longer it takes, ever more so."""
    gone = (300 - w) / 150
    return 100 * (1 + 0.4 * gone**2), 20_000 * (1 - 0.45 * gone)


def test_a_band_is_where_the_mean_beats_the_reference():
    result = evaluate(grid(curve, LIMITS, 300), [EDS])
    beats = [w for w in LIMITS if EDS.score(*curve(w), reference_of(300)) < 1 - 1e-12]
    assert result.best["eds:1.5"].band == Band(
        POWER_LIMIT, min(beats), max(beats), tuple(map(float, beats))
    )
    assert 150 < min(beats) < max(beats) == 290


def reference_of(w):
    from joulewise.metrics.metric import Reference

    return Reference(*curve(w))


def test_what_is_within_noise_is_in_the_band_and_not_sure():
    band = evaluate(grid(curve, LIMITS, 300, noise=0.02, seed=4), [EDS]).best["eds:1.5"].band
    inside = [w for w in LIMITS if band.low <= w <= band.high]
    assert band.sure
    assert set(band.sure) < set(inside)


def test_a_band_ends_where_a_limit_does_not_beat():
    joules = {150: 90, 200: 105, 250: 80, 300: 100}
    band = evaluate(grid(lambda w: (10, joules[w]), joules, 300)).best["energy"].band
    assert (band.low, band.high) == (250, 250)


def test_a_limit_that_failed_does_not_end_it():
    joules = {150: 90, 250: 80, 300: 100}
    made = grid(lambda w: (10, joules[w]), joules, 300)
    made = sweep(made.trials, limit(300), [limit(w) for w in (150, 200, 250, 300)])
    band = evaluate(made).best["energy"].band
    assert (band.low, band.high) == (150, 250)


def test_where_the_reference_is_best_there_is_none():
    assert evaluate(grid(lambda w: (10, 400 - w), LIMITS, 300)).best["energy"].band is None


def test_a_band_has_the_winners_other_settings():
    trials = [
        trial(limit(w, batch_size=size), block, 10.0, joules)
        for block in range(2)
        for (w, size), joules in {
            (200, "32"): 120.0,
            (300, "32"): 100.0,
            (200, "64"): 70.0,
            (250, "64"): 80.0,
            (300, "64"): 105.0,
        }.items()
    ]
    choice = evaluate(sweep(trials, limit(300, batch_size="32"))).best["energy"]
    assert choice.setting == limit(200, batch_size="64")
    assert (choice.band.low, choice.band.high) == (200, 250)


def test_of_clocks_there_are_bands_too():
    def clock(mhz):
        return Setting.of({SM_CLOCK: mhz})

    trials = [
        trial(clock(mhz), block, 10.0, joules)
        for block in range(2)
        for mhz, joules in ((None, 100.0), (800.0, 110.0), (1000.0, 80.0), (1200.0, 90.0))
    ]
    band = evaluate(sweep(trials, clock(None))).best["energy"].band
    assert band == Band(SM_CLOCK, 1000.0, 1200.0, (1000.0, 1200.0))


@pytest.mark.parametrize("boundary", ["gpu", "node", "wall"])
def test_every_boundary_has_its_bands(boundary):
    result = evaluate(grid(curve, LIMITS, 300), [EDS], View(boundary))
    widths = {
        name: found["eds:1.5"].band.high - found["eds:1.5"].band.low
        for name, found in result.choices.items()
    }
    assert widths["gpu"] > widths["node"] == widths["wall"]
