"""Calibrating a board: the procedure in virtual time, and what is kept and told of it."""

import io
import json
from dataclasses import replace

import pytest
from helpers.virtual_bench import VirtualBench
from rich.console import Console

from joulewise.calibrate.bench import draw_waves
from joulewise.calibrate.board import Calibration, calibrate, keep
from joulewise.calibrate.gpu_load import HEAVY, LIGHT
from joulewise.calibrate.response import is_long_average
from joulewise.data import DeviceInfo, Kind, Quantity, SensorProfile, Unavailable
from joulewise.errors import UsageError
from joulewise.record.sensor_profiles import CalibratedValue, SensorTiming, read_calibrated_profile
from joulewise.report.terminal.calibration import as_json, draw, warnings
from joulewise.simulate.boards import BOARDS, load_board, make_unit

BOARD = DeviceInfo("gpu0", Kind.GPU, "Tesla V100", "GPU-1", "nvidia", "535.1")
TIMING = SensorTiming(
    CalibratedValue(0.02, 1e-6),
    CalibratedValue(0.01, 1e-5),
    CalibratedValue(0.005, 5e-4),
    CalibratedValue(0.5, 0.001),
    CalibratedValue(48.0, 0.1),
    CalibratedValue(40.0, 0.7),
)
TABLES = {Quantity.POWER: SensorProfile(0.02, 0.01)}
FOUND = Calibration(BOARD, {Quantity.POWER: TIMING}, CalibratedValue(0.02, 1e-6), "bursts", TABLES)
WHEN = "2026-11-16T00:00:00+00:00"


@pytest.fixture
def environ(tmp_path):
    return {"JOULEWISE_STATE": str(tmp_path)}


def unit_of(key, seed, **factors):
    board = load_board(key)
    changed = {name: getattr(board.sensor, name) * factor for name, factor in factors.items()}
    return make_unit(replace(board, sensor=replace(board.sensor, **changed)), seed)


@pytest.mark.parametrize("key", BOARDS)
def test_a_board_that_differs_from_its_generation(key):
    unit = unit_of(key, 7, period_s=1.17, window_s=0.84, lag_s=1.1, average_window_s=0.9)
    sensor = unit.board.sensor
    found = calibrate(BOARD, {}, VirtualBench(unit, late=0.01), 30.0)
    instant = found.sensors.get(Quantity.POWER_INSTANT, found.sensors[Quantity.POWER])
    assert instant.update_period_s.value == pytest.approx(sensor.period_s, rel=0.01)
    assert instant.window_s.value == pytest.approx(sensor.window_s, rel=0.1)
    assert abs(instant.lag_s.value - sensor.lag_s) <= instant.lag_s.error
    plain = found.sensors[Quantity.POWER]
    assert is_long_average(plain) == sensor.plain_is_average
    if sensor.plain_is_average:
        assert plain.window_s.value == pytest.approx(sensor.average_window_s, rel=0.1)
    assert found.counter_period_s.value == pytest.approx(sensor.counter_period_s, rel=0.01)


def test_a_board_that_its_limit_holds_back_gets_a_lighter_load():
    unit = unit_of("v100", 1)
    kinds = []

    class Limited(VirtualBench):
        def record(self, bursts, kind, progress):
            kinds.append(kind)
            found = super().record(bursts, kind, progress)
            return replace(found, faults=("it was held back (power cap)",) * (kind == HEAVY))

    found = calibrate(BOARD, {}, Limited(unit), 20.0)
    assert kinds == [HEAVY, LIGHT, LIGHT]
    assert found.sensors[Quantity.POWER].window_s.value == pytest.approx(0.01, rel=0.1)


def test_a_board_that_was_disturbed_is_not_calibrated(environ):
    class Disturbed(VirtualBench):
        def record(self, bursts, kind, progress):
            return replace(super().record(bursts, kind, progress), faults=("others used it",))

    found = keep(calibrate(BOARD, {}, Disturbed(unit_of("v100", 1)), 10.0), environ, WHEN)
    assert found.sensors[Quantity.POWER] == Unavailable("others used it")
    assert (found.card, found.path) == (None, None)
    assert read_calibrated_profile(BOARD, environ) is None


def test_too_short_a_time_is_refused():
    with pytest.raises(UsageError, match="too short"):
        calibrate(BOARD, {}, VirtualBench(unit_of("v100", 1)), 3.0)


def test_progress_goes_up_to_the_end():
    result = []
    calibrate(BOARD, {}, VirtualBench(unit_of("v100", 1)), 8.0, progress=result.append)
    assert result == sorted(result)
    assert result[-1] == pytest.approx(1.0)


def test_waves_are_as_long_as_requested_and_never_regular():
    waves = draw_waves(20.0, 0.025, 0.4, lead_s=1.5, seed=3)
    assert waves[0].off_s == 1.5
    assert sum(w.off_s + w.on_s for w in waves) == pytest.approx(21.5, abs=0.8)
    lengths = [length for w in waves[1:] for length in (w.off_s, w.on_s)]
    assert all(0.025 <= length <= 0.4 for length in lengths)
    assert len(set(lengths)) == len(lengths)
    assert waves == draw_waves(20.0, 0.025, 0.4, lead_s=1.5, seed=3)


class TestKeeping:
    def test_a_gain_stays_when_the_timing_is_found_anew(self, environ):
        keep(replace(FOUND, gain=CalibratedValue(1.02, 0.02), gain_how="a meter"), environ, WHEN)
        keep(replace(FOUND, counter_period_s=None), environ, "later")
        card = read_calibrated_profile(BOARD, environ)
        assert (card.gain, card.gain_how, card.when) == (
            CalibratedValue(1.02, 0.02),
            "a meter",
            "later",
        )
        assert card.counter_period_s == CalibratedValue(0.02, 1e-6)

    def test_the_timing_stays_when_a_meter_reports_the_gain(self, environ):
        keep(FOUND, environ, WHEN)
        keep(
            Calibration(BOARD, gain=CalibratedValue(0.98, 0.02), gain_how="a meter"),
            environ,
            "later",
        )
        card = read_calibrated_profile(BOARD, environ)
        assert card.sensors == {"power_w": TIMING}
        assert card.gain == CalibratedValue(0.98, 0.02)

    def test_nothing_stays_of_another_driver(self, environ):
        keep(replace(FOUND, gain=CalibratedValue(1.02, 0.02)), environ, WHEN)
        newer = replace(FOUND, info=replace(BOARD, driver="550.2"))
        kept = keep(newer, environ, "later")
        assert kept.card.gain is None
        assert "535.1" in warnings(kept)[0]

    def test_what_was_not_found_leaves_the_card_alone(self, environ):
        keep(FOUND, environ, WHEN)
        lost = keep(Calibration(BOARD, gain=Unavailable("no")), environ, "later")
        assert lost.card.when == read_calibrated_profile(BOARD, environ).when == WHEN


class TestTelling:
    def shown(self, *found, **options):
        text = io.StringIO()
        draw(list(found), Console(file=text, width=100, markup=False), **options)
        return text.getvalue()

    def test_a_simulated_board_and_its_card_are_gone_together(self, environ):
        kept = keep(FOUND, environ, WHEN)
        assert "as long as this simulation lasts" in self.shown(kept, simulated=True)
        assert "simulation" not in self.shown(kept)

    def test_figures_stand_with_their_errors_beside_the_tables(self, environ):
        text = self.shown(keep(FOUND, environ, WHEN))
        for words in (
            "20.000 ± 0.001 ms",
            "10.00 ± 0.01 ms",
            "5.0 ± 0.5 ms",
            "50.0 % ± 0.1 %",
            "48.0 ± 0.1 Hz",
            "needs a wall meter",
        ):
            assert words in text
        assert "joulewise run -- " in text
        assert "--meter" in text

    def test_a_board_unlike_the_tables_is_pointed_out(self):
        odd = replace(FOUND, tables={Quantity.POWER: SensorProfile(0.1, 0.0102)})
        assert [line for line in warnings(odd) if "update period" in line]
        assert not [line for line in warnings(odd) if "window" in line]

    def test_an_average_of_a_second_is_pointed_out(self):
        second = replace(TIMING, window_s=CalibratedValue(1.0, 0.01))
        result = warnings(replace(FOUND, sensors={Quantity.POWER: second}, tables={}))
        assert any("averaged over about a second" in line for line in result)

    def test_instant_power_has_columns_of_its_own_where_it_differs(self):
        same = replace(FOUND, sensors={Quantity.POWER: TIMING, Quantity.POWER_INSTANT: TIMING})
        assert "instant" not in self.shown(same)
        other = replace(TIMING, window_s=CalibratedValue(0.1, 0.001))
        unlike = replace(FOUND, sensors={Quantity.POWER: TIMING, Quantity.POWER_INSTANT: other})
        assert "instant power" in self.shown(unlike)

    def test_what_could_not_be_reported_has_its_reason(self):
        lacking = {Quantity.POWER: Unavailable("the load moved it too little")}
        found = Calibration(BOARD, lacking, gain=Unavailable("no log", "log more"))
        text = self.shown(found)
        assert "not calibrated: the load moved it too little" in text
        assert "no log (log more)" in text
        (payload,) = as_json([found])["gpus"]
        assert payload["sensors"] == {"power_w": None}
        assert len(payload["warnings"]) == 2

    def test_json_has_every_figure(self, environ):
        found = keep(
            replace(FOUND, gain=CalibratedValue(1.01, 0.02), gain_how="a meter"), environ, WHEN
        )
        (payload,) = json.loads(json.dumps(as_json([found])))["gpus"]
        assert payload["device"] == "gpu0"
        assert payload["sensors"]["power_w"]["window_s"] == {"value": 0.01, "error": 1e-5}
        assert payload["tables"]["power_w"] == {"update_period_s": 0.02, "window_s": 0.01}
        assert payload["gain"] == {"value": 1.01, "error": 0.02}
        assert payload["card"].endswith("GPU-1.json")


def test_a_card_on_disk_reads_back_as_what_was_found(environ):
    found = keep(calibrate(BOARD, {}, VirtualBench(unit_of("a100", 3)), 15.0), environ, WHEN)
    assert read_calibrated_profile(BOARD, environ) == found.card
    assert set(found.card.sensors) == {"power_w", "power_instant_w"}
