"""A recording on simulated looks: what must not end it."""

import os

from joulewise.record.manifest import CommandRecord
from joulewise.session.recording import Recording
from joulewise.session.request import Request


def test_a_look_that_fails_is_noted_once_and_ends_nothing(tmp_path):
    recording = Recording(tmp_path, Request(budgets=("1MJ",)), os.environ)
    recording.started(CommandRecord(os.getpid(), ("true",), 0))
    recording._course.look = lambda *_, **__: 1 / 0
    assert recording.look() == []
    assert recording.look() == []
    recording.stop(stopped=False)
    notes = [w.message for w in recording.result().warnings if w.code == "budget"]
    assert notes == ["budgets were not watched to the end: ZeroDivisionError: division by zero"]
