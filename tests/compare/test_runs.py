"""What two sides of runs have in common, what differs, and what a reader must know."""

import pytest

from joulewise.compare.judgement import CompareOutcome, VerdictBasis
from joulewise.compare.runs import CompareWarningCode, compare_runs
from joulewise.data import Source
from joulewise.store.manifest import CommandRecord
from tests.helpers.comparison_runs import joules, made, side


def codes(found):
    return [it.code for it in found.warnings]


def compared(a, b):
    return compare_runs(side("a", *a), side("b", *b))


def test_every_quantity_that_both_have():
    found = compared([made("1")], [made("2", energies={"gpu0": joules(10_000.0)}, time_s=120.0)])
    ratios = {it.quantity: it.ratio.mean for it in found.quantities}
    assert ratios == pytest.approx(
        {
            "energy": 0.5,
            "time": 1.2,
            "power": 0.5 / 1.2,
            "edp": 0.6,
            "gpu0": 0.5,
            "energy/epoch": 0.5,
            "time/epoch": 1.2,
        }
    )
    values = {it.quantity: (it.a.mean, it.unit) for it in found.quantities}
    assert values["energy"] == (20_000.0, "J")
    assert values["power"] == (200.0, "W")
    assert values["edp"] == (2e6, "J·s")
    assert values["energy/epoch"] == (10_000.0, "J")
    assert values["time/epoch"] == (50.0, "s")


def test_single_runs_say_that_their_verdict_is_the_meters():
    found = compared([made("1")], [made("2", energies={"gpu0": joules(19_000.0)})])
    assert found.get("energy").basis is VerdictBasis.MEASUREMENT
    assert found.get("energy").verdict is CompareOutcome.LESS
    assert found.get("time").verdict is CompareOutcome.UNKNOWN
    assert CompareWarningCode.SINGLE_RUNS in codes(found)


@pytest.mark.parametrize("source", [Source.MODELLED, Source.ASSUMED])
def test_single_runs_of_which_nothing_was_read_are_too_few(source):
    """A modelled energy is of the time and the load, whose variation one run does not show."""

    def run(name, energy_j):
        return made(name, energies={"cpu0": joules(energy_j, source, gain=0.9)})

    found = compared([run("1", 20_000.0)], [run("2", 22_000.0)])
    for quantity in ("energy", "power", "edp", "cpu0", "energy/epoch"):
        judged = found.get(quantity)
        assert (judged.verdict, judged.basis) == (CompareOutcome.UNKNOWN, VerdictBasis.NOTHING)
        assert judged.ratio.low is judged.ratio.high is None
    assert found.get("energy").ratio.mean == pytest.approx(1.1)
    assert CompareWarningCode.SINGLE_RUNS in codes(found)
    repeated = compared(
        [run("1", 20_000.0), run("3", 20_010.0)], [run("2", 22_000.0), run("4", 22_010.0)]
    )
    assert repeated.get("energy").verdict is CompareOutcome.MORE
    assert CompareWarningCode.SINGLE_RUNS not in codes(repeated)


def test_single_runs_with_a_part_that_was_read_rest_on_the_readings():
    def run(name, gpu_j):
        energies = {"gpu0": joules(gpu_j), "cpu0": joules(1000.0, Source.MODELLED, gain=0.9)}
        return made(name, energies=energies)

    found = compared([run("1", 20_000.0)], [run("2", 22_000.0)])
    assert found.get("energy").verdict is CompareOutcome.MORE


def test_the_gain_cancels_on_one_board_only():
    other = {"gpu0": joules(19_000.0)}
    same = compared([made("1")], [made("2", energies=other)])
    moved = compared([made("1")], [made("2", energies=other, boards={"gpu0": "uid-other"})])
    assert same.get("energy").verdict is CompareOutcome.LESS
    assert moved.get("energy").verdict is CompareOutcome.NOISE
    assert moved.get("energy/epoch").verdict is CompareOutcome.NOISE


def test_a_cpu_is_the_same_only_on_the_same_machine():
    energies = {"cpu0": joules(1000.0, Source.MODELLED, gain=0.9)}
    here = [made(name, energies=energies) for name in ("1", "2")]
    there = [made(name, energies=energies, host={"name": "n2"}) for name in ("3", "4")]
    assert compared(here, there).get("cpu0").ratio.high > 2
    same = compared(here, [made(name, energies=energies) for name in ("5", "6")])
    assert same.get("cpu0").ratio.high < 1.01
    assert CompareWarningCode.NOT_MEASURED in codes(same)


def test_totals_of_different_things_are_not_compared():
    both = {"gpu0": joules(20_000.0), "cpu0": joules(1000.0, Source.MODELLED)}
    found = compared([made("1", energies=both)], [made("2", energies=both, counted=("gpu0",))])
    for quantity in ("energy", "power", "edp", "energy/epoch"):
        assert found.get(quantity).verdict is CompareOutcome.NOT_COMPARABLE
        assert "1 cpu (modelled)" in found.get(quantity).reason
        assert found.get(quantity).ratio is None
    assert found.get("gpu0").verdict is CompareOutcome.NOISE
    assert CompareWarningCode.NOT_COMPARABLE in codes(found)


def test_a_measured_cpu_is_not_compared_with_a_modelled_one():
    measured, modelled = (
        made(source.value, energies={"cpu0": joules(1000.0, source)})
        for source in (Source.MEASURED, Source.MODELLED)
    )
    assert compared([measured], [modelled]).get("energy").verdict is CompareOutcome.NOT_COMPARABLE


def test_two_gpus_are_compared_with_one_and_pointed_out():
    two = {"gpu0": joules(15_000.0), "gpu1": joules(15_000.0)}
    found = compared([made("1")], [made("2", energies=two)])
    assert found.get("energy").ratio.mean == pytest.approx(1.5)
    assert found.get("gpu1") is None
    assert CompareWarningCode.DIFFERENT_DEVICES in codes(found)
    assert "devices counted" in [it.what for it in found.differences]


def test_different_epochs_are_pointed_out():
    found = compared([made("1")], [made("2", epochs=4, time_s=200.0)])
    (warning,) = [it for it in found.warnings if it.code is CompareWarningCode.DIFFERENT_WORK]
    assert warning.message == "different amounts of work: A has 2 epochs, B 4"
    assert found.get("time/epoch").ratio.mean == pytest.approx(1)


def test_what_differs_is_told_with_the_values_of_both():
    changed = {
        "commands": (CommandRecord(1, ("python", "train.py", "--fast"), 0, 1, 0),),
        "git": {"commit": "2222"},
        "versions": {"torch": "2.14"},
        "host": {"name": "node2"},
    }
    usual = {"git": {"commit": "1111"}, "versions": {"torch": "2.13"}}
    found = compared([made("1", **usual)], [made("2", **changed)])
    assert {it.what: (it.a, it.b) for it in found.differences} == {
        "command": (("python train.py",), ("python train.py --fast",)),
        "git commit": (("1111",), ("2222",)),
        "host": (("node1",), ("node2",)),
        "torch": (("2.13",), ("2.14",)),
    }


def test_what_is_the_same_is_no_difference():
    assert compared([made("1")], [made("2")]).differences == ()


def test_a_side_of_different_work_is_pointed_out():
    other = made("2", commands=(CommandRecord(1, ("python", "other.py"), 0, 1, 0),))
    found = compared([made("1"), other], [made("3"), made("4")])
    (warning,) = [it for it in found.warnings if it.code is CompareWarningCode.MIXED_SIDE]
    assert "the runs of A differ in command" in warning.message


def test_a_run_that_failed_is_pointed_out():
    found = compared([made("1")], [made("2", exit_code=3)])
    (warning,) = [it for it in found.warnings if it.code is CompareWarningCode.DID_NOT_END_WELL]
    assert "2 ended with status 3" in warning.message


def test_what_is_not_known_of_every_run_is_not_compared():
    found = compared([made("1"), made("2", epochs=0)], [made("3"), made("4")])
    assert found.get("time/epoch").reason == "not known for every run"
    assert found.get("time/epoch").verdict is CompareOutcome.NOT_COMPARABLE


def test_an_energy_that_was_not_read_is_told_and_not_zero():
    found = compared([made("1")], [made("2", energies={}, counted=())])
    assert found.get("energy").verdict is CompareOutcome.NOT_COMPARABLE
    assert found.get("energy").b is None
    assert found.get("time").ratio.mean == 1


def test_samples_are_known_where_steps_and_the_batch_size_are():
    def run(run_id, time_s, batch_size):
        found = made(run_id, time_s=time_s, options={"simulated": {"batch_size": batch_size}})
        step = {"count": 100, "time_s": {"mean": time_s / 100}, "energy_j": {"mean": 1.0}}
        found.result.details["spans"]["step"] = step
        return found

    found = compared([run("1", 100.0, 10)], [run("2", 100.0, 20)])
    assert found.get("time/sample").a.mean == pytest.approx(0.1)
    assert found.get("energy/sample").ratio.mean == pytest.approx(0.5)


def test_a_device_is_advised_only_where_it_was_measured_on_both_sides():
    def hint(**energies):
        sides = [side(name, made(name, energies=energies)) for name in "ab"]
        (caution,) = (
            it for it in compare_runs(*sides).warnings if it.code is CompareWarningCode.NOT_MEASURED
        )
        return caution.hint

    modelled = joules(100.0, Source.MODELLED)
    assert "gpu0" in hint(gpu0=joules(100.0), cpu0=modelled)
    assert "gpu0" not in hint(cpu0=modelled)
    assert "dram0" in hint(cpu0=modelled, dram0=joules(100.0))
