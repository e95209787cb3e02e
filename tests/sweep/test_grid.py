"""Every setting so many times, in random order, the reference among them, once each."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from joulewise.data.sweeps import POWER_LIMIT, SM_CLOCK, WARM_UP, Planned, Trial, TrialState
from joulewise.sweep.boards import simulated
from joulewise.sweep.space import Grid, order, resolve
from joulewise.sweep.spec import SweepSpec

V100 = simulated("v100")
ASKED = SweepSpec(command=("sh",), axes={POWER_LIMIT: "150:250:50"}, repeat=4)
SPACE = resolve(ASKED, V100)  # three settings, and the reference beside them


def done(planned, state=TrialState.DONE):
    return Trial(planned.setting, planned.block, state, planned.lane)


def drained(grid, busy=()):
    """All that it still asks for, one at a time."""
    runs = []
    while planned := grid.ask(busy):
        assert grid.left > 0
        runs.append(planned)
        grid.tell(done(planned))
    assert grid.left == 0
    return runs


def key(planned):
    return planned.setting, planned.block


def test_a_block_has_every_setting_and_the_reference_once():
    runs = drained(Grid(SPACE, ASKED))
    for block in range(4):
        settings = [run.setting for run in runs[4 * block : 4 * block + 4]]
        assert set(settings) == set(SPACE.points)
        assert {run.block for run in runs[4 * block : 4 * block + 4]} == {block}


def test_a_reference_in_the_grid_is_not_run_twice():
    asked = replace(ASKED, axes={POWER_LIMIT: "150:300:50"})
    runs = drained(Grid(resolve(asked, V100), asked))
    assert len(runs) == 16
    assert set(Counter(map(key, runs)).values()) == {1}


def test_the_order_follows_from_the_seed_and_differs_from_block_to_block():
    asked = replace(ASKED, axes={POWER_LIMIT: "full"})
    space = resolve(asked, V100)
    orders = [order(space, asked, block) for block in range(4)]
    assert orders == [order(space, asked, block) for block in range(4)]
    assert len({tuple(each) for each in orders}) == 4
    assert order(space, replace(asked, seed=1), 0) != orders[0]
    assert tuple(orders[0]) != space.settings


def test_order_within_blocks_is_uniform():
    places = Counter(
        order(SPACE, replace(ASKED, seed=seed), 0).index(SPACE.reference) for seed in range(400)
    )
    assert sorted(places) == [0, 1, 2, 3]
    assert all(70 <= count <= 130 for count in places.values())


def test_reference_is_first_where_slow_settings_are_skipped():
    asked = replace(ASKED, axes={POWER_LIMIT: "full"}, max_slowdown=1.2)
    space = resolve(asked, V100)
    first = order(space, asked, 0)
    assert first[0] == space.reference
    assert set(first) == set(space.points)
    assert len(first) == len(space.points)
    plain = replace(asked, max_slowdown=None)
    assert order(space, asked, 1) == order(space, plain, 1)


def test_blocks_stay_in_their_slot():
    grid = Grid(SPACE, ASKED, slots=2)
    busy = [grid.ask(()), None]
    busy[1] = grid.ask(busy[:1])
    assert [run.lane for run in busy] == [0, 1]
    assert [run.block for run in busy] == [0, 1]
    assert grid.ask(busy) is None
    grid.tell(done(busy[1]))
    following = grid.ask(busy[:1])
    assert (following.lane, following.block) == (1, 1)
    runs = [*drained(grid, ()), busy[1]]
    assert all(run.lane == run.block % 2 for run in runs)


def test_slot_with_runs_warms_up_first():
    asked = replace(ASKED, warm_up=2, repeat=2)
    grid = Grid(SPACE, asked, slots=3)
    assert grid.left == 2 * 4 + 2 * 2
    runs = drained(grid)
    for lane in (0, 1):
        blocks = [run.block for run in runs if run.lane == lane]
        assert blocks == [WARM_UP, WARM_UP, lane, lane, lane, lane]
    assert not any(run.lane == 2 for run in runs)
    assert all(run.setting == SPACE.reference for run in runs if run.block == WARM_UP)


def test_failed_and_skipped_runs_are_not_repeated():
    grid = Grid(SPACE, ASKED)
    for state in TrialState:
        planned = grid.ask(())
        left = grid.left
        grid.tell(done(planned, state))
        grid.tell(done(planned, state))
        assert grid.left == left - 1
    assert len(drained(grid)) == 16 - len(TrialState)


def test_trials_of_other_plans_are_ignored():
    grid = Grid(SPACE, ASKED)
    other = replace(ASKED, axes={SM_CLOCK: "1200"})
    grid.tell(done(Planned(resolve(other, V100).reference, 0)))
    grid.tell(done(Planned(SPACE.reference, 99)))
    assert grid.left == 16


def test_grid_reports_no_choice():
    assert Grid(SPACE, ASKED).sure == {}


@given(
    reported=st.sets(st.integers(0, 15)),
    arrival=st.randoms(use_true_random=False),
    lanes=st.integers(1, 5),
    lanes_before=st.integers(1, 5),
)
def test_resumed_grid_makes_exactly_the_missing_runs(reported, arrival, lanes, lanes_before):
    before = drained(Grid(SPACE, ASKED, lanes_before))
    kept = [before[place] for place in reported]
    arrival.shuffle(kept)
    grid = Grid(SPACE, ASKED, lanes)
    for planned in kept:
        grid.tell(done(planned))
    whole = drained(Grid(SPACE, ASKED, lanes))
    assert grid.left == 16 - len(kept)
    assert drained(grid) == [run for run in whole if key(run) not in set(map(key, kept))]


@given(
    choices=st.lists(st.integers(0, 7), min_size=80, max_size=80),
    lanes=st.integers(1, 4),
    warm_up=st.integers(0, 2),
)
def test_slots_in_any_order_make_every_run_once(choices, lanes, warm_up):
    grid = Grid(SPACE, replace(ASKED, warm_up=warm_up), lanes)
    total, busy, ended = grid.left, [], []
    for choice in choices:
        while planned := grid.ask(busy):
            assert planned.lane not in {other.lane for other in busy}
            busy.append(planned)
        if not busy:
            break
        ended.append(busy.pop(choice % len(busy)))
        grid.tell(done(ended[-1]))
        assert grid.left == total - len(ended)
    assert not busy
    assert len(ended) == total
    counted = Counter(key(run) for run in ended if run.block != WARM_UP)
    assert counted == Counter({(s, b): 1 for s in SPACE.points for b in range(4)})
