"""A holder's line to a guardian that is slow, rude or gone."""

import socket

import pytest

from joulewise.control import client as client_module
from joulewise.control.client import Client, GoneError
from joulewise.control.protocol import line, refused_line, release_line
from joulewise.errors import HeldError, JoulewiseError

READY, DONE = line(kind="ready"), line(kind="released", outcomes=[])


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def connected(pair):
    ours, guardian = pair
    guardian.sendall(READY)
    return Client(ours), guardian


def test_who_is_not_welcome_is_told_why(pair):
    ours, guardian = pair
    guardian.sendall(refused_line(HeldError("too many", "later")))
    with pytest.raises(HeldError, match="too many"):
        Client(ours)
    assert ours.fileno() == -1


def test_what_was_said_before_it_hung_up_is_heard(connected):
    client, guardian = connected
    guardian.sendall(refused_line(HeldError("enough", "later")))
    guardian.close()
    with pytest.raises(HeldError, match="enough"):
        client.ask(release_line("1"))
    with pytest.raises(GoneError, match="was ended"):
        client.ask(release_line("1"))


def test_an_answer_that_came_too_late_is_not_the_next_ones(connected, monkeypatch):
    client, guardian = connected
    with monkeypatch.context() as patch:
        patch.setattr(client_module, "_ANSWER_S", 0.01)
        with pytest.raises(JoulewiseError, match="does not answer") as told:
            client.ask(release_line("1"))
    assert not isinstance(told.value, GoneError)
    guardian.sendall(refused_line(HeldError("the first", "")) + line(kind="released", outcomes=[2]))
    assert client.ask(release_line("2"))["outcomes"] == [2]


def test_a_lease_that_nobody_waited_for_is_released(connected, monkeypatch):
    client, guardian = connected

    def interrupt(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(client, "_answer", interrupt)
        with pytest.raises(KeyboardInterrupt):
            client.ask(b'"a lease"\n')
    guardian.sendall(line(kind="leased", hold="7", enforced={}, notes=[]) + DONE + DONE)
    assert client.ask(b'"another"\n') == {"kind": "released", "outcomes": []}
    asked = guardian.recv(1000)
    assert asked == b'"a lease"\n' + release_line("7") + b'"another"\n'
