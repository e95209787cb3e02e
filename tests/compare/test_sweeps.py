"""Two sweeps, setting by setting and by what each metric chooses."""

import pytest

from joulewise.compare.judgement import CompareOutcome
from joulewise.compare.runs import CompareWarningCode
from joulewise.compare.sweeps import compare_sweeps, range_of
from joulewise.data import Energy, Source
from joulewise.metrics.boundary import View
from joulewise.metrics.metric import parse
from tests.helpers.sweeps import grid, limit, sweep, trial


def curve(w):
    return 100 + (300 - w) / 3, w * 90.0


def faster(w):
    time_s, energy_j = curve(w)
    return 0.8 * time_s, 0.9 * energy_j


LIMITS = range(150, 301, 50)


def test_every_setting_of_both():
    found = compare_sweeps(grid(curve, LIMITS, 300, noise=0.005), grid(faster, LIMITS, 300))
    assert [it.setting for it in found.settings] == [limit(w) for w in LIMITS]
    for it in found.settings:
        assert it.get("energy").ratio.mean == pytest.approx(0.9, rel=0.02)
        assert it.get("time").ratio.mean == pytest.approx(0.8, rel=0.02)
        assert it.get("edp").ratio.mean == pytest.approx(0.72, rel=0.02)
        assert it.get("energy").verdict is CompareOutcome.LESS
        assert it.get("energy").n == (5, 5)
    assert (found.only_a, found.only_b) == ((), ())
    span = range_of(found, "energy")
    assert span.low <= span.mean <= span.high < 1


def test_the_ratio_of_sweeps_is_the_reverse_of_the_other_way_round():
    a, b = grid(curve, LIMITS, 300, noise=0.01), grid(faster, LIMITS, 300, noise=0.01, seed=1)
    one, other = compare_sweeps(a, b), compare_sweeps(b, a)
    for here, there in zip(one.settings, other.settings, strict=True):
        for quantity in ("energy", "time", "power", "edp"):
            mine, theirs = here.get(quantity).ratio, there.get(quantity).ratio
            assert mine.mean == pytest.approx(1 / theirs.mean)
            assert mine.low == pytest.approx(1 / theirs.high)


def test_settings_of_one_only_are_told():
    found = compare_sweeps(grid(curve, (150, 300), 300), grid(curve, (200, 300), 300))
    assert [it.setting for it in found.settings] == [limit(300)]
    assert (found.only_a, found.only_b) == ((limit(150),), (limit(200),))


def test_no_setting_in_common_is_told_and_the_choices_remain():
    found = compare_sweeps(grid(curve, (150, 250), 250), grid(curve, (200, 300), 300))
    assert found.settings == ()
    assert "the sweeps have no setting in common" in [it.message for it in found.warnings]
    assert [it.metric for it in found.choices]


def test_what_each_metric_chooses():
    found = compare_sweeps(
        grid(curve, LIMITS, 300),
        grid(lambda w: (100 + (300 - w), 27_000 - w), LIMITS, 300),
        [parse("energy"), parse("time")],
    )
    by_metric = {it.metric: it for it in found.choices}
    assert by_metric["energy"].a.setting == limit(150)
    assert by_metric["energy"].b.setting == limit(300)
    assert by_metric["energy"].energy.ratio.mean == pytest.approx(26_700 / 13_500)
    assert by_metric["time"].time.ratio.mean == pytest.approx(1)


def test_another_board_brings_its_gain():
    here = grid(curve, LIMITS, 300)
    there = grid(faster, LIMITS, 300, gpu="GPU-2")
    same = compare_sweeps(here, grid(faster, LIMITS, 300)).settings[0].get("energy")
    moved = compare_sweeps(here, there).settings[0].get("energy")
    assert same.ratio.high - same.ratio.low < 1e-6
    assert moved.ratio.high / moved.ratio.mean == pytest.approx(1.0733, rel=1e-3)


def test_energies_of_different_things_are_not_compared():
    rest = Energy(5000.0, 0.0, 0.0, Source.MODELLED)

    def node(with_rest):
        trials = [trial(limit(w), block, 100.0, 20_000.0) for w in (150, 300) for block in range(2)]
        if with_rest:
            trials = [
                trial(it.setting, it.block, 100.0, None, energy={**it.energy, "rest": rest})
                for it in trials
            ]
        return sweep(trials, limit(300))

    found = compare_sweeps(node(True), node(False), view=View("node"))
    assert found.settings[0].get("energy").verdict is CompareOutcome.NOT_COMPARABLE
    assert found.settings[0].get("time").verdict is CompareOutcome.NOISE
    assert CompareWarningCode.NOT_COMPARABLE in [it.code for it in found.warnings]


def test_other_work_and_another_gpu_are_pointed_out():
    a = sweep([trial(limit(300), 0, 1.0, 1.0)], limit(300), gpu_name="V100")
    b = sweep([trial(limit(300), 0, 1.0, 1.0)], limit(300), gpu_name="A100")
    codes = [it.code for it in compare_sweeps(a, b).warnings]
    assert CompareWarningCode.DIFFERENT_DEVICES in codes
    assert CompareWarningCode.SINGLE_RUNS in codes
