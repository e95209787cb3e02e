"""What the built-in policy does where batch sizes never reach the target, crash, or often fail."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from joulewise.optimise.recurring import make_policy

SIZES = [8, 16, 32, 64, 128, 256, 512, 1024]
DEFAULT = 128


def make(max_epochs, seed=1):
    return make_policy(
        batch_sizes=SIZES,
        default=DEFAULT,
        max_power_w=250.0,
        eta=0.5,
        max_epochs=max_epochs,
        seed=seed,
    )


def run_try(policy, needed, max_epochs):
    """A try of a job that needs ``needed(batch_size)`` epochs; returns its size and whether so."""
    batch_size, budget = policy.ask()
    each = 1000 * (1 + 20 / batch_size)
    allowed = max_epochs if math.isinf(budget) else max(1, min(max_epochs, int(budget // each)))
    wanted = needed(batch_size)
    epochs = min(wanted, allowed)
    policy.tell(
        batch_size,
        reached=wanted <= allowed,
        epochs=epochs,
        cost=epochs * each,
        epoch_cost=each,
    )
    return batch_size, wanted <= allowed


def play(policy, needed, max_epochs, tries):
    return [run_try(policy, needed, max_epochs) for _ in range(tries)]


def belief(policy, batch_size):
    return next(each for each in policy.beliefs() if each.batch_size == batch_size)


def only(sizes, epochs):
    return lambda batch_size: epochs if batch_size in sizes else 10**6


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_leaves_a_default_that_never_reaches_the_target(seed):
    policy = make(4, seed)
    asked = play(policy, lambda batch_size: 3 if batch_size <= 32 else 11, 4, 20)
    assert Counter(size for size, _ in asked)[DEFAULT] <= 4
    assert all(reached for _, reached in asked[-8:])
    assert belief(policy, DEFAULT).probability_best < 0.02
    assert belief(policy, DEFAULT).reached_share.mean < 0.1


@pytest.mark.parametrize("size", SIZES)
def test_finds_the_only_one_that_reaches_the_target(size):
    policy = make(10)
    asked = play(policy, only({size}, 5), 10, 40)
    assert [size for size, reached in asked[-5:] if reached] == [size] * 5
    assert asked.index((size, True)) < 4 * len(SIZES)
    assert belief(policy, size).probability_best > 0.9


def test_tries_all_where_none_reaches_the_target():
    policy = make(10)
    asked = Counter(size for size, _ in play(policy, only((), 5), 10, 5 * len(SIZES)))
    assert set(asked) == set(SIZES)
    assert max(asked.values()) <= 10
    probabilities = [each.probability_best for each in policy.beliefs()]
    assert max(probabilities) < 0.3
    assert sum(probabilities) == pytest.approx(1)


def test_one_that_failed_is_not_best_while_others_are_untried():
    policy = make(10)
    for failed in range(1, 6):
        policy.tell(DEFAULT, reached=False, epochs=10, cost=11_600, epoch_cost=1160)
        assert belief(policy, DEFAULT).probability_best <= 1 / (2 + failed)


def test_one_that_failed_costs_more_with_each_failure():
    policy = make(10)
    costs = []
    for _ in range(8):
        policy.tell(DEFAULT, reached=False, epochs=10, cost=11_600, epoch_cost=1160)
        costs.append(belief(policy, DEFAULT).cost.mean)
    assert costs[-1] > 2 * costs[0]
    assert costs == sorted(costs)


def test_larger_ones_crash():
    policy = make(10)
    asked = []
    for _ in range(30):
        batch_size, budget = policy.ask()
        asked.append(batch_size)
        if batch_size > 32:
            policy.crash(batch_size)
            continue
        each = 1000 * (1 + 20 / batch_size)
        allowed = 10 if math.isinf(budget) else max(1, min(10, int(budget // each)))
        policy.tell(
            batch_size,
            reached=allowed >= 5,
            epochs=min(5, allowed),
            cost=each * min(5, allowed),
            epoch_cost=each,
        )
    assert sum(size > 32 for size in asked) <= 3
    assert asked[-10:].count(32) >= 8
    assert belief(policy, 32).probability_best > 0.5


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_leaves_one_whose_tries_often_fail(seed):
    """The default fails in 7 of 10 tries; 64 costs 1.5 times as much, and never fails."""
    rng = np.random.default_rng(seed)
    policy = make(20, seed)

    def needed(batch_size):
        if batch_size == DEFAULT:
            return 6 if rng.random() < 0.3 else 10**6
        return 8 if batch_size == 64 else 16

    asked = [size for size, _ in play(policy, needed, 20, 60)]
    assert asked[-20:].count(64) >= 15


def test_failures_before_the_first_success_count():
    policy = make(20)
    for _ in range(4):
        policy.tell(64, reached=False, epochs=20, cost=26_000, epoch_cost=1300)
    policy.tell(64, reached=True, epochs=5, cost=6500, epoch_cost=1300)
    assert belief(policy, 64).reached_share.mean < 0.6


def test_a_state_of_version_1_is_read():
    policy = make(20)
    play(policy, only({64, 128}, 5), 20, 6)
    state = policy.state()
    old = {
        **state,
        "epochs": {
            **state["epochs"],
            "records": [
                {name: value for name, value in record.items() if name != "missed_in_a_row"}
                for record in state["epochs"]["records"]
            ],
        },
    }
    restored = make_policy.restore(old, 1)
    assert [each.tries for each in restored.beliefs()] == [each.tries for each in policy.beliefs()]
    assert restored.ask()[0] in SIZES


def test_the_state_is_read_after_every_call():
    policy = make(10)
    for _ in range(20):
        for call in (lambda each: run_try(each, only({32}, 5), 10), lambda each: each.ask()):
            restored = make_policy.restore(policy.state(), make_policy.state_version)
            assert call(restored) == call(policy)
            assert restored.state() == policy.state()
        policy.cancel(SIZES[policy.state()["in_flight"][-1]])
