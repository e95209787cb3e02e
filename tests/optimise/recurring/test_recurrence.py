"""How a recurrence ends: its exit status, and a store that is lost meanwhile."""

from types import SimpleNamespace

import pytest

from joulewise.data.jobs import JobDefinition, JobTarget, TryOutcome, TryStatus
from joulewise.errors import JoulewiseError
from joulewise.optimise.recurring import recurrence
from joulewise.optimise.recurring.job_hardware import JobHardware
from joulewise.optimise.recurring.recurrence import Recurrence, RecurrenceResult, RecurrenceTry
from joulewise.optimise.recurring.try_runner import FinishedTry
from joulewise.optimise.recurring.try_watch import StopReason

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


class LostStore:
    """A job store that starts a try, and cannot be reached afterwards."""

    def __init__(self):
        self.calls = []

    def ask(self, *_, **__):
        self.calls.append("ask")
        return SimpleNamespace(key="k", settings={"b": 8}, job="j", recurrence=1, number=1,
                               budget=None)  # fmt: skip

    def tell(self, *_):
        self.calls.append("tell")
        raise JoulewiseError("it is gone", "")

    def policy(self, *_):
        self.calls.append("policy")
        raise JoulewiseError("it is gone", "")


def test_a_store_that_is_lost_is_waited_for_once(tmp_path, monkeypatch):
    outcome = TryOutcome(TryStatus.REACHED, exit_code=0)
    finished = FinishedTry(outcome, None, None, is_cancelled=False, problem="", cost=None)
    monkeypatch.setattr(recurrence, "run_try", lambda *_, **__: finished)
    store, said = LostStore(), []
    one = Recurrence(
        store, JOB, None, JobHardware("board", 1.0), max_tries=1, on_try=lambda _: None,
        say=said.append,
    )  # fmt: skip
    result = one.run(lambda _: SimpleNamespace(store=tmp_path))
    assert (result.exit_status, result.beliefs) == (0, ())
    assert store.calls == ["ask", "tell"]
    assert [path.stem for path in tmp_path.glob(".untold-tries/*.json")] == ["k"]
