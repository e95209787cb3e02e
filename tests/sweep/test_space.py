"""A space against its boards: the grid, its reference, and everything that is wrong with it."""

import os
from dataclasses import replace

import pytest

from joulewise.data.sweeps import CPU_LIMIT, MEM_CLOCK, POWER_LIMIT, SM_CLOCK
from joulewise.errors import (
    CommandNotExecutableError,
    CommandNotFoundError,
    NotSupportedError,
    OutOfRangeError,
    UsageError,
)
from joulewise.sweep.boards import TargetBoard, simulated
from joulewise.sweep.space import resolve
from joulewise.sweep.spec import SimulationSpec, SweepSpec

V100 = simulated("v100")
PACKAGE = TargetBoard("cpu0", "package-0", "a CPU", lowest_w=20, default_w=65, highest_w=4095)
SIM = SimulationSpec("v100", "resnet50")


def asked(axes, *words, **more):
    return SweepSpec(command=("sh", *words), axes=axes, **more)


def settings(space):
    return [setting.as_json() for setting in space.settings]


def test_the_grid_is_in_the_order_of_the_axes():
    space = resolve(asked({POWER_LIMIT: "200,150", "b": "8,4"}, "{b}"), V100)
    assert settings(space) == [
        {POWER_LIMIT: 200, "b": "8"},
        {POWER_LIMIT: 200, "b": "4"},
        {POWER_LIMIT: 150, "b": "8"},
        {POWER_LIMIT: 150, "b": "4"},
    ]


def test_the_reference_is_the_default_with_clocks_unlocked_and_first_values():
    axes = {SM_CLOCK: "1200,1530", POWER_LIMIT: "150:300:50", "b": "8,4"}
    space = resolve(asked(axes, "{b}"), V100)
    assert space.reference.as_json() == {SM_CLOCK: None, POWER_LIMIT: 300, "b": "8"}
    assert list(space.reference) == list(axes)
    assert space.reference not in space.settings
    assert space.points == (space.reference, *space.settings)


def test_a_reference_that_is_a_grid_point_stands_once_in_a_block():
    space = resolve(asked({POWER_LIMIT: "full"}), V100)
    assert space.reference.as_json() == {POWER_LIMIT: 300}
    assert space.points == space.settings
    assert len(space.points) == 31


def test_the_reference_of_the_commands_own_can_be_named_in_the_grid_or_not():
    space = resolve(asked({"b": "8,4"}, "{b}", reference={"b": "4"}), V100)
    assert space.reference.as_json() == {"b": "4"}
    assert len(space.points) == 2
    space = resolve(asked({"b": "8,4"}, "{b}", reference={"b": "16"}), V100)
    assert space.reference.as_json() == {"b": "16"}
    assert len(space.points) == 3


def test_a_reference_of_several_own_axes_is_one_that_the_constraints_allow():
    axes = {POWER_LIMIT: "150,300", "b": "32,64,128", "a": "1,2,4,8"}
    both = asked(axes, "{b}", "{a}", constraints=("b * a == 256",))
    space = resolve(both, V100)
    assert [(each["b"], each["a"]) for each in space.settings[:3]] == [
        ("32", "8"),
        ("64", "4"),
        ("128", "2"),
    ]
    assert space.reference.as_json() == {POWER_LIMIT: 300, "b": "32", "a": "8"}
    named = resolve(replace(both, reference={"b": "64"}), V100)
    assert named.reference.as_json() == {POWER_LIMIT: 300, "b": "64", "a": "4"}


def test_constraints_know_limits_words_and_unlocked_clocks():
    axes = {POWER_LIMIT: "150,300", SM_CLOCK: "900,unlocked", "net": "small,big"}
    rules = ("net == 'small' or power_limit_w > 200", "sm_clock_mhz < 1000 or net == 'big'")
    space = resolve(asked(axes, "{net}", constraints=rules), V100)
    assert [tuple(each.as_json().values()) for each in space.settings] == [
        (150, 900, "small"),
        (300, 900, "small"),
        (300, 900, "big"),
        (300, None, "big"),
    ]


def test_without_any_gpu_the_commands_own_can_be_swept():
    space = resolve(asked({"b": "8,4"}, "{b}"), ())
    assert space.board is None
    assert space.limits_w is None
    assert len(space.settings) == 2
    with pytest.raises(UsageError, match="no GPU whose power limit could be set"):
        resolve(asked({POWER_LIMIT: "150"}), (PACKAGE,))


def test_a_cpus_limit_is_swept_against_the_one_that_it_has():
    space = resolve(asked({CPU_LIMIT: "40:60:10"}), (*V100, PACKAGE))
    assert settings(space) == [{CPU_LIMIT: 40}, {CPU_LIMIT: 50}, {CPU_LIMIT: 60}]
    assert space.reference.as_json() == {CPU_LIMIT: None}
    assert space.limits_w == (150, 300, 300)
    with pytest.raises(NotSupportedError, match="no CPU reports the range"):
        resolve(asked({CPU_LIMIT: "40"}), V100)


def test_boards_that_take_other_values_must_be_told_apart():
    other = replace(simulated("v100-pcie")[0], key="gpu1")
    with pytest.raises(UsageError, match=r"gpu0 \(.*\) and gpu1 \(.*\) take different") as refused:
        resolve(asked({POWER_LIMIT: "200"}), (*V100, other))
    assert refused.value.hint == "sweep one kind at a time: --gpu 0"
    with pytest.raises(UsageError, match="different values of the SM clock"):
        resolve(asked({SM_CLOCK: "1200"}), (*V100, other))
    assert resolve(asked({"b": "1,2"}, "{b}"), (*V100, other)).board == V100[0]
    twin = replace(V100[0], key="gpu1", uid="other")
    assert resolve(asked({POWER_LIMIT: "200"}), (*V100, twin)).gpus == (*V100, twin)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"axes": {}}, "nothing to sweep"),
        ({"axes": {POWER_LIMIT: ""}}, "power limit: no values"),
        ({"axes": {"batch-size": "1"}}, "'batch-size' cannot name an axis"),
        ({"axes": {"lambda": "1"}}, "'lambda' cannot name"),
        ({"axes": {"größe": "1"}}, "'größe' cannot name"),
        ({"axes": {POWER_LIMIT: "150", "b": "1,2"}}, "b is not used in the command"),
        ({"command": ("sh", "{b}")}, r"no values for \{b\}"),
        ({"environ": {"B": "{b}"}}, r"no values for \{b\}"),
        ({"cwd": "{b}"}, r"no values for \{b\}"),
        ({"command": ()}, "no command to run"),
        ({"command": ("",)}, "name of the program is empty"),
        ({"simulated": SIM}, "both a command and --sim"),
        ({"reference": {"b": "1"}}, "--reference names b, which is not an axis"),
        (
            {"reference": {POWER_LIMIT: "200"}},
            "the power limit of the reference is always the default",
        ),
        ({"constraints": ("power_limit_w > 300",)}, "leave none of 2 settings"),
        ({"constraints": ("b > 300",)}, "there is no axis b"),
        ({"by": ("speed",)}, "speed"),
        ({"repeat": 0}, "number of repetitions is 0"),
        ({"repeat": 100_000}, "the sweep has 300,000 runs"),
        ({"warm_up": -1}, "number of warm-up runs is -1"),
        ({"timeout_s": 0.0}, "timeout in s is 0"),
        ({"timeout_s": float("nan")}, "timeout in s is nan"),
        ({"max_slowdown": 0.9}, "maximum slowdown is 0.9"),
        ({"tolerance": 0.0}, "tolerance is 0"),
        ({"rate_hz": -1.0}, "rate in Hz is -1"),
        ({"pue": 0.5}, "PUE is 0.5"),
        ({"overhead_w": float("inf")}, "overhead in W is inf"),
        ({"boundary": "rack"}, "no such boundary: 'rack'"),
        ({"cool_down": "a while"}, "'a while' is not a cool-down"),
        ({"cwd": "nowhere/at/all"}, "there is no folder nowhere/at/all"),
        ({"environ": {"A=B": "1"}}, "cannot name a variable"),
        ({"environ": {"A": "\0"}}, "zero byte"),
        ({"on": "slurm"}, "--on slurm is unknown"),
        ({"on": "ray", "simulated": SIM, "command": ()}, "both --on and --sim"),
        ({"on": "ray", "gpus": (0,)}, "--gpu and --each-gpu are for this machine"),
        ({"on": "ray", "each_gpu": True}, "--gpu and --each-gpu are for this machine"),
    ],
)
def test_invalid_specs_are_refused_before_the_first_run(change, says):
    good = asked({POWER_LIMIT: "150,200"})
    assert len(resolve(good, V100).points) == 3
    with pytest.raises(UsageError, match=says) as refused:
        resolve(replace(good, **change), V100)
    assert refused.value.hint


def test_a_metric_that_these_boards_cannot_be_ranked_by_is_told_before_the_first_run():
    by_cost = asked({"b": "1,2"}, "{b}", by=("cost:0.5",))
    assert resolve(by_cost, V100).reference
    with pytest.raises(UsageError, match="needs the highest power limit"):
        resolve(by_cost, ())


def test_a_grid_of_too_many_points_is_refused_before_it_is_made():
    axes = dict.fromkeys("abcd", "1:1000:1")
    with pytest.raises(UsageError, match="the sweep has 1,000,000,000,000 settings"):
        resolve(asked(axes, *(f"{{{name}}}" for name in axes)), ())


def test_a_limit_out_of_range_is_refused_with_the_range():
    with pytest.raises(OutOfRangeError, match="gpu0's power limit cannot be 140 W") as refused:
        resolve(asked({POWER_LIMIT: "140:300:20"}), V100)
    assert "150 to 300 W" in refused.value.hint
    with pytest.raises(NotSupportedError, match="the memory clock of gpu0 cannot be locked"):
        resolve(asked({MEM_CLOCK: "877"}), V100)


def test_a_missing_program_is_found_out_also_where_it_is_an_axis(tmp_path):
    with pytest.raises(CommandNotFoundError, match="no program called nowhere-to-be-found"):
        resolve(SweepSpec(command=("nowhere-to-be-found",), axes={POWER_LIMIT: "150"}), V100)
    either = SweepSpec(command=("{shell}",), axes={"shell": "sh,nowhere-to-be-found"})
    with pytest.raises(CommandNotFoundError):
        resolve(either, ())
    with pytest.raises(CommandNotFoundError):
        resolve(asked({POWER_LIMIT: "150"}, environ={"PATH": str(tmp_path)}), V100)
    elsewhere = asked({POWER_LIMIT: "150"}, on="ray", cwd="nowhere")
    assert resolve(replace(elsewhere, command=("nowhere-to-be-found",)), V100)


def test_a_program_is_looked_for_where_it_runs(tmp_path):
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/sh\n")
    here = SweepSpec(command=("./train.sh",), axes={POWER_LIMIT: "150"}, cwd=str(tmp_path))
    with pytest.raises(CommandNotExecutableError, match="not executable"):
        resolve(here, V100)
    script.chmod(0o755)
    assert resolve(here, V100)
    folders = replace(here, axes={"n": "1,2"}, cwd=os.fspath(tmp_path / "{n}"))
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "train.sh").symlink_to(script)
    with pytest.raises(UsageError, match=r"there is no folder .*/2"):
        resolve(folders, ())


@pytest.mark.parametrize(
    ("sim", "axes", "says"),
    [
        (SimulationSpec("h100", "resnet50"), {}, "no such GPU to simulate: 'h100'"),
        (SimulationSpec("v100", "gpt"), {}, "no such workload: 'gpt'"),
        (SimulationSpec("v100"), {}, "needs either a workload or a run"),
        (SimulationSpec("v100", "resnet50", like="last"), {}, "either a workload or a run"),
        (SimulationSpec("v100", "resnet50", run_noise=-0.1), {}, "the run noise is -0.1"),
        (SIM, {"lr": "1,2"}, "a simulated workload has no lr"),
        (SIM, {"batch_size": "64,0"}, "batch_size is 0"),
        (SIM, {"batch_size": "many"}, "batch_size is many"),
    ],
)
def test_invalid_simulations_are_refused(sim, axes, says):
    given = SweepSpec(axes={POWER_LIMIT: "full", **axes}, simulated=sim)
    with pytest.raises(UsageError, match=says):
        resolve(given, V100)


def test_a_simulated_workload_has_a_batch_size():
    given = SweepSpec(axes={POWER_LIMIT: "full", "batch_size": "64,128"}, simulated=SIM)
    assert len(resolve(given, V100).settings) == 62


def test_notes_say_what_became_of_what_was_asked():
    space = resolve(asked({SM_CLOCK: "1201"}), V100)
    assert space.notes == ("SM clock 1201 MHz becomes 1200 MHz, the nearest that gpu0 takes",)
