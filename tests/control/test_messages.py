"""What people read has units."""

import pytest

from joulewise.control.holds import Change, LeaseHolder, RestoreOutcome, RestoreResult
from joulewise.control.messages import describe, describe_holder
from tests.helpers.failing_gpus import LIMIT, SM


@pytest.mark.parametrize(
    ("outcome", "sentence"),
    [
        (
            RestoreOutcome("gpu0", LIMIT, RestoreResult.RESTORED, 250.0, 200.0),
            "gpu0's power limit back to 250 W",
        ),
        (
            RestoreOutcome("gpu0", SM, RestoreResult.RESTORED, None, None),
            "gpu0's SM clock unlocked",
        ),
        (
            RestoreOutcome("gpu0", SM, RestoreResult.RESTORED, 1380, None),
            "gpu0's SM clock back to 1380 MHz",
        ),
        (
            RestoreOutcome("gpu0", LIMIT, RestoreResult.ALREADY, 187.125, 187.125),
            "gpu0's power limit is at 187.125 W already, as it was before",
        ),
        (
            RestoreOutcome("gpu0", LIMIT, RestoreResult.FOREIGN, 250.0, 225.0),
            "gpu0's power limit is at 225 W, which joulewise did not set, and is left as it is",
        ),
        (
            RestoreOutcome("gpu0", LIMIT, RestoreResult.FAILED, 250.0, None, "it is lost"),
            "gpu0's power limit could not be put back to 250 W: it is lost",
        ),
        (
            RestoreOutcome("gpu0", SM, RestoreResult.FAILED, None, None, "it is lost"),
            "gpu0's SM clock could not be unlocked: it is lost",
        ),
    ],
)
def test_outcomes(outcome, sentence):
    assert describe(outcome) == sentence
    assert RestoreOutcome.from_json(outcome.as_json()) == outcome


def test_changes():
    changes = [
        Change("GPU-0", "gpu0", LIMIT, 300, 150),
        Change("GPU-0", "gpu0", SM, None, 12000),
    ]
    assert describe(changes) == (
        "gpu0's power limit from 300 W to 150 W, gpu0's SM clock from unlocked to 12000 MHz"
    )


def test_who(monkeypatch):
    monkeypatch.setattr("time.localtime", __import__("time").gmtime)
    assert describe_holder(LeaseHolder(4711, 0, "python", 0)) == (
        "pid 4711 (python, user root) since 1970-01-01 00:00:00"
    )
    assert "user 3999999999" in describe_holder(LeaseHolder(1, 3999999999, "python", 0))
