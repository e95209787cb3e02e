"""Resumed searches, several slots and failed runs: the search continues, and ends."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.data.sweeps import CONFIRMING, WARM_UP, Planned, TrialState
from joulewise.search.one_axis.adaptive import BUDGET, PAIRS
from tests.helpers.known_boards import Board, finish_search, make_search, run_search


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), noise=st.sampled_from([0.005, 0.03]), share=st.floats(0, 1))
def test_resumed_search_continues_as_if_uninterrupted(seed, noise, share):
    board = Board(noise=noise)
    whole, trials = run_search(board, "eds:2.0", seed=seed)
    result = trials[: round(share * len(trials))]
    random.Random(seed).shuffle(result)
    points = board.settings
    resumed = make_search(points, "eds:2.0", seed=seed)
    again = finish_search(resumed, board, result)
    assert {(it.setting, it.block) for it in again} == {(it.setting, it.block) for it in trials}
    assert again[len(result) :] == trials[len(result) :]
    assert resumed.sure == whole.sure


@settings(max_examples=8, deadline=None)
@given(slots=st.integers(2, 4), seed=st.integers(0, 10**6))
def test_several_slots_work_at_once(slots, seed):
    board, draw = Board(), random.Random(seed)
    points = board.settings
    strategy = make_search(points, "edp", slots=slots, seed=seed)
    busy, made = [], []
    while True:
        while len(busy) < slots and (planned := strategy.ask(busy)):
            assert planned.lane not in {it.lane for it in busy}
            busy.append(planned)
        if not busy:
            break
        ended = busy.pop(draw.randrange(len(busy)))
        made.append(ended)
        strategy.tell(board.run(ended, gpu=str(ended.lane)))
    assert len({(it.setting, it.block) for it in made}) == len(made) <= BUDGET
    lane_of = {it.block: it.lane for it in made}
    assert all(lane_of[it.block] == it.lane for it in made)
    said = strategy.sure["metrics"]["edp"]
    assert said["is_reference"] or said["saving"]["pairs"] == PAIRS


def test_nothing_is_confirmed_while_the_choice_may_still_change():
    board = Board()
    points = board.settings
    strategy = make_search(points, "energy", slots=2)
    while (planned := strategy.ask(())).block < CONFIRMING:
        strategy.tell(board.run(planned))
    assert strategy.ask([Planned(points[3], 1, lane=1)]) is None
    assert strategy.ask([replace(planned, lane=1)]).block >= CONFIRMING


def test_slots_do_not_all_run_one_setting():
    board = Board()
    strategy = make_search(board.settings, "edp", slots=4)
    for _ in range(8):
        strategy.tell(board.run(strategy.ask(())))
    busy = []
    for _ in range(4):
        busy.append(strategy.ask(busy))
    others = {it.setting for it in busy} - {board.settings[-1]}
    assert len(others) > 1


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), share=st.sampled_from([0.1, 0.5, 1.0]))
def test_failed_runs_do_not_stop_the_search(seed, share):
    board, draw = Board(), random.Random(seed)
    points = board.settings
    strategy = make_search(points, "energy", seed=seed)
    asked = []
    while planned := strategy.ask(()):
        asked.append((planned.setting, planned.block))
        trial = board.run(planned)
        if draw.random() < share:
            trial = replace(trial, state=TrialState.FAILED, time_s=None, energy={})
        strategy.tell(trial)
    assert len(set(asked)) == len(asked) <= BUDGET + 4
    assert strategy.left == 0
    for said in strategy.sure["metrics"].values():
        assert said["settings"] in [point.as_json() for point in points]


def test_a_setting_that_failed_is_neither_run_again_nor_chosen():
    board = Board(noise=0.005)
    points = board.settings
    best = run_search(board, "energy")[0].sure["metrics"]["energy"]["settings"]
    strategy = make_search(points, "energy")
    failed = []
    while planned := strategy.ask(()):
        trial = board.run(planned)
        if planned.setting.as_json() == best:
            failed.append(planned)
            trial = replace(trial, state=TrialState.FAILED, time_s=None, energy={})
        strategy.tell(trial)
    assert len(failed) <= 1
    assert strategy.sure["metrics"]["energy"]["settings"] != best


def test_skipped_settings_and_slower_ones_are_not_chosen():
    board = Board(noise=0.005)
    points = board.settings
    strategy = make_search(points, "energy")
    while planned := strategy.ask(()):
        trial = board.run(planned)
        if points.index(planned.setting) < 8:
            trial = replace(trial, state=TrialState.SKIPPED, time_s=None, energy={})
        strategy.tell(trial)
    said = strategy.sure["metrics"]["energy"]["settings"]
    assert board.loss(said, "energy") > 0.01
    assert points.index(next(it for it in points if it.as_json() == said)) >= 8


def test_failed_pair_is_repeated():
    board = Board()
    points = board.settings
    strategy = make_search(points, "energy")
    lost = None
    while planned := strategy.ask(()):
        trial = board.run(planned)
        if planned.block == CONFIRMING and lost is None:
            lost = trial = replace(trial, state=TrialState.FAILED, time_s=None, energy={})
        strategy.tell(trial)
    assert lost is not None
    assert strategy.sure["metrics"]["energy"]["saving"]["pairs"] == PAIRS


def test_every_slot_warms_up_first():
    board = Board()
    strategy = make_search(board.settings, "edp", slots=2, warm_up=1)
    first = strategy.ask(())
    second = strategy.ask([first])
    assert {first.lane, second.lane} == {0, 1}
    assert first.block == second.block == WARM_UP
    for planned in (first, second):
        strategy.tell(board.run(planned))
    assert strategy.ask(()).block != WARM_UP
    assert strategy.sure["runs"] == 0


def test_search_without_energy_ends_with_a_reason():
    board = Board()
    strategy = make_search(board.settings, "energy")
    made = 0
    while planned := strategy.ask(()):
        strategy.tell(replace(board.run(planned), energy={}))
        made += 1
    assert made <= BUDGET
    assert strategy.sure["metrics"] == {}
    assert strategy.sure["reason"]
