"""Another user at the address of our group's recorder."""

import os

import pytest

from joulewise.process.json_lines import JsonSocket
from joulewise.session import recorder_client
from joulewise.session.group import TakenError, address, join, listen
from joulewise.session.recorder_client import RecorderProcess
from joulewise.session.request import Request


@pytest.fixture
def taken(tmp_path, monkeypatch):
    """The store; whoever listens at its group ``g`` is said to be somebody else."""
    monkeypatch.setattr(JsonSocket, "peer", lambda _: (1, os.getuid() + 1))
    with listen(address(tmp_path, "g")):
        yield tmp_path


def test_it_is_reported_from_an_address_that_is_free(taken):
    with pytest.raises(TakenError):
        join(address(taken, "g"))
    assert join(address(taken, "h")) is None


def test_we_go_alone_at_once(taken, monkeypatch):
    started = []

    def start(*_args, shared, **_options):
        started.append(shared)
        return None if shared else (None, None, "ready")

    monkeypatch.setattr(recorder_client, "start", start)
    assert RecorderProcess.start(taken, Request(group="g")).ready == "ready"
    assert started == [False]
