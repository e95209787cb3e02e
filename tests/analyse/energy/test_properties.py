"""What holds of joules whatever the load, the counter and the cuts."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from joulewise.analyse.chunks import blocks
from joulewise.analyse.energy.windows import window_energy
from tests.helpers.ideal_sensors import S, Sensor, device, lane, lanes, ns, windows

TIME_S = 8.0
# Five of the slowest sensor's ticks.
BESIDE_S = 0.5
brief = settings(max_examples=50, deadline=None)
moments = st.floats(0.2, TIME_S - 0.2)
pairs_s = st.tuples(moments, moments).map(sorted)
levels = st.lists(st.floats(20.0, 290.0), min_size=1, max_size=8)
sensors = st.sampled_from(
    [
        Sensor(noise_w=0.3),
        Sensor(0.1, 0.1, 0.02, 0.3),
        Sensor(0.1, 0.025, 0.02, 0.3),
        Sensor(0.03, 0.01, 0.005),
    ]
)
setups = st.tuples(st.booleans(), st.booleans(), st.sampled_from([10.0, 37.0, 100.0]))


def steps(levels_w):
    """A load that goes from level to level, a second and a bit on each."""
    edges_s = np.append(-10.0, 1.17 * np.arange(1, len(levels_w)))
    totals = np.append(0.0, np.cumsum(np.diff(edges_s) * levels_w[:-1]))

    def energy_at(t):
        at = np.searchsorted(edges_s, t, "right") - 1
        return totals[at] + (np.asarray(t) - edges_s[at]) * np.asarray(levels_w)[at]

    return energy_at


def measure(levels_w, sensor, setup, pairs, *, change=None, offset_ns=0, chunk_rows=1 << 18):
    counter, buffer, rate_hz = setup
    fast, samples = lanes(steps(levels_w), TIME_S, sensor, rate_hz=rate_hz)
    if change:
        change(fast, samples)
    if not counter:
        del fast["energy_j"]
    for columns in (fast, samples):
        columns["t_ns"] = columns["t_ns"] + offset_ns
    return window_energy(
        device(sensor, counter=counter),
        lane(fast, chunk_rows=chunk_rows),
        lane(samples, chunk_rows=chunk_rows) if buffer else None,
        windows(*pairs) + offset_ns,
    )


def same(one, other):
    for name in ("energy_j", "error_sampling_j", "peak_w", "gap_s", "integral_j", "counter_j"):
        left, right = getattr(one, name), getattr(other, name)
        assert left == pytest.approx(right, rel=1e-6, abs=1e-6, nan_ok=True), name


@brief
@given(levels, sensors, setups, st.lists(moments, min_size=3, max_size=6, unique=True))
@example(
    [20.0],
    Sensor(period_s=0.02, window_s=0.01, lag_s=0.005, noise_w=0.3),
    (True, False, 10.0),
    [1.0, 1.890625, 1.90625],
)
def test_windows_side_by_side_add_up(levels_w, sensor, setup, cuts):
    cuts = sorted(cuts)
    pairs = [*pairwise(cuts), (cuts[0], cuts[-1])]
    energy = measure(levels_w, sensor, setup, pairs)
    for name in ("energy_j", "integral_j", "gap_s"):
        values = getattr(energy, name)
        assert values[:-1].sum() == pytest.approx(values[-1], abs=1e-6), name
    assert not (energy.mean_w > energy.peak_w).any()


@brief
@given(st.floats(20.0, 290.0), sensors, setups, moments, moments)
def test_constant_power_is_exact(level_w, sensor, setup, one, other):
    energy = measure([level_w], sensor, setup, [sorted((one, other))])
    truth_j = level_w * abs(other - one)
    assert energy.energy_j[0] == pytest.approx(truth_j, abs=energy.error_sampling_j[0] * 2 + 0.02)
    if setup[0] and setup[1]:
        noise_j = sensor.noise_w * abs(other - one)
        assert energy.energy_j[0] == pytest.approx(truth_j, rel=1e-3, abs=0.1 + noise_j)


@brief
@given(levels, sensors, setups, pairs_s, st.integers(-(10**15), 10**17))
def test_when_it_was_does_not_matter(levels_w, sensor, setup, pair, offset_ns):
    pair = [pair]
    same(
        measure(levels_w, sensor, setup, pair),
        measure(levels_w, sensor, setup, pair, offset_ns=offset_ns),
    )


@brief
@given(
    levels,
    sensors,
    setups,
    st.lists(pairs_s, min_size=1, max_size=5),
    st.integers(1, 200),
)
def test_chunks_do_not_matter(levels_w, sensor, setup, pairs, chunk_rows):
    same(
        measure(levels_w, sensor, setup, pairs),
        measure(levels_w, sensor, setup, pairs, chunk_rows=chunk_rows),
    )


@brief
@given(
    levels,
    sensors,
    st.tuples(st.just(True), st.booleans(), st.sampled_from([10.0, 100.0])),
    st.lists(st.tuples(st.integers(1, 70), st.floats(-1e4, 1e4)), max_size=4),
    st.lists(moments, min_size=4, max_size=4, unique=True),
)
@example(
    [20.0, 72.0],
    Sensor(period_s=0.02, window_s=0.01, lag_s=0.005, noise_w=0.3),
    (True, False, 10.0),
    [],
    [1.0, 2.0, 1.125, 1.0625],
)
def test_a_longer_window_never_has_less(levels_w, sensor, setup, jumps, cuts):
    """Nor does any have less than nothing, though the counter jumps, wraps and is set back."""

    def break_it(fast, _):
        for row, jump_j in jumps:
            fast["energy_j"][row:] = np.maximum(fast["energy_j"][row:] + jump_j, 0.0)

    first, second, third, fourth = sorted(cuts)
    energy = measure(levels_w, sensor, setup, [(first, fourth), (second, third)], change=break_it)
    assert energy.energy_j[0] >= energy.energy_j[1] - 1e-9
    assert energy.energy_j[1] >= -1e-9
    assert np.all(energy.error_sampling_j >= 0)


@brief
@given(
    st.floats(60.0, 250.0),
    sensors.filter(lambda sensor: sensor.noise_w > 0),
    setups,
    st.tuples(st.floats(1.0, 6.0), st.floats(0.7, 3.0)),
    st.sampled_from([(0.5, 7.5), (0.5, 4.0), (3.0, 7.5)]),
)
@example(62.0, Sensor(0.1, 0.1, 0.02, 0.3), (True, False, 37.0), (2.75, 1.25), (0.5, 4.0))
def test_a_gap_only_widens_the_error(level_w, sensor, setup, gap, pair):
    start_s, lasting_s = gap
    end_s = min(start_s + lasting_s, TIME_S - 0.5)

    def lose(fast, samples):
        for columns in (fast, samples):
            gone = (columns["t_ns"] > ns(start_s)) & (columns["t_ns"] < ns(end_s))
            for name in ("power_w", "energy_j"):
                if name in columns:
                    columns[name] = np.where(gone, np.nan, columns[name])

    whole = measure([level_w], sensor, setup, [pair])
    torn = measure([level_w], sensor, setup, [pair], change=lose)
    truth_j = level_w * (pair[1] - pair[0])
    assert abs(torn.energy_j[0] - truth_j) <= 2 * torn.error_sampling_j[0] + 0.02
    if min(end_s, pair[1]) - max(start_s, pair[0]) > 0.6:
        assert torn.gap_s[0] > 0
        # What is doubtful at an edge is judged by the ticks around it: where the gap took some of
        # those, the others may have been quieter.
        beside = any(
            abs(edge_s - side_s) < BESIDE_S for edge_s in pair for side_s in (start_s, end_s)
        )
        least = 0.5 if beside else 1.0
        assert torn.error_sampling_j[0] > least * whole.error_sampling_j[0]


@brief
@given(st.integers(0, 300), st.integers(1, 9), st.lists(st.integers(0, 300), max_size=12))
def test_blocks_have_every_row_once_with_its_neighbours(rows, reach, cuts):
    chunks = [
        {"t_ns": part} for part in np.split(np.arange(rows), sorted(c % (rows + 1) for c in cuts))
    ]
    seen = []
    for block in blocks(chunks, reach):
        t_ns = block.columns["t_ns"]
        assert t_ns.tolist() == list(range(block.row, block.row + len(t_ns)))
        seen += t_ns[block.first : block.end].tolist()
        if block.end > block.first:
            assert block.first >= min(reach, block.row + block.first)
            assert len(t_ns) - block.end >= min(reach, rows - block.row - block.end)
    assert seen == list(range(rows))


def test_the_longest_counter_is_as_exact_as_a_new_one():
    """A counter at 10 GJ, on a clock that has run for years."""
    fast, samples = lanes(lambda t: 1e10 + 200 * (np.asarray(t) + 1))
    offset_ns = 10**17
    for columns in (fast, samples):
        columns["t_ns"] = columns["t_ns"] + offset_ns
    energy = window_energy(device(), lane(fast), lane(samples), windows((1, 11)) + offset_ns)
    assert energy.energy_j[0] == pytest.approx(2000, abs=0.01)
    assert S > energy.error_sampling_j[0] > 0
