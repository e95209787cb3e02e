"""What goes wrong for one holder is not the others'."""

import json
import os
import socket
from contextlib import ExitStack, contextmanager, suppress

import pytest

from joulewise.control import server as server_module
from joulewise.control.guardian import Guardian
from joulewise.control.journal import read_journals
from joulewise.control.server import GuardianServer
from tests.helpers.failing_gpus import LIMIT, Board


class Buggy(Board):
    """Its driver's answer is no number once ``is_mad``."""

    is_mad = False
    looks = 0

    def get(self, control):
        self.looks += 1
        if self.is_mad:
            raise ZeroDivisionError("a bug of ours")
        return super().get(control)


class Place:
    def __init__(self, state):
        self.state = state
        self.boards = [Buggy("gpu0", 240.0), *(Buggy(f"gpu{n}") for n in range(1, 10))]
        self.said = []
        self.guardian = Guardian(state, self.boards, self.said.append)
        self.server = GuardianServer(self.guardian, log=self.said.append)

    @contextmanager
    def client(self):
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.server.add(theirs)
        with ours:
            yield ours

    def ask(self, line, *wanted, then=lambda: None):
        """Send leases of (device, watts) at once; what is answered to the last."""
        for device, watts in wanted:
            settings = {"power_limit_w": watts}
            asked = {"kind": "lease", "wanted": [{"device": device, "settings": settings}]}
            line.send(json.dumps(asked).encode() + b"\n")
        then()
        answers = b""
        for _ in range(1000):
            self.turn(1)
            with suppress(BlockingIOError):
                answers += line.recv(1 << 16)
            if answers.count(b"\n") == len(wanted):
                break
        return json.loads(answers.splitlines()[-1])["kind"]

    def turn(self, rounds):
        left = iter(range(rounds))
        self.server.serve(lambda: next(left, None) is None)

    @property
    def limits_w(self):
        return [board.values[LIMIT] for board in self.boards]

    @property
    def written(self):
        return [hold for file in read_journals(self.state) for hold in file.holds]


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(server_module, "_POLL_S", 0.001)
    made = Place(tmp_path)
    yield made
    made.server.close()
    made.guardian.close()


def test_a_bug_while_something_is_put_back_keeps_nothing_else(place):
    with place.client() as other:
        with place.client() as holder:
            assert place.ask(holder, ("gpu0", 150), ("gpu1", 150)) == "leased"
            place.boards[0].is_mad = True
        place.turn(5)
        assert place.limits_w[:2] == [150, 250]
        assert [change.key for hold in place.written for change in hold.changes] == ["gpu0"]
        assert place.ask(other, ("gpu1", 200)) == "leased"
        place.boards[0].is_mad = False
        place.turn(2)
        assert place.limits_w[:2] == [240, 200]


def test_nor_does_one_in_the_guardian_end_the_service(place, monkeypatch):
    def fails(_owner):
        raise ZeroDivisionError("a bug of ours")

    with place.client() as other:
        with place.client() as holder:
            assert place.ask(holder, ("gpu0", 150)) == "leased"
            monkeypatch.setattr(place.guardian, "drop", fails)
        place.turn(5)
        assert len(place.written) == 1
        assert sum("unexpected ZeroDivisionError" in line for line in place.said) == 1
        assert place.ask(other, ("gpu1", 200)) == "leased"
        monkeypatch.undo()


def test_the_dead_hold_nothing_that_is_requested_for_after_their_death(place, monkeypatch):
    lives, dies = os.pipe()  # what is readable when a process has ended
    with monkeypatch.context() as patch, place.client() as other, ExitStack() as files:
        patch.setattr(server_module, "_pidfd", lambda _pid: lives)
        holder = files.enter_context(place.client())
        assert place.ask(holder, ("gpu0", 150)) == "leased"
        # Heard of in one go, and in the order in which it came.
        assert place.ask(other, ("gpu0", 200), then=lambda: os.write(dies, b"\0")) == "leased"
    os.close(dies)
    assert place.limits_w[0] == 200


def test_what_the_dead_have_still_shown_is_not_received(place, monkeypatch):
    lives, dies = os.pipe()
    with place.client() as other, ExitStack() as files:
        with monkeypatch.context() as patch:
            patch.setattr(server_module, "_pidfd", lambda _pid: lives)
            holder = files.enter_context(place.client())
        assert place.ask(holder, ("gpu0", 150)) == "leased"
        os.write(dies, b"\0")
        holder.send(b"{}\n")  # one that a child has kept open
        assert place.ask(other, ("gpu1", 200)) == "leased"
    os.close(dies)
    assert place.limits_w[:2] == [240, 200]


def test_who_dies_after_asking_is_given_nothing_that_nobody_would_put_back(place, monkeypatch):
    lives, dies = os.pipe()
    with ExitStack() as files:
        with monkeypatch.context() as patch:
            patch.setattr(server_module, "_pidfd", lambda _pid: lives)
            holder = files.enter_context(place.client())
        settings = {"power_limit_w": 150}
        asked = {"kind": "lease", "wanted": [{"device": "gpu0", "settings": settings}]}
        holder.send(json.dumps(asked).encode() + b"\n")
        os.write(dies, b"\0")  # in the same look, after what was asked
        place.turn(5)
    os.close(dies)
    assert place.limits_w[0] == 240
    assert place.written == []


def test_a_lease_is_since_it_was_given(place, monkeypatch):
    with place.client() as holder, monkeypatch.context() as patch:
        patch.setattr(server_module.time, "time", lambda: 4711.0)
        assert place.ask(holder, ("gpu0", 150)) == "leased"
        assert [hold.holder.since_s for hold in place.written] == [4711.0]


def test_others_do_not_wait_for_each_gpu_that_is_lost(place):
    lost = place.boards[1:-1]
    with place.client() as other:
        with place.client() as holder:
            assert place.ask(holder, *((board.info.key, 150) for board in lost)) == "leased"
            for board in lost:
                board.is_lost, board.looks = True, 0
        place.turn(1)
        # One is waited for; the rest is looked at as it is dropped, and again as it is mended.
        assert sum(board.looks for board in lost) <= 2 * len(lost) + 4
        assert place.ask(other, (place.boards[-1].info.key, 200)) == "leased"
        assert len(place.written) == len(lost) + 1
        for board in lost:
            board.is_lost = False
        place.turn(2)
        assert place.limits_w == [240, *(250 for _ in lost), 200]
