"""Modules of two dies, one of which reports for both: MI250 and MI250X."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from joulewise.data import Quantity, Reading, SensorInfo, Unavailable
from joulewise.devices import Discovery
from joulewise.record.inventory import recorded_device
from joulewise.report.terminal.doctor import draw
from joulewise.report.views.checkup import examine
from tests.devices.amd.test_gpu import AmdConformance
from tests.helpers.documented_amdsmi import NOT_SUPPORTED, Board, mi250_pair

POWERS = (Quantity.POWER, Quantity.POWER_AVERAGE, Quantity.POWER_INSTANT)
BOTH = "reports the power and energy of both dies of its module"


def test_one_die_reports_for_both_and_the_other_has_no_zero(install, find):
    install(*mi250_pair())
    reporter, silent = find()
    assert isinstance(reporter.sensors[Quantity.ENERGY], SensorInfo)
    assert isinstance(reporter.read(Quantity.POWER), Reading)
    assert reporter.info.contains == ("gpu1",)
    assert "both dies of its module, gpu1 included" in reporter.info.note
    assert "others may use" not in reporter.info.note
    assert silent.info.contains == ()
    for quantity in (*POWERS, Quantity.ENERGY):
        answer = silent.read(quantity)
        assert isinstance(answer, Unavailable)
        assert answer.reason == f"gpu0 {BOTH}"
        assert "counted with gpu0" in answer.fix
    assert isinstance(silent.read(Quantity.GPU_UTILISATION), Reading)
    assert recorded_device(silent, {}).unavailable.reason == f"gpu0 {BOTH}"
    assert recorded_device(silent, {}).sources == {}


@pytest.mark.parametrize("reported", ["N/A", 0])
@pytest.mark.parametrize("counts", [True, False])
def test_every_kind_of_silence_makes_a_silent_die(install, find, reported, counts):
    pair = mi250_pair()
    pair[1].power = dict.fromkeys(pair[1].power, reported)
    fake = install(*pair)
    answer = fake.amdsmi_get_energy_count

    def count(board):
        if board is pair[1]:
            raise fake.AmdSmiLibraryException(NOT_SUPPORTED)
        return answer(board)

    if not counts:
        fake.amdsmi_get_energy_count = count
    _, silent = find()
    assert silent.sensors[Quantity.ENERGY].reason == f"gpu0 {BOTH}"


def test_the_links_show_which_die_reports_in_any_order(install, find):
    first, second = mi250_pair(0), mi250_pair(2)
    install(first[1], second[0], second[1], first[0])
    devices = find()
    assert devices[0].sensors[Quantity.ENERGY].reason == f"gpu3 {BOTH}"
    assert devices[2].sensors[Quantity.ENERGY].reason == f"gpu1 {BOTH}"
    assert [device.info.contains for device in devices] == [(), ("gpu2",), (), ("gpu0",)]


@pytest.mark.parametrize("is_first", [True, False])
def test_without_links_dies_are_counted_in_pairs(install, find, is_first):
    order = 1 if is_first else -1
    fake = install(*mi250_pair(0)[::order], *mi250_pair(2)[::order])
    fake.tells_links = False
    devices = find()
    reporters = [0, 2] if is_first else [1, 3]
    assert [i for i, d in enumerate(devices) if d.info.contains] == reporters


def test_only_the_silent_die_is_visible(install, find):
    install(*mi250_pair())
    (silent,) = find(ROCR_VISIBLE_DEVICES="1")
    why = silent.sensors[Quantity.ENERGY]
    assert (silent.info.key, why.reason) == ("gpu1", f"gpu0 {BOTH}")
    assert "let the job see gpu0" in why.fix


def test_only_the_reporting_die_is_visible(install, find):
    install(*mi250_pair())
    (reporter,) = find(HIP_VISIBLE_DEVICES="0")
    assert isinstance(reporter.sensors[Quantity.ENERGY], SensorInfo)
    assert "gpu1 included, which the job does not see" in reporter.info.note
    assert reporter.info.contains == ()


@pytest.mark.parametrize("tells_links", [True, False])
def test_a_container_with_one_die(install, find, tells_links):
    reporter, silent = mi250_pair()
    install(silent).tells_links = tells_links
    (device,) = find()
    assert device.sensors[Quantity.ENERGY].reason == f"the other die {BOTH}"
    device.close()
    install(reporter)
    (device,) = find()
    assert "the other die included, which the job does not see" in device.info.note


def test_dies_of_two_modules_are_not_paired(install, find):
    install(mi250_pair(0)[1], mi250_pair(2)[0])
    silent, reporter = find()
    assert silent.sensors[Quantity.ENERGY].reason == f"the other die {BOTH}"
    assert reporter.info.contains == ()


def test_the_counter_of_a_module_is_checked_as_any_other(install, find):
    install(*mi250_pair(rate=2))
    reporter, silent = find()
    assert "runs at 2 times" in reporter.sensors[Quantity.ENERGY].reason
    assert reporter.info.contains == ("gpu1",)
    assert silent.sensors[Quantity.ENERGY].reason == f"gpu0 {BOTH}"


def test_a_die_known_by_its_device_id_alone(install, find):
    fake = install(*mi250_pair())
    fake.amdsmi_get_gpu_asic_info = lambda _: {"market_name": "N/A", "device_id": "0x7408"}
    assert find()[0].info.contains == ("gpu1",)


def test_a_fault_that_may_pass_makes_no_silent_die(install, find):
    fake = install(*mi250_pair())
    fake.failing["amdsmi_get_power_info"] = 12
    for device in find():
        assert isinstance(device.sensors[Quantity.POWER], SensorInfo)


def test_a_gpu_of_one_die_is_no_module(install, find):
    install(Board(0, "mi210"), Board(1, "mi210"))
    assert [(d.info.note, d.info.contains) for d in find()] == [("", ())] * 2


def test_doctor_shows_who_reports_and_why_a_counter_is_refused(install, find):
    install(*mi250_pair(0), *mi250_pair(2, rate=0.07))
    checkup = examine(Discovery(tuple(find()), {}))
    console = Console(file=io.StringIO(), width=200)
    draw(checkup, console)
    text = console.file.getvalue()
    assert (
        text.count("AMD Instinct") == 4
    )  # dies are told one by one: their reasons name each other
    for key in ("gpu0", "gpu2"):
        assert f"{key} {BOTH}" in text
        assert f"both dies of its module, gpu{int(key[3]) + 1} included" in text
    assert "the energy counter runs at 0.07 times the power that the GPU reports" in text


class TestSilentDie(AmdConformance):
    def boards(self):
        return mi250_pair()
