"""A knob has one guardian on the whole machine."""

import os
import subprocess
import sys

import pytest
from boards import LIMIT, SM

from joulewise.control.claims import Claims
from processes import first_line

TAKE = """
import sys
from joulewise.control.claims import Claims
from joulewise.data import Knob
assert Claims().take((sys.argv[1], Knob.POWER_LIMIT)) is None
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


def test_who_has_it_is_told_until_they_are_killed(claims, device):
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


def test_who_has_it_is_told_as_often_as_is_asked(claims, device):
    where = device, LIMIT
    assert claims.take(where) is None
    for _ in range(5):
        for _ in range(60):
            assert Claims().take(where) == (os.getpid(), os.getuid())
        claims.tidy()


def test_another_simulation_has_other_devices_of_the_same_name(claims, device, monkeypatch):
    assert claims.take((device, LIMIT)) is None
    other = Claims()
    monkeypatch.setenv("JOULEWISE_SIM", "/another/simulation")
    assert other.take((device, LIMIT)) is None
    other.keep(())
