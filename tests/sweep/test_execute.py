"""What becomes of runs: made once, tried again, kept, skipped; in one lane or several."""

import errno
import json
import os
import threading
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from joulewise.data import Source
from joulewise.data.sweeps import WARM_UP, Planned, TrialState
from joulewise.errors import JoulewiseError
from joulewise.search.objective import trial_key
from joulewise.sweep.execute import execute
from joulewise.sweep.space import Grid
from joulewise.sweep.stored_sweeps import SWEEP_FILE, create_sweep, load_sweep
from tests.helpers.fake_runner import (
    FakeRunner,
    Watched,
    asked,
    failed,
    go_on,
    setting,
    space,
    trial,
)

ALL = {(each, block) for each in space().settings for block in range(2)}


def begun(store, points=None, **more):
    return create_sweep(store, asked(**more), points or space())


def pairs(trials):
    return Counter((each.setting, each.block) for each in trials)


def test_every_run_once_and_the_file_has_it(tmp_path):
    folder, runner, watch = begun(tmp_path), FakeRunner(), Watched()
    sweep = go_on(folder, runner, watch)
    assert pairs(sweep.trials) == Counter(ALL)
    assert (sweep.state, load_sweep(folder)) == ("finished", sweep)
    assert watch.left == [6, 5, 4, 3, 2, 1, 0]
    assert watch.started_ones == tuple(runner.made)
    assert runner.hopeless == [None] * 6


def test_the_file_has_each_run_before_the_next_begins(tmp_path):
    folder = begun(tmp_path)
    seen = []

    def made(planned):
        seen.append(len(load_sweep(folder).trials))
        return trial(planned)

    go_on(folder, FakeRunner(made))
    assert seen == [0, 1, 2, 3, 4, 5]


class TestFailures:
    def test_a_run_that_fails_twice_is_kept_and_the_others_are_made(self, tmp_path):
        def made(planned):
            return failed(planned) if planned.setting == setting(200.0) else trial(planned)

        runner = FakeRunner(made)
        sweep = go_on(begun(tmp_path), runner)
        bad = [each for each in sweep.trials if each.state is TrialState.FAILED]
        assert pairs(sweep.trials) == Counter(ALL)
        assert {each.setting for each in bad} == {setting(200.0)}
        assert {(each.attempts, each.reason, each.log_tail) for each in bad} == {
            (2, "it broke", "the last line")
        }
        assert len(runner.made) == 8
        assert sweep.state == "finished"

    def test_one_that_succeeds_at_last_is_done(self, tmp_path):
        attempts = Counter()

        def made(planned):
            attempts[planned] += 1
            return failed(planned) if attempts[planned] == 1 else trial(planned)

        sweep = go_on(begun(tmp_path), FakeRunner(made))
        assert {(each.state, each.attempts) for each in sweep.trials} == {(TrialState.DONE, 2)}

    def test_internal_error_ends_the_sweep_without_losses(self, tmp_path):
        folder = begun(tmp_path)

        def made(planned):
            if len(load_sweep(folder).trials) == 3:
                raise KeyError(planned)
            return trial(planned)

        runner = FakeRunner(made)
        with pytest.raises(KeyError):
            go_on(folder, runner)
        assert runner.stopped.is_set()
        assert (len(load_sweep(folder).trials), load_sweep(folder).state) == (3, "interrupted")

    def test_error_of_the_observer_ends_the_sweep_without_losses(self, tmp_path):
        class Odd(Watched):
            def started(self, planned):
                super().started(planned)
                if len(self.started_ones) == 3:
                    raise KeyError(planned)

        folder, runner = begun(tmp_path), FakeRunner()
        with pytest.raises(KeyError):
            go_on(folder, runner, Odd())
        assert runner.stopped.is_set()
        assert len(load_sweep(folder).trials) == 2


class TestLanes:
    def test_slots_work_at_once_with_one_run_each(self, tmp_path):
        both = threading.Barrier(2)
        at_work = Counter()

        def made(planned):
            at_work[planned.lane] += 1
            assert at_work[planned.lane] == 1
            both.wait(60)
            at_work[planned.lane] -= 1
            return trial(planned)

        sweep = go_on(begun(tmp_path), FakeRunner(made, slots=2))
        assert pairs(sweep.trials) == Counter(ALL)
        assert {each.block: each.lane for each in sweep.trials} == {0: 0, 1: 1}

    def test_run_for_a_busy_slot_waits(self, tmp_path):
        """A strategy need not know of lanes."""

        class OneAtATime(Watched):
            def started(self, planned):
                super().started(planned)
                assert len(self.started_ones) - len(self.ended_ones) == 1

        class OneLane:
            left, sure = 0, {}

            def __init__(self):
                self.queue = [Planned(setting(150.0), block) for block in range(5)]

            def ask(self, busy):
                assert len(busy) < 3
                return self.queue.pop() if self.queue else None

            def tell(self, trial):
                pass

        sweep = execute(begun(tmp_path), OneLane(), FakeRunner(slots=3), OneAtATime())
        assert len(sweep.trials) == 5

    def test_a_failure_in_one_does_not_stop_the_other(self, tmp_path):
        def made(planned):
            return failed(planned) if planned.lane else trial(planned)

        sweep = go_on(begun(tmp_path), FakeRunner(made, slots=2))
        assert Counter(each.state for each in sweep.trials) == {
            TrialState.DONE: 3,
            TrialState.FAILED: 3,
        }


def test_too_slow_settings_are_skipped_and_recorded(tmp_path):
    of = {"max_slowdown": 1.2, "repeat": 3}
    points = space(100.0, 150.0, 200.0, 250.0)

    def made(planned):
        return trial(planned, {250.0: 10, 200.0: 11, 150.0: 13, 100.0: 20}[limit(planned)])

    def limit(planned):
        return planned.setting["power_limit_w"]

    runner, watch = FakeRunner(made), Watched()
    sweep = go_on(begun(tmp_path, points, **of), runner, watch, points, **of)
    skipped = [each for each in sweep.trials if each.state is TrialState.SKIPPED]
    assert len(sweep.trials) == 12
    assert sweep.trials[0].setting == points.reference
    assert {each.setting for each in skipped} == {setting(100.0)}
    assert {each.block for each in skipped} >= {1, 2}
    assert "no faster than 150 W, which took 1.3 times" in skipped[-1].reason
    assert not {trial_key(each) for each in skipped} & {trial_key(each) for each in runner.made}
    assert watch.left[-1] == 0
    # Of settings that are past it one at least is repeated: on its mean the others' lot depends.
    assert sum(limit(planned) == 150 for planned in runner.made) == 3


def test_hopeless_runs_are_ended_on_request(tmp_path):
    folder, runner = begun(tmp_path), FakeRunner()
    execute(folder, Grid(space(), asked()), runner, Watched(), stop_hopeless=True)
    hopeless = {made.setting: each for made, each in zip(runner.made, runner.hopeless, strict=True)}
    assert hopeless[setting(150.0)](10.1, {"gpu": 1000.1})
    assert not hopeless[setting(150.0)](10.0, {"gpu": 1000.1})
    assert not hopeless[space().reference](10.1, {"gpu": 1000.1})


class TestAgain:
    """A second process goes on where the first was cut off."""

    def cut(self, folder, after, make=trial, **more):
        """A sweep whose process ends after so many runs."""

        class EndError(Exception):
            pass

        left = iter(range(after))

        def made(planned):
            if next(left, None) is None:
                raise EndError
            return make(planned)

        with pytest.raises(EndError):
            go_on(folder, FakeRunner(made), **more)

    @pytest.mark.parametrize("after", range(6))
    def test_resumed_sweep_makes_exactly_the_missing_runs(self, tmp_path, after):
        folder = begun(tmp_path)
        self.cut(folder, after)
        runner, watch = FakeRunner(), Watched()
        sweep = go_on(folder, runner, watch)
        assert len(runner.made) == 6 - after
        assert pairs(sweep.trials) == Counter(ALL)
        assert (len(watch.begun), watch.left[0]) == (after, 6 - after)

    def test_a_run_that_had_failed_is_tried_once_more(self, tmp_path):
        folder = begun(tmp_path)
        self.cut(folder, 4, failed)  # two runs, twice each
        runner = FakeRunner(failed)
        sweep = go_on(folder, runner)
        assert pairs(sweep.trials) == Counter(ALL)
        assert sorted(each.attempts for each in sweep.trials) == [2, 2, 2, 2, 3, 3]
        assert len(runner.made) == 2 + 4 * 2

    def test_retried_run_that_succeeds_is_done(self, tmp_path):
        folder = begun(tmp_path)
        self.cut(folder, 2, failed)
        sweep = go_on(folder, FakeRunner())
        assert pairs(sweep.trials) == Counter(ALL)
        assert Counter(each.attempts for each in sweep.trials) == {1: 5, 3: 1}
        assert {each.state for each in sweep.trials} == {TrialState.DONE}

    def test_a_finished_sweep_makes_what_had_failed_and_nothing_else(self, tmp_path):
        folder, bad = begun(tmp_path), setting(200.0)
        go_on(folder, FakeRunner(lambda it: failed(it) if it.setting == bad else trial(it)))
        states = []

        def made(planned):
            states.append(load_sweep(folder).state)
            return trial(planned)

        runner = FakeRunner(made)
        sweep = go_on(folder, runner)
        assert pairs(runner.made) == {(bad, 0): 1, (bad, 1): 1}
        assert states == ["finished", "running"]  # the file is not touched before there is more
        assert {each.state for each in sweep.trials} == {TrialState.DONE}
        assert load_sweep(folder) == sweep
        assert sweep.state == "finished"

    @pytest.mark.parametrize("lanes", [1, 2])
    def test_a_search_is_told_what_became_of_failures_before_it_is_asked(self, tmp_path, lanes):
        """Whatever else it would ask for without them."""

        class Asking:
            left, sure = 0, {}

            def __init__(self):
                self.told = []

            def ask(self, busy):
                known = {trial_key(each) for each in (*self.told, *busy)}
                free = set(range(lanes)) - {each.lane for each in busy}
                for lane, block in ((lane, lane + lanes * k) for k in range(3) for lane in free):
                    if trial_key(planned := Planned(setting(150.0), block, lane)) not in known:
                        return planned
                return None

            def tell(self, reported):
                self.told.append(reported)

        folder = begun(tmp_path)
        other = Planned(setting(250.0), 7, lane=lanes + 1)  # of a time with more lanes
        go = FakeRunner(failed)
        go.slots = lanes + 2

        class Once(Asking):
            def ask(self, busy):
                return None if busy or self.told else other

        execute(folder, Once(), go, Watched())
        strategy, runner = Asking(), FakeRunner(slots=lanes)
        sweep = execute(folder, strategy, runner, Watched())
        assert trial_key(other) in {trial_key(each) for each in runner.made[:lanes]}
        assert len(runner.made) == 1 + 3 * lanes
        assert {each.state for each in sweep.trials} == {TrialState.DONE}

    def test_what_was_skipped_stays_so(self, tmp_path):
        of = {"max_slowdown": 1.2, "repeat": 3}

        def slow(planned):
            return trial(planned, 3000 / planned.setting["power_limit_w"])

        folder = begun(tmp_path, **of)
        self.cut(folder, 5, slow, **of)
        before = [each for each in load_sweep(folder).trials if each.state is TrialState.SKIPPED]
        sweep = go_on(folder, FakeRunner(slow), **of)
        assert before
        assert [each for each in sweep.trials if each in before] == before
        assert set(pairs(sweep.trials).values()) == {1}
        assert len(sweep.trials) == 9

    def test_warms_up_again(self, tmp_path):
        folder = begun(tmp_path, warm_up=1)
        self.cut(folder, 3, warm_up=1)
        runner = FakeRunner()
        sweep = go_on(folder, runner, warm_up=1)
        assert [planned.block == WARM_UP for planned in runner.made] == [True] + [False] * 4
        assert pairs(each for each in sweep.trials if each.block != WARM_UP) == Counter(ALL)

    def test_has_nothing_to_do_but_to_say_so_after_the_last_run(self, tmp_path):
        folder = begun(tmp_path)
        done = go_on(folder, FakeRunner())
        payload = json.loads((folder / SWEEP_FILE).read_text())
        del payload["crc32"]
        (folder / SWEEP_FILE).write_text(json.dumps({**payload, "state": "running"}))
        runner = FakeRunner()
        assert go_on(folder, runner) == done
        assert runner.made == []

    def test_failed_run_in_the_store_is_not_adopted(self, tmp_path):
        class Found(FakeRunner):
            def adopt(self, planned):
                return failed(planned)

        folder = begun(tmp_path)
        self.cut(folder, 5)
        runner = Found()
        go_on(folder, runner)
        assert len(runner.made) == 1

    @pytest.mark.parametrize("later", [True, False])
    def test_run_known_as_failed_is_not_adopted(self, tmp_path, later):
        """As one that took too long and yet ended well; another one after it may be."""

        class Found(FakeRunner):
            def adopt(self, planned):
                return trial(planned, start_wall_ns=11 if later else 10)

        folder = begun(tmp_path)
        self.cut(folder, 2, lambda planned: replace(failed(planned), start_wall_ns=10))
        runner = Found()
        go_on(folder, runner)
        assert len(runner.made) == (0 if later else 1)

    def test_a_sweep_that_never_ran_looks_for_nothing(self, tmp_path):
        class Refusing(FakeRunner):
            def adopt(self, planned):
                raise AssertionError(planned)

        assert len(go_on(begun(tmp_path), Refusing()).trials) == 6


class TestFullDisk:
    @pytest.fixture
    def disk(self, monkeypatch):
        from joulewise.sweep import execute

        real, full = execute.replace_file, set()

        def replaced(path, text, *, durable):
            if full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(path, text, durable=durable)

        monkeypatch.setattr(execute, "replace_file", replaced)
        return full

    def test_unwritten_trials_are_written_with_the_next(self, tmp_path, disk):
        def filled(_):
            {1: disk.add, 4: disk.discard}.get(len(watch.ended_ones), lambda _: None)("full")
            counts.append((len(watch.ended_ones), len(load_sweep(folder).trials)))

        counts = []
        folder, watch = begun(tmp_path), Watched(filled)
        sweep = go_on(folder, FakeRunner(), watch)
        assert counts == [(1, 1), (2, 1), (3, 1), (4, 1), (5, 5), (6, 6)]
        assert load_sweep(folder) == sweep
        (line,) = watch.lines
        assert "sweep.json: No space left on device" in line

    def test_unwritable_file_at_the_end_is_an_error(self, tmp_path, disk):
        folder, runner = begun(tmp_path), FakeRunner()
        disk.add("full")
        watch = Watched()
        with pytest.raises(JoulewiseError, match="cannot write") as caught:
            go_on(folder, runner, watch)
        assert caught.value.exit_status == 125
        assert len(runner.made) == 6
        assert len(watch.lines) == 1
        assert load_sweep(folder).trials == ()


def test_virtual_sweep_is_not_saved_after_every_run(tmp_path, monkeypatch):
    from joulewise.sweep import execute

    folder, writes = begun(tmp_path), []
    payload = json.loads((folder / SWEEP_FILE).read_text())
    payload["asked"]["simulated"] = {"gpu": "v100"}
    del payload["crc32"]
    (folder / SWEEP_FILE).write_text(json.dumps(payload))
    clock = iter(range(0, 1000, 2))  # a save takes 2 s, and the next moment is 2 s later
    monkeypatch.setattr(execute.time, "monotonic", lambda: next(clock))
    real = execute.replace_file

    def counted(path, text, *, durable):
        writes.append(durable)
        real(path, text, durable=durable)

    monkeypatch.setattr(execute, "replace_file", counted)
    sweep = go_on(folder, FakeRunner(partial(trial, source=Source.SIMULATED)))
    assert 1 <= len(writes) < 6
    assert writes[-1]  # what it came to is there to stay
    assert load_sweep(folder) == sweep


def test_a_trial_takes_the_place_of_none_but_its_own(tmp_path):
    """A look at a setting and a whole run of it are two."""

    class Both:
        left, sure = 0, {"found": 1}

        def __init__(self):
            whole = Planned(setting(150.0), 0)
            self.queue = [whole, replace(whole, look_s=5.0), Planned(setting(150.0), 1)]

        def ask(self, busy):  # noqa: ARG002
            return self.queue.pop() if self.queue else None

        def tell(self, trial):
            pass

    sweep = execute(begun(tmp_path), Both(), FakeRunner(), Watched())
    assert [(each.block, each.look_s) for each in sweep.trials] == [(1, None), (0, 5.0), (0, None)]
    assert sweep.sure == {"found": 1}
