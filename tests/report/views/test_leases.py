"""What doctor tells of a guard service that is there, and not for us now."""

import io
import os
import socket

import pytest
from rich.console import Console

from joulewise.control.client import Client
from joulewise.control.holds import Change, Hold, LeaseHolder
from joulewise.control.journal import Journal
from joulewise.control.permissions import not_a_member_error
from joulewise.control.protocol import line, refused_line
from joulewise.data import ControlKind
from joulewise.errors import JoulewiseError
from joulewise.report.terminal import leases as drawing
from joulewise.report.views import leases


@pytest.fixture
def listener(tmp_path, monkeypatch):
    monkeypatch.setattr(leases, "_PATIENCE_S", 0.05)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "guard.sock"))
        listener.listen(0)
        yield listener


def environ(tmp_path):
    return {"JOULEWISE_STATE": str(tmp_path), "JOULEWISE_GUARD": str(tmp_path / "guard.sock")}


def shown(found):
    result = io.StringIO()
    drawing.draw(found, Console(file=result, width=200))
    return result.getvalue()


def greet(greeting):
    """Connect to a service that says this."""
    ours, theirs = socket.socketpair()
    theirs.sendall(greeting)
    theirs.close()
    return lambda *_: Client(ours, is_service=True)


def test_one_that_hangs(tmp_path, listener):  # noqa: ARG001
    found = leases.leases(environ(tmp_path))
    payload = leases.as_json(found)["service"]
    assert not payload["answers"]
    assert payload["reason"] == "the guardian of the settings does not answer"
    assert "guard service: the guardian of the settings does not answer\n    fix: " in shown(found)


def test_one_with_a_full_queue(tmp_path, listener):
    with socket.socket(socket.AF_UNIX) as first:
        first.connect(listener.getsockname())
        found = leases.leases(environ(tmp_path))
    assert "is busy" in leases.as_json(found)["service"]["reason"]
    assert " is busy\n    fix: try again in a moment\n" in shown(found)


def test_one_that_refuses_us(tmp_path, monkeypatch):
    refused = refused_line(JoulewiseError("2 holders are connected already", "try again later"))
    monkeypatch.setattr(Client, "of_the_service", greet(refused))
    payload = leases.as_json(leases.leases(environ(tmp_path)))["service"]
    assert payload == {
        "answers": False,
        "reason": "2 holders are connected already",
        "fix": "try again later",
    }


def test_one_of_another_group(tmp_path, monkeypatch):
    def connect(_environ, _patience_s):
        raise not_a_member_error(str(tmp_path))

    monkeypatch.setattr(Client, "of_the_service", connect)
    found = leases.leases(environ(tmp_path))
    assert "and you are not in it" in leases.as_json(found)["service"]["reason"]
    assert "    fix: run `sudo usermod -aG " in shown(found)


def test_one_that_answers(tmp_path, monkeypatch):
    theirs = tmp_path / "of the service"
    ready = line(kind="ready", state=str(theirs))
    monkeypatch.setattr(Client, "of_the_service", greet(ready))
    change = Change("GPU-1", "gpu0", ControlKind.POWER_LIMIT, 250.0, 200.0)
    kept = Journal(theirs)
    kept.begin(Hold("1", LeaseHolder(os.getpid(), os.getuid(), "python", 0.0), (change,)))
    found = leases.leases(environ(tmp_path))
    kept.close(leave=False)
    assert [each.change for each in found.held] == [change]
    path = str(tmp_path / "guard.sock")
    assert leases.as_json(found)["service"] == {"answers": True, "socket": path}
    assert f"the guard service answers at {path}" in shown(found)
