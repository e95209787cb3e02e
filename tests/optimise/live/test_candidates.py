"""The settings that may be tried: those that all GPUs of the job can be set to."""

import subprocess
import sys

import pytest

from joulewise.errors import DeviceError, UsageError
from joulewise.optimise.live import TuningCandidate
from joulewise.optimise.live.candidates import (
    as_setting,
    available_axes,
    make_candidates,
    parse_axes,
)
from joulewise.session.gpu_discovery import DiscoveredGpu

CLOCKS = tuple(float(clock) for clock in range(135, 1531, 15))
LIMIT, SM, MEMORY = "power_limit_w", "sm_clock_mhz", "mem_clock_mhz"


def gpu(key="gpu0", **values):
    known = {
        "default_w": 300.0,
        "lowest_w": 100.0,
        "highest_w": 300.0,
        "now_w": 300.0,
        "sm_clocks_mhz": CLOCKS,
        "mem_clocks_mhz": (877.0,),
    }
    return DiscoveredGpu(key, key, visible=True, **{**known, **values})


def test_limits_go_in_steps_from_the_least_to_the_most():
    candidates, reference = make_candidates([gpu()], [LIMIT])
    assert [each.power_limit_w for each in candidates] == list(range(100, 301, 5))
    assert candidates[reference].power_limit_w == 300


def test_the_limit_before_is_the_reference_wherever_it_is():
    candidates, reference = make_candidates([gpu(now_w=213.0)], [LIMIT])
    assert candidates[reference].power_limit_w == 213
    assert candidates.index(TuningCandidate(213.0)) == reference == len(candidates) - 1


def test_clocks_are_thinned_and_the_lowest_and_the_highest_left_out():
    candidates, reference = make_candidates([gpu()], [SM])
    clocks = [each.sm_clock_mhz for each in candidates]
    assert (reference, clocks[reference]) == (len(clocks) - 1, None)
    assert len(set(clocks)) == len(clocks) <= 81
    assert 0.3 * 1530 <= min(filter(None, clocks)) < 500
    assert max(filter(None, clocks)) < max(CLOCKS)


def test_both_axes_are_two_lines():
    candidates, reference = make_candidates([gpu()], [LIMIT, SM])
    assert candidates[reference] == TuningCandidate(300.0)
    limits = {each for each in candidates if each.sm_clock_mhz is None}
    assert limits == {TuningCandidate(float(limit_w)) for limit_w in range(100, 301, 5)}
    clocks = set(candidates) - limits
    assert {each.power_limit_w for each in clocks} == {300.0}
    assert len(clocks) == len(make_candidates([gpu()], [SM])[0]) - 1


def test_no_limit_above_the_one_before_is_tried_on_any_gpu():
    candidates, reference = make_candidates([gpu(now_w=200.0)], [LIMIT, SM])
    assert candidates[reference] == TuningCandidate(200.0)
    assert {c.power_limit_w for c in candidates if c.sm_clock_mhz is not None} == {200.0}
    assert max(c.power_limit_w for c in candidates) == 200
    both, reference = make_candidates([gpu(), gpu("gpu1", now_w=250.0)], [LIMIT])
    assert max(c.power_limit_w for c in both if c is not both[reference]) == 250


def test_a_limit_that_is_at_its_lowest_leaves_the_clocks():
    lowest = gpu(now_w=100.0)
    assert available_axes([lowest], ()) == (SM,)
    with pytest.raises(DeviceError, match="cannot be tuned by power-limit"):
        available_axes([lowest], [LIMIT])


def test_the_memory_clock_multiplies_the_lines():
    board = gpu(mem_clocks_mhz=(810.0, 877.0))
    candidates, reference = make_candidates([board], [LIMIT, SM, MEMORY])
    lines, _ = make_candidates([board], [LIMIT, SM])
    assert len(candidates) == 2 * len(lines)
    assert candidates[reference] == TuningCandidate(300.0)


def test_several_gpus_have_what_all_of_them_can():
    low, few = gpu(lowest_w=150.0, highest_w=250.0), gpu("gpu1", sm_clocks_mhz=CLOCKS[50:60])
    limits, _ = make_candidates([low, few], [LIMIT])
    assert {each.power_limit_w for each in limits} == {*range(150, 251, 5), 300}
    clocks, _ = make_candidates([low, few], [SM])
    assert {each.sm_clock_mhz for each in clocks} == {*CLOCKS[50:59], None}


def test_limits_that_differ_stay_as_they_are_at_the_reference():
    candidates, reference = make_candidates([gpu(), gpu("gpu1", now_w=250.0)], [LIMIT])
    assert candidates[reference] == TuningCandidate()


def test_axes_are_those_that_the_boards_have():
    assert available_axes([gpu()], ()) == (LIMIT, SM)
    without = gpu(default_w=None)
    assert available_axes([gpu(), without], ()) == (SM,)
    with pytest.raises(DeviceError, match="gpu0 cannot be tuned by power-limit"):
        available_axes([without], [LIMIT])
    with pytest.raises(DeviceError, match="mem-clock"):
        available_axes([gpu()], [MEMORY])
    with pytest.raises(DeviceError, match="neither a power limit nor a clock"):
        available_axes([gpu(default_w=None, sm_clocks_mhz=())], ())


def test_a_gpu_in_slices_is_not_tuned():
    with pytest.raises(DeviceError, match="MIG"):
        available_axes([gpu(is_partitioned=True)], ())


def test_axes_by_name():
    assert parse_axes(["sm-clock", "power-limit"]) == (LIMIT, SM)
    assert parse_axes([]) == ()
    with pytest.raises(UsageError, match="there is no axis 'fan'"):
        parse_axes(["fan"])


def test_a_candidate_as_a_setting():
    setting = as_setting(TuningCandidate(200.0), [LIMIT, SM])
    assert setting.as_json() == {LIMIT: 200.0, SM: None}
    assert str(setting) == "200 W, SM unlocked"


def test_the_front_process_loads_nothing_heavy():
    script = (
        "import sys, joulewise.optimise.live.tuner_client, joulewise.optimise.live.candidates; "
        "sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
