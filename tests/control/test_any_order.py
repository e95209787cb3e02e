"""Leases, releases, losses, faults, strangers and crashes in any order: no mark is left."""

import errno
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from joulewise.control import guardian as guardian_module
from joulewise.control import journal, restore
from joulewise.control.guardian import Guardian
from joulewise.control.holds import DeviceRequest
from joulewise.control.restore import recover
from joulewise.errors import JoulewiseError
from tests.helpers.failing_gpus import HOLDER, LIMIT, SM, Board, by_uid, kill

KEYS = ("gpu0", "gpu1")
OWNERS = ("anna", "ben")
# What others set is never what we set: who has set a value can be told by nothing else.
ours_w = st.integers(10, 30).map(lambda tens: 10.0 * tens)
theirs_w = st.integers(10, 29).map(lambda tens: 10.0 * tens + 5)
clock_mhz = st.integers(5, 15).map(lambda hundreds: 100.0 * hundreds)
owners = st.sampled_from(OWNERS)
keys = st.sampled_from(KEYS)


class Killed(BaseException):
    """The guardian is no more."""


class AnyOrder(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.state = Path(tempfile.mkdtemp())
        self.steps_to_live = None
        self.disk_is_full = False
        self.patch = pytest.MonkeyPatch()
        for module in (guardian_module, journal, restore):
            self.patch.setattr(module, "failpoint", lambda _: self.step())
        self.patch.setattr(journal.os, "fsync", lambda _: None)  # the power stays on
        append = journal.Journal._append

        def interruptible(ours, line):
            self.step()
            if self.disk_is_full and (line or ours._pending):
                raise OSError(errno.ENOSPC, "full")
            append(ours, line)
            self.step()

        self.patch.setattr(journal.Journal, "_append", interruptible)
        self.boards = {key: Board(key, 205.0 + 10 * i, self.step) for i, key in enumerate(KEYS)}
        self.expected_w = {key: board.values[LIMIT] for key, board in self.boards.items()}
        self.guardian = self.new_guardian()

    def new_guardian(self):
        return Guardian(self.state, self.boards.values(), lambda _: None, patience_s=0)

    def step(self):
        if self.steps_to_live is not None:
            self.steps_to_live -= 1
            if self.steps_to_live <= 0:
                self.steps_to_live = None
                raise Killed

    def attempt(self, what):
        try:
            what()
        except JoulewiseError:
            pass
        except Killed:
            kill(self.guardian)
            self.guardian = self.new_guardian()
            self.recover()

    def recover(self):
        return recover(self.state, lambda: by_uid(*self.boards.values()), lambda _: None)

    @rule(owner=owners, named=st.sets(keys, min_size=1), watts=ours_w, mhz=st.none() | clock_mhz)
    def lease(self, owner, named, watts, mhz):
        wanted = {LIMIT: watts} if mhz is None else {SM: mhz, LIMIT: watts}
        each = [DeviceRequest(key, wanted) for key in sorted(named)]
        self.attempt(lambda: self.guardian.lease(owner, HOLDER, each))

    @rule(owner=owners, index=st.integers(0, 5))
    def release(self, owner, index):
        held = self.guardian.holds(owner)
        if held:
            hold = held[index % len(held)]
            self.attempt(lambda: self.guardian.release(owner, hold.id))

    @rule(owner=owners, key=keys, outer=ours_w, inner=ours_w, mhz=clock_mhz)
    def release_the_outer_of_two(self, owner, key, outer, inner, mhz):
        """Which chance alone comes upon too seldom."""
        self.lease(owner, {key}, outer, mhz)
        self.lease(owner, {key}, inner, None)
        self.release(owner, 0)

    @rule(owner=owners)
    def lose_holder(self, owner):
        self.attempt(lambda: self.guardian.drop(owner))

    @rule()
    def mend(self):
        self.attempt(self.guardian.retry)

    @rule(key=keys, watts=theirs_w)
    def stranger_sets(self, key, watts):
        self.boards[key].values[LIMIT] = self.expected_w[key] = watts

    @rule(key=keys, fault=st.sampled_from(["limit", "clock", "lost", "deaf", "disk"]))
    def something_breaks(self, key, fault):
        board = self.boards[key]
        board.refuses |= {"limit": {LIMIT}, "clock": {SM}}.get(fault, set())
        board.is_lost = fault == "lost"
        board.is_deaf = fault == "deaf"
        self.disk_is_full = fault == "disk"

    @rule()
    def all_is_well_again(self):
        self.disk_is_full = False
        for board in self.boards.values():
            board.refuses, board.is_lost, board.is_deaf = set(), False, False

    @precondition(lambda self: self.steps_to_live is None)
    @rule(steps=st.integers(1, 12))
    def killed_soon(self, steps):
        self.steps_to_live = steps

    @invariant()
    def what_nobody_holds_is_as_it_was(self):
        result = {
            change.setting
            for kept in journal.read_journals(self.state)
            for hold in kept.holds
            for change in hold.changes
        }
        for key, board in self.boards.items():
            if (board.info.uid, LIMIT) not in result:
                assert board.values[LIMIT] == self.expected_w[key]
            if (board.info.uid, SM) not in result:
                assert board.values[SM] is None

    def teardown(self):
        try:
            self.steps_to_live = None
            self.all_is_well_again()
            for owner in OWNERS:
                self.guardian.drop(owner)
            assert self.guardian.retry()
            self.guardian.close()
            self.recover()
            assert journal.read_journals(self.state) == []
            for key, board in self.boards.items():
                assert board.values[LIMIT] == self.expected_w[key]
                assert board.values[SM] is None
        finally:
            self.patch.undo()
            shutil.rmtree(self.state)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(
    max_examples=80,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
