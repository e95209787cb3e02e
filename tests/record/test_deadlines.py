"""Deadlines are met, or missed and reported; a channel that hangs delays none of the others."""

import threading
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.record.sampling_loop import LoopWatchdog, SamplingLoop
from joulewise.record.schedule import Deadlines

MS = 10**6
DEADLINE_S = 30


def eventually(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)


class Served:
    """Counts; hangs while a test wants it to."""

    def __init__(self, name):
        self.name = name
        self.times = 0
        self.skipped = 0
        self.go_on = threading.Event()
        self.go_on.set()
        self.hangs = threading.Event()

    def serve(self, _deadline_ns):
        self.times += 1
        if not self.go_on.is_set():
            self.hangs.set()
        assert self.go_on.wait(DEADLINE_S)

    def skip(self, missed):
        self.skipped += missed


@given(
    period=st.integers(1, 10**10),
    first=st.integers(0, 10**15),
    late=st.lists(st.integers(0, 10**11), max_size=20),
)
def test_every_deadline_is_served_or_missed_and_none_is_early(period, first, late):
    deadlines = Deadlines(first, period)
    served = missed = 0
    now = first
    for more in late:
        now = max(now, deadlines.next_ns) + more
        deadline, gone_by = deadlines.take_due(now)
        assert deadline <= now < deadline + period == deadlines.next_ns
        served, missed = served + 1, missed + gone_by
    assert deadlines.next_ns == first + (served + missed) * period


@given(
    period=st.integers(50, 10**9),
    dither=st.floats(0, 1),
    late=st.lists(st.integers(0, 10**10), max_size=20),
)
def test_dithered_deadlines_are_served_or_missed_and_none_is_early(period, dither, late):
    deadlines = Deadlines(1000, period, round(dither * period))
    served = missed = 0
    now = 1000
    for more in late:
        now = max(now, deadlines.next_ns) + more
        deadline, gone_by = deadlines.take_due(now)
        assert deadline <= now < deadlines.next_ns
        assert deadlines.last_ns == deadline
        served, missed = served + 1, missed + gone_by
    assert deadlines.index == served + missed


@pytest.mark.parametrize("dither_ns", [20 * MS, 100 * MS])
def test_dithered_deadlines_meet_a_counter_at_every_phase_and_are_nearly_even(dither_ns):
    deadlines = Deadlines(0, 100 * MS, dither_ns)
    due_ns = [deadlines.due_ns(slot) for slot in range(101)]
    phases_ns = sorted({t_ns % dither_ns for t_ns in due_ns})
    gaps_ns = [after - before for before, after in pairwise([*phases_ns, dither_ns])]
    assert max(gaps_ns) <= 2 * MS
    steps_ns = [after - before for before, after in pairwise(due_ns)]
    assert {abs(step_ns - 100 * MS) for step_ns in steps_ns} == {2 * MS}
    assert due_ns[100] == 100 * 100 * MS


class Recorded:
    def __init__(self):
        self.missed = []
        self.failed = []

    def on_missed(self, *event):
        self.missed.append(event)

    def on_failed(self, *event):
        self.failed.append(event)


def watching(channels, *, once_more=False, period_ns=10 * MS):
    recorded = Recorded()
    watch = LoopWatchdog()
    deadlines, at_edges = (
        Deadlines(0, period_ns),
        {
            "once_more": lambda _: once_more,
            "is_awaited": once_more,
        },
    )
    watch.start([SamplingLoop("fast", channels, deadlines, recorded, **at_edges)])
    return watch, recorded


def test_a_driver_that_hangs_holds_up_no_other_device():
    first, stuck, last = channels = [Served(name) for name in ("gpu0", "gpu1", "gpu2")]
    watch, _ = watching(channels)
    try:
        eventually(lambda: last.times > 2)
        stuck.go_on.clear()
        assert stuck.hangs.wait(DEADLINE_S)
        then = first.times, last.times, stuck.times
        eventually(lambda: first.times > then[0] + 5 and last.times > then[1] + 5)
        assert stuck.times == then[2]
        stuck.go_on.set()
        eventually(lambda: any(len(loop.channels) == 3 for loop in watch._loops))
        joined = [channel.times for channel in channels]
        eventually(lambda: all(c.times > n + 5 for c, n in zip(channels, joined, strict=True)))
    finally:
        stuck.go_on.set()
        assert watch.end(DEADLINE_S) == []


def test_loops_that_are_done_are_let_go():
    stuck, other = channels = [Served("gpu0"), Served("gpu1")]
    watch, _ = watching(channels)
    try:
        for _ in range(3):
            stuck.go_on.clear()
            eventually(lambda: sum(len(loop.channels) == 1 for loop in watch._loops) == 2)
            stuck.go_on.set()
            eventually(lambda: any(len(loop.channels) == 2 for loop in watch._loops))
        assert len(watch._loops) <= 3
        then = other.times
        eventually(lambda: other.times > then + 3)
    finally:
        stuck.go_on.set()
        assert watch.end(DEADLINE_S) == []


def test_a_bug_in_one_ends_no_other():
    wrong, other = channels = [Served("gpu0"), Served("gpu1")]
    wrong.go_on = None
    watch, recorded = watching(channels)
    try:
        eventually(lambda: other.times > 5)
        assert wrong.times > 4  # it may pass
        channel, error = recorded.failed[0]
        assert channel is wrong
        assert isinstance(error, AttributeError)
    finally:
        assert watch.end(DEADLINE_S) == []


def test_two_that_hang_hold_up_no_other():
    channels = [Served(f"gpu{index}") for index in range(4)]
    watch, _ = watching(channels)
    try:
        channels[0].go_on.clear()
        channels[2].go_on.clear()
        eventually(lambda: channels[1].times > 10 and channels[3].times > 10)
    finally:
        channels[0].go_on.set()
        channels[2].go_on.set()
        assert watch.end(DEADLINE_S) == []


def test_missed_deadlines_are_reported_and_not_made_up_for():
    channel = Served("gpu0")
    watch, recorded = watching([channel])
    try:
        eventually(lambda: channel.times > 2)
        channel.go_on.clear()
        time.sleep(0.1)  # ten deadlines go by
        channel.go_on.set()
        # On a loaded machine some deadlines may have gone by before that, too.
        eventually(lambda: sum(count for *_, count in recorded.missed) >= 5)
    finally:
        watch.end(DEADLINE_S)
    assert {(name, channels) for name, channels, *_ in recorded.missed} == {("fast", (channel,))}
    assert channel.skipped == sum(count for *_, count in recorded.missed)


def test_the_first_reading_is_there_when_it_has_started_and_the_last_when_it_has_ended():
    channel = Served("gpu0")
    watch, _ = watching([channel], once_more=True, period_ns=3600 * 10**9)
    assert channel.times == 1
    assert watch.end(DEADLINE_S) == []
    assert channel.times == 2


def test_who_hangs_at_the_end_is_named_and_the_others_are_read_once_more():
    stuck, other = channels = [Served("gpu0"), Served("gpu1")]
    watch, _ = watching(channels, once_more=True, period_ns=3600 * 10**9)
    stuck.go_on.clear()
    try:
        assert watch.end(2.0) == ["gpu0"]
        assert other.times == 2
    finally:
        stuck.go_on.set()


def test_a_loop_with_so_many_ticks_is_over_after_them_and_let_go():
    channel, others = Served("early"), Served("fast")
    recorded, watch = Recorded(), LoopWatchdog()
    early = SamplingLoop("early", [channel], Deadlines(0, MS), recorded, ticks=3)
    watch.start([early, SamplingLoop("fast", [others], Deadlines(0, MS), recorded)])
    eventually(lambda: early.is_done)
    assert channel.times == 3
    eventually(lambda: others.times > 10)
    assert watch.end(1.0) == []
