"""Whether a signal went to the whole group, by a process that got it too."""

import os
import signal

import pytest

from joulewise.process import linux, signals
from joulewise.process.signals import Witness
from tests.helpers.processes import eventually

pytestmark = pytest.mark.skipif(not linux.IS_LINUX, reason="only Linux tells what is pending")
TERM = 1 << signal.SIGTERM - 1


@pytest.fixture
def looks(monkeypatch):
    """Of a witness that gets SIGTERM at its tenth look: the number of looks, without the time."""
    seen = []

    def pending(_):
        seen.append(TERM if len(seen) >= 9 else 0)
        return seen[-1]

    monkeypatch.setattr(Witness, "pending", pending)
    monkeypatch.setattr(signals.select, "select", lambda *_: None)
    return seen


@pytest.fixture
def watching():
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    made = Witness()
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    yield made
    made.close()


def test_one_who_signals_process_by_process_is_waited_for(looks, watching):
    assert watching.await_others([signal.SIGTERM]) == TERM
    assert len(looks) < 15, "what was witnessed is not waited for"


def test_a_signal_that_only_we_got_is_waited_for_in_vain(looks, watching):
    assert not watching.await_others([signal.SIGINT]) & 1 << signal.SIGINT - 1
    assert len(looks) > 15


@pytest.mark.parametrize("numbers", [[], [signal.SIGUSR1]])
def test_what_all_got_and_what_ends_nothing_is_not_waited_for_longer(looks, watching, numbers):
    assert watching.await_others(numbers) == 0
    assert len(looks) <= 2


def test_what_only_others_got_is_forgotten(watching):
    """As by ``pkill --parent``: the next signal of that number that we get is for the command."""
    os.kill(watching._process.pid, signal.SIGTERM)
    eventually(watching.pending)
    watching.drop_stale(10.0)
    watching.drop_stale(10.1)
    assert watching.pending() == TERM, "whoever signals one process after the other is waited for"
    watching.drop_stale(10.5)
    assert watching.pending() == 0


def test_a_killed_witness_saw_nothing(watching):
    """Signals then count as sent to us alone, and are passed on."""
    os.kill(watching._process.pid, signal.SIGKILL)
    eventually(lambda: watching._process.poll() is not None)
    assert watching.pending() == 0
    assert watching.await_others([signal.SIGTERM]) == 0
