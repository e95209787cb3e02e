"""What the built-in policy believes and asks for, on made jobs."""

from __future__ import annotations

import math

import pytest

from joulewise.errors import JoulewiseError, UsageError
from joulewise.optimise.recurring import EarlierObservation, make_policy
from joulewise.optimise.recurring.policy.epochs_model import EpochsModel

SIZES = [8, 16, 32, 64, 128, 256]


def policy(**changes):
    job = {
        "batch_sizes": SIZES,
        "default": 128,
        "max_power_w": 250.0,
        "eta": 0.5,
        "max_epochs": 50,
        "seed": 1,
    }
    return make_policy(**{**job, **changes})


def tell(chosen, batch_size, epochs, *, reached=True, each=None):
    each = each or 1000 * (1 + 20 / batch_size)
    chosen.tell(batch_size, reached=reached, epochs=epochs, cost=each * epochs, epoch_cost=each)


def belief(chosen, batch_size):
    return next(each for each in chosen.beliefs() if each.batch_size == batch_size)


def test_the_default_comes_first_and_is_not_stopped():
    assert policy().ask() == (128, math.inf)


def test_tries_in_flight_before_anything_is_known_differ():
    chosen = policy()
    asked = [chosen.ask()[0] for _ in range(4)]
    assert asked == [128, 64, 256, 128]


def test_a_try_that_was_not_asked_for_is_in_flight_beside_another_of_its_size():
    chosen = policy()
    assert chosen.ask()[0] == 128
    chosen.start(128)
    tell(chosen, 128, 20)
    assert chosen.state()["in_flight"] == [SIZES.index(128)]
    with pytest.raises(UsageError):
        chosen.start(7)


def test_nothing_is_believed_before_the_first_try():
    first = belief(policy(), 128)
    assert first.tries == 0
    assert (first.epochs, first.epoch_cost, first.cost) == (None, None, None)


def test_stopped_tries_bound_the_epochs_from_below():
    chosen = policy()
    tell(chosen, 128, 20)
    means = [belief(chosen, 256).epochs.mean]
    for _ in range(3):
        tell(chosen, 256, 45, reached=False)
        means.append(belief(chosen, 256).epochs.mean)
    assert means[0] < means[1] < means[3]
    assert means[3] > 45
    assert belief(chosen, 256).tries == 3


def test_the_cost_of_an_epoch_is_known_once_measured():
    chosen = policy()
    tell(chosen, 128, 20, each=1234.0)
    assert belief(chosen, 128).epoch_cost == pytest.approx(1234, rel=0.02)


def test_settles_on_the_best_and_forgets_it_when_the_job_changes():
    epochs = {8: 40, 16: 16, 32: 12, 64: 13, 128: 24, 256: 50}
    changed = {8: 10, 16: 12, 32: 18, 64: 30, 128: 48, 256: 60}
    chosen = policy()
    asked = []
    for needed in (epochs, changed):
        for _ in range(30):
            batch_size, budget = chosen.ask()
            each = 1000 * (1 + 20 / batch_size)
            allowed = 50 if math.isinf(budget) else max(1, min(50, int(budget // each)))
            tell(
                chosen,
                batch_size,
                min(needed[batch_size], allowed),
                reached=needed[batch_size] <= allowed,
            )
            asked.append(batch_size)
    assert asked[20:30].count(64) >= 8
    assert asked[50:].count(16) + asked[50:].count(32) >= 8


def test_one_failed_try_is_no_change_of_the_job():
    model = EpochsModel(SIZES, 128, 50)
    for _ in range(6):
        assert not model.add(4, reached=True, epochs=20)
    assert not model.add(4, reached=False, epochs=40)
    assert model.records[4].failures == 1
    assert model.add(4, reached=True, epochs=60)  # three times as many is one


def test_larger_ones_than_one_that_crashed_are_avoided():
    chosen = policy()
    tell(chosen, 128, 20)
    chosen.crash(32)
    usable = {each.batch_size for each in chosen.beliefs() if each.is_usable}
    assert usable == {8, 16, 128}  # 128 was seen to run
    assert belief(chosen, 64).probability_best == 0


def test_a_crash_of_what_has_run_is_a_failure_and_no_ban():
    """A lack of memory is inferred: another program may have taken it."""
    chosen = policy(batch_sizes=[64, 128])
    tell(chosen, 128, 40)
    for _ in range(6):
        tell(chosen, 64, 10)
    before = belief(chosen, 64)
    chosen.crash(64)
    after = belief(chosen, 64)
    assert after.is_usable
    assert belief(chosen, 128).is_usable
    assert after.tries == 7
    assert after.reached_share.mean < before.reached_share.mean
    assert after.cost.mean > before.cost.mean
    assert chosen.ask()[0] == 64


def test_what_crashed_first_and_ran_later_is_no_longer_left_out():
    chosen = policy()
    chosen.crash(64)
    tell(chosen, 64, 10)  # it was in flight meanwhile
    assert belief(chosen, 64).is_usable
    assert belief(chosen, 64).tries == 2


def test_where_the_smallest_crashed_no_larger_one_is_asked_for():
    chosen = policy()
    chosen.crash(8)
    assert chosen.ask()[0] == 8
    assert not any(each.is_usable for each in chosen.beliefs())


def test_starts_from_what_another_type_of_gpu_learned():
    earlier = [
        EarlierObservation(b, reached=True, epochs=e, epoch_cost=5e6 * (1 + 20 / b))
        for b, e in ((32, 12), (64, 13), (128, 40))
        for _ in range(3)
    ]
    chosen = policy(earlier=earlier)
    assert chosen.ask()[0] in {32, 64}
    assert belief(chosen, 128).epoch_cost is None  # the level is another GPU's
    assert belief(chosen, 128).tries == 0
    assert belief(chosen, 128).epochs.mean == pytest.approx(40, rel=0.2)


def test_refuses_what_is_no_job():
    with pytest.raises(UsageError, match="100"):
        policy(default=100)
    with pytest.raises(UsageError, match="12"):
        tell(policy(), 12, 3)


@pytest.mark.parametrize("state", [{}, {"job": {}}, {"job": {"default": 3}}])
def test_refuses_a_damaged_state(state):
    with pytest.raises(JoulewiseError, match="damaged"):
        make_policy.restore(state, 1)
