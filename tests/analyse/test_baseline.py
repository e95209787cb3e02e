"""The idle baseline: three kinds of idle, and net energies with their errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.analyse.baseline import (
    Baseline,
    IdleInterval,
    IdleState,
    baselines,
    choose_baseline,
    find_idle,
    find_quiet,
    split_idle,
)
from joulewise.analyse.run_result import analyse
from joulewise.data import Energy, SensorProfile, Source
from joulewise.store.layout import StreamKind
from tests.helpers import ideal_sensors as sensed
from tests.helpers.run_directories import PID, START, MadeRun, S, device

CARD = SensorProfile(0.1, 0.1, 0.0)  # 0.2 s are left out at either end


def lane(*rows):
    """Rows of ``(utilisation, state, clock)``, one a second."""
    utilisation, state, clock = (np.array(column, float) for column in zip(*rows, strict=True))
    return {
        "t_ns": np.arange(len(rows)) * S,
        "gpu_utilisation_pct": utilisation,
        "performance_state": state,
        "sm_clock_mhz": clock,
    }


ASLEEP, UP, BUSY = (0, 8, 135), (0, 0, 1500), (99, 0, 1500)


def idle_times(slow, held):
    found = find_idle(slow, np.array(held, bool), CARD)
    return [(s.kind, s.start_ns / S, s.end_ns / S) for s in found]


def test_three_kinds_of_idle_are_recognised():
    slow = lane(*[ASLEEP] * 4, *[BUSY] * 2, *[UP] * 3, *[ASLEEP] * 3)
    held = [0] * 4 + [1] * 8
    assert idle_times(slow, held) == [
        (IdleState.ASLEEP, 0.2, 2.8),
        (IdleState.CLOCKS_UP, 6.2, 7.8),
        (IdleState.CONTEXT, 9.2, 10.8),
    ]


def test_without_a_performance_state_the_clock_decides():
    slow = lane(*[ASLEEP] * 3, BUSY, *[UP] * 3)
    del slow["performance_state"]
    assert [kind for kind, *_ in idle_times(slow, [0] * 7)] == [
        IdleState.ASLEEP,
        IdleState.CLOCKS_UP,
    ]
    slow["performance_state"] = np.full(7, np.nan)
    assert [kind for kind, *_ in idle_times(slow, [0] * 7)] == [
        IdleState.ASLEEP,
        IdleState.CLOCKS_UP,
    ]


def test_a_busy_gpu_has_no_idle():
    assert idle_times(lane(*[BUSY] * 10), [1] * 10) == []


def test_what_could_not_be_read_is_not_idle():
    assert idle_times(lane(*[(np.nan, 8, 135)] * 5), [0] * 5) == []


def test_a_moment_is_no_stretch():
    assert idle_times(lane(BUSY, ASLEEP, ASLEEP, BUSY), [1] * 4) == []


def test_the_deepest_idle_is_taken():
    kinds = {kind: Baseline(kind, 40, 1, 5) for kind in (IdleState.CLOCKS_UP, IdleState.CONTEXT)}
    assert choose_baseline(kinds).kind is IdleState.CONTEXT
    assert choose_baseline({}) is None


def test_stretches_of_a_kind_are_averaged_by_their_time():
    stretches = [IdleInterval(0, 2 * S), IdleInterval(5 * S, 11 * S)]
    found = baselines(stretches, np.array([80.0, 300.0]), np.array([0.3, 0.4]))
    (baseline,) = found.values()
    assert baseline.power_w == pytest.approx(380 / 8)
    assert baseline.time_s == 8
    # 40 W and 50 W are further apart than their sampling errors say
    assert baseline.error_w > np.hypot(0.3, 0.4) / 8


def test_a_stretch_that_was_not_measured_is_left_out():
    stretches = [IdleInterval(0, 2 * S), IdleInterval(5 * S, 7 * S, IdleState.CONTEXT)]
    found = baselines(stretches, np.array([80.0, np.nan]), np.array([0.3, np.nan]))
    assert list(found) == [IdleState.ASLEEP]


@given(
    whole=st.builds(
        lambda value, sampling, gain: Energy(value, sampling, gain * value, Source.MEASURED),
        st.floats(1, 1e6),
        st.floats(0, 1e3),
        st.floats(0, 0.1),
    ),
    power_w=st.floats(0, 500),
    error_w=st.floats(0, 5),
    time_s=st.floats(0.1, 1e4),
)
def test_net_is_gross_less_idle_and_keeps_one_gain(whole, power_w, error_w, time_s):
    net = Baseline(IdleState.ASLEEP, power_w, error_w, 5).net(whole, time_s)
    assert net.value == pytest.approx(whole.value - power_w * time_s)
    assert net.error_sampling == pytest.approx(np.hypot(whole.error_sampling, error_w * time_s))
    assert net.error_gain * whole.value == pytest.approx(whole.error_gain * abs(net.value))


def test_a_run_after_an_idle_time_has_gross_and_net(tmp_path):
    made = MadeRun(tmp_path / "run", lead_s=6)
    made.fast(device("gpu0"), lambda t: 40 if t < 0 else 200)
    made.slow(
        "gpu0",
        gpu_utilisation_pct=lambda t: 0 if t < 0.5 else 99,
        performance_state=lambda t: 8 if t < 0.5 else 0,
    )
    made.processes("gpu0", (-6, []), (0.5, [(PID, "python", True)]))
    result = analyse(made.write())
    use = result.run.devices["gpu0"]
    assert use.energy.value == pytest.approx(2000, rel=0.01)
    assert use.net.value == pytest.approx(1600, rel=0.01)
    assert use.net.error_gain / use.net.value == pytest.approx(
        use.energy.error_gain / use.energy.value
    )
    baseline = result.details["baseline"]["gpu0"]
    assert baseline["kind"] == "asleep"
    assert baseline["power_w"] == pytest.approx(40, rel=0.01)


def bursts(path, pause_s, *, seed, samples, work_s=0.2, looks_s=1 / 6):
    """Half a minute of work and pauses, of which the slow lane sees what just precedes a row."""
    low_w, high_w = 57.0, 390.0
    sensor = sensed.Sensor(0.1, 0.025, 0.02, noise_w=0.4)
    period_s = pause_s + work_s
    phase_s = np.random.default_rng(seed).uniform(0, period_s)
    wave = sensed.square(low_w, high_w, period_s, work_s / period_s)
    fast, buffer = sensed.lanes(lambda t: wave(t + phase_s), 32, sensor, seed=seed)
    made = MadeRun(path, lead_s=1, seconds=30, hz=10)
    made.devices.append(device("gpu0", card=sensor.card, maximum_w=400.0))
    shift_ns = START - S - sensed.START
    for lane, columns in ((StreamKind.FAST, fast), (StreamKind.BUFFER, buffer))[
        : 2 if samples else 1
    ]:
        made.lane("gpu0", lane, {**columns, "t_ns": columns["t_ns"] + shift_ns})

    def utilisation(t):
        at_s = t + 1 + phase_s
        return wave(at_s) - wave(at_s - looks_s) - low_w * looks_s

    made.slow("gpu0", gpu_utilisation_pct=utilisation, performance_state=lambda _: 0)
    made.processes("gpu0", (-1, [(PID, "python", True)]))
    truth_j = wave(31 + phase_s) - wave(1 + phase_s)
    return analyse(made.write()), truth_j, truth_j - 30 * low_w


@pytest.mark.parametrize("samples", [True, False], ids=["samples", "polls"])
@pytest.mark.parametrize("seed", range(4))
def test_bursts_that_the_slow_stream_misses_are_not_idle(tmp_path, seed, samples):
    result, gross_j, net_j = bursts(tmp_path / "run", 1.6, seed=seed, samples=samples)
    use = result.run.devices["gpu0"]
    assert use.energy.value == pytest.approx(gross_j, abs=use.energy.error)
    assert use.net.value == pytest.approx(net_j, abs=use.net.error)
    assert use.net.error < 0.2 * net_j
    baseline = result.details["baseline"]["gpu0"]
    assert baseline["power_w"] == pytest.approx(57, abs=baseline["error_w"])


@pytest.mark.parametrize("seed", range(4))
def test_pauses_that_are_all_too_short_are_no_idle(tmp_path, seed):
    result, *_ = bursts(tmp_path / "run", 0.25, seed=seed, samples=True, work_s=0.083, looks_s=0)
    baseline = result.details["baseline"]["gpu0"]
    assert (baseline["kind"], result.run.devices["gpu0"].net) == (None, None)
    assert baseline["reason"] == "its power varied while it seemed idle"


def test_idle_is_never_more_than_the_run_drew():
    (baseline,) = baselines(
        [IdleInterval(0, 2 * S)], np.array([120.0]), np.array([0.1]), 50
    ).values()
    assert baseline.power_w == 50
    assert baseline.error_w > 10


def test_a_burst_spoils_no_more_than_its_own_piece():
    pieces = split_idle([IdleInterval(0, 10 * S)])
    assert len(pieces) == 20
    mean_w, peak_w = np.full(20, 40.0), np.full(20, 40.5)
    mean_w[3], peak_w[3] = 60, 200
    peak_w[4] = 200
    sure = find_quiet(pieces, mean_w, peak_w, 300)
    assert np.flatnonzero(~sure).tolist() == [3, 4]
    assert not find_quiet(pieces, mean_w, np.full(20, 200.0), 300).any()


def test_a_gpu_that_was_busy_gives_no_baseline_and_a_reason(tmp_path):
    made = MadeRun(tmp_path / "run", lead_s=6)
    made.fast(device("gpu0"), lambda _: 200)
    made.slow("gpu0", gpu_utilisation_pct=lambda _: 99, performance_state=lambda _: 0)
    made.processes("gpu0", (-6, [(77, "blender", False)]), (0.5, [(PID, "python", True)]))
    result = analyse(made.write())
    assert result.run.devices["gpu0"].net is None
    baseline = result.details["baseline"]["gpu0"]
    assert (baseline["kind"], baseline["reason"]) == (None, "it was never idle for 1 s at a time")
