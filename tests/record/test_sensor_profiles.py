"""Which profile a board has: calibrated while driver and board are the same, else documented."""

import json
import math
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from joulewise.data import (
    DeviceInfo,
    Kind,
    Quantity,
    SensorInfo,
    SensorProfile,
    Source,
    Unavailable,
)
from joulewise.devices.device import BaseDevice
from joulewise.errors import JoulewiseError
from joulewise.record.sensor_profiles import (
    CalibratedProfile,
    CalibratedValue,
    SensorTiming,
    profile_path,
    read_calibrated_profile,
    sensor_profile_for,
    state_folder,
    write_calibrated_profile,
)

BOARD = DeviceInfo("gpu1", Kind.GPU, "Tesla V100", "GPU-1/2", "nvidia", "535.1")
CARD = CalibratedProfile(
    uid=BOARD.uid,
    driver=BOARD.driver,
    name=BOARD.name,
    when="2026-11-16T00:00:00+00:00",
    how="square waves",
    sensors={
        "power_w": SensorTiming(
            update_period_s=CalibratedValue(0.021, 0.0001),
            window_s=CalibratedValue(0.011, 0.0005),
            lag_s=CalibratedValue(0.005, 0.0004),
        )
    },
    counter_period_s=CalibratedValue(0.021, 0.0001),
)


class Board(BaseDevice):
    def __init__(self, info=BOARD, source=Source.MEASURED):
        self.info = info
        self.sensors = {
            Quantity.POWER: SensorInfo(Quantity.POWER, source, 0.02, 0.01),
            Quantity.ENERGY: SensorInfo(Quantity.ENERGY, source),
            Quantity.POWER_INSTANT: Unavailable("none"),
        }
        self.controls = {}


@pytest.fixture
def environ(tmp_path):
    return {"JOULEWISE_STATE": str(tmp_path / "stéte of it")}


def test_a_board_without_a_calibration_has_the_documented_profile(environ):
    assert sensor_profile_for(Board(), environ) == SensorProfile(
        update_period_s=0.02, window_s=0.01
    )
    assert read_calibrated_profile(BOARD, environ) is None


def test_what_is_modelled_may_be_off_by_a_factor(environ):
    modelled = sensor_profile_for(Board(source=Source.MODELLED), environ)
    assert modelled.gain_sigma > 0.4
    rapl = sensor_profile_for(Board(replace(BOARD, kind=Kind.CPU)), environ)
    assert 0.025 < rapl.gain_sigma < modelled.gain_sigma


def test_a_reading_that_the_board_lacks_has_no_times(environ):
    assert sensor_profile_for(Board(), environ, Quantity.POWER_INSTANT).update_period_s is None


def test_a_written_profile_is_read_back_whole(environ):
    path = write_calibrated_profile(CARD, environ)
    assert read_calibrated_profile(BOARD, environ) == CARD
    assert path == profile_path(BOARD.uid, environ)
    assert [file.name for file in path.parent.iterdir()] == ["GPU-1%2f2.json"]


def test_a_calibrated_profile_overrides_the_documented_one(environ):
    write_calibrated_profile(CARD, environ)
    card = sensor_profile_for(Board(), environ)
    assert (card.update_period_s, card.window_s, card.lag_s) == (0.021, 0.011, 0.005)
    assert card.counter_period_s == 0.021
    late_s, error_s = 0.005 + 0.011 / 2, math.hypot(0.0004, 0.0005 / 2)
    assert card.timing_spread == pytest.approx(max(error_s / late_s, 0.0005 / 0.011))
    assert (card.gain, card.gain_sigma) == (1.0, 0.025)  # no meter has told
    assert card.origin == "calibrated 2026-11-16T00:00:00+00:00"


def test_a_gain_from_a_meter_is_used_with_its_error(environ):
    write_calibrated_profile(replace(CARD, sensors={}, gain=CalibratedValue(1.03, 0.0196)), environ)
    card = sensor_profile_for(Board(), environ)
    assert card.gain == 1.03
    assert card.gain_sigma == pytest.approx(0.01)
    assert (card.update_period_s, card.timing_spread) == (0.02, 0.2)  # still the table's


def test_the_profile_of_another_driver_is_not_used(environ):
    write_calibrated_profile(CARD, environ)
    newer = Board(replace(BOARD, driver="550.2"))
    assert sensor_profile_for(newer, environ).origin == "table"
    why = read_calibrated_profile(newer.info, environ)
    assert "535.1" in why.reason
    assert "550.2" in why.reason
    assert why.fix == "joulewise calibrate --gpu 1"


def test_the_profile_of_another_board_is_not_used(environ):
    other = write_calibrated_profile(replace(CARD, uid="GPU-9"), environ)
    other.rename(profile_path(BOARD.uid, environ))
    assert "another board" in read_calibrated_profile(BOARD, environ).reason
    assert sensor_profile_for(Board(), environ).origin == "table"


def spoilt(**changes):
    return json.dumps({**asdict(CARD), **changes})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        "\x00",
        spoilt(format=2),
        spoilt(uid=None),
        spoilt(sensors={"power_w": {"colour": None}}),
        spoilt(sensors={"power_w": {"window_s": {"value": 0, "error": 1}}}),
        spoilt(sensors={"power_w": {"lag_s": {"value": "late", "error": 1}}}),
        spoilt(gain={"value": 0.0, "error": 0.1}),
        spoilt(gain={"value": 1.0, "error": -0.1}),
        spoilt(counter_period_s={"value": 1e999, "error": 0.0}),
        spoilt(gain=3),
    ],
)
def test_a_file_that_is_not_a_profile_is_ignored_with_a_reason(text, environ):
    path = profile_path(BOARD.uid, environ)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert "is not a sensor profile" in read_calibrated_profile(BOARD, environ).reason
    assert sensor_profile_for(Board(), environ).origin == "table"


def test_a_profile_that_cannot_be_read_is_ignored_with_a_reason(environ):
    profile_path(BOARD.uid, environ).mkdir(parents=True)
    assert "cannot be read" in read_calibrated_profile(BOARD, environ).reason
    assert sensor_profile_for(Board(), environ).origin == "table"


def test_a_profile_that_cannot_be_written_leaves_the_old_one_alone(environ, monkeypatch):
    path = write_calibrated_profile(CARD, environ)
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "disk full")))
    with pytest.raises(JoulewiseError, match="disk full"):
        write_calibrated_profile(replace(CARD, how="later"), environ)
    assert read_calibrated_profile(BOARD, environ) == CARD
    assert list(path.parent.iterdir()) == [path]


def test_the_state_folder(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert state_folder({"JOULEWISE_STATE": "/here"}) == Path("/here")
    assert state_folder({"XDG_STATE_HOME": "/xdg"}) == Path("/var/lib/joulewise")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert state_folder({"XDG_STATE_HOME": "/xdg"}) == Path("/xdg/joulewise")
    at_home = Path.home() / ".local/state/joulewise"
    assert state_folder({"XDG_STATE_HOME": "relative"}) == state_folder({}) == at_home


def test_a_modelled_counter_has_no_update_period(environ):
    assert sensor_profile_for(Board(source=Source.ASSUMED), environ).counter_period_s == 0.0
    assert sensor_profile_for(Board(source=Source.MODELLED), environ).counter_period_s == 0.0
    assert sensor_profile_for(Board(), environ).counter_period_s is None
