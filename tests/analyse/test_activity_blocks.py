"""Activity, read block by block, is what its definition says of the whole lanes."""

import tracemalloc

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.analyse.activity import Activity, activity
from joulewise.analyse.chunks import ArrayStream
from joulewise.analyse.time_intervals import TimeInterval, TimeSet
from joulewise.store.layout import StreamKind

S = 10**9
RUN = TimeInterval(20 * S, 40 * S)
UTILISATION_NS = 2 * S
TAIL_NS, BEFORE_NS, COUNTED_NS = 3 * S // 10, 15 * S // 100, 4 * S // 10
MARGINS = {
    "power_w": (3.0, 0.2),
    "energy_j": (3.0, 0.8),
    "gpu_utilisation_pct": (0.5, 0.0),
    "sm_clock_mhz": (100.0, 0.2),
    "memory_used_b": (64e6, 0.0),
}


def readings(lane, name):
    chunks = list(lane.chunks(("t_ns", name)))
    t_ns = np.concatenate([chunk["t_ns"] for chunk in chunks])
    values = np.concatenate([chunk[name] for chunk in chunks]).astype(float)
    return t_ns[np.isfinite(values)], values[np.isfinite(values)]


def mean_powers(t_ns, count_j):
    """Between readings of the counter that are 0.4 s apart, one after the other."""
    rows = [0]
    for row in range(1, len(t_ns)):
        if t_ns[row] - t_ns[rows[-1]] >= COUNTED_NS:
            rows.append(row)
    power_w = np.diff(count_j[rows]) / (np.diff(t_ns[rows]) / S)
    return t_ns[rows][1:][power_w >= 0], power_w[power_w >= 0]


def active_above(name, values):
    least, share = MARGINS[name]
    idle = 0.0 if name == "gpu_utilisation_pct" else np.quantile(values, 0.02)
    return idle + max(least, share * idle)


def was_active(name, t_ns, values):
    before = values[t_ns <= RUN.start_ns]
    return bool(len(before)) and before[-1] > active_above(name, values)


def active_ns(name, t_ns, values, *, other_was_active):
    """The times of readings above idle that were not so before the run, or less.

    Where none was before, and the GPU was active by another quantity, the first one in the run is
    of before.
    """
    least, share = MARGINS[name]
    if not len(values):
        return []
    before = values[t_ns <= RUN.start_ns]
    during = values[(t_ns > RUN.start_ns) & (t_ns <= RUN.end_ns + TAIL_NS)]
    if not len(before) and other_was_active:
        before = during[:1]
    just_before = values[(t_ns <= RUN.start_ns) & (t_ns > RUN.start_ns - BEFORE_NS)]
    usual = active = active_above(name, values)
    start_ns = RUN.start_ns
    if name == "gpu_utilisation_pct" and other_was_active:
        start_ns += UTILISATION_NS
        of_before = values[(t_ns > RUN.start_ns) & (t_ns <= min(start_ns, RUN.end_ns + TAIL_NS))]
        highest = max([*just_before, *of_before, *before[-1:]], default=0.0)
        if highest > active:
            usual = highest + max(least, share * highest)
    elif len(before) and before[-1] > active:
        highest = max(just_before, default=before[-1])
        usual = highest + max(least, share * highest)
    found = []
    for t, value in zip(t_ns.tolist(), values.tolist(), strict=True):
        if start_ns < t <= RUN.end_ns + TAIL_NS:
            if value <= active:
                usual = active
            elif value > usual:
                found.append(t)
    return found


def by_definition(lanes, explained):
    times, powers, all_series = [], [], []
    for lane in lanes.values():
        for name in lane.columns[1:]:
            series = readings(lane, name)
            if name == "energy_j":
                series = mean_powers(*series) if len(series[0]) else series
            all_series.append((name, *series))
            powers += series[0].tolist() if name in {"power_w", "energy_j"} else []
    other_was_active = any(was_active(*series) for series in all_series)
    for series in all_series:
        times += active_ns(*series, other_was_active=other_was_active)
    inside = sorted({*(t for t in powers if RUN.start_ns < t < RUN.end_ns)})
    edges = [RUN.start_ns, *inside, RUN.end_ns]
    is_closed = bool(powers) and min(powers) <= RUN.start_ns and max(powers) >= RUN.end_ns
    return Activity(
        bool(times),
        not all(explained.holds(np.array(times, np.int64))),
        is_closed and max(np.diff(edges)) <= 2 * S,
    )


def courses(seed, names, *, chunk_rows, is_low):
    """A lane around the run whose quantities go up and down between levels, with holes."""
    rng = np.random.default_rng(seed)
    step_ns = int(rng.choice([S // 20, S // 10, S // 4, S, 5 * S // 2]))
    first_ns = int(rng.choice([0, 5, 19, 21])) * S
    last_ns = int(rng.choice([30, 41, 50])) * S
    t_ns = np.arange(first_ns, last_ns, step_ns)
    t_ns = t_ns + rng.integers(0, step_ns // 2, len(t_ns))
    columns = {"t_ns": t_ns}
    for name in names:
        least = MARGINS[name][0]
        # Idle with some noise, just below and above the margin, and far above it.
        levels = least * np.array([10, 10.2, 11.9, 12] if is_low else [10, 13, 16, 40])
        lengths = rng.integers(1, 2 + len(t_ns) // 3, len(t_ns))
        values = np.repeat(rng.choice(levels, len(t_ns)), lengths)[: len(t_ns)]
        values = values + least * rng.choice([0.0, 0.1, 0.3], len(t_ns))
        if name == "gpu_utilisation_pct":
            values -= 10 * least
        if name == "energy_j":
            values = np.cumsum(values * step_ns / S) - 500.0 * (t_ns > rng.integers(0, 99) * S)
        hole_ns = int(rng.integers(0, 60)) * S
        is_hole = (t_ns > hole_ns) & (t_ns < hole_ns + int(rng.choice([0, 1, 3, 4, 30])) * S)
        values = np.where(is_hole, np.nan, values)
        columns[name] = values.astype(np.float64 if name == "energy_j" else np.float32)
    return ArrayStream(columns, chunk_rows=chunk_rows)


LANES = {
    StreamKind.FAST: ("power_w", "energy_j"),
    StreamKind.BUFFER: ("power_w",),
    StreamKind.SLOW: ("gpu_utilisation_pct", "sm_clock_mhz", "memory_used_b"),
    StreamKind.BUFFER_SM_CLOCK: ("sm_clock_mhz",),
}
SECONDS = st.integers(0, 50)


@given(
    st.sets(st.sampled_from([*LANES]), min_size=1, max_size=2),
    st.integers(0, 2**32),
    st.booleans(),
    st.integers(1, 300),
    st.lists(st.tuples(SECONDS, SECONDS), max_size=2),
)
@settings(max_examples=400)
def test_blocks_tell_what_the_definition_does(chosen, seed, is_low, chunk_rows, others):
    lanes = {
        which: courses([seed, i], LANES[which], chunk_rows=chunk_rows, is_low=is_low)
        for i, which in enumerate(LANES)
        if which in chosen
    }
    starts, ends = np.array([sorted(each) for each in others], np.int64).reshape(-1, 2).T * S
    explained = TimeSet.union(starts, ends)
    shown = activity(lambda _, which: lanes.get(which), "gpu0", RUN, explained)
    assert shown == by_definition(lanes, explained)


def test_a_rise_after_a_quiet_block_counts_though_it_was_active_before():
    t_ns = np.arange(15 * S, 45 * S, S // 10)
    load = (t_ns < 22 * S) * 250 + (t_ns > 35 * S) * 200
    lane = ArrayStream({"t_ns": t_ns, "power_w": 42.0 + load}, chunk_rows=50)
    for is_used, until_s in [(True, 45), (False, 34)]:
        run = TimeInterval(RUN.start_ns, until_s * S)
        shown = activity(lambda _, which: lane if which is StreamKind.FAST else None, "gpu0", run)
        assert shown.is_active is is_used


class Generated:
    """A lane that exists only chunk by chunk."""

    columns = ("t_ns", "power_w", "energy_j")
    chunk_rows = 20_000

    def __init__(self, chunks):
        self.rows = chunks * self.chunk_rows

    def chunks(self, names):
        for first in range(0, self.rows, self.chunk_rows):
            row = np.arange(first, first + self.chunk_rows)
            made = {
                "t_ns": row * (S // 10),
                "power_w": (250 - row % 97 - row / self.rows).astype(np.float32),
                "energy_j": row * 25.0,
            }
            yield {name: made[name] for name in names}


def peak_b(chunks):
    lane, run = Generated(chunks), TimeInterval(S, chunks * Generated.chunk_rows * (S // 10))
    tracemalloc.start()
    try:
        activity(lambda _, which: lane if which is StreamKind.FAST else None, "gpu0", run)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_run():
    """But for the lowest fiftieth of the readings, by which the idle level is known."""
    rows = 36 * Generated.chunk_rows
    assert peak_b(40) < 1.2 * peak_b(4) + rows / 50 * 8 * 2
