"""A lane of any length becomes as few points as a figure has pixels, and no peak is lost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.analyse.chunks import ArrayStream, show
from joulewise.analyse.curves.downsample import EnvelopeBuilder, even_edges, pixel_edges
from joulewise.analyse.time_intervals import TimeInterval

brief = settings(max_examples=80, deadline=None)
readings = st.lists(
    st.tuples(st.integers(0, 1_000), st.floats(0, 500, width=32) | st.just(float("nan"))),
    min_size=1,
    max_size=60,
)


def downsample(lane, columns, edges_ns):
    builders = [EnvelopeBuilder(column, edges_ns) for column in columns]
    show(lane, *builders)
    return [builder.envelope() for builder in builders]


def lane_of(rows, chunk_rows=1 << 18):
    rows = sorted(rows, key=lambda row: row[0])
    t_ns = np.array([t for t, _ in rows], np.int64)
    power_w = np.array([value for _, value in rows], np.float32)
    return ArrayStream({"t_ns": t_ns, "power_w": power_w}, chunk_rows=chunk_rows)


def envelope(rows, edges_ns, **options):
    (found,) = downsample(lane_of(rows, **options), ("power_w",), edges_ns)
    return found


@brief
@given(
    readings,
    st.integers(1, 9),
    st.integers(1, 70),
    st.tuples(st.integers(0, 400), st.integers(1, 700)),
)
def test_each_pixel_has_the_lowest_the_highest_and_the_mean_of_its_readings(
    rows, pixels, chunk_rows, window
):
    edges_ns = even_edges(TimeInterval(window[0], sum(window)), pixels)
    found = envelope(rows, edges_ns, chunk_rows=chunk_rows)
    last = len(edges_ns) - 2
    for at in range(last + 1):
        start, end = edges_ns[at], edges_ns[at + 1] + (at == last)
        mine = [v for t, v in rows if start <= t < end and not np.isnan(v)]
        assert found.count[at] == len(mine)
        if mine:
            assert (found.low[at], found.high[at]) == (min(mine), max(mine))
            assert found.mean[at] == pytest.approx(np.mean(mine), rel=1e-6, abs=1e-6)
        else:
            assert np.isnan([found.low[at], found.high[at], found.mean[at]]).all()


def test_one_reading_in_a_million_is_still_there():
    power_w = np.full(1_000_000, 100.0, np.float32)
    power_w[123_456] = 300
    power_w[765_432] = 7
    lane = ArrayStream({"t_ns": np.arange(1_000_000), "power_w": power_w})
    (found,) = downsample(lane, ("power_w",), even_edges(TimeInterval(0, 1_000_000), 600))
    assert (found.high.max(), found.low.min()) == (300, 7)
    assert (found.high > 100).sum() == (found.low < 100).sum() == 1


def test_a_share_of_bits():
    rows = [(0, 0x4), (1, 0x24), (2, 0x1), (3, 0x0), (4, float("nan"))]
    thinning = EnvelopeBuilder("power_w", np.array([0, 2, 4]), bits=0x4)
    show(lane_of(rows), thinning)
    assert thinning.envelope().mean.tolist() == [1.0, 0.0]


def test_all_viewers_share_one_pass():
    class Counted(ArrayStream):
        passes = 0

        def chunks(self, columns):
            self.passes += 1
            assert list(columns) == ["t_ns", "power_w"]  # each once, however many want it
            return super().chunks(columns)

    lane = Counted({"t_ns": np.arange(10), "power_w": np.arange(10.0)})
    downsample(lane, ("power_w", "power_w"), np.array([0, 9]))
    assert lane.passes == 1


@given(st.integers(0, 1 << 62), st.integers(1, 1 << 55), st.integers(1, 2_000))
def test_edges_are_even_to_the_nanosecond(start_ns, time_ns, pieces):
    edges_ns = even_edges(TimeInterval(start_ns, start_ns + time_ns), pieces)
    assert (edges_ns[0], edges_ns[-1]) == (start_ns, start_ns + time_ns)
    assert np.ptp(np.diff(edges_ns)) <= 1
    assert np.diff(edges_ns).min() > 0


def test_there_are_no_more_pixels_than_rows_to_fill_them():
    lane = lane_of([(10 * i, 1.0) for i in range(100)])
    found = envelope(
        [(10 * i, 1.0) for i in range(100)], pixel_edges(lane, TimeInterval(0, 500), 600)
    )
    assert 40 < len(found.count) <= 50
    assert found.count.all()
