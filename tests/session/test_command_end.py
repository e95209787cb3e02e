"""What happens when a command has ended, in which order."""

import contextlib
import os
from types import SimpleNamespace

import pytest

from joulewise.session.run import await_result
from joulewise.store.manifest import CommandRecord


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends[0]
    for end in ends:
        os.close(end)


def test_who_waits_for_the_end_hears_of_it_before_the_result_is_computed(pipe, tmp_path):
    order = []

    class Recorder:
        ready, lost, remark = SimpleNamespace(run=tmp_path), False, ""

        def fileno(self):
            return pipe

        def command_ended(self, *_):
            order.append("told")

        def finish(self, _impatient):
            order.append("computed")

    command = SimpleNamespace(
        pid=7, descriptors=(), look_s=None, cpu_s=None, exit_status=3, ended=lambda: True,
        signals=contextlib.nullcontext(),
    )  # fmt: skip
    limits = SimpleNamespace(end_rest=lambda _: None)
    settings = SimpleNamespace(
        descriptors=(), lost=lambda: None, close=lambda: order.append("ended")
    )
    callbacks = SimpleNamespace(settings=settings, say=lambda _: None, output=None, watch=None)
    started = CommandRecord(7, ("true",), 0)
    outcome = await_result(command, started, Recorder(), limits, callbacks)
    assert order == ["told", "ended", "computed"]
    assert outcome.exit_status == 3
