"""Runs of a group as one result: whose errors add up how, and what counts where runs overlap."""

import math
from dataclasses import replace

import pytest

from joulewise.analyse.group import GroupRun, sum_group
from joulewise.data import Energy, RunResult, Source, Span, SpanResult, Use, WarningCode, total
from joulewise.data.run_result_json import as_json, from_json
from joulewise.report.views.run import run_view
from joulewise.store.manifest import Manifest
from tests.helpers.run_directories import START, S, device


def member(
    name, start_s, end_s, joules, *, counted=True, keys=("gpu0",), sampling=1.0, net=None,
    boot="boot", wall_ahead_s=0,
):  # fmt: skip
    """A run at some seconds of its boot, of so many joules on each device."""
    devices = tuple(device(key) for key in keys)
    begin_ns = START + start_s * S
    wall_ns = begin_ns + wall_ahead_s * S
    manifest = Manifest(name, (), "/", 10.0, wall_ns, begin_ns, boot, devices, host={"name": "n1"})
    above = net and Energy(net, sampling, 0.05 * net, Source.MEASURED)
    used = Use(Energy(joules, sampling, 0.05 * joules, Source.MEASURED), above, peak_w=300.0)
    idle = {"kind": "asleep"} if net else {"kind": None, "reason": "it was never idle"}
    uses = dict.fromkeys(keys, used)
    span = Span("run", None, begin_ns, START + end_s * S)
    parts = [use.energy for use in uses.values()] if counted else []
    whole = SpanResult(span, total(parts), uses)
    result = RunResult(
        name, 0, "complete", begin_ns, whole,
        counted=tuple(keys) if counted else (), details={"baseline": dict.fromkeys(keys, idle)},
    )  # fmt: skip
    return GroupRun(manifest, result)


class TestErrors:
    def test_repeats_on_one_board_leave_its_gain_as_unknown_as_it_was(self):
        found = sum_group("g", [member(str(i), 10 * i, 10 * i + 9, 100.0) for i in range(9)])
        assert found.run.total.value == pytest.approx(900)
        assert found.run.total.error_gain == pytest.approx(45)
        assert found.run.total.error_sampling == pytest.approx(3)
        assert found.run.devices["n1/gpu0"].energy == found.run.total

    def test_boards_know_nothing_of_each_other(self):
        runs = [member(str(i), 10 * i, 10 * i + 9, 100.0, keys=("gpu0", "gpu1")) for i in (0, 1)]
        assert sum_group("g", runs).run.total.error_gain == pytest.approx(math.hypot(10, 10))


class TestNet:
    def test_it_is_that_of_all_runs_with_the_gain_of_the_board_in_common(self):
        runs = [member(str(i), 10 * i, 10 * i + 9, 100.0, net=60.0) for i in range(4)]
        found = sum_group("g", runs)
        assert found.net_total.value == pytest.approx(240)
        assert found.net_total.error_gain == pytest.approx(12)
        assert found.net_total.error_sampling == pytest.approx(2)
        assert found.details["baseline"] == {}

    def test_one_run_without_it_leaves_it_unknown_and_is_named(self):
        found = sum_group("g", [member("a", 0, 9, 100.0, net=60.0), member("b", 10, 19, 100.0)])
        assert found.net_total is None
        assert found.details["baseline"]["n1/gpu0"]["reason"] == "it was never idle in b"

    def test_a_run_that_does_not_count_has_no_part_in_it(self):
        idle = member("a", 0, 9, 50.0, counted=False)
        found = sum_group("g", [idle, member("b", 10, 19, 100.0, net=60.0)])
        assert found.net_total.value == 60.0
        assert found.run.devices["n1/gpu0"].energy == found.run.total


def test_a_simulated_gpu_that_was_never_read_is_one_in_a_group_too():
    one = member("a", 0, 9, 100.0)
    (gpu,) = one.manifest.devices
    gpu = replace(gpu, sources={}, info=replace(gpu.info, is_simulated=True))
    found = sum_group("g", [replace(one, manifest=replace(one.manifest, devices=(gpu,)))])
    assert found.simulated == ("n1/gpu0",)
    assert sum_group("g", [one]).simulated == ()


class TestOverlap:
    def test_the_longer_run_counts_and_the_other_is_warned_of(self):
        found = sum_group("g", [member("a", 0, 100, 10e3), member("b", 50, 1000, 95e3)])
        assert found.run.total.value == 95e3
        assert found.counted == ("n1/gpu0",)
        (warning,) = found.warnings
        assert warning.code is WarningCode.OVERLAP
        assert warning.device == "n1/gpu0"
        assert (
            "a recorded it at the same time as b; 50 s of it are in no other run" in warning.message
        )
        assert [out.device for out in found.excluded] == ["n1/gpu0"]

    def test_what_the_same_time_holds_twice_leaves_no_seconds(self):
        found = sum_group("g", [member("a", 0, 100, 10e3), member("b", 0, 100, 10e3)])
        assert found.run.total.value == 10e3
        assert "in no other" not in found.warnings[0].message

    def test_the_run_that_used_it_counts_though_a_longer_one_saw_it(self):
        found = sum_group("g", [member("a", 0, 100, 9e3, counted=False), member("b", 10, 50, 4e3)])
        assert found.run.total.value == 4e3
        assert not found.warnings
        assert not found.excluded

    def test_runs_that_touch_do_not_overlap(self):
        found = sum_group("g", [member("a", 0, 100, 10e3), member("b", 100, 200, 10e3)])
        assert found.run.total.value == 20e3
        assert not found.warnings

    def test_a_clock_that_was_set_between_two_runs_of_one_boot_changes_nothing(self):
        runs = [member("a", 0, 100, 10e3), member("b", 100, 200, 10e3, wall_ahead_s=-60)]
        found = sum_group("g", runs)
        assert found.run.total.value == 20e3
        assert not found.warnings
        assert found.time_s == 200

    def test_simultaneous_runs_overlap_although_the_clock_was_set(self):
        runs = [member("a", 0, 100, 10e3), member("b", 10, 90, 8e3, wall_ahead_s=3600)]
        assert sum_group("g", runs).run.total.value == 10e3

    def test_a_few_seconds_between_the_clocks_of_two_boots_are_no_overlap(self):
        runs = [member("a", 0, 100, 10e3), member("b", 97, 200, 10e3, boot="next")]
        assert sum_group("g", runs).run.total.value == 20e3
        runs = [member("a", 0, 100, 10e3), member("b", 90, 200, 11e3, boot="next")]
        assert sum_group("g", runs).run.total.value == 11e3
        runs = [member("a", 0, 4, 40.0), member("b", 0, 4, 40.0, boot="next")]
        assert sum_group("g", runs).run.total.value == 40.0


class TestTime:
    def test_a_group_starts_in_the_time_of_the_world(self):
        found = sum_group("g", [member("b", 100, 200, 1.0), member("a", 0, 50, 1.0)])
        assert found.start_monotonic_ns is None
        assert found.start_wall_ns == START
        assert found.time_s == 200
        assert from_json(as_json(found)) == found

    def test_unmeasured_runs_are_in_no_mean(self):
        runs = [
            member("a", 0, 50, 1e3),
            member("b", 150, 200, 1e3),
            member("c", 160, 170, 1e3, keys=("gpu1",)),
        ]
        found = sum_group("g", runs)
        assert found.details["measured_s"] == 100
        assert run_view(found).total.mean == "30.0 W"
