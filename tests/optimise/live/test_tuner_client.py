"""The tuner as the front process sees it: one that says nothing any more is given up."""

import os
import signal
import socket
import sys
from types import SimpleNamespace

import pytest

from joulewise.data.tuning import TuningState
from joulewise.optimise.live import tuner_client
from joulewise.optimise.live.tuner_client import TunerClient
from joulewise.optimise.live.tuner_process import TunerHeartbeat
from joulewise.process.json_lines import JsonSocket
from joulewise.store.tuning_file import read_tuning
from tests.helpers.processes import eventually
from tests.optimise.live.tuned_jobs import BEFORE_W, STATUS, tuning


@pytest.fixture
def rig(tmp_path, monkeypatch):
    clock = SimpleNamespace(s=100.0)
    monkeypatch.setattr(tuner_client.time, "monotonic", lambda: clock.s)
    ours, theirs = socket.socketpair()
    said = []
    client = TunerClient(JsonSocket(ours), None, said.append)
    tuner = JsonSocket(theirs)
    yield SimpleNamespace(clock=clock, client=client, tuner=tuner, said=said, run=tmp_path)
    client.cancel()
    tuner.close()


def test_a_tuner_that_says_nothing_for_long_is_given_up(rig):
    assert rig.client.poll_s is None
    rig.client.begin(rig.run)
    for _ in range(10):
        rig.clock.s += 29
        rig.tuner.send("alive")
        rig.client.lost()
        assert rig.client.poll_s < 10
    rig.clock.s += 29
    rig.client.lost()
    assert not rig.client.reason
    rig.clock.s += 2
    rig.client.lost()
    assert rig.client.reason == "the tuner has not answered for 30 s"
    assert rig.client.poll_s is None
    assert rig.client.descriptors == []
    assert len(rig.said) == 1


def test_what_it_sent_while_we_were_stopped_counts(rig):
    rig.client.begin(rig.run)
    rig.tuner.send("alive")
    rig.clock.s += 1000
    rig.client.lost()
    assert not rig.client.reason


def test_one_that_holds_nothing_any_more_may_be_silent(rig):
    rig.client.begin(rig.run)
    heartbeat = TunerHeartbeat(rig.tuner)
    heartbeat.beat()
    heartbeat.beat(is_idle=True)
    rig.client.lost()
    rig.clock.s += 1000
    rig.client.lost()
    assert (rig.client.reason, rig.client.poll_s) == ("", None)


def test_it_waits_for_no_front_process_that_was_stopped(rig):
    for _ in range(100_000):
        rig.tuner.try_send("alive")


def test_settings_go_back_where_the_tuner_is_stopped(tmp_path):
    code = """
import joulewise.optimise.live.tuner_client as client
client._SILENT_S, client._LOOK_S = 3.0, 0.5
from joulewise.cli import main
main()
"""
    with tuning(tmp_path, "--axis", "power-limit", joulewise=(sys.executable, "-c", code)) as job:
        eventually(lambda: job.limit_w() != BEFORE_W)
        os.kill(job.pid_of("joulewise.optimise.live.tuner_process"), signal.SIGSTOP)
        eventually(lambda: job.limit_w() == BEFORE_W)
        _, said, status = job.finish()
        assert status == STATUS
        assert "tuning ended: the tuner has not answered for 3 s" in said
        tuned = read_tuning(job.run)
        assert (tuned.state, tuned.early_end.is_restored) == (TuningState.ENDED, True)
