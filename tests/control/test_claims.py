"""A control has one guardian on the whole machine."""

import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import pytest

from joulewise.control import claims as claims_module
from joulewise.control.claims import Claims
from joulewise.control.guardian import DeviceRequest, Guardian
from joulewise.errors import HeldError
from tests.helpers.failing_gpus import HOLDER, LIMIT, SM, Board
from tests.helpers.processes import first_line

TAKE = """
import sys
from joulewise.control.claims import Claims
from joulewise.data import ControlKind
assert Claims().take((sys.argv[1], ControlKind.POWER_LIMIT)) is None
print("taken", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def device(tmp_path):
    return f"GPU-{tmp_path}"


@pytest.fixture
def claims():
    ours = Claims()
    yield ours
    ours.keep(())


def test_who_has_it_is_reported_until_they_are_killed(claims, device):
    taker = subprocess.Popen(
        [sys.executable, "-c", TAKE, device], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with taker:
        assert first_line(taker.stdout) == b"taken\n"
        assert claims.take((device, LIMIT)) == (taker.pid, os.getuid())
        assert claims.take((device, SM)) is None
        taker.kill()
    assert claims.take((device, LIMIT)) is None


def test_what_is_ours_already_stays_ours_and_what_is_let_go_is_free(claims, device):
    other = Claims()
    where = device, LIMIT
    assert claims.take(where) is None
    assert claims.take(where) is None
    claims.keep({where})
    assert other.take(where) == (os.getpid(), os.getuid())
    claims.keep(())
    assert other.take(where) is None
    other.keep(())


def test_who_has_it_is_reported_as_often_as_is_requested(claims, device):
    where = device, LIMIT
    assert claims.take(where) is None
    for _ in range(5):
        for _ in range(60):
            assert Claims().take(where) == (os.getpid(), os.getuid())
        claims.drain_queue()


def test_another_simulation_has_other_devices_of_the_same_name(claims, device, monkeypatch):
    assert claims.take((device, LIMIT)) is None
    other = Claims()
    monkeypatch.setenv("JOULEWISE_SIM", "/another/simulation")
    assert other.take((device, LIMIT)) is None
    other.keep(())


SQUAT = """
import os, socket, sys
from joulewise.control.claims import _address
from joulewise.data import ControlKind
os.setuid(65534)
line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
line.bind(_address((sys.argv[1], ControlKind.POWER_LIMIT)))
if sys.argv[2] != "deaf":
    line.listen(0)
if sys.argv[2] == "crowded":
    first = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    first.connect(line.getsockname())
print("taken", flush=True)
sys.stdin.read()
"""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


@contextmanager
def squatter(device, manner):
    """Another user's process that has the address of the device's limit."""
    process = subprocess.Popen(
        [sys.executable, "-c", SQUAT, device, manner], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        try:
            assert first_line(process.stdout) == b"taken\n"
            yield process
        finally:
            process.kill()


@as_root
@pytest.mark.parametrize("manner", ["listens", "crowded", "deaf"])
def test_another_user_cannot_keep_root_from_a_setting(device, tmp_path, manner):
    where = device, LIMIT
    ours, other = Claims(tmp_path), Claims(tmp_path)
    with squatter(device, manner):
        assert ours.take(where, trusted={0}) is None
        assert other.take(where, trusted={0}) == (os.getpid(), 0)  # it is locked all the same
        ours.keep(())
        assert other.take(where, trusted={0}) is None
        other.keep(())
    assert list(tmp_path.iterdir()) == []


@as_root
def test_whom_the_file_behind_a_setting_belongs_to_is_believed(device, tmp_path):
    ours = Claims(tmp_path)
    with squatter(device, "listens") as process:
        assert ours.take((device, LIMIT), trusted={0, 65534}) == (process.pid, 65534)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_holds_where_the_address_is_another(device, tmp_path, monkeypatch):
    """As in two network namespaces with the same folder."""
    ours, other = Claims(tmp_path), Claims(tmp_path)
    assert ours.take((device, LIMIT)) is None
    monkeypatch.setattr(claims_module, "_address", lambda _: b"\0joulewise-test-%d" % os.getpid())
    assert other.take((device, LIMIT)) == (os.getpid(), 0)
    ours.keep(())
    assert other.take((device, LIMIT)) is None
    other.keep(())


def test_a_lock_whose_holder_was_killed_is_free(device, tmp_path):
    take = TAKE.replace("Claims()", "Claims(__import__('pathlib').Path(sys.argv[2]))")
    taker = subprocess.Popen(
        [sys.executable, "-c", take, device, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    ours = Claims(tmp_path)
    with taker:
        assert first_line(taker.stdout) == b"taken\n"
        assert ours.take((device, LIMIT)) == (taker.pid, 0)
        taker.kill()
    assert ours.take((device, LIMIT)) is None
    ours.keep(())


@as_root
def test_another_user_cannot_keep_root_from_a_lease(tmp_path):
    board = Board()
    guardian = Guardian(tmp_path, [board], [].append, patience_s=0)
    with squatter(board.info.uid, "listens"):
        guardian.lease("us", HOLDER, [DeviceRequest("gpu0", {LIMIT: 200.0})])
        assert board.values[LIMIT] == 200
        guardian.drop("us")
        guardian.close()
    assert board.values[LIMIT] == 250


@as_root
def test_who_owns_the_file_behind_a_setting_keeps_root_from_it(tmp_path):
    board = Board()
    board.controls[LIMIT] = replace(board.controls[LIMIT], owner=65534)
    guardian = Guardian(tmp_path, [board], [].append, patience_s=0)
    with squatter(board.info.uid, "listens") as process, pytest.raises(HeldError) as refusal:
        guardian.lease("us", HOLDER, [DeviceRequest("gpu0", {LIMIT: 200.0})])
    guardian.close()
    assert f"pid {process.pid} of user nobody" in refusal.value.message


@as_root
def test_only_root_may_enter_the_folder_of_locks(tmp_path, monkeypatch):
    monkeypatch.delenv("JOULEWISE_SIM", raising=False)
    monkeypatch.setattr(claims_module, "_RUN_FOLDER", tmp_path / "run")
    folder = claims_module.lock_folder()
    assert folder.stat().st_mode & 0o077 == 0
    monkeypatch.setenv("JOULEWISE_SIM", "a simulation")
    assert claims_module.lock_folder() is None
