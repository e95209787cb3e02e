"""The service under abuse: whatever is said to it, it neither falls nor turns what it may not."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.control import server as server_module
from joulewise.control.guardian import Guardian
from joulewise.control.journal import read_journals
from joulewise.control.messages import user_name
from joulewise.control.protocol import MAX_MESSAGE_B, LeaseRequest, Release, parse
from joulewise.control.server import GuardianServer
from joulewise.control.service.config import Allowed, Config
from joulewise.control.service.server import AccessControl
from joulewise.data import ControlKind
from joulewise.errors import JoulewiseError, UsageError
from joulewise.testing import ToyClock, ToyDevice
from tests.helpers.paths import BENCHMARKS

BENCHMARK = BENCHMARKS / "guard_abuse.py"
BEFORE_W, LOWEST_W, HIGHEST_W = 80, 60, 70
CONFIG = Config(
    "root", allowed=(Allowed(("gpu0",), {ControlKind.POWER_LIMIT: (LOWEST_W, HIGHEST_W)}),)
)

ROUNDS = 1000


def lease_line(limit_w=65):
    wanted = [{"device": "gpu0", "settings": {"power_limit_w": limit_w}}]
    return json.dumps({"kind": "lease", "wanted": wanted}).encode() + b"\n"


anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
leases = st.fixed_dictionaries(
    {
        "kind": st.just("lease"),
        "wanted": st.lists(
            st.fixed_dictionaries(
                {
                    "device": st.sampled_from(["gpu0", "TOY-gpu0", "gpu1"]),
                    "settings": st.dictionaries(
                        st.sampled_from([*(control.value for control in ControlKind), "colour"]),
                        st.floats() | st.sampled_from([60, 65, 70, 100, 10**400]),
                        max_size=2,
                    ),
                }
            ),
            max_size=2,
        ),
        "force": st.booleans() | anything,
    }
)
releases = st.builds(lambda n: {"kind": "release", "hold": str(n)}, st.integers(0, 5))
lines = st.sampled_from([60, 65, 70]).map(lease_line) | (leases | releases | anything).map(
    lambda payload: json.dumps(payload).encode() + b"\n"
)
pieces = st.lists(lines | st.binary(max_size=200), max_size=20).map(b"".join)


@st.composite
def mutated(draw):
    data = bytearray(draw(pieces))
    for at in draw(st.lists(st.integers(0, max(len(data) - 1, 0)), max_size=5)) if data else ():
        data[at] = draw(st.integers(0, 255))
    return bytes(data)


class Toy(ToyDevice):
    def __init__(self):
        super().__init__(ToyClock())
        self.turned = []

    def _set(self, info, value):
        self.turned.append(value)
        super()._set(info, value)


@pytest.fixture(autouse=True, scope="module")
def impatient():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_module, "_POLL_S", 0.001)
        yield


def until_all_are_gone(server):
    rounds = iter(range(ROUNDS))
    server.serve(lambda: len(server) == 0 or next(rounds, None) is None)
    assert len(server) == 0


@contextmanager
def serving():
    """A server with one device, which forgets nothing of what was done to it."""
    with tempfile.TemporaryDirectory() as folder:
        said = []
        device = Toy()
        guardian = Guardian(
            Path(folder), [device], said.append, rules=[AccessControl(lambda: CONFIG).check]
        )
        server = GuardianServer(guardian, log=said.append)
        try:
            yield server, device
        finally:
            server.close()
        assert device.get(ControlKind.POWER_LIMIT) == BEFORE_W
        assert all(LOWEST_W <= value <= HIGHEST_W or value == BEFORE_W for value in device.turned)
        assert not any(file.holds for file in read_journals(Path(folder)))
        guardian.close()
        assert not read_journals(Path(folder))
        assert not [line for line in said if "unexpected" in line]


@given(st.binary(max_size=300) | lines)
def test_a_message_is_a_request_or_a_usage_error(message):
    try:
        request = parse(message)
    except UsageError:
        return
    assert isinstance(request, LeaseRequest | Release)


@settings(deadline=None)
@given(data=mutated(), parts=st.integers(1, 50), half=st.booleans())
def test_whatever_comes_the_server_goes_on_and_puts_back(data, parts, half):
    cut = len(data) // parts + 1
    with serving() as (server, _):
        ours, theirs = socket.socketpair()
        server.add(theirs)
        with ours:
            ours.setblocking(False)
            for start in range(0, len(data), cut):
                ours.send(data[start : start + cut])
            if half:
                ours.shutdown(socket.SHUT_WR)
            else:
                ours.close()
            until_all_are_gone(server)


@settings(deadline=None, max_examples=30)
@given(st.lists(mutated(), min_size=2, max_size=5))
def test_several_at_once(each_sends):
    with serving() as (server, _):
        lines = []
        for data in each_sends:
            ours, theirs = socket.socketpair()
            server.add(theirs)
            ours.sendall(data)
            ours.shutdown(socket.SHUT_WR)
            lines.append(ours)
        until_all_are_gone(server)
        for line in lines:
            line.close()


@contextmanager
def connected(server):
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    server.add(theirs)
    with ours:
        yield ours


def test_a_message_without_an_end_is_not_read_on(monkeypatch):
    monkeypatch.setattr(server_module, "_PARTIAL_MESSAGE_S", 1e9)
    with serving() as (server, device), connected(server) as line:
        line.send(lease_line() + b"x" * (MAX_MESSAGE_B + 4096))
        until_all_are_gone(server)
        assert device.turned == [65, BEFORE_W]


def test_who_does_not_finish_a_message_is_gone(monkeypatch):
    monkeypatch.setattr(server_module, "_PARTIAL_MESSAGE_S", 0)
    with serving() as (server, device), connected(server) as line:
        line.send(lease_line() + b'{"kind"')
        until_all_are_gone(server)
        assert device.turned == [65, BEFORE_W]


def test_who_waits_between_messages_stays(monkeypatch):
    monkeypatch.setattr(server_module, "_PARTIAL_MESSAGE_S", 0)
    with serving() as (server, device), connected(server) as line:
        line.send(lease_line())
        server.serve(lambda: bool(device.turned))
        rounds = iter([False, False, True])
        server.serve(lambda: next(rounds))
        assert len(server) == 1
        assert device.turned == [65]


def test_who_does_not_read_is_gone():
    with serving() as (server, _), connected(server) as line:
        for _ in range(50):
            try:
                line.send(b"\n" * 4096)
            except BlockingIOError:
                pass
            except OSError:
                break
            rounds = iter([False, True])
            server.serve(lambda rounds=rounds: next(rounds))
        assert len(server) == 0


def test_the_log_does_not_drown_in_what_one_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        said = []
        server = GuardianServer(Guardian(Path(folder), [Toy()], said.append), log=said.append)
        with connected(server) as line:
            line.send(b"\n" * 500)
            line.shutdown(socket.SHUT_WR)
            until_all_are_gone(server)
        server.close()
        assert sum("refused" in line for line in said) == 20
        assert said[-1] == f"and 480 more of user {user_name(os.getuid())}"


def test_a_program_cannot_write_into_the_log_by_its_name():
    code = """
import socket
from pathlib import Path
Path("/proc/self/comm").write_bytes(b"a\\nb\\x1b[2Jc")
from joulewise.control.server import Connection
print(Connection(socket.socketpair()[0]).holder.program)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "a?b?[2Jc\n"


def test_who_is_not_admitted_hears_why(tmp_path):
    def nobody(_holder, _connected):
        raise JoulewiseError("not today", "come back tomorrow")

    with serving() as (_, device), socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        guardian = Guardian(tmp_path, [device], print)
        server = GuardianServer(guardian, listener, admit=nobody)
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(tmp_path / "s"))
            rounds = iter([False, True])
            server.serve(lambda: next(rounds))
            assert json.loads(line.recv(4096))["message"] == "not today"
            assert line.recv(1) == b""
        server.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change settings for others")
def test_thousands_of_messages_to_a_real_service():
    done = subprocess.run(
        [sys.executable, BENCHMARK, "--messages", "3000"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
