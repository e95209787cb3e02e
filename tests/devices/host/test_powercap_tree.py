from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.powercap_tree import (
    LAPTOP,
    MACHINES,
    THREADRIPPER,
    XEON,
    CpuPackage,
    PowercapTree,
)


def count(tree, zone):
    return int((tree.path / zone / "energy_uj").read_text())


def limit(tree, zone, index, watts):
    path = tree.path / zone / f"constraint_{index}_power_limit_uw"
    path.write_text(f"{watts * 1_000_000}\n")


class TestTheFolder:
    @pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
    def test_every_zone_has_what_the_kernel_gives_it(self, machine, tmp_path):
        tree = PowercapTree(tmp_path, machine)
        zones = [path for path in tree.path.iterdir() if ":" in path.name]
        assert zones
        for zone in zones:
            assert zone.is_symlink()
            names = {path.name for path in zone.iterdir()}
            assert {"name", "enabled", "energy_uj", "max_energy_range_uj"} <= names

    @pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
    def test_a_marker_file_shows_that_it_is_simulated(self, machine, tmp_path):
        tree = PowercapTree(tmp_path, machine)
        assert (tree.path / "joulewise_simulated").read_text() == "1\n"

    def test_names(self, tmp_path):
        def names(machine):
            tree = PowercapTree(tmp_path / machine.vendor_id, machine)
            return {p.name: (p / "name").read_text().strip() for p in tree.path.glob("*:*")}

        assert names(LAPTOP) == {
            "intel-rapl:0": "package-0",
            "intel-rapl:0:0": "core",
            "intel-rapl:0:1": "uncore",
            "intel-rapl:0:2": "dram",
            "intel-rapl:1": "psys",
            "intel-rapl-mmio:0": "package-0",
        }
        assert names(THREADRIPPER) == {
            "intel-rapl:0": "package-0-die-0",
            "intel-rapl:0:0": "core",
            "intel-rapl:1": "package-0-die-1",
            "intel-rapl:1:0": "core",
        }

    def test_a_counter_wraps_at_its_range(self, tmp_path):
        tree = PowercapTree(tmp_path, XEON, start_uj=XEON.range_uj - 41_999_999)
        tree.advance(1)
        assert count(tree, "intel-rapl:0") == 0

    def test_dies_mirror_one_counter(self, tmp_path):
        tree = PowercapTree(tmp_path, THREADRIPPER)
        tree.advance(3, [0.7])
        assert count(tree, "intel-rapl:0") == count(tree, "intel-rapl:1")

    def test_counters_are_roots_alone_where_asked(self, tmp_path):
        tree = PowercapTree(tmp_path, XEON, readable=False)
        assert (tree.path / "intel-rapl:0/energy_uj").stat().st_mode & 0o777 == 0o400
        tree.advance(1)
        assert (tree.path / "intel-rapl:0/energy_uj").stat().st_mode & 0o777 == 0o400


class TestTheTruth:
    @settings(deadline=None, max_examples=30)
    @given(
        parts=st.lists(st.floats(0.01, 60), min_size=1, max_size=6),
        load=st.floats(0, 1),
        machine=st.sampled_from(list(MACHINES.values())),
    )
    def test_it_does_not_depend_on_how_time_is_cut(self, parts, load, machine, tmp_path_factory):
        at_once = PowercapTree(tmp_path_factory.mktemp("once"), machine)
        in_parts = PowercapTree(tmp_path_factory.mktemp("parts"), machine)
        loads = [load] * len(machine.packages)
        done = at_once.advance(math.fsum(parts), loads)
        cut = [in_parts.advance(part, loads) for part in parts]
        assert done == pytest.approx([math.fsum(p) for p in zip(*cut, strict=True)])
        assert at_once.truth_j["cpu0"] == pytest.approx(in_parts.truth_j["cpu0"])

    def test_the_platform_is_the_sum_and_more(self, tmp_path):
        tree = PowercapTree(tmp_path, LAPTOP)
        tree.advance(10, [0.3])
        truth = tree.truth_j
        assert truth["node0"] == pytest.approx(truth["cpu0"] + truth["dram0"] + 70)

    def test_idle_is_idle(self, tmp_path):
        tree = PowercapTree(tmp_path, XEON)
        assert tree.advance(10) == [10, 10]
        assert tree.truth_j == {"cpu0": 420, "cpu1": 420, "dram0": 90, "dram1": 90}


class TestLimitsBind:
    @settings(deadline=None, max_examples=30)
    @given(watts=st.integers(43, 189), load=st.floats(0.05, 1), seconds=st.floats(0.1, 100))
    def test_power_never_stays_above_and_work_only_suffers_when_it_binds(
        self, watts, load, seconds, tmp_path_factory
    ):
        tree = PowercapTree(tmp_path_factory.mktemp("tree"), XEON)
        for index in (0, 1):
            limit(tree, "intel-rapl:0", index, watts)
        done = tree.advance(seconds, [load])[0]
        demand_w = 42 + load * 148
        assert tree.truth_j["cpu0"] <= min(watts, demand_w) * seconds * (1 + 1e-9)
        if demand_w <= watts:
            assert done == pytest.approx(seconds)
        else:
            assert done < seconds

    def test_the_short_limit_lends_what_the_mean_has_to_spare(self, tmp_path):
        tree = PowercapTree(tmp_path, XEON)
        tree.advance(1, [1.0])
        assert tree.truth_j["cpu0"] == pytest.approx(180)
        tree.advance(1000, [1.0])
        before = tree.truth_j["cpu0"]
        tree.advance(1, [1.0])
        assert tree.truth_j["cpu0"] - before == pytest.approx(150)

    def test_the_lower_of_two_zones_holds(self, tmp_path):
        tree = PowercapTree(tmp_path, LAPTOP)
        for index in (0, 1):
            limit(tree, "intel-rapl-mmio:0", index, 20)
        tree.advance(10, [1.0])
        assert tree.truth_j["cpu0"] == pytest.approx(200)

    def test_a_limit_that_is_off_does_not_hold(self, tmp_path):
        tree = PowercapTree(tmp_path, XEON)
        (tree.path / "intel-rapl:0/enabled").write_text("0\n")
        assert tree.advance(100, [1.0]) == [100, 100]

    def test_a_limit_below_idle_cannot_be_kept(self, tmp_path):
        machine = replace(XEON, packages=(CpuPackage(30, 100, (10, 10)),))
        tree = PowercapTree(tmp_path, machine)
        assert tree.advance(10, [1.0]) == [0]
        assert tree.truth_j["cpu0"] == 300
