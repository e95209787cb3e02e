"""What a reader must know comes as a typed warning; where nothing is odd, none comes."""

import itertools
import math
import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from joulewise.analyse.quality.run import from_notes, too_short
from joulewise.analyse.run_result import analyse
from joulewise.data import SensorProfile, Source, Unavailable, WarningCode
from joulewise.data.sweeps import Setting
from joulewise.data.tuning import Tuning, TuningPhase, TuningState
from joulewise.store.layout import StreamKind
from joulewise.store.manifest import CommandRecord, RecorderRecord
from joulewise.store.tuning_file import write_tuning
from tests.helpers.run_directories import PID, START, MadeRun, S, device

OURS = (PID, "python", True)


def noisy(level_w):
    noise = random.Random(0)
    return lambda t: (level_w(t) if callable(level_w) else level_w) + noise.gauss(0, 0.2)


@pytest.fixture
def made(tmp_path):
    return MadeRun(tmp_path / "run").processes("gpu0", (-1, []), (0.2, [OURS]))


def warnings(made, code=None, **changed):
    found = analyse(made.write(**changed)).warnings
    return [warning for warning in found if code is None or warning.code is code]


def test_nothing_odd_nothing_said(made):
    made.fast(device("gpu0"), noisy(200)).fast(device("dram0", source=Source.ASSUMED), lambda _: 6)
    made.slow("gpu0", gpu_utilisation_pct=lambda _: 99, throttle_reasons=lambda _: 0)
    made.spans(("epoch", 0, 1, 5))
    assert warnings(made) == []


def test_a_gap_says_how_long_when_and_why(made):
    made.fast(device("gpu0"), noisy(200), lost=[(4, 6)])
    fault = {"code": "device_unavailable", "device": "gpu0", "quantity": "power_w"}
    made.notes += [
        {**fault, "message": "GPU is lost", "t_ns": str(START + 4 * S)},
        {**fault, "message": "no fan", "quantity": "fan_pct", "t_ns": str(START)},
    ]
    (warning,) = warnings(made)
    assert (warning.code, warning.device) == (WarningCode.GAP, "gpu0")
    assert "for 2.0 s of 10.0 s, first about 4 s after" in warning.message
    assert warning.message.endswith(": GPU is lost")


@pytest.mark.parametrize(
    ("measured", "counter_back_s", "bridge"),
    [
        (("power_w", "energy_j"), 6, "counter ran on"),
        (("power_w", "energy_j"), 99, "the mean of the readings before and after it is taken"),
        (("power_w",), 6, "the mean of the readings before and after it is taken"),
    ],
)
def test_a_gap_warning_says_what_stands_in_for_the_readings(made, measured, counter_back_s, bridge):
    gone = {"lost": [(4, 6)], "counter_lost": [(4, counter_back_s)]}
    made.fast(device("gpu0", measured=measured), noisy(200), **gone)
    (warning,) = warnings(made, WarningCode.GAP)
    assert bridge in warning.hint


@pytest.mark.parametrize(
    ("awake_s", "until_s", "said"),
    [
        (0, 6, "for only 6.0 of 10.0 s, up to 6.0 s after the start"),
        (7, 99, "for only 3.0 of 10.0 s, from 7.0 s after the start on"),
        (7, 9, "from 7.0 s after the start on and up to 9.0 s after the start"),
    ],
)
def test_a_lower_bound_has_one_warning_with_one_hint(tmp_path, awake_s, until_s, said):
    """Nothing stands in for what was not read then, so nothing else is said to."""
    why = Unavailable("it is lost", "reset it")
    lost = device("gpu0", awake_ns=START + awake_s * S, unavailable=why)
    made = MadeRun(tmp_path / "run", lead_s=-awake_s).processes("gpu0", (awake_s, [OURS]))
    made.fast(lost, noisy(200), until_s=until_s)
    result = analyse(made.write())
    use = result.run.devices["gpu0"]
    assert use.energy.at_least
    assert use.read_s == pytest.approx(min(until_s, 10) - awake_s, abs=0.03)
    assert use.mean_w == pytest.approx(use.energy.value / use.read_s, rel=0.02)
    (warning,) = result.warnings
    assert (warning.code, warning.hint) == (WarningCode.UNAVAILABLE, "reset it")
    assert said in warning.message
    assert "it is lost" in warning.message


def test_a_fault_that_the_recorder_noted_has_the_advice_of_its_driver(made):
    made.fast(device("gpu0"), noisy(200), until_s=6)
    fault = {"code": "device_unavailable", "device": "gpu0", "quantity": "power_w"}
    fault |= {"message": "GPU is lost", "hint": "see dmesg", "t_ns": str(START + 6 * S)}
    made.notes.append(fault)
    (warning,) = warnings(made)
    assert (warning.code, warning.hint) == (WarningCode.UNAVAILABLE, "see dmesg")


def test_a_gap_of_the_whole_run_begins_with_it(made):
    made.fast(device("gpu0"), noisy(200), lost=[(-0.5, 9.9)])
    (warning,) = warnings(made, WarningCode.GAP)
    assert "first about 0 s after the start" in warning.message


def test_a_reading_that_is_missed_is_no_gap(made):
    made.fast(device("gpu0"), noisy(200), lost=[(4, 4.03)])
    assert warnings(made) == []


def test_throttling_is_a_share_of_the_time_by_reason(made):
    made.fast(device("gpu0", settings={"power_limit_w": 150.0}), noisy(150))
    made.slow("gpu0", throttle_reasons=lambda t: 1 if t < 0 else 0x24 if t >= 5 else 0x4)
    (warning,) = warnings(made)
    assert (warning.code, warning.device) == (WarningCode.THROTTLED, "gpu0")
    assert "power cap 100 %, software thermal slowdown 55 % (its limit is 150 W)" in warning.message


def capped(made, watts, bits, limit_w=150.0, **options):
    made.fast(device("gpu0", default_limit_w=300.0), noisy(watts))
    made.slow("gpu0", throttle_reasons=lambda _: bits, enforced_limit_w=lambda _: limit_w)
    return [(warning.code, warning.device) for warning in warnings(made, options=options)]


def test_a_lowered_limit_that_never_binds(made):
    assert capped(made, 120, 0x0) == [(WarningCode.CAP_NEVER_BINDS, "gpu0")]


def test_a_limit_below_what_the_lowest_clocks_draw(made):
    below = [(WarningCode.THROTTLED, "gpu0"), (WarningCode.CAP_BELOW_FLOOR, "gpu0")]
    assert capped(made, 180, 0x4) == below


def test_a_limit_that_is_held_is_throttling_alone(made):
    assert capped(made, 149, 0x4) == [(WarningCode.THROTTLED, "gpu0")]


def test_a_limit_that_is_set_for_this_run_and_held_is_no_news(made):
    assert capped(made, 149, 0x4, settings={"gpu0": {"power_limit_w": 150.0}}) == []


def test_a_hot_board_is_news_whoever_has_set_its_limit(made):
    settings = {"gpu0": {"power_limit_w": 150.0}}
    assert capped(made, 149, 0x24, settings=settings) == [(WarningCode.THROTTLED, "gpu0")]


def test_the_default_limit_need_not_bind(made):
    assert capped(made, 120, 0x0, limit_w=300.0) == []


def test_a_default_limit_set_by_a_lease_is_warned_of(made):
    settings = {"gpu0": {"power_limit_w": 300.0}}
    assert capped(made, 120, 0x0, limit_w=300.0, settings=settings) == [
        (WarningCode.CAP_NEVER_BINDS, "gpu0")
    ]


def test_a_power_limit_that_someone_changed_during_the_run(made):
    made.fast(device("gpu0"), noisy(150))
    made.slow("gpu0", enforced_limit_w=lambda t: 300 if t < 0 else 150 if t < 5 else 180)
    (warning,) = warnings(made)
    assert (warning.code, warning.device) == (WarningCode.SETTING_CHANGED, "gpu0")
    assert warning.message.endswith(": from 150 W to 180 W 5 s after the start")


def tuned(made, *limits_w, device="gpu0"):
    """Write the record of a tuner that had these limits in force for 3 s each."""
    settings = [Setting.of({"power_limit_w": float(limit_w)}) for limit_w in limits_w] + [None]
    phases = [
        TuningPhase(TuningState.EXPLORING, each, 3.0 * place, 3.0 * place + 3.0)
        for place, each in enumerate(settings)
    ]
    tuning = Tuning(
        "edp", ("power_limit_w",), TuningState.ENDED, True, "", Setting.of({"power_limit_w": 300.0})
    )
    write_tuning(made.path, replace(tuning, devices=(device,), phases=tuple(phases)))


def limits_of_a_tuned_run(t):
    return 300 if t < 2 else 150 if t < 5 else 180 if t < 8 else 300


def test_changes_that_the_runs_own_tuner_made_are_no_news(made):
    made.fast(device("gpu0"), noisy(150))
    made.slow("gpu0", enforced_limit_w=limits_of_a_tuned_run, throttle_reasons=lambda _: 0x4)
    assert {w.code for w in warnings(made)} == {WarningCode.SETTING_CHANGED, WarningCode.THROTTLED}
    tuned(made, 150, 180)
    assert warnings(made) == []


def test_of_a_tuned_run_changes_by_others_are_news(made):
    made.fast(device("gpu0"), noisy(150))
    made.slow("gpu0", enforced_limit_w=limits_of_a_tuned_run)
    tuned(made, 150)
    (warning,) = warnings(made)
    assert warning.message.endswith(": from 150 W to 180 W 5 s after the start")
    tuned(made, 150, 180, device="gpu1")
    assert [warning.code for warning in warnings(made)] == [WarningCode.SETTING_CHANGED]


def test_a_power_limit_that_stays_is_no_news(made):
    made.fast(device("gpu0"), noisy(150))
    made.slow("gpu0", enforced_limit_w=lambda t: math.nan if t == 3 else 150 + 0.1 * (t > 5))
    assert warnings(made) == []


def test_of_many_changes_the_first_are_listed(made):
    made.fast(device("gpu0"), noisy(150))
    made.slow("gpu0", enforced_limit_w=lambda t: 150 + t)
    (warning,) = warnings(made)
    assert "from 150 W to 151 W 1 s after the start, to 152 W 2 s" in warning.message
    assert warning.message.endswith(" times more")


def test_other_vendors_bits_have_no_names(made):
    made.fast(device("gpu0", vendor="AMD"), noisy(150))
    made.slow("gpu0", throttle_reasons=lambda _: 4)
    assert warnings(made) == []


def test_a_counter_that_was_reset_is_warned_of(made):
    made.devices.append(device("gpu0"))
    t_s = made.times_s(made.hz)
    joules = 5_000 + 200 * t_s
    made.lane(
        "gpu0",
        StreamKind.FAST,
        {
            "t_ns": START + np.round(t_s * S).astype(np.int64),
            "energy_j": np.where(t_s < 5, joules, joules - joules[t_s >= 5][0]),
            "power_w": np.array(list(map(noisy(200), t_s))),
        },
    )
    (warning,) = warnings(made)
    assert (warning.code, warning.device) == (WarningCode.COUNTER_RESET, "gpu0")


def test_counter_and_readings_that_disagree(made):
    made.devices.append(
        device("gpu0", maximum_w=210.0, card=SensorProfile(0.02, 0.02, 0.005, 0.02))
    )
    t_s = made.times_s(made.hz)
    made.lane(
        "gpu0",
        StreamKind.FAST,
        {
            "t_ns": START + np.round(t_s * S).astype(np.int64),
            "energy_j": 5_000 + 100 * t_s,
            "power_w": np.array(list(map(noisy(200), t_s))),
        },
    )
    result = analyse(made.write())
    (warning,) = result.warnings
    assert (warning.code, warning.device) == (WarningCode.DISAGREEMENT, "gpu0")
    assert "1000 J and 2000 J" in warning.message
    assert result.run.devices["gpu0"].energy.error_sampling >= 990


def test_a_sensor_that_is_stuck(made):
    noise = noisy(200)
    made.fast(device("gpu0", measured=("power_w",)), lambda t: 200 if 4 <= t < 8 else noise(t))
    (warning,) = warnings(made)
    assert (warning.code, warning.device) == (WarningCode.STUCK, "gpu0")
    assert warning.message == (
        "its power reading did not move for about 4 s, first 4 s after the start"
    )
    assert "not known" in warning.hint


@pytest.mark.parametrize(("idle_pct", "codes"), [(0, [WarningCode.STUCK]), (90, [])])
def test_a_sensor_that_never_moves_though_the_load_does(made, idle_pct, codes):
    made.fast(device("gpu0", measured=("power_w",)), lambda _: 200)
    made.slow("gpu0", gpu_utilisation_pct=lambda t: 100 if t > 5 else idle_pct)
    stuck_warnings = [warning for warning in warnings(made) if warning.code is WarningCode.STUCK]
    assert [warning.code for warning in stuck_warnings] == codes
    assert all("in the whole run" in warning.message for warning in stuck_warnings)


class TestCounterThatStandsStill:
    def with_counter(self, made, count_j, **changed):
        made.devices.append(device("gpu0", **changed))
        t_s = made.times_s(made.hz)
        watts = np.array(list(map(noisy(200), t_s)))
        t_ns = START + np.round(t_s * S).astype(np.int64)
        made.lane(
            "gpu0", StreamKind.FAST, {"t_ns": t_ns, "energy_j": count_j(t_s), "power_w": watts}
        )
        return [each for each in warnings(made) if each.code is WarningCode.FROZEN]

    def test_the_warning_says_where_it_was(self, made):
        (warning,) = self.with_counter(
            made, lambda t_s: 5_000 + 200 * (np.minimum(t_s, 3) + np.maximum(t_s, 7) - 7)
        )
        assert warning.device == "gpu0"
        assert warning.message == (
            "its energy counter did not move for 4.0 s, from 3 s after the start"
        )

    def test_a_sensor_that_never_moves_is_warned_of(self, made):
        (warning,) = self.with_counter(made, lambda t_s: np.full(len(t_s), 5_000.0))
        assert "for 10.0 s, from 0 s" in warning.message

    def test_a_sensor_that_was_not_read_is_not_stuck(self, made):
        assert not self.with_counter(
            made, lambda t_s: np.where((t_s > 2) & (t_s < 8), np.nan, 5_000 + 200 * t_s)
        )

    def test_idle_is_no_standstill(self, made):
        assert not self.with_counter(made, lambda t_s: 5_000 + np.floor(10 * t_s) * 1.5)

    def test_a_slow_counter_has_ten_of_its_periods(self, made):
        slow = SensorProfile(0.02, 0.01, 0.005, counter_period_s=0.5)
        assert not self.with_counter(made, lambda t_s: np.floor(t_s / 4) * 800, card=slow)


def test_others_on_the_gpu_are_named(made):
    made.fast(device("gpu0"), noisy(200))
    others = [(70 + i, f"other{i}", False) for i in range(5)]
    made.processes("gpu0", (3, [OURS, *others]))
    (warning,) = warnings(made)
    assert (warning.code, warning.device) == (WarningCode.OTHER_PROCESSES, "gpu0")
    assert warning.message == (
        "other processes used it too: other0 (70), other1 (71), other2 (72) and 2 more"
    )


def busy_machine(made, power_w=20, **changed):
    made.fast(device("cpu0", source=Source.MODELLED), lambda _: power_w)
    made.slow("cpu0", load_pct=lambda _: 50)
    return warnings(made, host={"cpus": "4"}, **changed)


def test_a_cpu_that_works_for_others(made):
    (warning,) = busy_machine(made)  # 4 CPUs, 10 s, half busy; the command took 1.5 s, we 0.2 s
    assert (warning.code, warning.device) == (WarningCode.OTHER_PROCESSES, "cpu0")
    assert warning.message == (
        "other programs did most of the CPU work (18.3 of 20.0 CPU seconds); "
        "the command's share of the energy above idle is about 10.8 J"
    )


def test_a_small_share_has_the_prefix_of_its_size(made):
    (warning,) = busy_machine(made, power_w=0.02)
    assert warning.message.endswith("is about 10.8 mJ")


def test_a_cpu_that_works_for_the_command(made):
    command = CommandRecord(PID, ("make", "-j2"), START, START + 10 * S, 0, 19.5)
    assert busy_machine(made, commands=(command,)) == []


def test_a_command_whose_cpu_time_is_not_known(made):
    command = CommandRecord(PID, ("make", "-j2"), START, START + 10 * S, 0, None)
    assert busy_machine(made, commands=(command,)) == []


def short_spans(path, *names, **changed):
    made = MadeRun(path / "run", hz=10).processes("gpu0", (0.2, [OURS]))
    wave = noisy(lambda t: 100 + 100 * (int(7 * t) % 2))
    made.fast(device("gpu0", measured=("power_w",), **changed), wave)
    for name, time_s in names:
        starts = itertools.islice(itertools.count(1, time_s), 50)
        made.spans(*[(name, i, start, start + time_s) for i, start in enumerate(starts)])
    made.spans(("epoch", 0, 1, 9))
    return warnings(made, WarningCode.SPAN_TOO_SHORT)


def test_spans_that_are_too_short(tmp_path):
    (warning,) = short_spans(tmp_path, ("step", 0.01))
    assert warning.span == "step"
    assert warning.message.startswith("too short for the sensors")
    assert warning.message.endswith("all spans 'step' (10 ms)")
    assert "have an error below 10 %; a higher --rate may help" in warning.hint


def test_spans_of_all_names_that_are_too_short_are_one_warning(tmp_path):
    (warning,) = short_spans(tmp_path, ("step", 0.01), ("load", 0.005))
    assert warning.span is None
    assert warning.message.endswith("all spans 'step' (10 ms), all spans 'load' (5.0 ms)")


def test_the_length_that_would_do_is_above_that_of_every_span_that_is_too_short():
    """By the average of all 30 ms would do; the longest, of 109 ms, has more than 20 %, too."""
    times_s = np.array([0.01] * 50 + [0.109])
    energy_j, sampling_j = 100 * times_s, np.array([0.3] * 50 + [2.5])
    spans = SimpleNamespace(
        names=("step",),
        name=np.zeros(51, int),
        start_ns=np.zeros(51, int),
        end_ns=np.round(times_s * S).astype(int),
    )
    (warning,) = too_short([], spans, energy_j, sampling_j, 10.0)
    assert "all spans 'step'" in warning.message
    assert warning.hint == "in this run, spans of at least 218 ms have an error below 10 %"


def test_a_sensor_polled_at_its_update_rate_is_not_advised_a_higher_one(tmp_path):
    (warning,) = short_spans(tmp_path, ("step", 0.01), card=SensorProfile(0.1, 0.1, 0.005, 0.1))
    assert "--rate" not in warning.hint


def test_a_span_in_a_gap_is_not_short(made):
    made.fast(device("gpu0", measured=("power_w",)), noisy(200), lost=[(2, 5)])
    made.spans(("epoch", 0, 2, 5.5))
    assert [warning.code for warning in warnings(made)] == [WarningCode.GAP]


@pytest.mark.parametrize("until_s", [np.inf, -0.2])
def test_a_run_of_ten_milliseconds(tmp_path, until_s):
    made = MadeRun(tmp_path / "run", hz=10, seconds=0.01).processes("gpu0", (0, [OURS]))
    level = noisy(lambda t: 300 if t > 0 else 40)
    made.fast(device("gpu0", measured=("power_w",)), level, until_s=until_s)
    (warning,) = warnings(made, WarningCode.SPAN_TOO_SHORT)
    assert (warning.span, warning.message.rpartition(":")[2]) == ("run", " the run (10 ms)")


@pytest.mark.parametrize(("step_s", "way"), [(3600, "forward"), (-3600, "back")])
def test_a_wall_clock_that_was_set(made, step_s, way):
    wall_end_ns = (1_800_000_000 + 11 + step_s) * S
    (warning,) = warnings(made, wall_end_ns=wall_end_ns)
    assert warning.code is WarningCode.CLOCK_SET
    assert f"went {way} by 3600" in warning.message or f"went {way} by 3599.5" in warning.message


def test_a_machine_that_slept_has_no_clock_that_was_set(made):
    made.notes += [{"code": "suspended", "message": "the machine was suspended for 60.0 s"}]
    (warning,) = warnings(made, wall_end_ns=1_800_000_072 * S)
    assert warning.code is WarningCode.SUSPENDED
    assert warning.hint


def test_a_note_of_the_recorder_is_one_warning(made):
    made.notes += [
        {"code": "wall_clock_set", "message": "the wall clock was set by +60 s"},
        {"code": "budget", "message": "the budget of 1kJ is used up", "hint": "more"},
        {"code": "device_back", "message": "it is read again", "device": "gpu0"},
    ]
    found = warnings(made, wall_end_ns=1_800_000_072 * S)
    assert [(w.code, w.message) for w in found] == [
        (WarningCode.CLOCK_SET, "the wall clock was set by +60 s"),
        (WarningCode.BUDGET, "the budget of 1kJ is used up"),
    ]
    assert all(warning.hint for warning in found)


USED_UP = "the budget of X was used up after 9 s"
SHOWN = "all readings together show 2000 J; it stopped it"


@pytest.mark.parametrize(
    ("limit_j", "said"),
    [
        (1900.0, f"{USED_UP}; the whole run took 2000 J, 100 J too much; it stopped it"),
        (2100.0, f"{USED_UP}, as was estimated at that moment; {SHOWN}"),
    ],
)
def test_a_budget_warning_has_what_the_whole_run_took(limit_j, said):
    note = {
        "code": "budget",
        "kind": "energy",
        "limit": repr(limit_j),
        "unit": "J",
        "factor": "1.0",
        "was": USED_UP,
        "then": "; it stopped it",
    }
    manifest = SimpleNamespace(notes=(note,))
    (warning,) = from_notes(manifest, 2000.0, 10.0)
    assert warning.message == said


def test_a_recorder_that_was_late(made):
    lanes = {
        "gpu0": {"rows": 990, "missed": 10},
        "gpu0.slow": {"rows": 10, "missed": 10},
        "cpu0": {"rows": 5, "missed": 1},
    }
    (warning,) = warnings(made, recorder=RecorderRecord(1, 1, 0.1, lanes))
    assert (warning.code, warning.device) == (WarningCode.LATE, "gpu0")
    assert "1.0 % of its deadlines" in warning.message


def test_a_recorder_that_was_killed(made):
    made.fast(device("gpu0"), noisy(200), until_s=6)
    made.notes.append({"code": "recorder_ended", "message": "it was killed", "hint": "see dmesg"})
    result = analyse(made.write(state="stopped"))
    assert result.run.total.at_least
    assert result.run.total.value == pytest.approx(6 * 200, rel=0.02)
    by_code = {warning.code: warning for warning in result.warnings}
    assert by_code.keys() == {WarningCode.RECORDER_ENDED}, "one cause, one warning"
    ended = by_code[WarningCode.RECORDER_ENDED]
    assert "the trace ends 6.0 s in, and energies are lower bounds" in ended.message
    assert ended.hint == "see dmesg"
    assert result.time_s == 10


def test_a_recorder_that_was_killed_at_once(made):
    made.fast(device("gpu0"), noisy(200), until_s=-0.01)
    result = analyse(made.write(state="killed"))
    (ended,) = (w for w in result.warnings if w.code is WarningCode.RECORDER_ENDED)
    assert "nothing was recorded while the command ran" in ended.message
    assert " s in" not in ended.message


def test_a_requested_baseline_that_is_missing_is_warned_of(made):
    made.fast(device("gpu0"), noisy(200))
    made.slow("gpu0", gpu_utilisation_pct=lambda _: 99)
    (warning,) = warnings(made, options={"baseline_s": 5.0})
    assert (warning.code, warning.device) == (WarningCode.NO_BASELINE, "gpu0")
    assert "never idle" in warning.message


def test_an_assumption_has_neither_a_driver_nor_a_counter(made):
    """It said of RAM that its driver told no samples, and that its energy counter ran on."""
    made.fast(device("gpu0"), noisy(200))
    made.fast(device("dram0", source=Source.ASSUMED), lambda _: 6, lost=[(4, 7)])
    (warning,) = warnings(made)
    assert (warning.code, warning.device) == (WarningCode.GAP, "dram0")
    assert warning.message.startswith("it was not read for 3.0 s")
    assert "counter" not in warning.hint
