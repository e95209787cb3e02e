"""Which runs need not be made, and which need not end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.data import Energy, Source
from joulewise.data.sweeps import CONFIRMING, WARM_UP, Planned, Setting, Sweep, TrialState
from joulewise.sweep.execute import is_dominated, reason_to_skip
from tests.helpers.fake_runner import setting, trial

REFERENCE = Setting.of({"power_limit_w": 250.0, "sm_clock_mhz": None, "batch_size": "32"})


def at(limit_w=250.0, clock_mhz=None, batch_size="32"):
    values = {"power_limit_w": limit_w, "sm_clock_mhz": clock_mhz, "batch_size": batch_size}
    return Setting.of(values)


def ran(one, time_s, block=0, **more):
    return trial(Planned(one, block, 0, more.pop("look_s", None)), time_s, **more)


def sweep_of(*trials, reference=REFERENCE):
    return Sweep("a", {}, 0, reference, (), trials)


def is_skipped(one, *trials, **more):
    return bool(reason_to_skip(Planned(one, 1, **more), sweep_of(*trials), 1.2))


class TestTooSlow:
    SLOW = (ran(REFERENCE, 10), ran(at(200.0, 1200.0), 12.5))

    @pytest.mark.parametrize(
        ("one", "skipped"),
        [
            (at(150.0, 1200.0), True),
            (at(200.0, 1100.0), True),
            (at(100.0, 800.0), True),
            (at(200.0, 1200.0), False),  # that one itself: its mean is what all depends on
            (at(150.0, 1300.0), False),
            (at(201.0, 1100.0), False),
            (at(150.0, None), False),  # not locked is as high as can be
            (at(150.0, 1200.0, "64"), False),  # another command
            (REFERENCE, False),
        ],
    )
    def test_is_what_has_a_control_lower_and_none_higher(self, one, skipped):
        assert is_skipped(one, *self.SLOW) is skipped

    def test_a_clock_is_lower_than_none(self):
        slow = (ran(REFERENCE, 10), ran(at(200.0, None), 12.5))
        assert is_skipped(at(200.0, 1200.0), *slow)
        assert is_skipped(at(150.0, None), *slow)

    def test_just_so_slow_is_allowed(self):
        assert not is_skipped(at(100.0), ran(REFERENCE, 10), ran(at(200.0), 12))

    def test_is_judged_by_means_over_blocks_that_have_both(self):
        trials = [ran(REFERENCE, 10), ran(at(200.0), 13)]
        assert is_skipped(at(150.0), *trials)
        trials += [ran(REFERENCE, 10, 1), ran(at(200.0), 10.9, 1)]
        assert not is_skipped(at(150.0), *trials)
        assert not is_skipped(at(150.0), *trials, ran(at(200.0), 99, 2))

    def test_says_nothing_without_the_reference_on_that_board(self):
        slow = ran(at(200.0), 13, gpu="GPU-1")
        assert not is_skipped(at(150.0), slow)
        assert not is_skipped(at(150.0), slow, ran(REFERENCE, 10, gpu="GPU-2"))
        assert is_skipped(at(150.0), slow, ran(REFERENCE, 10, gpu="GPU-1"))

    @pytest.mark.parametrize(
        "more",
        [{"block": WARM_UP}, {"look_s": 5.0}, {"state": TrialState.FAILED}, {"time_s": None}],
    )
    def test_heeds_only_whole_runs_that_count(self, more):
        more = {"time_s": 13, **more}
        assert not is_skipped(at(150.0), ran(REFERENCE, 10), ran(at(200.0), **more))

    def test_probes_and_warm_up_runs_are_never_skipped(self):
        assert not is_skipped(at(150.0, 1200.0), *self.SLOW, look_s=5.0)
        warm_up = Planned(at(150.0, 1200.0), WARM_UP)
        assert not reason_to_skip(warm_up, sweep_of(*self.SLOW), 1.2)

    def test_says_than_which(self):
        reason = reason_to_skip(Planned(at(150.0, 1200.0), 1), sweep_of(*self.SLOW), 1.2)
        setting_s = "200 W, SM 1200 MHz, batch_size 32"
        assert reason == f"no faster than {setting_s}, which took 1.25 times as long"

    @given(
        times_s=st.lists(st.floats(1, 100), min_size=4, max_size=4),
        most=st.floats(1, 3),
        limit_w=st.sampled_from([100.0, 150.0, 200.0, 250.0]),
    )
    def test_never_where_all_that_is_known_is_fast_enough(self, times_s, most, limit_w):
        """In one block a skipped setting has one above it that was too slow."""
        limits_w = [150.0, 200.0, 225.0, 249.0]
        known = dict(zip(limits_w, times_s, strict=True))
        trials = [ran(at(each), time_s) for each, time_s in known.items()]
        sweep = sweep_of(ran(REFERENCE, 10), *trials)
        above = [time_s for each, time_s in known.items() if each > limit_w]
        expected = limit_w != 250 and any(time_s / 10 > most for time_s in above)
        assert bool(reason_to_skip(Planned(at(limit_w), 0), sweep, most)) is expected


class TestBeaten:
    def beaten(self, time_s, gpu_j, *trials, one=150.0, rest_j=None, **more):
        planned = Planned(setting(one), more.pop("block", 1), **more)
        joules = {"gpu": gpu_j} | ({"rest": rest_j} if rest_j is not None else {})
        sweep = sweep_of(*trials, reference=setting(250.0))
        return is_dominated(planned, time_s, joules, sweep)

    def test_by_the_means_of_another_in_both(self):
        others = [ran(setting(200.0), 10, gpu_j=100), ran(setting(200.0), 12, 1, gpu_j=120)]
        assert self.beaten(11.1, 110.1, *others)
        assert not self.beaten(11.0, 110.1, *others)
        assert not self.beaten(11.1, 110.0, *others)

    def test_by_one_that_is_less_in_both_not_by_two_that_are_each_in_one(self):
        fast, frugal = ran(setting(250.0), 10, gpu_j=200), ran(setting(100.0), 20, gpu_j=100)
        assert not self.beaten(15, 150, fast, frugal)

    def test_never_when_it_confirms_a_choice(self):
        other = ran(setting(200.0), 10, gpu_j=100)
        assert self.beaten(11, 110, other, block=CONFIRMING - 1)
        assert not self.beaten(11, 110, other, block=CONFIRMING)

    def test_never_by_its_own_earlier_runs(self):
        assert not self.beaten(99, 999, ran(setting(150.0), 10, gpu_j=100))

    def test_never_the_reference_nor_a_look_nor_a_warm_up(self):
        other = ran(setting(200.0), 10, gpu_j=100)
        assert self.beaten(99, 999, other)
        assert not self.beaten(99, 999, other, one=250.0)
        assert not self.beaten(99, 999, other, look_s=5.0)
        assert not self.beaten(99, 999, other, block=WARM_UP)

    def test_in_all_energies_that_are_known_of_the_other(self):
        planned = Planned(setting(200.0), 0)
        joules = {name: Energy(100.0, 0, 0, Source.MEASURED) for name in ("gpu", "rest")}
        other = trial(planned, 10.0)
        other = type(other)(**{**vars(other), "energy": joules})
        assert self.beaten(11, 101, other, rest_j=101)
        assert not self.beaten(11, 101, other, rest_j=100)
        assert not self.beaten(11, 101, other)

    def test_never_by_one_of_which_no_energy_is_known(self):
        other = trial(Planned(setting(200.0), 0), 10.0)
        assert not self.beaten(99, 999, type(other)(**{**vars(other), "energy": {}}))

    @pytest.mark.parametrize("state", [TrialState.FAILED, TrialState.STOPPED, TrialState.SKIPPED])
    def test_never_by_one_that_did_not_come_to_its_end(self, state):
        assert not self.beaten(99, 999, ran(setting(200.0), 10, state=state))
