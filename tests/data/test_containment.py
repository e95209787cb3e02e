"""Each joule counts once, whichever counters contain which."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.data import DeviceInfo, Energy, Kind, PowerScope, Source
from joulewise.data.devices import find_contained, find_replaced
from joulewise.data.energy import factors_of_estimates, scale

KINDS = {"gpu": Kind.GPU, "cpu": Kind.CPU, "dram": Kind.DRAM, "node": Kind.NODE}


def device(key, *contains):
    return DeviceInfo(key, KINDS[key.rstrip("0123456789")], key, key, "any", contains=contains)


CPU, DRAM = device("cpu0"), device("dram0")
MODULE = replace(device("gpu0", "cpu0", "dram0"), power_scope=PowerScope.MODULE)
PLATFORM = device("node0", "cpu0", "dram0")


def test_what_is_inside_a_device_that_counts_does_not():
    assert find_contained([MODULE, CPU, DRAM]) == {"cpu0": "gpu0", "dram0": "gpu0"}
    assert find_contained([CPU, DRAM, PLATFORM]) == {"cpu0": "node0", "dram0": "node0"}


def test_what_is_inside_a_device_that_does_not_count_counts_itself():
    assert find_contained([MODULE, CPU, DRAM], {"gpu0"}) == {}


def test_what_cannot_be_read_may_be_inside_another_and_contains_nothing():
    assert find_contained([PLATFORM, CPU, DRAM], (), {"cpu0"}) == {
        "cpu0": "node0",
        "dram0": "node0",
    }
    assert find_contained([PLATFORM, CPU, DRAM], (), {"node0"}) == {}


def test_a_cpu_that_contains_its_memory_may_be_inside_a_module():
    grace = replace(CPU, contains=("dram0",))
    assert find_contained([MODULE, grace, DRAM]) == {"cpu0": "gpu0", "dram0": "gpu0"}
    assert find_contained([MODULE, grace, DRAM], {"gpu0"}) == {"dram0": "cpu0"}


def test_of_two_gpus_that_tell_one_modules_energy_the_first_that_counts_does():
    pair = [device("gpu0", "gpu1", "cpu0"), device("gpu1", "gpu0", "cpu0")]
    assert find_contained([*pair, CPU]) == {"gpu1": "gpu0", "cpu0": "gpu0"}
    assert find_contained([*pair, CPU], {"gpu0"}) == {"cpu0": "gpu1"}


def test_of_two_gpus_of_which_one_knows_of_the_other_one_counts():
    """Such as where gpu1 did not answer when gpu0 was opened."""
    pair = [device("gpu0", "cpu0"), device("gpu1", "gpu0", "cpu0")]
    assert set(find_contained([*pair, CPU])) == {"gpu0", "cpu0"}


def test_an_unread_platform_is_replaced_by_what_it_contains_and_a_module_is_not():
    assert find_replaced([CPU, DRAM, PLATFORM], {"node0"}, {}) == ["node0"]
    assert find_replaced([CPU, DRAM, PLATFORM], {"node0", "cpu0"}, {}) == []
    assert find_replaced([MODULE, CPU, DRAM], {"gpu0"}, {}) == []


@given(st.integers(1, 4), st.sets(st.integers(0, 3)))
def test_every_cpu_counts_once_whichever_modules_are_used(modules, unused):
    devices = [
        *(device(f"gpu{i}", f"cpu{i}", f"dram{i}") for i in range(modules)),
        *(device(f"cpu{i}") for i in range(modules)),
    ]
    not_counted = {f"gpu{i}" for i in unused if i < modules}
    inside = find_contained(devices, not_counted)
    counted = {each.key for each in devices} - set(inside) - not_counted
    for i in range(modules):
        assert (f"gpu{i}" in counted) != (f"cpu{i}" in counted)


def energies(module_j, cpu_j, cpu_error_j, source=Source.MODELLED):
    return {
        "gpu0": Energy(module_j, 0.0, 0.05 * module_j, Source.MEASURED),
        "cpu0": Energy(cpu_j, 0.0, cpu_error_j, source),
    }


def test_a_modelled_cpu_draws_no_more_than_the_module_around_it():
    """3264 ± 3048 J, in a module that drew 1269 ± 63 J: the CPU drew 216 to 1332 J."""
    before = energies(1269.0, 3264.0, 3048.0)
    factors = factors_of_estimates(before, [MODULE, CPU], {"cpu0"})
    cpu = scale(before["cpu0"], *factors["cpu0"])
    assert cpu.value - cpu.error == pytest.approx(3264 - 3048)
    assert cpu.value + cpu.error == pytest.approx(1269 * 1.05)


@pytest.mark.parametrize(
    ("counted", "change"),
    [
        ({"cpu0"}, {"module_j": 9000.0}),  # the module leaves room for it
        ({"gpu0"}, {}),  # the module counts itself
        ({"cpu0"}, {"source": Source.MEASURED}),
    ],
)
def test_what_a_module_says_nothing_of_is_left_as_it_is(counted, change):
    told = energies(**{"module_j": 1269.0, "cpu_j": 3264.0, "cpu_error_j": 3048.0, **change})
    assert factors_of_estimates(told, [MODULE, CPU], counted) == {}


@given(st.floats(1, 1e6), st.floats(0.1, 1e6), st.floats(0.01, 3))
def test_a_bounded_estimate_lies_in_both_intervals_where_they_overlap(module_j, cpu_j, share):
    before = energies(module_j, cpu_j, share * cpu_j)
    factors = factors_of_estimates(before, [MODULE, CPU], {"cpu0"})
    cpu = scale(before["cpu0"], *factors.get("cpu0", (1.0, 1.0)))
    assert cpu.value + cpu.error <= 1.0501 * module_j or not factors
    if cpu_j * (1 - share) < module_j:
        assert cpu.value - cpu.error >= cpu_j * (1 - share) - 1e-6 * cpu_j
