"""A conformance suite: what a policy of a recurring job promises, as tests for any policy."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Final

import pytest

from joulewise.errors import JoulewiseError

# The job that the tests make up (chosen): an octave between its batch sizes, as users list them,
# and a default that is not the best. There are four recurrences for each of them.
BATCH_SIZES: Final = (8, 16, 32, 64, 128, 256)
DEFAULT: Final = 128
MAX_EPOCHS: Final = 50
_RECURRENCES: Final = 25


class RecurringPolicyConformance:
    """Subclass it, give it a fixture named ``factory``, and let pytest collect the rest.

    The fixture returns a :class:`~joulewise.optimise.recurring.PolicyFactory`: what the entry point
    names. The job of the tests is a made one: it needs 10 epochs and more at larger batch sizes.
    """

    # The layers allow this package no import of the policies; the protocol is checked by its names.
    @pytest.fixture
    def factory(self) -> Any:
        raise NotImplementedError("give the subclass a fixture named 'factory'")

    def test_offers_the_whole_protocol(self, factory: Any) -> None:
        assert isinstance(factory.state_version, int)
        assert callable(factory)
        assert callable(factory.restore)
        policy = _make(factory)
        for name in ("ask", "start", "tell", "crash", "cancel", "state", "beliefs"):
            assert callable(getattr(policy, name, None)), f"there is no {name}"

    def test_asks_for_offered_batch_sizes_with_a_positive_budget(self, factory: Any) -> None:
        for batch_size, budget in _play(_make(factory), _RECURRENCES):
            assert batch_size in BATCH_SIZES
            assert isinstance(batch_size, int)
            assert budget > 0
            assert not math.isnan(budget)

    def test_does_not_stop_every_try(self, factory: Any) -> None:
        policy = _make(factory)
        assert any(
            _end(policy, *policy.ask(), epochs_needed=_needed) for _ in range(2 * _RECURRENCES)
        )

    @pytest.mark.parametrize("eta", [0.0, 1.0])
    def test_runs_with_time_or_energy_alone(self, factory: Any, eta: float) -> None:
        _play(_make(factory, eta=eta), 5)

    def test_is_deterministic(self, factory: Any) -> None:
        first, second = _make(factory), _make(factory)
        assert _play(first, _RECURRENCES) == _play(second, _RECURRENCES)
        assert first.state() == second.state()

    def test_policies_do_not_share_anything(self, factory: Any) -> None:
        alone = _play(_make(factory), 8)
        other = _make(factory, seed=2)
        together = _make(factory)
        asked = []
        for _ in range(8):
            asked += _play(together, 1)
            _play(other, 1)
        assert asked == alone

    def test_goes_on_from_its_state_as_if_nothing_had_been(self, factory: Any) -> None:
        policy = _make(factory)
        for _ in range(6):
            _play(policy, 2)
            flying = policy.ask()  # a try in flight is part of the state
            text = json.dumps(policy.state())
            restored = factory.restore(json.loads(text), factory.state_version)
            assert restored.state() == policy.state()
            _end(policy, *flying)
            _end(restored, *flying)
            assert _play(restored, 2) == _play(policy, 2)

    def test_a_state_is_a_copy(self, factory: Any) -> None:
        policy = _make(factory)
        _play(policy, 2)
        state = policy.state()
        text = json.dumps(state)
        _play(policy, 3)
        assert json.dumps(state) == text

    def test_refuses_a_state_of_a_newer_version(self, factory: Any) -> None:
        policy = _make(factory)
        with pytest.raises(JoulewiseError) as caught:
            factory.restore(policy.state(), factory.state_version + 1)
        assert caught.value.hint
        assert "\n" not in caught.value.message

    def test_takes_tries_in_any_order(self, factory: Any) -> None:
        policy = _make(factory)
        for _ in range(6):
            flying = [policy.ask() for _ in range(4)]
            assert {batch_size for batch_size, _ in flying} <= set(BATCH_SIZES)
            for batch_size, budget in reversed(flying):
                _end(policy, batch_size, budget)

    def test_does_not_ask_again_for_what_crashed(self, factory: Any) -> None:
        policy = _make(factory)
        crashed: set[int] = set()
        for _ in range(_RECURRENCES):
            batch_size, budget = policy.ask()
            assert batch_size not in crashed
            if batch_size > 32:
                crashed.add(batch_size)
                policy.crash(batch_size)
            else:
                _end(policy, batch_size, budget)
        usable = {belief.batch_size for belief in policy.beliefs() if belief.is_usable}
        assert not crashed & usable

    def test_goes_on_where_all_crashed(self, factory: Any) -> None:
        policy = _make(factory)
        for _ in range(3 * len(BATCH_SIZES)):
            batch_size, _ = policy.ask()
            assert batch_size in BATCH_SIZES
            policy.crash(batch_size)

    def test_goes_on_after_lost_tries(self, factory: Any) -> None:
        policy = _make(factory)
        for _ in range(10):
            policy.cancel(policy.ask()[0])
        _play(policy, 5)

    def test_takes_tries_that_it_was_not_asked_for(self, factory: Any) -> None:
        policy = _make(factory)
        policy.start(DEFAULT)
        batch_size, budget = policy.ask()
        _end(policy, DEFAULT, math.inf)
        _end(policy, batch_size, budget)
        policy.start(max(BATCH_SIZES))
        policy.crash(max(BATCH_SIZES))
        _play(policy, 3)

    def test_takes_the_result_of_a_try_that_was_taken_for_lost(self, factory: Any) -> None:
        policy = _make(factory)
        for _ in range(4):
            batch_size, budget = policy.ask()
            policy.cancel(batch_size)
            other, other_budget = policy.ask()
            policy.start(batch_size)
            _end(policy, batch_size, budget)
            _end(policy, other, other_budget)
        assert sum(belief.tries for belief in policy.beliefs()) >= 8

    def test_is_made_again_from_the_tries_of_before(self, factory: Any) -> None:
        policy = _make(factory)
        for batch_size in (DEFAULT, 64, DEFAULT):
            policy.start(batch_size)
            _end(policy, batch_size, math.inf)
        policy.start(max(BATCH_SIZES))
        policy.crash(max(BATCH_SIZES))
        for _ in range(2):  # still running, both at the same batch size
            policy.start(DEFAULT)
        restored = factory.restore(json.loads(json.dumps(policy.state())), factory.state_version)
        _play(restored, 2)
        for _ in range(2):
            _end(restored, DEFAULT, math.inf)
        _play(restored, 2)

    def test_goes_on_where_no_try_reaches_the_target(self, factory: Any) -> None:
        policy = _make(factory)
        for _ in range(_RECURRENCES):
            batch_size, budget = policy.ask()
            assert budget > 0
            assert not _end(policy, batch_size, budget, epochs_needed=lambda _: 10**6)

    def test_takes_a_single_batch_size(self, factory: Any) -> None:
        policy = _make(factory, batch_sizes=(DEFAULT,))
        assert {batch_size for batch_size, _ in _play(policy, 6)} == {DEFAULT}
        (belief,) = policy.beliefs()
        assert belief.probability_best == pytest.approx(1)

    def test_takes_costs_that_drift(self, factory: Any) -> None:
        policy = _make(factory)
        for k in range(_RECURRENCES):
            batch_size, budget = policy.ask()
            assert budget > 0
            _end(policy, batch_size, budget, scale=1.3**k)

    def test_believes_something_of_each_batch_size(self, factory: Any) -> None:
        policy = _make(factory)
        _check_beliefs(policy)
        _play(policy, 5)
        before = policy.state()
        _check_beliefs(policy)
        assert policy.state() == before  # a report changes nothing
        assert sum(belief.tries for belief in policy.beliefs()) >= 5

    def test_takes_earlier_observations(self, factory: Any) -> None:
        earlier = [_Earlier(b, reached=True, epochs=_needed(b)) for b in BATCH_SIZES]
        _play(_make(factory, earlier=earlier), 5)


class _Earlier:
    """In the form of ``EarlierObservation``, which this layer may not import."""

    def __init__(self, batch_size: int, *, reached: bool, epochs: int) -> None:
        self.batch_size = batch_size
        self.reached = reached
        self.epochs = epochs
        self.epoch_cost = _epoch_cost(batch_size)
        self.weight = 0.5


def _make(
    factory: Any,
    *,
    batch_sizes: tuple[int, ...] = BATCH_SIZES,
    seed: int = 1,
    eta: float = 0.5,
    earlier: Any = (),
) -> Any:
    return factory(
        batch_sizes=list(batch_sizes),
        default=DEFAULT,
        max_power_w=250.0,
        eta=eta,
        max_epochs=MAX_EPOCHS,
        seed=seed,
        earlier=earlier,
    )


def _needed(batch_size: int) -> int:
    return round(10 * (1 + batch_size / 100))


def _epoch_cost(batch_size: int) -> float:
    return 1e5 * (1 + 40 / batch_size)


def _play(policy: Any, tries: int) -> list[tuple[int, float]]:
    asked = []
    for _ in range(tries):
        batch_size, budget = policy.ask()
        asked.append((batch_size, budget))
        _end(policy, batch_size, budget)
    return asked


def _end(
    policy: Any,
    batch_size: int,
    budget: float,
    *,
    epochs_needed: Callable[[int], int] = _needed,
    scale: float = 1.0,
) -> bool:
    """End a try as the job would: at its target, its budget, or its most epochs."""
    each = scale * _epoch_cost(batch_size)
    allowed = MAX_EPOCHS if math.isinf(budget) else max(1, min(MAX_EPOCHS, int(budget // each)))
    reached = epochs_needed(batch_size) <= allowed
    epochs = epochs_needed(batch_size) if reached else allowed
    policy.tell(batch_size, reached=reached, epochs=epochs, cost=epochs * each, epoch_cost=each)
    return reached


def _check_beliefs(policy: Any) -> None:
    beliefs = policy.beliefs()
    assert [belief.batch_size for belief in beliefs] == list(BATCH_SIZES)
    assert sum(belief.probability_best for belief in beliefs) == pytest.approx(1)
    for belief in beliefs:
        assert 0 <= belief.probability_best <= 1
        assert 0 <= belief.reached_share.mean <= 1
        for interval in (belief.epochs, belief.cost):
            if interval is not None and interval.low is not None:
                assert 0 < interval.low <= interval.high
        assert belief.epoch_cost is None or belief.epoch_cost > 0
