"""Runs in virtual time: their truth, their spans, and the trace that polling them would give."""

from __future__ import annotations

from dataclasses import replace
from statistics import stdev

import numpy as np
import pytest

from joulewise.data import Quantity
from joulewise.simulate import sensor
from joulewise.simulate.boards import load_board, make_unit
from joulewise.simulate.model import ControlSettings, Load, Phase, Workload
from joulewise.simulate.physics import steady_state
from joulewise.simulate.sensor import ALL_QUANTITIES
from joulewise.simulate.virtual import simulate
from joulewise.units import NS_PER_S

BOARD = load_board("v100")
UNIT = make_unit(BOARD, 3)
STEP = Load(
    (
        Phase("input", 0.02, 0.0, 0.0, 0.0, busy=False),
        Phase("forward", 0.06, 0.8, 180.0, 40.0, memory=0.4),
        Phase("backward", 0.11, 0.85, 230.0, 45.0, memory=0.5),
    )
)
WORKLOAD = Workload(
    name="test",
    board="v100",
    batch_size=32,
    samples=6401,
    epochs=3,
    step=STEP,
    validation=Load(STEP.phases[:2]),
    validation_steps=20,
    warmup_steps=4,
    warmup_factor=2.5,
    epoch_end_s=0.5,
    run_noise=0.003,
)
CAPPED = ControlSettings(200.0)


def train(controls=CAPPED, unit=UNIT, **options):
    return simulate(WORKLOAD, unit, controls, **options)


RUN = train()


@pytest.mark.parametrize("limit_w", [300.0, 200.0, 150.0])
def test_a_run_takes_the_time_and_energy_of_its_parts(limit_w):
    run = train(ControlSettings(limit_w), run_noise=0.0)
    time_s, energy_j = steady_state.steady_run(BOARD, WORKLOAD, limit_w)
    settling = 0.004  # the physics without time has no overshoot and no way up
    assert run.time_s == pytest.approx(float(time_s), rel=settling)
    assert run.energy_j == pytest.approx(float(energy_j), rel=settling)


def test_spans_nest_and_follow_each_other():
    spans = RUN.spans
    counts = {name: len(some.start_ns) for name, some in spans.items()}
    assert counts == {"run": 1, "training": 1, "epoch": 3, "validation": 3, "step": 3 * 201}
    for some in spans.values():
        assert (some.end_ns > some.start_ns).all()
        assert (some.start_ns[1:] >= some.end_ns[:-1]).all()
    epoch, validation = spans["epoch"], spans["validation"]
    assert epoch.start_ns[1:].tolist() == epoch.end_ns[:-1].tolist()
    assert (validation.start_ns > epoch.start_ns).all()
    assert epoch.end_ns - validation.end_ns == pytest.approx(NS_PER_S / 2, rel=0.01)
    assert spans["step"].start_ns[::201].tolist() == epoch.start_ns.tolist()
    assert spans["step"].end_ns[200::201].tolist() == validation.start_ns.tolist()
    assert (spans["run"].start_ns[0], spans["run"].end_ns[0]) == (
        epoch.start_ns[0],
        epoch.end_ns[-1],
    )


def test_the_truth_of_the_parts_is_that_of_the_whole():
    assert RUN.span_energy_j("epoch").sum() == pytest.approx(RUN.energy_j, rel=1e-12)
    busy_j = RUN.span_energy_j("step").sum() + RUN.span_energy_j("validation").sum()
    assert 0 < RUN.energy_j - busy_j < 3 * 0.5 * 90
    assert RUN.sensed_j == UNIT.gain * RUN.energy_j


def test_the_first_steps_wait_for_the_host():
    run = train(ControlSettings(400.0), run_noise=0.0)
    step = run.spans["step"]
    lasting_s = (step.end_ns - step.start_ns) / NS_PER_S
    assert lasting_s[:4] == pytest.approx(2.5 * 0.19)
    assert lasting_s[4:] == pytest.approx(0.19)


def held_j(trace, run):
    """Each reading counts until the next poll."""
    span = run.spans["run"]
    edges = np.clip(trace["t_ns"], span.start_ns[0], span.end_ns[0])
    return float((np.diff(edges) / NS_PER_S * trace["power_w"][:-1]).sum())


@pytest.mark.parametrize("rate_hz", [10, 50, 100, 1000])
def test_the_trace_adds_up_to_what_the_sensor_should_see(rate_hz):
    assert held_j(RUN.trace(rate_hz), RUN) == pytest.approx(RUN.sensed_j, rel=0.01)


def test_the_counter_shows_the_energy_of_the_run():
    trace = RUN.trace(100)
    span = RUN.spans["run"]
    first, last = np.searchsorted(trace["t_ns"], [span.start_ns[0], span.end_ns[0]])
    counted_j = trace["energy_j"][last] - trace["energy_j"][first]
    assert counted_j == pytest.approx(RUN.sensed_j, rel=1e-3)


def test_the_trace_is_polled_at_its_rate_over_all_of_the_run():
    trace = RUN.trace(30)
    assert set(trace) == {"t_ns", "power_w", "energy_j"}
    assert trace["t_ns"][0] == RUN.timeline.start_ns
    assert RUN.timeline.end_ns - trace["t_ns"][-1] < NS_PER_S / 30
    assert np.diff(trace["t_ns"]) == pytest.approx(NS_PER_S / 30, abs=1)


def test_every_column_is_what_the_board_did():
    trace = RUN.trace(20, ALL_QUANTITIES)
    busy = (trace["t_ns"] > 10 * NS_PER_S) & (trace["t_ns"] < 30 * NS_PER_S)
    assert trace["sm_clock_mhz"][busy].max() < BOARD.clocks.sm_max_mhz
    assert trace["sm_clock_mhz"][0] == BOARD.clocks.sm_min_mhz
    assert set(trace["performance_state"].tolist()) == {0, 8}
    assert trace["gpu_utilisation_pct"][busy].mean() == pytest.approx(91, abs=5)
    assert 30 < trace["memory_utilisation_pct"][busy].mean() < 50
    assert set(trace["throttle_reasons"][busy].tolist()) == {4}
    assert (trace["throttle_reasons"][0], trace["memory_clock_mhz"][0]) == (1, 877)
    assert np.ptp(trace["temperature_c"][busy]) <= 1


def test_what_a_board_lacks_has_no_column():
    spec = replace(BOARD.sensor, counter_period_s=0.0, average_window_s=0.0)
    bare = replace(UNIT, board=replace(BOARD, sensor=spec))
    trace = train(unit=bare).trace(10, ALL_QUANTITIES)
    missing = {Quantity.ENERGY, Quantity.POWER_AVERAGE, Quantity.POWER_INSTANT}
    assert set(trace) == {"t_ns"} | {q.value for q in ALL_QUANTITIES if q not in missing}


def drain(every_s):
    """The times of the samples that emptying the driver's buffer so often gets."""
    start_ns, end_ns, step_ns = RUN.timeline.start_ns, RUN.timeline.end_ns, round(every_s * 1e9)
    times_ns, last_ns = [], start_ns - 1
    for now_ns in (*range(start_ns + step_ns, end_ns, step_ns), end_ns):
        buffered_ns = sensor.samples(UNIT, RUN.timeline, now_ns)[0]
        times_ns += buffered_ns[buffered_ns > last_ns].tolist()
        last_ns = int(buffered_ns[-1])
    return times_ns


def test_the_buffer_drained_in_time_misses_no_tick():
    drained = drain(every_s=2.0)
    bounds_ns = [RUN.timeline.start_ns - 1, RUN.timeline.end_ns]
    before, last = sensor.last_power_tick(UNIT, bounds_ns).tolist()
    ticks = np.arange(before + 1, last + 1)
    assert drained == sensor.power_tick_ns(UNIT, ticks).tolist()
    assert len(drain(every_s=4.0)) == pytest.approx(0.6 * len(drained), rel=0.02)


def test_a_warm_run_keeps_its_temperature_and_a_cold_one_warms_up():
    def training(run):
        span = run.spans["run"]
        return run.timeline.between(span.start_ns[0], span.end_ns[0]).pieces["temperature_c"]

    assert np.ptp(training(train())) < 1.0
    cold = training(train(start="cold"))
    assert cold[-1] > cold[0] + 10


def test_runs_differ_by_their_noise():
    runs = [train(seed=seed) for seed in range(30)]
    assert stdev(run.time_s for run in runs) == pytest.approx(0.003 * RUN.time_s, rel=0.5)
    assert train(seed=4).energy_j == runs[4].energy_j
    assert train(seed=4, run_noise=0.0).energy_j == train(seed=5, run_noise=0.0).energy_j


def test_units_share_the_truth_and_differ_in_what_they_show():
    one, two = (simulate(WORKLOAD, make_unit(BOARD, unit), CAPPED, seed=9) for unit in (1, 2))
    assert one.energy_j == two.energy_j
    assert one.sensed_j != two.sensed_j
    assert one.trace(10)["power_w"].tolist() != two.trace(10)["power_w"].tolist()
