"""One GPU in real time: whatever interrupts it, what was foretold and what was are one story."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.simulate.boards import load_board, make_unit
from joulewise.simulate.model import ControlSettings, Load, Phase
from joulewise.simulate.physics.board_state import rest
from joulewise.simulate.physics.integrate import play
from joulewise.simulate.realtime.gpu import NEVER_DUE_NS, Job, RealtimeGpu
from joulewise.simulate.timeline import Timeline, concat
from joulewise.simulate.workloads import iterate_epochs, load_workload, repeat_training

BOARD = load_board("v100")
UNIT = make_unit(BOARD, 1)
START_NS = 5_000_000_000
MS = 1_000_000
LOAD = Load(
    (Phase("host", 0.01, 0.0, 0.0, 5.0, busy=False), Phase("kernel", 0.04, 0.7, 150.0, 40.0))
)
OTHER = Load((Phase("kernel", 0.02, 0.5, 90.0, 20.0),))
SHORT = Load((Phase("kernel", 0.001, 0.5, 90.0, 20.0),))
OPEN = ControlSettings(limit_w=300.0)
CAPPED = ControlSettings(limit_w=150.0)


class Clock:
    """A gpu whose time the test drives, and everything that it published."""

    def __init__(self):
        self.published = []
        self.done = []
        self.gpu = RealtimeGpu(UNIT, OPEN, START_NS, self.published.append)

    def to(self, now_ns):
        while self.gpu.due_ns <= now_ns:
            job = self.gpu.on_due()
            if job:
                self.done.append((job.owner, job.start_ns, job.end_ns))
        return now_ns

    def seen(self):
        """What a reader of the published pieces has in the end."""
        pieces = np.empty(0, self.published[0].pieces.dtype)
        for timeline in self.published:
            pieces = np.concatenate([pieces[pieces["t_ns"] < timeline.start_ns], timeline.pieces])
        return pieces


@pytest.fixture
def clock():
    return Clock()


def ms(after):
    return START_NS + after * MS


def energy_j(timeline, t_ns):
    return float(timeline.energy_at(t_ns))


def test_a_step_takes_as_long_and_as_much_as_the_physics_says(clock):
    clock.gpu.attach(1, clock.to(ms(100)))
    clock.gpu.submit(Job("me", LOAD, 1), clock.to(ms(200)))
    clock.to(ms(1000))
    _, state = play(UNIT, rest(UNIT, START_NS), None, OPEN, until_ns=ms(100), contexts=0)
    _, state = play(UNIT, state, None, OPEN, until_ns=ms(200), contexts=1)
    step, _ = play(UNIT, state, LOAD, OPEN, steps=1)
    assert clock.done == [("me", ms(200), step.end_ns)]
    timeline = clock.gpu.take_timeline()
    assert energy_j(timeline, step.end_ns) == pytest.approx(energy_j(step, step.end_ns), rel=1e-12)


def test_a_lower_limit_in_the_middle_of_a_step_makes_it_longer(clock):
    clock.gpu.submit(Job("free", LOAD, 1), clock.to(ms(0)))
    free_ns = clock.gpu.due_ns - ms(0)
    clock.gpu.set_controls(CAPPED, clock.to(ms(20)))
    clock.to(ms(1000))
    assert clock.done[0][2] - ms(0) > free_ns


def test_an_interruption_neither_adds_steps_nor_takes_any(clock):
    clock.gpu.submit(Job("me", LOAD, 6), clock.to(ms(0)))
    clock.gpu.set_controls(CAPPED, clock.to(ms(120)))
    clock.gpu.attach(1, clock.to(ms(190)))
    clock.to(ms(3000))
    before, state = play(UNIT, rest(UNIT, START_NS), LOAD, OPEN, until_ns=ms(120))
    after, _ = play(UNIT, state, LOAD, CAPPED, steps=6 - len(before.step_ends_ns))
    assert len(before.step_ends_ns) == 2
    assert clock.done == [("me", START_NS, after.end_ns)]


def test_controls_that_do_not_change_change_nothing(clock):
    clock.gpu.submit(Job("me", LOAD, 1), clock.to(ms(0)))
    before = len(clock.published)
    clock.gpu.set_controls(ControlSettings(limit_w=300.0), clock.to(ms(20)))
    assert len(clock.published) == before


def test_two_clients_take_turns_step_by_step(clock):
    clock.gpu.submit(Job("a", LOAD, 4), clock.to(ms(0)))
    clock.gpu.submit(Job("b", LOAD, 4), clock.to(ms(10)))
    clock.to(ms(3000))
    (first, _, a_end_ns), (second, b_start_ns, b_end_ns) = clock.done
    alone, _ = play(UNIT, rest(UNIT, START_NS), LOAD, OPEN, steps=1)
    step_ns = alone.end_ns - START_NS
    assert (first, second) == ("a", "b")
    assert b_start_ns - START_NS == pytest.approx(step_ns, rel=0.02)
    assert b_end_ns - a_end_ns == pytest.approx(step_ns, rel=0.02)
    assert b_end_ns - START_NS == pytest.approx(8 * step_ns, rel=0.02)


def test_short_steps_take_turns_of_ten_milliseconds(clock):
    clock.gpu.submit(Job("a", SHORT, 100), clock.to(ms(0)))
    clock.gpu.submit(Job("b", SHORT, 100), clock.to(ms(0)))
    before = len(clock.published)
    clock.to(ms(500))
    (_, _, a_end_ns), (_, b_start_ns, b_end_ns) = clock.done
    assert b_start_ns - ms(0) == pytest.approx(10 * MS, rel=0.1)
    assert b_end_ns - a_end_ns == pytest.approx(10 * MS, rel=0.1)
    assert b_end_ns - ms(0) == pytest.approx(200 * MS, rel=0.02)
    assert len(clock.published) - before < 30


def test_no_turn_is_made_longer_by_what_happens_in_it(clock):
    clock.gpu.submit(Job("a", SHORT, NEVER_DUE_NS), clock.to(ms(0)))
    clock.gpu.submit(Job("b", SHORT, 1), clock.to(ms(0)))
    for after in range(1, 20):
        clock.gpu.set_controls(CAPPED if after % 2 else OPEN, clock.to(ms(after)))
    ((_, start_ns, _),) = clock.done
    assert start_ns <= ms(12)


def test_who_was_alone_gives_way_at_the_next_step(clock):
    clock.gpu.submit(Job("a", SHORT, NEVER_DUE_NS), clock.to(ms(0)))
    clock.gpu.submit(Job("b", SHORT, 1), clock.to(ms(100)))
    clock.to(ms(200))
    ((_, start_ns, _),) = clock.done
    assert ms(100) <= start_ns <= ms(102)


@pytest.mark.parametrize("controls", [OPEN, CAPPED])
def test_a_training_in_real_time_is_the_one_in_virtual_time(clock, controls):
    workload = load_workload("mnist-small", BOARD)
    parts = repeat_training(workload)
    first = next(parts)
    clock.gpu.set_controls(controls, clock.to(ms(0)))
    clock.gpu.submit(Job("me", first.load, first.steps, later=parts), clock.to(ms(0)))
    state, played = rest(UNIT, START_NS), []
    for part in (part for epoch in iterate_epochs(workload) for part in epoch):
        timeline, state = play(UNIT, state, part.load, controls, steps=part.steps)
        played.append(timeline)
    clock.to(state.t_ns)
    grid = np.linspace(START_NS, state.t_ns, 1000).astype(np.int64)
    recorded = clock.gpu.take_timeline()
    assert clock.done == []
    assert recorded.energy_at(grid) == pytest.approx(concat(played).energy_at(grid), rel=1e-9)


def test_between_the_parts_of_a_training_others_have_their_turn(clock):
    parts = repeat_training(load_workload("mnist-small", BOARD))
    first = next(parts)
    clock.gpu.submit(Job("me", first.load, first.steps, later=parts), clock.to(ms(0)))
    clock.gpu.submit(Job("b", LOAD, 60), clock.to(ms(0)))
    clock.to(ms(60 * (50 + 12) + 1000))
    ((owner, _, _),) = clock.done
    assert owner == "b"


def test_a_client_alternates_with_the_load_from_the_start(clock):
    clock.gpu.submit(Job("background", LOAD, NEVER_DUE_NS), clock.to(ms(0)))
    clock.gpu.submit(Job("me", OTHER, 5), clock.to(ms(7000)))
    clock.to(ms(10_000))
    ((_, start_ns, end_ns),) = clock.done
    pair, _ = play(UNIT, rest(UNIT, START_NS), LOAD, OPEN, steps=1)
    assert 0 <= start_ns - ms(7000) <= pair.end_ns - START_NS
    shared_ns = 5 * (OTHER.phases[0].time_s * 1e9) + 4 * (pair.end_ns - START_NS)
    assert end_ns - start_ns == pytest.approx(shared_ns, rel=0.02)


def test_a_step_longer_than_any_foresight_is_not_interrupted_by_a_turn(clock):
    long = Load((Phase("kernel", 3.0, 0.5, 90.0, 20.0),))
    clock.gpu.submit(Job("long", long, 1), clock.to(ms(0)))
    clock.gpu.submit(Job("short", OTHER, 1), clock.to(ms(100)))
    clock.to(ms(5000))
    assert [owner for owner, _, _ in clock.done] == ["long", "short"]
    assert clock.done[0][2] - START_NS == pytest.approx(3e9, rel=1e-6)


def test_a_client_that_is_gone_takes_its_load_along(clock):
    clock.gpu.attach(1, clock.to(ms(0)))
    clock.gpu.submit(Job("gone", LOAD, 1000), clock.to(ms(0)))
    clock.gpu.withdraw("gone", clock.to(ms(333)))
    clock.gpu.attach(-1, ms(333))
    clock.to(ms(5000))
    timeline = clock.gpu.take_timeline()
    assert clock.done == []
    assert timeline.power_at(ms(332)) > 70
    assert timeline.pieces["busy"][timeline.pieces["t_ns"] >= ms(333)].max() == 0
    assert timeline.power_at(ms(4999)) == pytest.approx(BOARD.idle.asleep_w, rel=0.1)


def test_one_that_waits_goes_on_when_the_running_one_is_gone(clock):
    clock.gpu.submit(Job("gone", LOAD, 1000), clock.to(ms(0)))
    clock.gpu.submit(Job("next", LOAD, 1), clock.to(ms(1)))
    clock.gpu.withdraw("gone", clock.to(ms(15)))
    clock.to(ms(1000))
    ((owner, start_ns, _),) = clock.done
    assert (owner, start_ns) == ("next", ms(15))


def test_readers_are_always_ahead_of_time(clock):
    clock.gpu.submit(Job("me", OTHER, NEVER_DUE_NS), clock.to(ms(0)))
    for now_ns in range(ms(0), ms(4000), 13 * MS):
        clock.to(now_ns)
        assert clock.published[-1].end_ns - now_ns > 200 * MS


events = st.lists(
    st.tuples(
        st.integers(0, 700),
        st.sampled_from(["a", "b", "limit", "open", "gone a", "gone b", "context"]),
    ),
    max_size=12,
)


@given(events)
def test_what_was_published_is_what_was_and_energy_never_jumps(happenings):
    clock = Clock()
    gpu, busy, taken = clock.gpu, set(), []
    now_ns = START_NS
    for gap_ms, what in happenings:
        before_ns, now_ns = now_ns, clock.to(now_ns + gap_ms * MS)
        busy -= {owner for owner, _, _ in clock.done}
        clock.done.clear()
        if what in {"a", "b"} - busy:
            gpu.submit(Job(what, LOAD if what == "a" else OTHER, 3), now_ns)
            busy.add(what)
        elif what.startswith("gone"):
            gpu.withdraw(what[-1], now_ns)
            busy.discard(what[-1])
        elif what == "context":
            gpu.attach(1, now_ns)
        else:
            gpu.set_controls(CAPPED if what == "limit" else OPEN, now_ns)
        taken.append(gpu.take_timeline().between(before_ns, now_ns))
    end_ns = clock.to(now_ns + 2000 * MS)
    taken.append(gpu.take_timeline().between(now_ns, end_ns))

    pieces = clock.seen()
    lasting_ns = np.diff(pieces["t_ns"])
    assert (lasting_ns > 0).all()
    drawn_j = pieces["power_w"][:-1].astype(float) * lasting_ns * 1e-9
    assert np.diff(pieces["energy_j"]) == pytest.approx(drawn_j, rel=1e-6, abs=1e-9)

    grid = np.arange(START_NS, end_ns, 17 * MS)
    published = Timeline(pieces, int(pieces["t_ns"][-1]))
    assert concat(taken).energy_at(grid) == pytest.approx(published.energy_at(grid), rel=1e-9)
