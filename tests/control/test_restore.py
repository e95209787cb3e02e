"""ControlSettings go back to what was there, if they are still ours."""

import pytest

from joulewise.control.holds import Change, RestoreResult
from joulewise.control.restore import restore_settings
from tests.helpers.failing_gpus import LIMIT, MEMORY, SM, Board


def change(value, before, control=LIMIT, key="gpu0"):
    return Change(f"GPU-{key}", key, control, before, value)


def back(board, *changes, patience_s=0.0, **time):
    return restore_settings(changes, {f"GPU-{board.info.key}": board}, patience_s, **time)


class Time:
    """Passes while one sleeps."""

    def __init__(self):
        self.now = 0.0
        self.meanwhile = lambda: None

    def sleep(self, seconds):
        self.now += seconds
        self.meanwhile()

    def injected(self):
        return {"sleep": self.sleep, "now_s": lambda: self.now}


def test_to_what_it_was_and_not_to_the_default():
    board = Board(limit_w=200.0)
    (outcome,) = back(board, change(200, 237.5))
    assert board.values[LIMIT] == 237.5
    assert (outcome.end, outcome.value, outcome.found) == (RestoreResult.RESTORED, 237.5, 200)


def test_a_little_change_goes_back_too():
    board = Board(limit_w=250.25)
    assert back(board, change(250.25, 250))[0].end is RestoreResult.RESTORED
    assert board.values[LIMIT] == 250


def test_what_was_not_changed_yet_stays():
    board = Board(limit_w=250.0)
    assert back(board, change(200, 250))[0].end is RestoreResult.ALREADY
    assert board.turned == []


def test_what_someone_else_has_set_is_left():
    board = Board(limit_w=175.0)
    (outcome,) = back(board, change(200, 250))
    assert (outcome.end, outcome.found) == (RestoreResult.FOREIGN, 175)
    assert board.turned == []


@pytest.mark.parametrize("found", [200.0, 150.0])
def test_several_changes_of_a_setting_are_undone_in_one_step(found):
    board = Board(limit_w=found)
    back(board, change(200, 250), change(150, 200))
    assert board.turned == [(LIMIT, 250)]


def test_what_someone_else_has_set_between_our_changes_is_what_was_there():
    board = Board(limit_w=150.0)
    back(board, change(200, 250), change(150, 225))
    assert board.values[LIMIT] == 225


def test_the_last_changed_goes_back_first():
    board = Board(limit_w=200.0)
    board.values[SM] = board.values[MEMORY] = 1000
    back(board, change(1000, None, SM), change(200, 250), change(1000, None, MEMORY))
    assert [control for control, _ in board.turned] == [MEMORY, LIMIT, SM]


def test_a_lock_is_reset_or_set_to_the_one_we_know_of():
    board = Board()
    board.values[SM] = 1000
    back(board, change(1000, 1200, SM))
    assert board.values[SM] == 1200
    back(board, change(1200, None, SM))
    assert board.values[SM] is None


def test_a_fault_that_passes_costs_only_time():
    board, time = Board(limit_w=200.0), Time()
    board.refuses = {LIMIT}
    time.meanwhile = board.refuses.clear
    (outcome,) = back(board, change(200, 250), patience_s=1, **time.injected())
    assert outcome.end is RestoreResult.RESTORED
    assert board.values[LIMIT] == 250


def test_patience_ends_and_the_others_have_gone_back():
    board, time = Board(limit_w=200.0), Time()
    board.values[SM], board.refuses = 1000, {LIMIT}
    clock, limit = back(
        board, change(200, 250), change(1000, None, SM), patience_s=1, **time.injected()
    )
    assert (limit.end, limit.reason) == (RestoreResult.FAILED, "gpu0 refuses power_limit_w")
    assert clock.end is RestoreResult.RESTORED
    assert board.turned == [(SM, None)]  # what is back is not turned again
    assert 0.5 < time.now <= 1


def test_a_setter_that_lies_is_found_out():
    board = Board(limit_w=200.0)
    board.is_deaf = True
    (outcome,) = back(board, change(200, 250))
    assert (outcome.end, outcome.reason) == (RestoreResult.FAILED, "it stays at 200 W")


def test_a_bug_in_a_driver_does_not_keep_other_settings():
    board = Board(limit_w=200.0)
    board.values[SM] = 1000
    board._reset = lambda _: 1 / 0
    outcomes = back(board, change(200, 250), change(1000, None, SM))
    assert [outcome.end for outcome in outcomes] == [RestoreResult.FAILED, RestoreResult.RESTORED]
    assert "ZeroDivisionError" in outcomes[0].reason


def test_nobody_waits_for_a_device_that_is_not_there():
    time = Time()
    there = Board(limit_w=200.0)
    changes = (change(200, 250), change(200, 250, key="gpu1"))
    gone, back_again = back(there, *changes, patience_s=5, **time.injected())
    assert (gone.end, back_again.end) == (RestoreResult.FAILED, RestoreResult.RESTORED)
    assert time.now == 0
