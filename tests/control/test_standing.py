"""What is turned now and who sees to it, read from journals of the living and the dead."""

import os
import subprocess
import sys

import pytest

from joulewise.command.leftovers import has_leftover
from joulewise.control.holds import Change, Hold, Holder
from joulewise.control.journal import Journal
from joulewise.control.standing import Keeper, settled, standing
from joulewise.data import Knob

CHANGE = Change("GPU-1", "gpu0", Knob.POWER_LIMIT, 250.0, 150.0)


@pytest.fixture
def dead_pid():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path)
    yield journal
    journal.close(leave=False)


def hold(pid):
    return Hold("1", Holder(pid, 0, "python", 0.0), (CHANGE,))


def test_a_living_holder_keeps_its_knob(tmp_path, journal):
    journal.begin(hold(os.getpid()))
    (found,) = standing(tmp_path)
    assert (found.change, found.keeper) == (CHANGE, Keeper.HOLDER)
    assert not has_leftover(tmp_path)
    assert settled(tmp_path, 10, sleep=pytest.fail)


def test_a_guardian_whose_holder_is_dead_is_waited_for(tmp_path, journal, dead_pid):
    journal.begin(hold(dead_pid))
    assert standing(tmp_path)[0].keeper is Keeper.GUARDIAN
    assert settled(tmp_path, 10, sleep=lambda _: journal.end("1"), now_s=lambda: 0)


def test_patience_has_an_end(tmp_path, journal, dead_pid):
    journal.begin(hold(dead_pid))
    clock_s = iter(range(100))
    assert not settled(tmp_path, 10, sleep=lambda _: None, now_s=lambda: next(clock_s))


def test_what_a_killed_guardian_left_is_nobodys(tmp_path, dead_pid):
    journal = Journal(tmp_path)
    journal.begin(hold(dead_pid))
    journal.close(leave=True)
    assert standing(tmp_path)[0].keeper is Keeper.NOBODY
    assert has_leftover(tmp_path)


def test_there_need_not_be_a_folder(tmp_path):
    assert not has_leftover(tmp_path / "nowhere")
    assert standing(tmp_path / "nowhere") == []
