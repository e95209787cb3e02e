"""What the fresh pairs state, and how far all runs of a search say that it can be trusted."""

from __future__ import annotations

import math
import random
from statistics import fmean

import pytest

from joulewise.data.devices import Source
from joulewise.data.energy import Energy
from joulewise.data.sweeps import CONFIRMING, POWER_LIMIT, Setting, Trial, TrialState
from joulewise.metrics.boundary import View
from joulewise.search.confirmation import confirm
from joulewise.search.objective import trial_key

CHOSEN, OTHER, REFERENCE = (Setting.of({POWER_LIMIT: limit_w}) for limit_w in (150.0, 200.0, 300.0))
LEVELS = {CHOSEN: 0.8, OTHER: 0.9, REFERENCE: 1.0}


def made(setting, block, off=0.0, *, gpu="0", look_s=None):
    energy = Energy(1000 * LEVELS[setting] * math.exp(off), 0.0, 0.0, Source.MEASURED)
    return Trial(
        setting,
        block,
        TrialState.DONE,
        gpu=gpu,
        time_s=100 / LEVELS[setting],
        energy={"gpu": energy},
        look_s=look_s,
    )


def stated(*trials):
    return confirm(CHOSEN, REFERENCE, {trial_key(trial): trial for trial in trials}, View())


def searched(draw_off):
    """Runs as a search makes them: the reference and the choice more than once, others once."""
    explored = [REFERENCE, OTHER, CHOSEN, REFERENCE, CHOSEN, OTHER, REFERENCE]
    pairs = [(CONFIRMING + pair, it) for pair in range(2) for it in (CHOSEN, REFERENCE)]
    return [made(it, block, draw_off(it)) for block, it in [*enumerate(explored), *pairs]]


def test_interval_has_the_mean_of_pairs_and_the_width_of_all_runs():
    offs = (0.03, -0.03, 0.03, -0.03)
    explored = [made(REFERENCE, block, off) for block, off in enumerate(offs)]
    pairs = [made(it, CONFIRMING + pair) for pair in range(2) for it in (CHOSEN, REFERENCE)]
    said = stated(*explored, *pairs)["saving"]
    assert said["mean"] == pytest.approx(0.2)
    variance = 4 * 0.03**2 / (8 - 2)
    half = 2.4469 * math.sqrt(2 * variance / 2)  # Student's, with 6 degrees of freedom
    assert said["low"] == pytest.approx(1 - 0.8 * math.exp(half), rel=1e-4)
    assert said["high"] == pytest.approx(1 - 0.8 * math.exp(-half), rel=1e-4)


@pytest.mark.parametrize(
    "kind", ["alike", "heavy-tailed", "larger at low limits", "larger at high limits"]
)
def test_interval_has_its_nominal_coverage(kind):
    draw = random.Random(1)

    def off(setting):
        size = 0.03
        if kind == "heavy-tailed":  # Student's, with 3 degrees of freedom
            size *= math.sqrt(1 / fmean(draw.gauss(0, 1) ** 2 for _ in range(3)))
        elif kind == "larger at low limits":
            size *= 2 if setting == CHOSEN else 1
        elif kind == "larger at high limits":
            size *= 2 if setting == REFERENCE else 1
        return draw.gauss(0, size)

    said = [stated(*searched(off))["saving"] for _ in range(400)]
    share = fmean(it["low"] <= 0.2 <= it["high"] for it in said)
    assert 0.925 <= share <= 0.985


def test_difference_between_boards_is_not_noise():
    apart = {"0": 0.0, "1": 0.3}
    pairs = [
        made(it, CONFIRMING + number, off, gpu=gpu)
        for number, (gpu, off) in enumerate(apart.items())
        for it in (CHOSEN, REFERENCE)
    ]
    explored = [
        made(REFERENCE, block, off, gpu=gpu) for block, (gpu, off) in enumerate(apart.items())
    ]
    said = stated(*pairs, *explored)["saving"]
    assert said["high"] - said["low"] < 1e-6


def test_probes_do_not_count_in_the_residual_variance():
    pairs = [made(it, CONFIRMING + pair) for pair in range(2) for it in (CHOSEN, REFERENCE)]
    looks = [made(REFERENCE, block, 0.5 * block, look_s=10.0) for block in range(4)]
    assert stated(*pairs, *looks) == stated(*pairs)


def test_one_pair_alone_has_no_interval():
    said = stated(made(CHOSEN, CONFIRMING), made(REFERENCE, CONFIRMING))
    assert said["saving"] == {"mean": pytest.approx(0.2), "low": None, "high": None, "pairs": 1}
    assert stated(made(REFERENCE, 0))["saving"] is None
