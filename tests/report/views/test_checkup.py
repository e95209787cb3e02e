"""What doctor shows, on toy devices: first what it knows, then how it is drawn."""

from __future__ import annotations

import io
import json
import re
import threading
from dataclasses import replace

import pytest
from rich.console import Console

from joulewise.data import ControlKind, Kind, Quantity, SensorInfo, Source, Unavailable
from joulewise.devices import Discovery
from joulewise.record.sensor_profiles import CalibratedProfile, write_calibrated_profile
from joulewise.report.terminal.doctor import alike, draw, next_commands, summarise_sources
from joulewise.report.views import leases
from joulewise.report.views.checkup import Checkup, as_json, examine
from joulewise.testing import ToyClock, ToyDevice

LOST = Unavailable("the GPU is lost", "reboot")


def toys(count):
    clock = ToyClock()
    devices = [ToyDevice(clock, f"gpu{number}") for number in range(count)]
    clock.elapse(100)
    return devices


def cpu(source):
    device = ToyDevice(ToyClock(), "cpu0")
    device.info = replace(device.info, kind=Kind.CPU, uid="cpu0", name="Xeon", note="no RAPL")
    device.sensors = {Quantity.POWER: SensorInfo(Quantity.POWER, source, note="from its load")}
    device.controls = {}
    return device


def checkup(*devices, missing=None):
    return examine(Discovery(devices, missing or {}))


def drawn(checkup, width=100, **options):
    console = Console(file=io.StringIO(), width=width, highlight=False, **options)
    draw(checkup, console)
    return console.file.getvalue()


def lines(text):
    return [line.rstrip() for line in text.splitlines()]


def test_json_of_a_sensor_and_of_what_is_not_there():
    (device,) = as_json(checkup(*toys(1)))["devices"]
    assert device["sensors"]["power_w"] == {
        "value": 40.0,
        "source": "measured",
        "update_period_s": 0.02,
        "window_s": 0.01,
        "slow": False,
        "note": "",
    }
    assert device["sensors"]["fan_pct"] == {"value": None, "reason": "a toy has no fan", "fix": ""}


def test_json_of_controls():
    (toy,) = toys(1)
    denied = Unavailable("only root", "sudo it")
    toy.controls = {
        **toy.controls,
        ControlKind.POWER_LIMIT: replace(toy.controls[ControlKind.POWER_LIMIT], writable=denied),
    }
    controls = as_json(checkup(toy))["devices"][0]["knobs"]
    assert controls["power_limit_w"] == {
        "value": 80.0,
        "minimum": 50,
        "maximum": 100,
        "default": 80,
        "choices": None,
        "readable": True,
        "writable": False,
        "reason": "only root",
        "fix": "sudo it",
    }
    assert controls["sm_clock_mhz"] == {
        "value": None,
        "minimum": 500,
        "maximum": 1500,
        "default": None,
        "choices": [500, 1000, 1500],
        "readable": False,
        "writable": True,
    }
    assert controls["mem_clock_mhz"]["reason"] == "a toy's memory has one clock"


class TestControlsOfTheGuardService:
    @pytest.fixture
    def toy(self):
        (toy,) = toys(1)
        denied = Unavailable("only root", "sudo it")
        limit = replace(toy.controls[ControlKind.POWER_LIMIT], writable=denied)
        toy.controls = {**toy.controls, ControlKind.POWER_LIMIT: limit}
        return toy

    @pytest.fixture
    def served(self, toy, monkeypatch):
        monkeypatch.setattr(leases, "leases", lambda _: leases.Leases(service="/run/guard.sock"))
        return checkup(toy)

    def test_nobody_is_sent_for_a_right_that_he_has(self, served):
        result = drawn(served)
        assert "cannot set power limit" not in result
        assert "sudo it" not in result
        row = next(line for line in lines(result) if line.startswith("  power limit "))
        assert row.endswith("by the guard service")

    def test_json(self, served):
        control = as_json(served)["devices"][0]["knobs"]["power_limit_w"]
        assert not control["writable"]
        assert (
            control["reason"] == "the guard service sets it, within the limits of its configuration"
        )
        assert control["fix"] == ""

    def test_without_the_service_the_fix_is_told(self, toy):
        result = drawn(checkup(toy))
        assert "by the guard service" not in result
        assert "    fix: sudo it" in result


def test_json_of_a_readable_control_that_does_not_answer():
    (toy,) = toys(1)
    toy.get = lambda _: LOST
    control = as_json(checkup(toy))["devices"][0]["knobs"]["power_limit_w"]
    assert (control["value"], control["reason"], control["fix"]) == (None, LOST.reason, LOST.fix)


def test_json_is_whole_and_plain():
    found = as_json(checkup(*toys(2), missing={"amd": Unavailable("no amdsmi", "pip it")}))
    assert found["missing"] == {"amd": {"reason": "no amdsmi", "fix": "pip it"}}
    assert [device["key"] for device in found["devices"]] == ["gpu0", "gpu1"]
    assert {*found["devices"][0]} == {
        *("key", "kind", "name", "uid", "vendor", "driver", "note", "better", "contains"),
        *("calibrated", "sensors", "knobs", "power_scope", "limit_scope"),
    }
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_a_listed_sensor_that_fails_now_is_not_a_number():
    (toy,) = toys(1)
    toy.read = lambda _: LOST
    sensors = checkup(toy).devices[0].sensors
    assert set(sensors.values()) == {LOST, Unavailable("a toy has no fan")}


def test_slow_devices_are_read_at_the_same_time():
    devices = toys(8)
    all_here = threading.Barrier(len(devices))

    def slow(_control):
        all_here.wait(timeout=30)
        return 80.0

    for device in devices:
        device.get = slow
    assert len(checkup(*devices).devices) == 8


def test_devices_that_are_alike_stand_together():
    devices = toys(4)
    devices[2].read = lambda _: LOST
    groups = alike(checkup(*devices).devices)
    keys = [[device.info.key for device in group] for group in groups]
    assert keys == [["gpu0", "gpu1", "gpu3"], ["gpu2"]]


@pytest.mark.parametrize("attribute", ["name", "driver", "note"])
def test_devices_that_differ_do_not(attribute):
    devices = toys(2)
    devices[1].info = replace(devices[1].info, **{attribute: "another"})
    assert len(alike(checkup(*devices).devices)) == 2


def test_what_names_a_board_in_a_reason_or_a_fix_does_not_part_boards():
    devices = toys(2)
    for number, device in enumerate(devices):
        broken = Unavailable(f"stuck for 0.05{number} s", f"reset -i {number}")
        device.sensors = {**device.sensors, Quantity.FAN: broken}
        limit = replace(device.controls[ControlKind.POWER_LIMIT], writable=broken)
        device.controls = {**device.controls, ControlKind.POWER_LIMIT: limit}
    found = checkup(*devices)
    assert len(alike(found.devices)) == 1
    assert "    fix: reset -i 0 (and so for each)" in lines(drawn(found))


def test_one_device():
    found = checkup(*toys(1), missing={"amd": Unavailable("no amdsmi", "pip install it")})
    *shown, _alone, blank, trusted = lines(drawn(found))
    assert (blank, trusted) == ("", "GPU energy: measured (counter). CPU: no CPU found.")
    assert shown == [
        "gpu0  Toy 100  TOY-gpu0",
        "  toy · driver 1.0",
        "  sensor       now       source    update period  averaging window",
        "  power        40 W      measured  20 ms          10 ms",
        "  energy       4 kJ      measured  20 ms          -",
        "  utilisation  GPU 50 %  measured  200 ms         -",
        "",
        "  setting      now           range                  default  can be set",
        "  power limit  80 W          50-100 W               80 W     yes",
        "  SM clock     not reported  500-1500 MHz, 3 steps  -        yes",
        "  cannot read fan: a toy has no fan",
        "  cannot set memory clock: a toy's memory has one clock",
        "",
        "not found",
        "  amd: no amdsmi",
        "    fix: pip install it",
        "",
        "changed settings (leases)",
        "  no setting is changed by joulewise now",
    ]


def test_eight_devices_are_one_table_and_a_line_each():
    devices = toys(8)
    devices[5].set(ControlKind.POWER_LIMIT, 100)
    text = lines(drawn(checkup(*devices)))
    assert text[0] == "gpu0-gpu7  8 x Toy 100"
    assert "  gpu5    50 W   4 kJ    -            TOY-gpu5" in text
    assert "  power        40-50 W   measured  20 ms          10 ms" in text
    assert "  power limit  80-100 W      50-100 W               80 W     yes" in text
    assert len(text) < 30


def test_a_reason_that_all_share_is_said_once():
    (toy,) = toys(1)
    toy.sensors = dict.fromkeys(Quantity, LOST)
    toy.controls = dict.fromkeys(ControlKind, LOST)
    assert lines(drawn(checkup(toy)))[2:4] == [
        "  cannot read or set anything: the GPU is lost",
        "    fix: reboot",
    ]


def test_what_a_person_must_know_is_shown():
    device = cpu(Source.MODELLED)
    device.info = replace(device.info, contains=("dram0", "dram1", "dram2"))
    text = drawn(checkup(device))
    assert "  no RAPL\n" in text
    assert "  its energy includes that of dram0-dram2\n" in text
    assert "  power: from its load\n" in text


def test_a_better_source_has_its_fix_and_boards_may_differ_in_its_number():
    devices = toys(2)
    for number, toy in enumerate(devices):
        why = Unavailable(f"intel-rapl:{number} is readable by root only", "sudo chmod it")
        toy.info = replace(toy.info, better=why)
    found = checkup(*devices)
    text = drawn(found)
    assert text.count("  why it is not measured: intel-rapl:0 is readable by root only\n") == 1
    assert text.count("    fix: sudo chmod it\n") == 1
    payload = [device["better"] for device in as_json(found)["devices"]]
    assert payload[1] == {"reason": "intel-rapl:1 is readable by root only", "fix": "sudo chmod it"}
    assert as_json(checkup(*toys(1)))["devices"][0]["better"] is None


@pytest.mark.parametrize("width", [44, 60, 80, 140])
def test_no_value_is_pressed_out(width):
    (toy,) = toys(1)
    text = drawn(checkup(toy), width=width)
    power_w = toy.read(Quantity.POWER).value
    assert re.search(rf"^  power +{power_w:g} W", text, re.MULTILINE)
    assert re.search(r"^  power limit +\d+ W +\d+-\d+ W", text, re.MULTILINE)
    assert re.search(r"update( period)? +averaging", text)  # or in a block below


@pytest.mark.parametrize("width", range(50, 100, 2))
def test_each_of_several_values_stands_on_one_line(width):
    found = checkup(*toys(1))
    (device,) = found.devices
    load = device.sensors[Quantity.GPU_UTILISATION]
    others = (
        Quantity.MEMORY_UTILISATION,
        Quantity.ENCODER_UTILISATION,
        Quantity.DECODER_UTILISATION,
    )
    busy = replace(device, sensors={**device.sensors, **dict.fromkeys(others, load)})
    text = drawn(replace(found, devices=(busy,)), width=width)
    for name in ("GPU", "memory", "encoder", "decoder"):
        assert f"{name} 50 %" in text


@pytest.mark.parametrize("width", [60, 80, 140])
def test_nothing_is_cut_off(width):
    (toy,) = toys(1)
    toy.info = replace(toy.info, note="a sentence that is too long for a narrow terminal " * 3)
    text = drawn(checkup(toy, cpu(Source.ASSUMED)), width=width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text


def test_a_fix_is_never_wrapped_so_that_it_can_be_pasted():
    fix = " ".join(["sudo chmod -R a+r /sys/class/powercap/intel-rapl:0/energy_uj"] * 3)
    text = drawn(checkup(missing={"cpu": Unavailable("denied", fix)}), width=60)
    assert f"    fix: {fix}\n" in text


def test_colour_only_where_it_is_wanted(monkeypatch):
    found = checkup(*toys(1))
    assert "\x1b[" not in drawn(found)
    assert "\x1b[32m" in drawn(found, force_terminal=True, color_system="standard")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in drawn(found, force_terminal=True, color_system="standard")


def test_trust_names_each_source_and_what_cannot_be_read():
    devices = toys(3)
    devices[1].read = lambda _: LOST
    assert summarise_sources(checkup(*devices, cpu(Source.MODELLED))) == (
        "GPU energy: gpu0, gpu2 measured (counter), gpu1 cannot be read. CPU: modelled."
    )
    samples = cpu(Source.MEASURED)
    assert summarise_sources(checkup(samples)) == (
        "GPU energy: no GPU found. CPU: measured (power samples)."
    )


def test_the_next_commands_depend_on_what_is_there():
    assert not list(next_commands(checkup(*toys(1))))
    (simulated,) = next_commands(Checkup((), {}))
    assert simulated[0] == "joulewise sim --gpu v100 -- joulewise doctor"
    (better,) = next_commands(checkup(*toys(1), cpu(Source.MODELLED)))
    assert better[0] == "joulewise doctor --cpu-tdp WATTS"


def test_a_card_is_told_and_one_of_another_driver_too(tmp_path):
    environ = {"JOULEWISE_STATE": str(tmp_path)}
    device, other = toys(2)
    for toy, driver in ((device, device.info.driver), (other, "of yesterday")):
        write_calibrated_profile(
            CalibratedProfile(toy.info.uid, driver, toy.info.name, "2026-11-16", "bursts"), environ
        )
    found = examine(Discovery((device, other), {}), environ)
    text = drawn(found)
    assert f"{device.info.key} calibrated 2026-11-16, without a wall meter" in text
    assert (
        f"{other.info.key} is not calibrated: the sensor was calibrated with driver of yesterday"
        in text
    )
    assert "joulewise calibrate --gpu" in text
    payload = [entry["calibrated"] for entry in as_json(found)["devices"]]
    assert payload[0]["when"] == "2026-11-16"
    assert "of yesterday" in payload[1]["reason"]
