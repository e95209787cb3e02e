"""The posterior of the curves goes through what was seen, and is unsure elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from joulewise.optimise.live import TuningCandidate
from joulewise.optimise.live.policy.posterior import SAMPLES, CurvePosterior, StepMeans
from joulewise.optimise.live.policy.response_model import Positions
from tests.optimise.live.policy.training_curves import TRAININGS, Training, limits

CANDIDATES = limits()
TRUTH = np.log([Training().truth(each) for each in CANDIDATES]).T


def means(at, run=0, sigma=0.002, level=0.0):
    at = np.array(at)
    variance = np.full(len(at), sigma**2)
    log_time, log_energy = TRUTH[:, at] + level
    return StepMeans(at, np.full(len(at), run), log_time, log_energy, variance, variance)


def posterior(runs=1):
    return CurvePosterior(Positions.of(CANDIDATES), runs, np.random.default_rng(3))


def test_samples_go_through_what_was_seen():
    samples = posterior().fit(means([0, 18, 40])).samples
    for values, truth in zip((samples.log_time, samples.log_energy), TRUTH, strict=True):
        off = values - truth
        assert abs(off[:, [0, 18, 40]].mean(axis=0)).max() < 0.002
        assert off[:, [0, 18, 40]].std(axis=0) == pytest.approx([0.002] * 3, rel=0.5)
        assert off[:, 9].std() > 0.004  # between them, it is less sure


def test_more_looks_make_it_surer():
    few, many = (posterior().fit(means(at)).samples for at in ([0, 40], [0, 8, 16, 24, 32, 40]))
    assert many.log_energy.std(axis=0).mean() < 0.5 * few.log_energy.std(axis=0).mean()


def test_earlier_runs_tell_the_shape_and_not_the_level():
    own, earlier = means([40]), means(range(0, 41, 4), run=1, level=0.7)
    alone = posterior(2).fit(own).samples
    taught = posterior(2).fit(own.concatenate(earlier)).samples
    off = taught.log_energy - TRUTH[1]
    assert abs(off.mean(axis=0)).max() < 0.02
    assert off.std(axis=0)[10] < 0.3 * alone.log_energy.std(axis=0)[10]


def test_the_evidence_is_higher_for_what_fits():
    fitting, jumping = means([0, 18, 40]), means([0, 18, 40])
    jumping.log_time[1] += 0.5
    assert posterior().log_evidence(fitting) > posterior().log_evidence(jumping) + 5


def test_settings_that_lead_to_one_clock_are_alike():
    candidates = [
        TuningCandidate(power_limit_w=limit_w, sm_clock_mhz=clock_mhz)
        for limit_w in (100.0, 200.0, 250.0, 300.0)
        for clock_mhz in (600.0, 900.0, 1200.0, 1500.0)
    ]
    seen = [15, 12, 13, 14, 3]  # all clocks at the highest limit, and the lowest limit
    at = np.array(seen)
    log_time, log_energy = np.log([Training().truth(candidates[i]) for i in seen]).T
    variance = np.full(len(at), 0.002**2)
    means = StepMeans(at, np.zeros_like(at), log_time, log_energy, variance, variance)
    posterior = CurvePosterior(Positions.of(candidates), 1, np.random.default_rng(3))
    posterior.follow_clock(posterior.fit(means).clock)
    samples = posterior.fit(means).samples
    # 600 MHz draws 93 W: no limit changes anything there, though 200 W is far from 300 W.
    difference = samples.log_energy[:, 4] - samples.log_energy[:, 12]
    assert abs(difference.mean()) < 0.005
    assert difference.std() < 0.012


def test_many_looks_leave_many_curves():
    """Were a few of them left, they would claim to be sure of what they cannot know."""
    z = []
    for seed, training in enumerate(TRAININGS):
        truth = np.log([training.truth(each) for each in CANDIDATES]).T
        noise = np.random.default_rng(seed).normal(0, 0.003, (2, 8))
        at = np.arange(0, 40, 5)
        variance = np.full(len(at), 0.003**2)
        seen = StepMeans(at, np.zeros_like(at), *(truth[:, at] + noise), variance, variance)
        fit = posterior().fit(seen)
        assert len(np.unique(fit.samples.log_time, axis=0)) == SAMPLES
        off = fit.samples.log_energy - truth[1]
        z.append(off.mean(axis=0) / off.std(axis=0))
    assert np.sqrt(np.mean(np.square(z))) < 1.5
