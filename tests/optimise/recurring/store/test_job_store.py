"""What a job does with its store, on both databases."""

import json
import signal
import sys
import threading
from contextlib import nullcontext, suppress
from dataclasses import replace

import pytest

from joulewise.data.codec import decode, encode
from joulewise.data.jobs import JobHistory, JobTarget, TryOutcome, TryStatus
from joulewise.data.sweeps import Setting
from joulewise.errors import ForgottenJobError, PolicyError, UsageError
from joulewise.optimise.recurring import policy_plugins
from joulewise.optimise.recurring.store import open_job_store
from joulewise.optimise.recurring.store.job_store import JobStore
from tests.helpers.jobs import GPU_TYPE, JOB, LEASE_S, result
from tests.helpers.ledger_policy import LedgerFactory, LedgerPolicy


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def store(address, clock, warnings):
    store = JobStore.open(address, now_ns=clock, warn=warnings.append)
    store.define(JOB)
    return store


@pytest.fixture
def number(store):
    return store.begin_recurrence(JOB.name, GPU_TYPE, max_power_w=250.0, host="node1")


def ask(store, number, factory=None, gpu_type=GPU_TYPE, **more):
    return store.ask(
        JOB.name, number, gpu_type,
        host="node1", factory=factory or LedgerFactory(), lease_s=LEASE_S, **more,
    )  # fmt: skip


def account(store, gpu_type=GPU_TYPE):
    """What the policy would know if it were asked now."""
    return store.policy(JOB.name, gpu_type, LedgerFactory()).account


def saved_account(store, gpu_type=GPU_TYPE):
    (state,) = [each for each in store.history(JOB.name).policy_states if each.gpu_type == gpu_type]
    return state.state


def saved_account_after(store, number):
    """What the policy knows once it was asked again."""
    ask(store, number)
    return saved_account(store)


class TestDefinition:
    def test_a_new_job_is_stored_as_it_is(self, store):
        assert store.history(JOB.name).definition == JOB

    def test_the_same_again_changes_nothing(self, store):
        assert store.define(replace(JOB, values=(32, 8, 16, 8))) == JOB

    @pytest.mark.parametrize(
        ("change", "difference"),
        [
            ({"target": JobTarget("val_acc", 0.7, is_at_least=True)}, "target val_acc>=0.65, not"),
            ({"eta": 1.0}, "eta 0.5, not 1.0"),
            ({"max_epochs": 7}, "max epochs 100, not 7"),
            ({"default": 8}, "default 16, not 8"),
            ({"parameter": "bs"}, "parameter batch_size, not bs"),
            ({"values": (8, 16)}, "also has batch_size 32"),
        ],
    )
    def test_another_one_is_refused_with_the_difference_once_something_was_learned(
        self, store, number, change, difference
    ):
        store.tell(ask(store, number).key, result(5.0))
        with pytest.raises(UsageError) as refused:
            store.define(replace(JOB, **change))
        assert difference in refused.value.message
        assert f"joulewise job forget {JOB.name}" in refused.value.hint
        assert store.history(JOB.name).definition == JOB

    @pytest.mark.parametrize("status", [TryStatus.FAILED, None])
    def test_before_anything_was_learned_anything_may_change(self, store, number, clock, status):
        key = ask(store, number).key
        if status:
            store.tell(key, TryOutcome(status))
        else:
            clock.advance(LEASE_S + 1)  # its worker was lost
        target = JobTarget("accuracy", 0.7, is_at_least=True)
        other = replace(JOB, target=target, default=8, values=(4, 8), eta=1.0, max_epochs=7)
        assert store.define(other) == other
        assert store.history(JOB.name).definition == other
        assert ask(store, number).settings["batch_size"] == 8
        assert saved_account(store)["batch_sizes"] == [4, 8]

    def test_a_try_under_way_has_the_target_with_which_it_began(self, store, number):
        ask(store, number)
        with pytest.raises(UsageError, match="has eta"):
            store.define(replace(JOB, eta=1.0))

    def test_what_does_not_fit_is_true_for_any_target(self, store, number):
        store.tell(ask(store, number).key, TryOutcome(TryStatus.CRASHED))
        other = replace(JOB, target=JobTarget("accuracy", 0.7, is_at_least=True))
        assert store.define(other) == other
        assert saved_account_after(store, number)["crashed"] == [16]
        for change in ({"parameter": "width"}, {"values": (16, 32)}):
            with pytest.raises(UsageError):
                store.define(replace(other, **change))

    def test_another_policy_learns_from_the_same_tries(self, store, number):
        store.tell(ask(store, number).key, result(5.0))
        other = replace(JOB, policy="other", seed=7)
        assert store.define(other) == other
        assert [row[3] for row in saved_account_after(store, number)["told"]] == [5.0]

    def test_values_that_do_not_fit_on_a_gpu_type_are_left_out_there(self, store, number):
        ask(store, number)
        store.limit_values(JOB.name, GPU_TYPE, 8)
        assert saved_account_after(store, number)["batch_sizes"] == [8, 16]  # and the default
        (state,) = store.history(JOB.name).policy_states
        assert state.largest_value == 8
        again = store.begin_recurrence(JOB.name, "A100", max_power_w=400.0, host="node2")
        ask(store, again, gpu_type="A100")
        assert saved_account(store, "A100")["batch_sizes"] == [8, 16, 32]
        store.define(replace(JOB, policy="other"))
        store.define(replace(JOB, policy="other", values=(*JOB.values, 64)))
        assert {one.largest_value for one in store.history(JOB.name).policy_states} == {None}

    def test_new_values_are_added_and_the_policy_learns_again_with_them(
        self, store, number, warnings
    ):
        store.tell(ask(store, number).key, result(5.0))
        larger = replace(JOB, values=(*JOB.values, 64))
        assert store.define(larger) == larger
        ask(store, number)
        assert saved_account(store)["batch_sizes"] == [8, 16, 32, 64]
        assert [row[3] for row in saved_account(store)["told"]] == [5.0]
        assert not warnings

    @pytest.mark.parametrize(
        "change",
        [
            {"default": 9},
            {"name": ""},
            {"name": "a\nb"},
            {"name": "\udcff"},
            {"seed": 1 << 63},
            {"max_epochs": 0},
            {"max_epochs": 1 << 31},
            {"values": tuple(range(1, 102))},
        ],
    )
    def test_what_cannot_be_a_job_is_refused(self, store, change):
        with pytest.raises(UsageError):
            store.define(replace(JOB, **change))


class TestRecurrences:
    def test_they_count_from_one_over_all_gpu_types(self, store):
        numbers = [
            store.begin_recurrence(JOB.name, gpu_type, max_power_w=250.0, host="node1")
            for gpu_type in (GPU_TYPE, "A100", GPU_TYPE)
        ]
        assert numbers == [1, 2, 3]

    def test_the_first_maximum_power_of_a_gpu_type_is_kept(self, store, number):
        store.begin_recurrence(JOB.name, GPU_TYPE, max_power_w=300.0, host="node1")
        assert ask(store, number).max_power_w == 250.0
        assert saved_account(store)["max_power_w"] == 250.0

    def test_one_of_a_job_that_is_not_defined_is_refused_with_what_may_be_meant(self, store):
        with pytest.raises(UsageError, match="did you mean nightly"):
            store.begin_recurrence("nightli", GPU_TYPE, max_power_w=250.0, host="node1")


class TestTries:
    def test_an_answer_of_the_policy_is_a_running_try(self, store, number, clock):
        first, second = ask(store, number), ask(store, number, is_simulated=True)
        assert (first.recurrence, first.number, second.number) == (1, 1, 2)
        assert first.settings == Setting.of({"batch_size": 16})
        assert (first.status, first.budget, first.host) == (TryStatus.RUNNING, None, "node1")
        assert first.started_wall_ns == clock.now_ns
        assert (first.is_simulated, second.is_simulated) == (False, True)
        assert store.history(JOB.name).tries == (first, second)

    def test_an_outcome_is_stored_with_all_that_it_says(self, store, number, clock):
        started = ask(store, number)
        clock.advance(30)
        outcome = TryOutcome(
            TryStatus.STOPPED_EARLY, epochs=4, cost=9.5, epoch_cost=2.0, energy_j=8.0, time_s=3.5,
            metric_value=0.5, run="20260101-abc", exit_code=143,
            settings=Setting.of({"power_limit_w": 150.0}),
        )  # fmt: skip
        assert store.tell(started.key, outcome)
        (stored,) = store.history(JOB.name).tries
        assert stored == replace(
            started,
            status=TryStatus.STOPPED_EARLY, ended_wall_ns=clock.now_ns, epochs=4, cost=9.5,
            epoch_cost=2.0, energy_j=8.0, time_s=3.5, metric_value=0.5, run="20260101-abc",
            exit_code=143, settings=Setting.of({"batch_size": 16, "power_limit_w": 150.0}),
        )  # fmt: skip

    def test_a_second_outcome_changes_nothing(self, store, number):
        started = ask(store, number)
        assert store.tell(started.key, result(5.0))
        before = store.history(JOB.name)
        assert not store.tell(started.key, result(7.0, TryStatus.MISSED))
        assert store.history(JOB.name) == before

    @pytest.mark.parametrize("status", [TryStatus.RUNNING, TryStatus.EXPIRED])
    def test_a_worker_cannot_tell_what_only_the_store_knows(self, store, number, status):
        with pytest.raises(ValueError, match=status.value):
            store.tell(ask(store, number).key, TryOutcome(status))

    def test_what_is_not_a_number_is_unknown(self, store, number):
        store.tell(ask(store, number).key, TryOutcome(TryStatus.FAILED, cost=float("nan")))
        assert store.history(JOB.name).tries[0].cost is None

    def test_a_budget_is_stored(self, store, number):
        assert ask(store, number, BudgetFactory()).budget == 12.5

    def test_a_history_is_the_same_after_json(self, store, number):
        store.tell(ask(store, number).key, result(5.0))
        ask(store, number)
        history = store.history(JOB.name)
        assert decode(JobHistory, json.loads(json.dumps(encode(history)))) == history


class TestWhatThePolicyIsTold:
    def test_each_kind_of_outcome_once_at_the_next_ask(self, store, number):
        outcomes = [
            result(1.0),
            result(2.0, TryStatus.MISSED, 100),
            result(3.0, TryStatus.STOPPED_EARLY),
            TryOutcome(TryStatus.CRASHED, exit_code=1),
            TryOutcome(TryStatus.FAILED, exit_code=1, epochs=1, cost=1.0, epoch_cost=1.0),
            TryOutcome(TryStatus.STOPPED_EARLY, exit_code=0),  # before its first epoch ended
        ]
        tries = [ask(store, number) for _ in outcomes]
        values = [each.settings["batch_size"] for each in tries]
        for each, outcome in zip(tries, outcomes, strict=True):
            store.tell(each.key, outcome)
        expected = {
            "told": [
                [values[0], True, 3, 1.0, 1.0 / 3],
                [values[1], False, 100, 2.0, 0.02],
                [values[2], False, 3, 3.0, 1.0],
            ],
            "crashed": [values[3]],
            "cancelled": values[4:],
        }
        assert saved_account(store)["told"] == []
        assert {key: account(store)[key] for key in expected} == expected
        for _ in range(2):
            ask(store, number)
            assert {key: saved_account(store)[key] for key in expected} == expected

    def test_to_look_at_the_policy_stores_nothing(self, store, number):
        store.tell(ask(store, number).key, result(1.0))
        before = store.history(JOB.name)
        assert account(store)["told"]
        assert store.history(JOB.name) == before

    def test_what_other_gpu_types_learned_comes_with_the_first_ask(self, store, number):
        store.tell(ask(store, number).key, result(1.0))
        store.tell(ask(store, number).key, TryOutcome(TryStatus.CRASHED))
        second = store.begin_recurrence(JOB.name, "A100", max_power_w=400.0, host="node2")
        ask(store, second, gpu_type="A100")
        assert saved_account(store, "A100")["earlier"] == [[16, True, 3]]
        assert saved_account(store, "A100")["told"] == []

    def test_a_try_that_it_was_not_asked_for_is_told_likewise(self, store, number):
        started = store.start_try(
            JOB.name, number, GPU_TYPE, host="node1", value=JOB.default, lease_s=LEASE_S
        )
        store.tell(started.key, result(1.0))
        ask(store, number)
        saved = saved_account(store)
        assert (saved["asks"], saved["started"], len(saved["told"])) == (1, [16], 1)

    def test_a_try_is_in_flight_before_it_ends_also_where_the_policy_was_not_asked(
        self, store, number
    ):
        """So that a policy can keep a list of what is in flight, and remove from it."""
        strict = StrictFactory()
        first = store.start_try(
            JOB.name, number, GPU_TYPE, host="node1", value=JOB.default, lease_s=LEASE_S
        )
        asked = ask(store, number, strict)  # the first is started for it
        store.tell(first.key, result(1.0))
        store.define(replace(JOB, values=(*JOB.values, 64)))
        ask(store, number, strict)  # made again, while one is in flight
        store.tell(asked.key, TryOutcome(TryStatus.CRASHED))
        ask(store, number, strict)
        saved = saved_account(store)
        assert (len(saved["told"]), len(saved["crashed"]), saved["cancelled"]) == (1, 1, [])
        assert len(saved["flying"]) == 2

    def test_it_is_told_of_late_outcomes_and_of_revived_tries_in_flight(self, store, number, clock):
        strict = StrictFactory()
        late, revived = ask(store, number, strict), ask(store, number, strict)
        clock.advance(LEASE_S + 1)
        ask(store, number, strict)
        assert len(saved_account(store)["flying"]) == 1
        store.tell(late.key, result(5.0))
        store.renew(revived.key, LEASE_S)
        ask(store, number, strict)
        assert len(saved_account(store)["flying"]) == 3
        store.tell(revived.key, TryOutcome(TryStatus.FAILED))
        ask(store, number, strict)
        assert len(saved_account(store)["flying"]) == 3


class TestLostWorkers:
    def test_a_try_whose_lease_is_over_expires_at_the_next_ask(self, store, number, clock):
        lost = ask(store, number)
        clock.advance(LEASE_S + 1)
        ask(store, number)
        expired, running = store.history(JOB.name).tries
        assert (expired.key, expired.status) == (lost.key, TryStatus.EXPIRED)
        assert running.status is TryStatus.RUNNING
        assert saved_account(store)["cancelled"] == [16]

    def test_a_renewed_lease_is_not_over(self, store, number, clock):
        started = ask(store, number)
        for _ in range(3):
            clock.advance(LEASE_S - 1)
            assert store.renew(started.key, LEASE_S)
        (one,) = store.history(JOB.name).tries
        assert one.status is TryStatus.RUNNING
        clock.advance(LEASE_S)
        lease_ends_ns = clock.now_ns
        clock.advance(3600)
        (one,) = store.history(JOB.name).tries
        assert (one.status, one.ended_wall_ns) == (TryStatus.EXPIRED, lease_ends_ns)
        assert store.histories()[0].tries == (one,)
        assert store.export(JOB.name)[0]["status"] == "expired"

    @pytest.mark.parametrize("is_cancelled", [False, True])
    def test_a_worker_that_was_away_is_running_again_when_it_renews(
        self, store, number, clock, is_cancelled
    ):
        away = ask(store, number)
        clock.advance(LEASE_S + 1)
        if is_cancelled:
            ask(store, number)
        assert store.renew(away.key, LEASE_S)
        assert store.history(JOB.name).tries[0] == away
        ask(store, number)
        assert saved_account(store)["started"] == ([16] if is_cancelled else [])
        store.tell(away.key, result(5.0))
        assert not store.renew(away.key, LEASE_S)
        assert store.history(JOB.name).tries[0].status is TryStatus.REACHED

    @pytest.mark.parametrize("is_cancelled", [False, True])
    def test_a_worker_that_was_only_away_still_tells_and_counts_once(
        self, store, number, clock, is_cancelled
    ):
        late = ask(store, number)
        clock.advance(LEASE_S + 1)
        if is_cancelled:
            ask(store, number)  # the policy hears that it was lost
        assert store.tell(late.key, result(5.0))
        assert not store.tell(late.key, result(5.0))
        for _ in range(2):
            ask(store, number)
        assert [row[3] for row in saved_account(store)["told"]] == [5.0]
        assert saved_account(store)["cancelled"] == ([16] if is_cancelled else [])
        assert saved_account(store)["started"] == ([16] if is_cancelled else [])


class StrictPolicy(LedgerPolicy):
    """Fails where a try ends that is not in flight."""

    def ask(self):
        value, budget = super().ask()
        self.account.setdefault("flying", []).append(value)
        return value, budget

    def start(self, batch_size):
        super().start(batch_size)
        self.account.setdefault("flying", []).append(batch_size)

    def tell(self, batch_size, **more):
        self.account["flying"].remove(batch_size)
        super().tell(batch_size, **more)

    def crash(self, batch_size):
        self.account["flying"].remove(batch_size)
        super().crash(batch_size)

    def cancel(self, batch_size):
        self.account["flying"].remove(batch_size)
        super().cancel(batch_size)


class StrictFactory(LedgerFactory):
    def __call__(self, **arguments):
        return StrictPolicy(super().__call__(**arguments).account)

    def restore(self, state, version):
        return StrictPolicy(super().restore(state, version).account)


class BudgetFactory(LedgerFactory):
    def __call__(self, **arguments):
        policy = LedgerFactory.__call__(self, **arguments)
        policy.ask = lambda: (16, 12.5)
        return policy


class FailingPolicy(LedgerPolicy):
    """Fails in one of its methods."""

    where = ""

    def ask(self):
        self._fail("ask")
        return super().ask()

    def tell(self, *args, **kwargs):
        self._fail("tell")
        super().tell(*args, **kwargs)

    def state(self):
        self._fail("state")
        return super().state()

    def _fail(self, method):
        if method == self.where:
            raise RuntimeError("it is broken\nfor good")


class FailingFactory(LedgerFactory):
    def __init__(self, where):
        self.where = where

    def __call__(self, **arguments):
        if self.where == "new":
            raise RuntimeError("it is broken\nfor good")
        return self._failing(super().__call__(**arguments))

    def restore(self, state, version):
        return self._failing(super().restore(state, version))

    def _failing(self, policy):
        policy = FailingPolicy(policy.account)
        policy.where = self.where
        return policy


class TestPoliciesThatFail:
    @pytest.mark.parametrize("where", ["new", "ask", "state"])
    def test_the_transaction_is_undone_and_the_error_is_one_line(self, store, number, where):
        before = store.history(JOB.name)
        with pytest.raises(PolicyError) as failed:
            ask(store, number, FailingFactory(where))
        assert "RuntimeError: it is broken for good" in failed.value.message
        assert store.history(JOB.name) == before

    @pytest.mark.parametrize(
        ("attribute", "value", "why"),
        [
            ("state_version", "one", "TypeError: 'str' object"),
            ("__call__", lambda *_, **__: sys.exit(7), "SystemExit: 7"),
        ],
    )
    def test_so_it_is_for_a_factory(self, store, number, attribute, value, why):
        factory = type("Factory", (LedgerFactory,), {attribute: value})()
        with pytest.raises(PolicyError) as failed:
            ask(store, number, factory)
        assert why in failed.value.message

    def test_one_that_does_not_answer_is_interrupted(self, store, number, monkeypatch):
        monkeypatch.setattr(policy_plugins, "LIMIT_S", 0.05)

        def hang(*_, **__):
            while True:
                with suppress(Exception):
                    threading.Event().wait(0.01)

        calls = []
        for method in ("__call__", "restore"):
            before = store.history(JOB.name)
            factory = type("Hanging", (LedgerFactory,), {method: hang})()
            with pytest.raises(PolicyError, match="did not answer within"):
                calls.append(ask(store, number, factory))
            assert store.history(JOB.name) == before
            monkeypatch.setattr(policy_plugins, "LIMIT_S", 60.0)
            ask(store, number)
            monkeypatch.setattr(policy_plugins, "LIMIT_S", 0.05)
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0.0

    def test_one_that_is_too_late_is_not_asked_again(self, postgresql, monkeypatch):
        """Not even where the server has ended the transaction meanwhile, as after 120 s."""
        address = postgresql.url(name := postgresql.new_database())
        store = JobStore.open(address)
        store.define(JOB)
        number = store.begin_recurrence(JOB.name, GPU_TYPE, max_power_w=250.0, host="node1")
        others = f"datname = '{name}' AND pid <> pg_backend_pid()"
        asked = []

        class LateFactory(LedgerFactory):
            def __call__(self, **arguments):
                asked.append(1)
                end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"
                assert postgresql.execute(end, name) == [(True,)]
                return super().__call__(**arguments)

        monkeypatch.setattr(policy_plugins, "_alarm", lambda *_: nullcontext())
        monkeypatch.setattr(policy_plugins, "LIMIT_S", 0.0)
        with pytest.raises(PolicyError, match="did not answer"):
            ask(store, number, LateFactory())
        assert asked == [1]

    def test_an_outcome_that_it_cannot_be_told_is_not_lost(self, store, number):
        store.tell(ask(store, number).key, result(5.0))
        with pytest.raises(PolicyError):
            ask(store, number, FailingFactory("tell"))
        started = store.start_try(
            JOB.name, number, GPU_TYPE, host="node1", value=JOB.default, lease_s=LEASE_S
        )
        store.tell(started.key, result(6.0))
        ask(store, number)  # with a policy that was repaired
        assert [row[3] for row in saved_account(store)["told"]] == [5.0, 6.0]

    def test_a_value_that_the_job_does_not_have_is_refused(self, store):
        factory = BudgetFactory()
        store.define(replace(JOB, name="other", values=(8,), default=8))
        other = store.begin_recurrence("other", GPU_TYPE, max_power_w=250.0, host="node1")
        with pytest.raises(PolicyError, match="batch_size 16"):
            store.ask("other", other, GPU_TYPE, host="node1", factory=factory, lease_s=LEASE_S)


class TestStatesThatCannotBeUsed:
    def damage(self, address, **columns):
        import sqlalchemy as sa

        from joulewise.optimise.recurring.store.database import Database
        from joulewise.optimise.recurring.store.tables import POLICIES

        Database(address, for_writing=True).write(
            lambda connection: connection.execute(sa.update(POLICIES).values(**columns))
        )

    @pytest.mark.parametrize(
        "columns",
        [
            {"state": '{"asks": 3, "to'},
            {"state": "[1, 2]"},
            {"state": "{}"},
            {"version": 99},
            {"version": None},
        ],
    )
    def test_the_policy_learns_again_from_the_tries_and_says_so(
        self, store, address, clock, warnings, columns
    ):
        number = store.begin_recurrence(JOB.name, GPU_TYPE, max_power_w=250.0, host="node1")
        for cost in (1.0, 2.0):
            store.tell(ask(store, number).key, result(cost))
            clock.advance(1)
        store.tell(ask(store, number).key, TryOutcome(TryStatus.CRASHED))
        ask(store, number)
        store.tell(ask(store, number).key, TryOutcome(TryStatus.FAILED))
        before = account(store)
        self.damage(address, **columns)
        assert account(store)["told"] == before["told"]
        ask(store, number)
        after = saved_account(store)
        assert (after["told"], after["crashed"]) == (before["told"], before["crashed"])
        assert after["cancelled"] == []
        assert [JOB.name in warning for warning in warnings] == [True, True]  # one for each look

    def test_what_is_told_while_it_learns_again_is_told_to_it_once(self, postgresql, clock):
        address = postgresql.url(postgresql.new_database())
        store = JobStore.open(address, now_ns=clock)
        store.define(JOB)
        number = store.begin_recurrence(JOB.name, GPU_TYPE, max_power_w=250.0, host="node1")
        other = ask(store, number)

        class MeanwhileFactory(LedgerFactory):
            def restore(self, *_):
                store.tell(other.key, result(5.0))  # by another worker, between two queries
                raise ValueError("not readable")

        ask(store, number, MeanwhileFactory())
        ask(store, number)
        assert [row[3] for row in saved_account(store)["told"]] == [5.0]


class TestAtTheSameTime:
    """What a worker does while another has the policy; in SQLite it waits for the whole file."""

    def during_an_ask(self, store, number, action):
        """Run an action in a thread that begins while the policy is asked; wait for its end."""
        outcomes = []

        class WatchedFactory(LedgerFactory):
            def restore(self, state, version):
                thread.start()
                thread.join(0.3)  # what need not wait is done by then
                return super().restore(state, version)

        def act():
            outcomes.append(action())

        ask(store, number)
        thread = threading.Thread(target=act)
        ask(store, number, WatchedFactory())
        thread.join()
        return outcomes

    def test_values_that_are_added_reach_the_policy(self, store, number):
        larger = replace(JOB, values=(*JOB.values, 64))
        assert self.during_an_ask(store, number, lambda: store.define(larger)) == [larger]
        ask(store, number)
        assert saved_account(store)["batch_sizes"] == [8, 16, 32, 64]

    def test_a_job_is_forgotten_after_the_ask(self, store, number):
        assert self.during_an_ask(store, number, lambda: store.forget(JOB.name)) == [2]
        assert store.jobs() == ()

    def test_two_are_asked_one_after_the_other(self, store, number):
        self.during_an_ask(store, number, lambda: ask(store, number))
        assert saved_account(store)["asks"] == 3
        numbers = [each.number for each in store.history(JOB.name).tries]
        assert numbers == [1, 2, 3]


class TestShowing:
    def test_all_histories_are_read_at_once(self, store, number, clock):
        store.define(replace(JOB, name="a-job"))
        store.tell(ask(store, number).key, result(5.0))
        clock.advance(5)
        ask(store, number)
        assert [one.name for one in store.jobs()] == ["a-job", JOB.name]
        unused, used = store.histories()
        assert unused.tries == ()
        assert used == store.history(JOB.name)
        assert len(used.tries) == 2

    def test_an_export_has_the_same_columns_in_each_row(self, store, number):
        limited = replace(result(5.0), settings=Setting.of({"power_limit_w": 150.0}))
        store.tell(ask(store, number).key, limited)
        ask(store, number)
        first, second = store.export(JOB.name)
        assert list(first) == list(second)
        assert (first["settings.power_limit_w"], second["settings.power_limit_w"]) == (150.0, None)
        assert (first["status"], first["cost"], first["target"]) == (
            "reached",
            5.0,
            "val_acc>=0.65",
        )
        json.dumps(first)

    def test_a_forgotten_job_is_gone_and_others_stay(self, store, number):
        store.define(replace(JOB, name="other"))
        started = ask(store, number)
        assert store.forget(JOB.name) == 1
        assert [each.name for each in store.jobs()] == ["other"]
        with pytest.raises(UsageError):
            store.history(JOB.name)
        with pytest.raises(ForgottenJobError):
            store.tell(started.key, result(5.0))
        store.define(replace(JOB, eta=1.0))
        assert store.history(JOB.name).tries == ()

    def test_a_reader_sees_what_was_written(self, store, address, number):
        ask(store, number)
        reader = open_job_store(address, for_writing=False)
        assert reader.history(JOB.name) == store.history(JOB.name)
