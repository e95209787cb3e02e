"""A holder's line to a guardian that is slow, rude or gone."""

import os
import socket
import threading

import pytest

from joulewise.control import client as client_module
from joulewise.control.client import Client, GuardianGoneError
from joulewise.control.holds import RestoreOutcome, RestoreResult
from joulewise.control.protocol import ended_line, line, refused_line, release_line
from joulewise.data import ControlKind
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


def test_who_is_not_welcome_is_reported_why(pair):
    ours, guardian = pair
    guardian.sendall(refused_line(HeldError("too many", "later")))
    with pytest.raises(HeldError, match="too many"):
        Client(ours)
    assert ours.fileno() == -1


def test_what_was_shown_before_it_hung_up_is_received(connected):
    client, guardian = connected
    guardian.sendall(refused_line(HeldError("enough", "later")))
    guardian.close()
    with pytest.raises(HeldError, match="enough"):
        client.request(release_line("1"))
    with pytest.raises(GuardianGoneError, match="was killed"):
        client.request(release_line("1"))


def test_an_answer_that_came_too_late_is_not_the_next_ones(connected, monkeypatch):
    client, guardian = connected
    with monkeypatch.context() as patch:
        patch.setattr(client_module, "_ANSWER_DEADLINE_S", 0.01)
        with pytest.raises(JoulewiseError, match="does not answer") as result:
            client.request(release_line("1"))
    assert not isinstance(result.value, GuardianGoneError)
    guardian.sendall(refused_line(HeldError("the first", "")) + line(kind="released", outcomes=[2]))
    assert client.request(release_line("2"))["outcomes"] == [2]


def test_a_lease_that_nobody_waited_for_is_released(connected, monkeypatch):
    client, guardian = connected

    def interrupt(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(client, "_answer", interrupt)
        with pytest.raises(KeyboardInterrupt):
            client.request(b'"a lease"\n')
    guardian.sendall(line(kind="leased", hold="7", enforced={}, notes=[]) + DONE + DONE)
    assert client.request(b'"another"\n') == {"kind": "released", "outcomes": []}
    asked = guardian.recv(1000)
    assert asked == b'"a lease"\n' + release_line("7") + b'"another"\n'


@pytest.fixture
def crowded(tmp_path, monkeypatch):
    """A service that has not accepted anybody yet, with a queue that is full."""
    monkeypatch.chdir(tmp_path)
    path = "guard.sock"  # a whole path may be too long for an address
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(path)
        listener.listen(0)
        first.connect(path)
        yield listener, {"JOULEWISE_GUARD": path}


def test_a_service_with_a_queue_is_not_taken_for_none(crowded):
    _, environ = crowded
    with pytest.raises(JoulewiseError, match="is busy"):
        Client.of_the_service(environ, patience_s=0.05)


def test_who_waits_in_the_queue_is_served(crowded):
    listener, environ = crowded

    def serve():
        for _ in range(2):
            endpoint = listener.accept()[0]
            served.append(endpoint)
            endpoint.sendall(READY)

    served = []
    server = threading.Thread(target=serve)
    threading.Timer(0.05, server.start).start()
    client = Client.of_the_service(environ)
    server.join()
    assert client.is_service
    for endpoint in (client, *served):
        endpoint.close()


def test_no_service_is_none(tmp_path):
    assert Client.of_the_service({"JOULEWISE_GUARD": str(tmp_path / "none.sock")}) is None
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(tmp_path / "gone.sock"))
    assert Client.of_the_service({"JOULEWISE_GUARD": str(tmp_path / "gone.sock")}) is None


def test_what_is_no_socket_is_reported():
    with pytest.raises(JoulewiseError, match="cannot connect to the service"):
        Client.of_the_service({"JOULEWISE_GUARD": os.devnull + "/guard.sock"})


def test_a_guardian_that_is_there_is_not_gone(connected):
    client, guardian = connected
    assert client.gone() is None
    guardian.sendall(DONE)  # to what an interrupt has kept us from reading
    assert client.gone() is None


def test_a_service_that_ends_shows_what_it_has_put_back(connected):
    client, guardian = connected
    back = RestoreOutcome("gpu0", ControlKind.POWER_LIMIT, RestoreResult.RESTORED, 300.0, 150.0)
    guardian.sendall(ended_line([back]))
    guardian.close()
    (result,) = client.gone().outcomes
    assert RestoreOutcome.from_json(result) == back
    with pytest.raises(GuardianGoneError, match="the guard service ended") as ended:
        client.request(b'"release"\n')
    assert ended.value.outcomes == [result]


def test_a_guardian_that_was_killed_shows_nothing(connected):
    client, guardian = connected
    guardian.close()
    assert client.gone().outcomes is None
