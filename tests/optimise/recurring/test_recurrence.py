"""How a recurrence ends: its exit status, and a store that is lost meanwhile."""

from types import SimpleNamespace

import pytest

from joulewise.data.jobs import JobDefinition, JobTarget, TryOutcome, TryStatus
from joulewise.errors import ForgottenJobError, JoulewiseError
from joulewise.optimise.recurring import recurrence
from joulewise.optimise.recurring.job_hardware import JobHardware
from joulewise.optimise.recurring.recurrence import Recurrence, RecurrenceResult, RecurrenceTry
from joulewise.optimise.recurring.try_runner import FinishedTry
from joulewise.optimise.recurring.try_watch import StopReason
from joulewise.optimise.recurring.untold_outcomes import (
    UntoldOutcome,
    tell_kept_outcomes,
    write_outcome,
)

JOB = JobDefinition("j", "b", (8,), 8, JobTarget("acc", 0.5, is_at_least=True), 3, 0.5, "p", 0)
TERMINATED = 128 + 15


@pytest.mark.parametrize(
    ("status", "exit_code", "stop", "expected"),
    [
        (TryStatus.REACHED, 0, None, 0),
        (TryStatus.REACHED, 3, None, 3),
        (TryStatus.REACHED, TERMINATED, StopReason.REACHED, 0),
        # The target was met by the epoch at whose end the command was told to end.
        (TryStatus.REACHED, TERMINATED, StopReason.BUDGET, 0),
        (TryStatus.STOPPED_EARLY, TERMINATED, StopReason.BUDGET, 1),
        (TryStatus.MISSED, 0, None, 1),
        (TryStatus.CRASHED, 7, None, 1),
        (TryStatus.FAILED, 7, None, 7),
        (TryStatus.FAILED, 0, None, 1),
    ],
)
def test_the_exit_status(status, exit_code, stop, expected):
    outcome = TryOutcome(status, exit_code=exit_code)
    finished = FinishedTry(outcome, None, stop, is_cancelled=False, problem="", cost=None)
    result = RecurrenceResult(JOB, 1, (RecurrenceTry(None, finished),))
    assert result.exit_status == expected


def kept(folder):
    return [path.stem for path in folder.glob(".untold-tries/*.json")]


class LostStore:
    """A job store that starts a try, and cannot be reached afterwards."""

    shown = "jobs.sqlite"
    error = JoulewiseError("it is gone", "")

    def __init__(self, folder):
        self.calls = []
        self.folder = folder

    def ask(self, *_, **__):
        self.calls.append("ask")
        return SimpleNamespace(key="k", settings={"b": 8}, job="j", recurrence=1, number=1,
                               budget=None)  # fmt: skip

    def tell(self, *_):
        self.calls.append("tell")
        self.kept = kept(self.folder)
        raise self.error

    def policy(self, *_):
        self.calls.append("policy")
        raise JoulewiseError("it is gone", "")


OUTCOME = TryOutcome(TryStatus.REACHED, exit_code=0)
FINISHED = FinishedTry(OUTCOME, None, None, is_cancelled=False, problem="", cost=None)


def run_with(store, folder, said=None):
    one = Recurrence(
        store, JOB, None, JobHardware("board", 1.0), max_tries=1, on_try=lambda _: None,
        say=[].append if said is None else said.append,
    )  # fmt: skip
    return one.run(lambda _: SimpleNamespace(store=folder))


def test_a_store_that_is_lost_is_waited_for_once(tmp_path, monkeypatch):
    monkeypatch.setattr(recurrence, "run_try", lambda *_, **__: FINISHED)
    store = LostStore(tmp_path)
    result = run_with(store, tmp_path)
    assert (result.exit_status, result.beliefs) == (0, ())
    assert store.calls == ["ask", "tell"]
    assert kept(tmp_path) == ["k"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
def test_an_outcome_is_in_a_file_before_the_store_is_told(tmp_path, monkeypatch, error):
    monkeypatch.setattr(recurrence, "run_try", lambda *_, **__: FINISHED)
    store = LostStore(tmp_path)
    store.error = error
    with pytest.raises(type(error)):
        run_with(store, tmp_path)
    assert (store.kept, kept(tmp_path)) == (["k"], ["k"])
    told = []
    later = SimpleNamespace(tell=lambda *words: told.append(words) or True, shown=store.shown)
    tell_kept_outcomes(later, tmp_path, lambda _: None)
    assert (told, kept(tmp_path)) == ([("k", OUTCOME)], [])


def test_ctrl_c_while_the_cost_is_measured_does_not_undo_what_was_reached(tmp_path, monkeypatch):
    def interrupted(*_, on_end, **__):
        on_end(OUTCOME)
        raise KeyboardInterrupt

    monkeypatch.setattr(recurrence, "run_try", interrupted)
    store, told = LostStore(tmp_path), []
    store.tell = lambda *words: told.append(words) or True
    with pytest.raises(KeyboardInterrupt):
        run_with(store, tmp_path)
    assert (told, kept(tmp_path)) == ([("k", OUTCOME)], [])


def test_what_a_forgotten_job_would_have_been_told_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(recurrence, "run_try", lambda *_, **__: FINISHED)
    store, said = LostStore(tmp_path), []
    store.error = ForgottenJobError("its job was forgotten", "")
    run_with(store, tmp_path, said)
    assert (said[:1], kept(tmp_path)) == (["its job was forgotten"], [])


@pytest.mark.parametrize(("database", "left"), [("jobs.sqlite", []), ("other.sqlite", ["k"])])
def test_an_outcome_of_another_database_is_kept(tmp_path, database, left):
    write_outcome(tmp_path, "k", UntoldOutcome(database, OUTCOME))
    store = LostStore(tmp_path)
    store.error = ForgottenJobError("its job was forgotten", "")
    tell_kept_outcomes(store, tmp_path, lambda _: None)
    assert kept(tmp_path) == left
