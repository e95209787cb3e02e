"""Blocks have clean steps only, each of them once, and compare like with like."""

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.optimise.live.blocks import BlockBuilder, find_period
from joulewise.optimise.live.steps import JobStep

S = 10**9


@dataclass(frozen=True)
class Step:
    start_ns: int
    end_ns: int


def feed(builder, times_s, *, start_s=0.0, index=1, since_s=0.0):
    blocks, t_ns = [], round(start_s * S)
    for time_s in times_s:
        step = Step(t_ns, t_ns + round(time_s * S))
        blocks.append(builder.add(step, index, round(since_s * S)))
        t_ns = step.end_ns
    return [block for block in blocks if block is not None], t_ns / S


def test_a_block_is_long_enough_for_the_sensor():
    blocks, _ = feed(BlockBuilder(1.0, 0.0), [0.3] * 20)
    assert {block.steps for block in blocks} == {4}
    assert all(block.time_s >= 1.0 for block in blocks)


def test_the_transient_is_left_out_by_time_and_by_a_whole_step():
    blocks, _ = feed(BlockBuilder(1.0, 0.5), [0.2] * 20)
    assert blocks[0].start_ns == round(0.6 * S)
    blocks, _ = feed(BlockBuilder(1.0, 0.5), [2.0] * 3)
    assert blocks[0].start_ns == 2 * S


def test_a_step_that_began_before_the_change_is_no_whole_one():
    blocks, _ = feed(BlockBuilder(1.0, 0.0), [1.0] * 4, since_s=0.5)
    assert blocks[0].start_ns == 2 * S


def test_steps_known_by_a_mean_with_some_of_the_transient_are_left_out():
    """As of a line each ten steps: 0.2 s each after a change, 0.1 s each later."""
    builder, blocks, t_ns = BlockBuilder(1.0, 0.5), [], 0
    for line in range(4):
        each_ns, since_ns = (S // 5 if line == 0 else S // 10), t_ns
        for _ in range(10):
            step = JobStep(t_ns, t_ns + each_ns, since_ns)
            blocks.append(builder.add(step, 1, 0))
            t_ns = step.end_ns
    found = [block for block in blocks if block is not None]
    assert found
    assert {block.step_time_s for block in found} == {0.1}


def test_a_change_begins_a_new_block():
    builder = BlockBuilder(1.0, 0.0)
    first, end_s = feed(builder, [0.3] * 4)
    second, _ = feed(builder, [0.3] * 8, start_s=end_s, index=2, since_s=end_s)
    assert not first
    assert {block.index for block in second} == {2}


def test_epochs_shorter_than_a_block_are_put_together():
    builder, blocks, t_s = BlockBuilder(2.0, 0.0), [], 0.0
    for _ in range(12):  # five steps, then a validation of 3 s
        more, t_s = feed(builder, [0.2] * 5, start_s=t_s)
        blocks += more
        t_s += 3.0
    assert blocks
    for block in blocks:
        assert len(block.windows_ns) > 1
        assert block.time_s >= 2.0 * len(block.windows_ns) ** 0.5 - 1e-6
        assert all(end - start <= 1.01 * S for start, end in block.windows_ns)  # no validation


def test_the_slow_steps_after_a_pause_are_left_out():
    builder, t_s, blocks = BlockBuilder(1.0, 0.0), 0.0, []
    for _ in range(6):
        more, t_s = feed(builder, [0.5, 0.3, *[0.1] * 48], start_s=t_s)
        blocks += more
        t_s += 1.0
    assert all(block.step_time_s == pytest.approx(0.1) for block in blocks[2:])


def test_epochs_of_two_steps_are_used_whole():
    builder, t_s, blocks = BlockBuilder(1.0, 0.0), 0.0, []
    for _ in range(20):
        more, t_s = feed(builder, [0.6, 0.4], start_s=t_s)
        blocks += more
        t_s += 1.0
    assert blocks
    assert all(block.step_time_s == pytest.approx(0.5) for block in blocks[1:])


def test_gradient_accumulation_is_measured_in_whole_periods():
    blocks, _ = feed(BlockBuilder(0.7, 0.0), [0.1, 0.1, 0.1, 0.25] * 40)
    late = blocks[4:]
    assert all(block.steps % 4 == 0 for block in late)
    assert {round(block.step_time_s, 6) for block in late} == {0.1375}


def test_a_rare_stall_is_left_out_and_a_frequent_one_is_not():
    rare = [0.1] * 60 + [2.0] + [0.1] * 60
    blocks, _ = feed(BlockBuilder(1.0, 0.0), rare)
    assert all(block.step_time_s == pytest.approx(0.1) for block in blocks)
    often = ([0.1] * 6 + [1.0] + [0.1] * 2) * 20
    blocks, _ = feed(BlockBuilder(1.0, 0.0), often)
    mean_s = sum(b.time_s for b in blocks) / sum(b.steps for b in blocks)
    assert mean_s == pytest.approx(0.2, rel=0.15)


@pytest.mark.parametrize("period", [1, 2, 3, 8, 16])
def test_a_period_is_found(period):
    times = [0.1 + 0.05 * (place % period == 0) * (period > 1) for place in range(64)]
    assert find_period(times) == period


@given(st.lists(st.floats(0.09, 0.11), min_size=0, max_size=64))
def test_steps_that_differ_little_have_some_period_at_most(times):
    assert 1 <= find_period(times) <= 16


STEPS = st.lists(
    st.tuples(st.floats(0.01, 0.5), st.sampled_from([0.0, 0.0, 0.0, 1.0]), st.integers(0, 9)),
    max_size=150,
)


@given(STEPS, st.floats(0.05, 2.0), st.floats(0.0, 1.0))
def test_no_step_is_in_two_blocks_and_windows_are_of_whole_steps(steps, shortest_s, settle_s):
    builder, t_ns, since_ns, index = BlockBuilder(shortest_s, settle_s), 0, 0, 0
    starts, ends, blocks = set(), set(), []
    for time_s, pause_s, change in steps:
        t_ns += round(pause_s * S)
        if change == 0:
            index, since_ns = (index + 1) % 3, t_ns
        step = Step(t_ns, t_ns + round(time_s * S))
        t_ns = step.end_ns
        starts.add(step.start_ns)
        ends.add(step.end_ns)
        blocks.append(builder.add(step, index, since_ns))
    windows = [window for block in blocks if block for window in block.windows_ns]
    assert all(start in starts and end in ends for start, end in windows)
    assert all(a[1] <= b[0] for a, b in pairwise(windows))
    assert sum(block.steps for block in blocks if block) <= len(steps)
