"""Energy of a timeline is exact at any moment, however it is cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.simulate.timeline import PIECE, Timeline, concat

START_NS = 1_000


def make(pieces):
    """A timeline from (how long in ns, power, busy)."""
    rows = np.zeros(len(pieces), PIECE)
    t_ns, energy_j = START_NS, 7.0
    for row, (lasting_ns, power_w, busy) in zip(rows, pieces, strict=True):
        row["t_ns"], row["energy_j"], row["power_w"], row["busy"] = t_ns, energy_j, power_w, busy
        t_ns += lasting_ns
        energy_j += float(row["power_w"]) * lasting_ns * 1e-9
    return Timeline(rows, t_ns)


timelines = st.lists(
    st.tuples(
        st.integers(1, 2_000_000_000), st.floats(0, 500, width=32), st.sampled_from([0.0, 0.5, 1.0])
    ),
    min_size=1,
    max_size=12,
).map(make)
shares = st.floats(0, 1)


def moment(timeline, share):
    return timeline.start_ns + round(share * (timeline.end_ns - timeline.start_ns))


def overlap_sum(timeline, column, start_ns, end_ns):
    """Brute force: each piece's share of the window."""
    edges = [*timeline.pieces["t_ns"].tolist(), timeline.end_ns]
    total = 0.0
    for value, begin, end in zip(timeline.pieces[column], edges[:-1], edges[1:], strict=True):
        total += float(value) * max(0, min(end, end_ns) - max(begin, start_ns)) * 1e-9
    return total


@given(timelines, shares, shares)
def test_energy_between_two_moments_is_the_sum_of_what_lies_between(timeline, a, b):
    start_ns, end_ns = sorted((moment(timeline, a), moment(timeline, b)))
    drawn_j = timeline.energy_at(end_ns) - timeline.energy_at(start_ns)
    assert drawn_j == pytest.approx(
        overlap_sum(timeline, "power_w", start_ns, end_ns), rel=1e-9, abs=1e-9
    )


@given(timelines, shares, shares)
def test_mean_busy_is_the_mean_of_what_lies_between(timeline, a, b):
    start_ns, end_ns = sorted((moment(timeline, a), moment(timeline, b)))
    if start_ns == end_ns:
        end_ns += 1
    mean = timeline.mean_busy(start_ns, end_ns) * (end_ns - start_ns) * 1e-9
    beyond_s = max(0, end_ns - timeline.end_ns) * 1e-9 * float(timeline.pieces["busy"][-1])
    expected = overlap_sum(timeline, "busy", start_ns, end_ns) + beyond_s
    assert mean == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(timelines, st.lists(shares, max_size=60))
def test_many_moments_give_what_each_gives(timeline, at):
    t_ns = sorted(moment(timeline, share) for share in at)
    each = [float(timeline.energy_at(t)) for t in t_ns]
    assert timeline.energy_at(t_ns).tolist() == each
    backwards = timeline.energy_at(t_ns[::-1])
    assert backwards.tolist() == each[::-1]


@given(timelines, shares)
def test_cut_and_joined_it_is_the_same(timeline, share):
    cut_ns = moment(timeline, share)
    parts = [timeline.between(0, cut_ns), timeline.between(cut_ns, timeline.end_ns)]
    joined = concat(parts)
    assert joined.end_ns == timeline.end_ns
    t_ns = np.linspace(timeline.start_ns, timeline.end_ns, 50).astype(np.int64)
    np.testing.assert_allclose(joined.energy_at(t_ns), timeline.energy_at(t_ns), rtol=1e-12)
    np.testing.assert_array_equal(joined.power_at(t_ns), timeline.power_at(t_ns))


def test_outside_the_first_and_the_last_power_go_on():
    timeline = make([(10, 100.0, 1.0), (10, 200.0, 1.0)])
    first_j, last_j = timeline.energy_at([timeline.start_ns, timeline.end_ns])
    before_j, after_j = timeline.energy_at(
        [timeline.start_ns - 1_000_000_000, timeline.end_ns + 1_000_000_000]
    )
    assert first_j - before_j == pytest.approx(100.0)
    assert after_j - last_j == pytest.approx(200.0)


def test_a_moment_belongs_to_the_piece_that_begins_there():
    timeline = make([(10, 100.0, 1.0), (10, 200.0, 1.0)])
    assert timeline.power_at([START_NS + 9, START_NS + 10]).tolist() == [100.0, 200.0]


def test_step_ends_are_cut_with_the_rest():
    pieces = make([(100, 50.0, 1.0)]).pieces
    timeline = Timeline(pieces, START_NS + 100, np.array([START_NS + 50, START_NS + 100]))
    parts = [timeline.between(0, START_NS + 50), timeline.between(START_NS + 50, 1 << 60)]
    assert [part.step_ends_ns.tolist() for part in parts] == [[START_NS + 50], [START_NS + 100]]
    assert concat(parts).step_ends_ns.tolist() == timeline.step_ends_ns.tolist()


def test_a_piece_has_the_size_that_others_read():
    assert PIECE.itemsize == 48
