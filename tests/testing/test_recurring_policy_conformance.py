"""The suite lets good policies pass, and catches each way to break a promise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from joulewise.errors import JoulewiseError
from joulewise.metrics.result import Interval
from joulewise.optimise.recurring import BatchSizeBelief, make_policy
from joulewise.testing import RecurringPolicyConformance


class ThompsonPolicy:
    """A plain example: each batch size once, then Thompson sampling of a normal mean of costs."""

    def __init__(self, **job):
        self.job = {**job, "batch_sizes": sorted(job["batch_sizes"]), "earlier": ()}
        self.asks = 0
        self.in_flight = []
        self.crashed = []
        self.costs = [[] for _ in self.job["batch_sizes"]]

    def ask(self):
        rng = np.random.default_rng([self.job["seed"], self.asks])
        self.asks += 1
        left = [i for i in range(len(self.costs)) if i not in self.crashed] or [0]
        untried = [i for i in left if not self.costs[i] and i not in self.in_flight]
        i = untried[0] if untried else min(left, key=lambda i: self.draw(i, rng))
        least = min((min(costs) for costs in self.costs if costs), default=math.inf)
        self.in_flight.append(i)
        return self.job["batch_sizes"][i], 4 * least

    def start(self, batch_size):
        self.in_flight.append(self.job["batch_sizes"].index(batch_size))

    def draw(self, i, rng):
        mean = np.mean(self.costs[i]) if self.costs[i] else 1.0
        return mean * (1 + 0.1 * rng.standard_normal() / math.sqrt(len(self.costs[i]) or 1))

    def end(self, batch_size):
        i = self.job["batch_sizes"].index(batch_size)
        self.in_flight.remove(i)
        return i

    def tell(self, batch_size, *, reached, epochs, cost, epoch_cost):  # noqa: ARG002
        self.costs[self.end(batch_size)].append(cost if reached else 4 * cost)

    def crash(self, batch_size):
        self.crashed.append(self.end(batch_size))

    def cancel(self, batch_size):
        self.end(batch_size)

    def state(self):
        return {
            "job": dict(self.job),
            "asks": self.asks,
            "in_flight": list(self.in_flight),
            "crashed": list(self.crashed),
            "costs": [list(costs) for costs in self.costs],
        }

    def beliefs(self):
        best = min(range(len(self.costs)), key=lambda i: np.mean(self.costs[i] or [math.inf]))
        return tuple(
            BatchSizeBelief(
                batch_size=batch_size,
                tries=len(self.costs[i]) + self.crashed.count(i),
                reached_share=Interval(0.5),
                epochs=None,
                epoch_cost=None,
                cost=None,
                probability_best=float(i == best),
                is_usable=i not in self.crashed,
            )
            for i, batch_size in enumerate(self.job["batch_sizes"])
        )


class Factory:
    state_version = 1

    def __init__(self, policy_class):
        self.policy_class = policy_class

    def __call__(self, **job):
        return self.policy_class(**job)

    def restore(self, state, version):
        if version > self.state_version:
            raise JoulewiseError("The state is of a newer version.", "Install that version.")
        policy = self.policy_class(**state["job"])
        for name, value in state.items():
            setattr(policy, name, value)
        policy.job["earlier"] = ()
        return policy


class TestBuiltIn(RecurringPolicyConformance):
    @pytest.fixture
    def factory(self):
        return make_policy


class TestPlainExample(RecurringPolicyConformance):
    @pytest.fixture
    def factory(self):
        return Factory(ThompsonPolicy)


class AsksForAnother(ThompsonPolicy):
    def ask(self):
        return super().ask()[0] + 1, math.inf


class AsksForNothing(ThompsonPolicy):
    def ask(self):
        return super().ask()[0], 0.0


class StopsAll(ThompsonPolicy):
    def ask(self):
        return super().ask()[0], 1.0


class ForgetsCrashes(ThompsonPolicy):
    def crash(self, batch_size):
        self.end(batch_size)


class IsRandom(ThompsonPolicy):
    def ask(self):
        batch_size, _ = super().ask()
        return batch_size, float(np.random.default_rng().random()) + 1.0


class ForgetsItsTries(ThompsonPolicy):
    def state(self):
        return {**super().state(), "in_flight": []}


class GivesItsStateAway(ThompsonPolicy):
    def state(self):
        return {**super().state(), "costs": self.costs}


class LearnsFromReports(ThompsonPolicy):
    def beliefs(self):
        self.asks += 1
        return super().beliefs()


class NeedsOrder(ThompsonPolicy):
    def end(self, batch_size):
        i = self.job["batch_sizes"].index(batch_size)
        assert self.in_flight.pop(0) == i
        return i


class BelievesTooMuch(ThompsonPolicy):
    def beliefs(self):
        return super().beliefs()[:-1]


class TakesAnyVersion(Factory):
    def restore(self, state, version):
        return super().restore(state, min(version, self.state_version))


SUITE = RecurringPolicyConformance()


@pytest.mark.parametrize(
    ("policy_class", "check"),
    [
        (AsksForAnother, SUITE.test_asks_for_offered_batch_sizes_with_a_positive_budget),
        (AsksForNothing, SUITE.test_asks_for_offered_batch_sizes_with_a_positive_budget),
        (StopsAll, SUITE.test_does_not_stop_every_try),
        (ForgetsCrashes, SUITE.test_does_not_ask_again_for_what_crashed),
        (IsRandom, SUITE.test_is_deterministic),
        (ForgetsItsTries, SUITE.test_goes_on_from_its_state_as_if_nothing_had_been),
        (GivesItsStateAway, SUITE.test_a_state_is_a_copy),
        (LearnsFromReports, SUITE.test_believes_something_of_each_batch_size),
        (NeedsOrder, SUITE.test_takes_tries_in_any_order),
        (BelievesTooMuch, SUITE.test_believes_something_of_each_batch_size),
    ],
)
def test_catches_a_bad_policy(policy_class, check):
    with pytest.raises((AssertionError, ValueError)):
        check(Factory(policy_class))


def test_catches_a_factory_that_takes_any_version():
    with pytest.raises(pytest.fail.Exception):
        SUITE.test_refuses_a_state_of_a_newer_version(TakesAnyVersion(ThompsonPolicy))
