"""Which rows of a lane are looked at for some moments: all that matter, and few others."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from joulewise.analyse.chunks import ArrayStream, blocks, near, typical_step_ns
from joulewise.analyse.energy.counter_readings import AROUND, read_counter

S = 10**9


@given(st.lists(st.integers(-30, 230), max_size=12), st.integers(1, 200), st.integers(1, 40))
def test_near_is_within_reach_of_a_row(rows, size, reach):
    wanted = [any(row - reach <= each < row + reach for row in rows) for each in range(size)]
    assert near(np.array(rows, np.intp), size, reach).tolist() == wanted


def test_a_moment_after_the_last_row_has_the_points_before_it():
    rows = 20_000  # more than are taken as a whole
    lane = ArrayStream({"t_ns": np.arange(rows) * S, "energy_j": 100.0 * np.arange(rows)})
    found = read_counter(lane, np.array([10 * S, 2 * rows * S]), max_w=300.0, period_ns=0.02 * S)
    assert found.row.tolist() == [*range(10 + AROUND), *range(rows - AROUND, rows)]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.integers(1, 8))
def test_blocks_have_every_row_once_with_its_neighbours(sizes, reach):
    rows = np.arange(sum(sizes))
    chunks = [{"t_ns": part} for part in np.split(rows, np.cumsum(sizes)[:-1])]
    shown = []
    for block in blocks(iter(chunks), reach):
        t_ns = block.columns["t_ns"]
        assert t_ns[0] == block.row
        shown += t_ns[block.first : block.end].tolist()
        assert block.first >= min(reach, block.row + block.first)
        assert len(t_ns) - block.end >= min(reach, len(rows) - block.row - block.end)
    assert shown == rows.tolist()


def test_a_short_stream_keeps_all_values():
    """So that a window's energy does not depend on which others are asked for."""
    lane = ArrayStream({"t_ns": np.arange(1_000) * S, "energy_j": 100.0 * np.arange(1_000)})
    found = read_counter(lane, np.array([10 * S]), max_w=300.0, period_ns=0.02 * S)
    assert found.row.tolist() == list(range(1_000))


def test_the_typical_step_of_rows_whose_times_go_back():
    for t_s, step_s in (([5, 1], 0), ([9, 1, 3, 5, 2], 2), ([4, 4], 0)):
        lane = ArrayStream({"t_ns": np.array(t_s) * S})
        assert typical_step_ns(lane) == step_s * S
