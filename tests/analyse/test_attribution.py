"""Which devices count, and what is said of the others."""

from dataclasses import replace

import numpy as np
import pytest

from joulewise.analyse.activity import Activity
from joulewise.analyse.attribution import (
    UNTOUCHED,
    DeviceProcess,
    Sighting,
    choose,
    find_other_processes,
    held_at,
    merge_parts,
    read_sightings,
)
from joulewise.data import Excluded, PowerScope, Source, WarningCode
from joulewise.store.layout import ENDED, PROCESSES, SIMULATION
from joulewise.store.manifest import Manifest
from tests.helpers.run_directories import PID, START, S, device

OURS = DeviceProcess(PID, "python", ours=True)
OTHER = DeviceProcess(77, "blender", ours=False)
HOSTS = DeviceProcess(99_123, "", ours=None)
END = START + 10 * S


def manifest(*devices, state="complete", **changed):
    return Manifest("id", (), "", 10, 0, START, "", tuple(devices), state=state, **changed)


def sightings_of(key, *changes):
    return [Sighting(START + round(t_s * S), key, held) for t_s, held in changes]


def choose_devices(devices, sightings, **options):
    notes = options.pop("notes", ())
    return choose(manifest(*devices, notes=notes), sightings, START, END, **options)


def codes(choice):
    return [(warning.code, warning.device) for warning in choice.warnings]


def test_a_gpu_counts_where_a_process_of_the_command_held_it():
    sightings = [
        *sightings_of("gpu0", (-1, ()), (2, (OURS,)), (9, ())),
        *sightings_of("gpu1", (-1, ()), (2, (OTHER,))),
        *sightings_of("gpu2", (-1, ())),
    ]
    choice = choose_devices([device("gpu0"), device("gpu1"), device("gpu2")], sightings)
    assert choice.counted == ("gpu0",)
    assert choice.excluded == (
        Excluded("gpu1", f"{UNTOUCHED} (used by other processes: blender)"),
        Excluded("gpu2", UNTOUCHED),
    )
    assert codes(choice) == [(WarningCode.EXCLUDED, "gpu1"), (WarningCode.EXCLUDED, "gpu2")]


def test_the_load_of_a_simulation_is_its_own():
    simulation = DeviceProcess(78, SIMULATION, ours=False)
    choice = choose_devices([device("gpu0")], sightings_of("gpu0", (-1, (simulation,))))
    (out,) = choice.excluded
    assert "the simulation's own" in out.reason
    assert "others did" not in out.reason


def test_who_ended_unseen_may_have_been_the_commands():
    back = Sighting(END, "gpu0", (DeviceProcess(79, "", None, ENDED),), looks_back=True)
    idle = Activity(is_complete=True)
    choice = choose_devices(
        [device("gpu0")], [*sightings_of("gpu0", (-1, ())), back], activity=lambda *_: idle
    )
    assert choice.counted == ("gpu0",)
    assert codes(choice) == [(WarningCode.UNSEEN_USE, "gpu0")]


def test_who_ended_and_was_the_commands_counts():
    back = Sighting(END + S, "gpu0", (DeviceProcess(PID, "", True, ENDED),), looks_back=True)
    choice = choose_devices([device("gpu0")], [*sightings_of("gpu0", (-1, ())), back])
    assert choice.counted == ("gpu0",)
    assert choice.warnings == ()


def test_a_gpu_that_slept_all_the_time_is_left_out():
    asleep = replace(device("gpu0", measured=()), asleep_ns=START)
    choice = choose_devices([asleep, device("gpu1", measured=())], [])
    assert choice.counted == choice.missing == ("gpu1",)
    assert [out.device for out in choice.excluded] == ["gpu0"]


def test_who_was_there_only_before_or_after_did_not_use_it():
    sightings = sightings_of("gpu0", (-5, (OURS,)), (-1, ()), (10.5, (OURS,)))
    assert choose_devices([device("gpu0")], sightings).counted == ()


def test_who_was_there_at_the_start_used_it():
    assert choose_devices([device("gpu0")], sightings_of("gpu0", (-5, (OURS,)))).counted == (
        "gpu0",
    )


def test_processors_and_memory_always_count():
    choice = choose_devices([device("cpu0", source=Source.MODELLED), device("dram0")], [])
    assert choice.counted == ("cpu0", "dram0")
    assert choice.warnings == ()


def test_a_platform_contains_its_packages():
    devices = [device("node0", contains=("cpu0", "dram0")), device("cpu0"), device("dram0")]
    choice = choose_devices(devices, [])
    assert choice.counted == ("node0",)
    assert choice.excluded[0] == Excluded("cpu0", "part of the energy of node0")


def module(key, **changed):
    """A superchip's GPU, whose energy is its module's."""
    made = device(key, contains=(f"cpu{key[-1]}", "dram0"), **changed)
    return replace(made, info=replace(made.info, power_scope=PowerScope.MODULE))


def test_a_module_contains_its_cpu_and_its_memory():
    devices = [module("gpu0"), module("gpu1"), device("cpu0"), device("cpu1"), device("dram0")]
    sightings = [*sightings_of("gpu0", (0, (OURS,))), *sightings_of("gpu1", (0, ()))]
    choice = choose_devices(devices, sightings)
    # Of the module that is not used, the CPU counts as any other, and not the GPU.
    assert choice.counted == ("gpu0", "cpu1")
    assert Excluded("cpu0", "part of the energy of gpu0") in choice.excluded
    assert Excluded("dram0", "part of the energy of gpu0") in choice.excluded


def test_the_cpu_of_an_unused_module_counts():
    devices = [module("gpu0"), device("cpu0"), device("dram0")]
    assert choose_devices(devices, sightings_of("gpu0", (0, ()))).counted == ("cpu0", "dram0")


def test_a_module_that_cannot_be_read_is_missing_though_its_cpu_can():
    devices = [module("gpu0"), device("cpu0"), device("dram0")]
    choice = choose_devices(devices, sightings_of("gpu0", (0, (OURS,))), unread=["gpu0"])
    assert choice.counted == ("gpu0", "cpu0", "dram0")
    assert choice.missing == ("gpu0",)


def pair(first=0):
    """Two dies of an MI250: the first reports for both."""
    reporter, silent = f"gpu{first}", f"gpu{first + 1}"
    return device(reporter, contains=(silent,)), device(silent, measured=())


@pytest.mark.parametrize("used", [("gpu0",), ("gpu1",), ("gpu0", "gpu1")])
def test_the_die_that_reports_counts_where_either_die_was_used(used):
    sightings = [
        s for key in ("gpu0", "gpu1") for s in sightings_of(key, (0, (OURS,) * (key in used)))
    ]
    choice = choose_devices(pair(), sightings)
    assert (choice.counted, choice.missing) == (("gpu0",), ())
    assert choice.excluded == (Excluded("gpu1", "part of the energy of gpu0"),)
    assert choice.warnings == ()


def test_unused_dies_make_no_lower_bound():
    keys = ("gpu0", "gpu1", "gpu2", "gpu3")
    sightings = [s for key in keys for s in sightings_of(key, (0, (OURS,) * (key == "gpu1")))]
    choice = choose_devices([*pair(0), *pair(2)], sightings)
    assert (choice.counted, choice.missing) == (("gpu0",), ())
    assert Excluded("gpu3", UNTOUCHED) in choice.excluded
    assert codes(choice) == [(WarningCode.EXCLUDED, "gpu2")]


def test_others_on_one_die_explain_the_activity_of_the_module():
    explained = []

    def active(key, others):
        explained.append((key, others.holds(np.array([START + S])).all()))
        return Activity(is_active=True, is_unexplained=False, is_complete=True)

    sightings = [*sightings_of("gpu0", (-1, ())), *sightings_of("gpu1", (-1, (OTHER,)))]
    choice = choose_devices(pair(), sightings, activity=active)
    assert explained == [("gpu0", True)]
    assert choice.counted == ()
    assert "blender" in choice.excluded[0].reason


def test_who_holds_a_die_holds_its_module_until_both_are_left():
    looks = [
        *sightings_of("gpu0", (0, ()), (4, (OURS,)), (6, ())),
        *sightings_of("gpu1", (1, (OTHER,)), (5, ())),
    ]
    merged = merge_parts(manifest(*pair()), looks)
    times = START + np.array([0, 1, 4, 5, 6]) * S
    assert held_at(merged, "gpu0", times + 1).tolist() == [False, True, True, True, False]
    assert find_other_processes(merged, "gpu0", START, END) == (OTHER,)
    assert merge_parts(manifest(device("gpu0"), device("gpu1")), looks) == looks


@pytest.mark.parametrize(
    "sightings", [[], sightings_of("gpu1", (0, (OURS,))), sightings_of("gpu1", (0, ()))]
)
def test_a_silent_die_alone_counts_and_is_missing(sightings):
    choice = choose_devices([pair()[1]], sightings)
    assert choice.counted == choice.missing == ("gpu1",)
    assert codes(choice) == [(WarningCode.UNAVAILABLE, "gpu1")]


def test_where_the_die_that_reports_cannot_be_read_both_are_missing():
    choice = choose_devices(pair(), sightings_of("gpu0", (0, (OURS,))), unread=["gpu0"])
    assert choice.missing == ("gpu0", "gpu1")


def test_what_cannot_be_read_inside_a_platform_that_can_is_not_missing():
    devices = [device("node0", contains=("cpu0", "dram0")), device("cpu0", measured=())]
    choice = choose_devices([*devices, device("dram0")], [])
    assert (choice.counted, choice.missing) == (("node0",), ())


def test_packages_count_where_their_platform_cannot_be_read():
    devices = [device("node0", measured=(), contains=("cpu0",)), device("cpu0")]
    choice = choose_devices(devices, [])
    assert choice.counted == ("cpu0",)
    (warning,) = choice.warnings
    assert (warning.code, warning.hint) == (WarningCode.UNAVAILABLE, "reset it")
    assert "it is lost" in warning.message


def test_a_driver_without_a_process_list_counts_all_gpus_with_a_warning():
    choice = choose_devices([device("gpu0"), device("gpu1")], [])
    assert choice.counted == ("gpu0", "gpu1")
    (warning,) = choice.warnings
    assert warning.code is WarningCode.HOST_PROCESS_IDS
    assert "lists no processes" in warning.message


def test_a_command_that_ended_before_the_first_process_list():
    choice = choose(manifest(device("gpu0")), [], START, START + S // 10)
    assert choice.counted == ("gpu0",)
    assert choice.warnings[0].message.startswith("the recording ended before the processes")


def test_process_ids_of_the_host_count_all_and_say_so():
    notes = ({"code": "host_process_ids", "message": "", "device": "gpu0"},)
    sightings = [*sightings_of("gpu0", (-1, ()), (1, (HOSTS,))), *sightings_of("gpu1", (-1, ()))]
    choice = choose_devices([device("gpu0"), device("gpu1")], sightings, notes=notes)
    assert choice.counted == ("gpu0",)
    assert codes(choice)[-1] == (WarningCode.HOST_PROCESS_IDS, None)
    assert "host's process ids" in choice.warnings[-1].message


def test_one_that_has_just_ended_is_no_sign_of_a_container():
    sightings = sightings_of("gpu0", (1, (OURS,)), (8, (DeviceProcess(PID, "", ours=None),)))
    choice = choose_devices([device("gpu0")], sightings)
    assert choice.counted == ("gpu0",)
    assert choice.warnings == ()


def test_a_busy_gpu_without_processes_may_be_the_commands():
    choice = choose_devices([device("gpu0")], sightings_of("gpu0", (-1, ())), busy=["gpu0"])
    assert choice.counted == ("gpu0",)
    assert codes(choice) == [(WarningCode.HOST_PROCESS_IDS, None)]


def test_a_gpu_without_a_reading_counts_and_is_missing():
    choice = choose_devices([device("gpu0")], sightings_of("gpu0", (1, (OURS,))), unread=["gpu0"])
    assert choice.counted == choice.missing == ("gpu0",)
    (warning,) = choice.warnings
    assert (warning.code, warning.device) == (WarningCode.UNAVAILABLE, "gpu0")
    assert warning.message == "hardly read while the command ran"
    assert warning.hint == "for details: joulewise doctor"


@pytest.mark.parametrize(
    "how", [{"state": "recording"}, {"state": "stopped", "notes": ({"code": "recorder_ended"},)}]
)
def test_what_no_recorder_was_there_to_read_is_no_case_for_doctor(how):
    options = manifest(device("gpu0"), **how)
    choice = choose(options, sightings_of("gpu0", (1, (OURS,))), START, END, unread=["gpu0"])
    assert choice.missing == ("gpu0",)
    assert choice.warnings[0].message == "hardly read while the command ran: the recorder had ended"
    assert choice.warnings[0].hint == "measure again"


def test_a_gpu_that_is_lost_is_no_sign_of_a_container():
    lost = {"code": "device_unavailable", "device": "gpu0", "message": "it is lost", "t_ns": "0"}
    unread = choose_devices([device("gpu0")], [], notes=(lost,), unread=["gpu0"])
    assert unread.missing == ("gpu0",)
    assert unread.warnings[0].message == "hardly read while the command ran: it is lost"
    assert codes(unread) == [(WarningCode.UNAVAILABLE, "gpu0")]
    (warning,) = choose_devices([device("gpu0")], [], notes=(lost,)).warnings
    assert "pid" not in warning.hint


def test_other_processes_are_listed_once():
    sightings = sightings_of("gpu0", (-1, (OTHER,)), (2, (OTHER, OURS)), (3, (OTHER,)))
    assert find_other_processes(sightings, "gpu0", START, END) == (OTHER,)
    assert find_other_processes(sightings, "gpu1", START, END) == ()


def test_when_it_was_held():
    sightings = sightings_of("gpu0", (0, ()), (2, (OURS,)), (4, ()))
    times = START + np.array([-1, 0, 1, 2, 3, 4, 5]) * S
    assert held_at(sightings, "gpu0", times).tolist() == [0, 0, 0, 1, 1, 0, 0]
    assert held_at([], "gpu0", times).tolist() == [0] * 7
    assert held_at(sightings_of("gpu0", (2, (OTHER,))), "gpu0", times).tolist() == [1] * 7
    assert held_at(sightings_of("gpu0", (2, (OURS,))), "gpu0", times).tolist() == [
        0,
        0,
        0,
        1,
        1,
        1,
        1,
    ]


@pytest.mark.parametrize(
    "damage", ["", '{"t_ns": 5', "[]", '{"t_ns": 1, "device": "gpu0"}', "\xff"]
)
def test_damaged_lines_are_passed_over(tmp_path, damage):
    good = '{"t_ns": 7, "device": "gpu0", "processes": [{"pid": 1, "name": "a", "ours": true}]}'
    (tmp_path / PROCESSES).write_text(f"{good}\n{damage}\n", encoding="latin-1")
    assert read_sightings(tmp_path) == (Sighting(7, "gpu0", (DeviceProcess(1, "a", ours=True),)),)


def test_no_list_at_all(tmp_path):
    assert read_sightings(tmp_path) == ()
