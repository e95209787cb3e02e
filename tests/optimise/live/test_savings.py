"""The saving that is stated holds the true one, whatever drifts, and says how well it is known."""

import math
from dataclasses import replace

import live_prove
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.optimise.live.savings import (
    PairedBlock,
    SavingProof,
    compare_logged,
    estimate_saving,
)

LOG_ENERGY, LOG_TIME = math.log(0.76), math.log(1.1)


def make_blocks(
    count, *, noise=0.0, gain=1.0, trend=0.0, heat=0.0, heat_s=45.0, block_s=8.0, seed=0, order=None
):
    """Blocks in the order of the proof, with drift (a share in 100 s) and heat (see savings)."""
    random = np.random.default_rng(seed)
    t_s, power_w, blocks = 0.0, {False: 260.0, True: 190.0}, []
    heat_w = power_w[True]
    for place in range(count):
        is_choice = (order or SavingProof.is_choice)(place)
        own_w = power_w[is_choice]
        length = block_s / heat_s
        mean_w = own_w + (heat_w - own_w) * -math.expm1(-length) / length
        heat_w = own_w + (heat_w - own_w) * math.exp(-length)
        drift = trend * t_s / 100 + heat * (mean_w / own_w - 1)
        log_j = math.log(gain * 30.0) + LOG_ENERGY * is_choice + drift
        log_s = math.log(0.115) + LOG_TIME * is_choice + trend * t_s / 100
        noises = random.normal(size=2) * noise
        block = PairedBlock(
            t_s, t_s + block_s, is_choice, math.exp(log_s + noises[0]), math.exp(log_j + noises[1])
        )
        blocks.append(block)
        t_s += block_s + 0.7
    return blocks


def test_the_order_is_abba():
    assert [SavingProof.is_choice(place) for place in range(8)] == [False, True, True, False] * 2


def test_what_draws_besides_counts_for_as_long_as_a_step_takes():
    """The dearer the time, the less a slower setting saves."""
    blocks = [replace(one, overhead_w=400.0) for one in make_blocks(48, heat=0.02, noise=0.001)]
    time_s, energy_j = 0.115, 30.0
    before_j = energy_j + 400.0 * time_s
    after_j = energy_j * math.exp(LOG_ENERGY) + 400.0 * time_s * math.exp(LOG_TIME)
    estimate = estimate_saving(blocks)
    wanted = math.log(after_j / before_j)
    assert estimate.log_energy == pytest.approx(wanted, abs=estimate.log_energy_half)
    assert estimate.log_energy_half < 0.2 * abs(wanted - LOG_ENERGY)


@pytest.mark.parametrize("trend", [-0.05, 0.0, 0.05])
def test_drift_cancels(trend):
    steady, drifting = (
        estimate_saving(make_blocks(24, trend=each, noise=0.001)) for each in (0.0, trend)
    )
    assert drifting.log_time == pytest.approx(steady.log_time, abs=1e-6)
    assert drifting.log_time == pytest.approx(LOG_TIME, abs=drifting.log_time_half)
    assert drifting.log_energy == pytest.approx(LOG_ENERGY, abs=drifting.log_energy_half)


@given(st.floats(0.5, 2.0))
@settings(max_examples=10, deadline=None)
def test_the_gain_of_the_sensor_cancels(gain):
    one, other = (estimate_saving(make_blocks(12, noise=0.002, gain=g)) for g in (1.0, gain))
    assert other.log_energy == pytest.approx(one.log_energy, abs=1e-6)
    assert other.log_energy_half == pytest.approx(one.log_energy_half, rel=1e-3)


@pytest.mark.parametrize("heat", [0.0, 0.02, 0.04])
@pytest.mark.parametrize("heat_s", [25.0, 45.0, 80.0])
def test_heat_of_any_board_is_within_the_interval(heat, heat_s):
    blocks = make_blocks(24, heat=heat, heat_s=heat_s, noise=0.001)
    estimate = estimate_saving(blocks)
    assert abs(estimate.log_energy - LOG_ENERGY) <= estimate.log_energy_half


def test_heat_is_learned_from_many_blocks():
    wide, narrow = (
        estimate_saving(make_blocks(count, heat=0.035, noise=0.0005)) for count in (12, 120)
    )
    assert narrow.log_energy_half < 0.6 * wide.log_energy_half
    assert abs(narrow.log_energy - LOG_ENERGY) <= narrow.log_energy_half


def test_few_blocks_give_a_wide_interval():
    few, more = (estimate_saving(make_blocks(count, noise=0.01)) for count in (4, 16))
    assert few.log_energy_half > 3 * more.log_energy_half
    assert few.pairs == 2


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_too_few_blocks_give_none(count):
    assert estimate_saving(make_blocks(count)) is None


def test_blocks_of_one_setting_give_none():
    assert estimate_saving(make_blocks(9, order=lambda _: True)) is None


def test_a_stalled_block_moves_nothing():
    blocks = make_blocks(32, noise=0.002)
    plain = estimate_saving(blocks)
    at = 13
    blocks[at] = replace(blocks[at], step_time_s=2 * blocks[at].step_time_s)
    blocks[at] = replace(blocks[at], step_energy_j=1.5 * blocks[at].step_energy_j)
    stalled = estimate_saving(blocks)
    assert stalled.log_energy == pytest.approx(plain.log_energy, abs=0.002)
    assert stalled.log_time == pytest.approx(plain.log_time, abs=0.002)
    assert stalled.log_time_half < 2 * plain.log_time_half


def test_checks_that_are_far_apart_are_compared_with_their_neighbours():
    random, blocks = np.random.default_rng(3), []
    for check in range(20):  # the job moves by 5 % between two checks
        level = math.exp(random.normal() * 0.05)
        for place, is_choice in enumerate((True, True, False, False, True, True)):
            start_s = 600.0 * check + 2.0 * place
            time_s = 0.115 * level * (1.1 if is_choice else 1.0) * (1 + random.normal() * 0.002)
            energy_j = time_s * (190.0 if is_choice else 260.0)
            blocks.append(PairedBlock(start_s, start_s + 1.5, is_choice, time_s, energy_j))
    estimate = estimate_saving(blocks)
    assert abs(estimate.log_time - LOG_TIME) <= estimate.log_time_half < 0.02


def test_a_proof_ends_when_its_target_is_reached_and_not_before_its_first_look():
    proof = SavingProof(target=0.012)
    for block in make_blocks(100, noise=0.001, heat=0.02):
        if proof.is_finished:
            break
        proof.add(block)
    assert proof.is_reached
    assert 12 <= len(proof.blocks) <= 20
    assert proof.estimate.as_saving("proof").energy.error <= 0.012


def test_a_proof_that_does_not_reach_its_target_ends_all_the_same():
    proof = SavingProof(target=0.0001, most_blocks=20)
    for block in make_blocks(20, noise=0.01):
        assert not proof.is_finished
        proof.add(block)
    assert proof.is_finished
    assert not proof.is_reached
    assert proof.estimate is not None


@pytest.mark.parametrize("case", live_prove.CASES, ids=lambda case: case.name)
def test_on_simulated_gpus_with_drift_and_heat_it_holds_the_truth(case):
    """The short form of benchmarks/live_prove.py: of 12, at most 2 outside (95 % each: 0.98)."""
    proofs = [live_prove.prove(case, seed) for seed in range(1000, 1012)]
    assert sum(proof.holds_energy for proof in proofs) >= 10
    assert sum(proof.holds_time for proof in proofs) >= 10
    assert np.median([proof.energy.error for proof in proofs]) < live_prove.WIDEST


# What the program logs


def falling_loss(shift, count=30, first=1, noise=0.01, seed=0):
    random = np.random.default_rng(seed)
    return [
        (s, 2.0 / s**0.3 + shift + random.normal() * noise) for s in range(first, first + count)
    ]


def test_a_loss_that_falls_is_no_difference_between_settings():
    metric = compare_logged("loss", falling_loss(0.0)[::2], falling_loss(0.0, seed=1)[1::2])
    assert metric.differs is False
    assert metric.difference.low < 0 < metric.difference.high


def test_a_worse_loss_is_seen():
    metric = compare_logged("loss", falling_loss(0.0)[::2], falling_loss(0.2, seed=1)[1::2])
    assert metric.differs is True
    assert metric.difference.mean == pytest.approx(0.2, abs=0.05)


def curve(shape, steps):
    """A loss, an accuracy that levels off, and a loss that falls at a lower learning rate."""
    curves = {
        "loss": 2.0 / (1 + steps) ** 0.3,
        "accuracy": 0.9 - 0.6 * np.exp(-steps / 300),
        "schedule": np.where(steps < 600, 1.0, 0.6) + 0.3 * np.exp(-steps / 150),
    }
    return curves[shape]


def logged(shape, is_choice, seed, shift=0.0):
    """One value a step, each at the setting of its step."""
    steps = np.arange(len(is_choice), dtype=float)
    values = curve(shape, steps) + np.random.default_rng(seed).normal(size=len(steps)) * 0.02
    values = values + shift * is_choice
    rows = list(zip(steps, values, is_choice, strict=True))
    return [[row[:2] for row in rows if row[2] == side] for side in (False, True)]


@pytest.mark.parametrize("shape", ["loss", "accuracy", "schedule"])
def test_values_before_and_after_one_another_give_no_verdict(shape):
    """As without checks: the reference in the first steps only, then the choice."""
    for first in (4, 40):
        is_choice = np.arange(1000) >= first
        assert compare_logged("loss", *logged(shape, is_choice, first)).differs is None


@pytest.mark.parametrize("shape", ["loss", "accuracy", "schedule"])
@pytest.mark.parametrize("kind", ["proof", "checks"])
def test_of_equal_settings_that_alternate_few_are_said_to_differ(shape, kind):
    place = np.arange(1200)
    is_choice = np.isin(place // 10 % 4, [1, 2]) if kind == "proof" else place % 60 >= 6
    found = [compare_logged("loss", *logged(shape, is_choice, seed)) for seed in range(100)]
    assert sum(metric.differs for metric in found) <= 10  # 5 % of them are expected
    assert compare_logged("loss", *logged(shape, is_choice, 0, shift=0.05)).differs is True


def test_few_values_are_shown_without_a_verdict():
    metric = compare_logged("loss", [(1, 2.0)], [(2, 1.5), (3, 1.4)])
    assert metric.differs is None
    assert metric.reference.low is None


def test_values_of_one_setting_only_are_not_compared():
    assert compare_logged("loss", [(1, 2.0)], [(2, math.nan)]) is None
