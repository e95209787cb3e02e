"""A load from what its runs took: exact where they tell, usual where they do not."""

import pytest

from joulewise.simulate.boards import load_board
from joulewise.simulate.model import ControlSettings, Load
from joulewise.simulate.physics import steady_state
from joulewise.simulate.recorded_workload import (
    RecordedSteps,
    TrainingShape,
    fit_profile,
    fit_workload,
)
from joulewise.simulate.workloads import load_workload, step_phases

V100 = load_board("v100")


def seen(name, limit_w, board=V100):
    load, controls = load_workload(name, board).step, ControlSettings(limit_w)
    warm_c = steady_state.steady_c(board, load, controls)
    clock_mhz = steady_state.equilibrium_clock(board, load, controls, warm_c)
    time_s, energy_j = map(float, steady_state.step_at(board, load, clock_mhz, warm_c))
    busy = 1 - load.phases[0].time_s / time_s
    return RecordedSteps(controls, time_s, energy_j / time_s, float(clock_mhz), busy)


def off(profile, name, limit_w, board=V100):
    """By how much time and energy of a step are off at a limit."""
    mine = steady_state.steady(board, Load(step_phases(profile)), limit_w)
    true = steady_state.steady(board, load_workload(name, board).step, limit_w)
    return max(abs(float(a / b) - 1) for a, b in zip(mine[:2], true[:2], strict=True))


@pytest.mark.parametrize("name", ["alexnet", "vgg19", "resnet50", "mnist-big", "ecg"])
def test_one_run_predicts_itself_and_other_limits_within_five_percent(name):
    profile = fit_profile([seen(name, 300.0)], V100)
    assert off(profile, name, 300.0) < 0.005
    assert off(profile, name, 200.0) < 0.05


@pytest.mark.parametrize("name", ["vgg19", "inception3", "ecg"])
def test_three_limits_predict_others_within_one_percent(name):
    one = fit_profile([seen(name, 300.0)], V100)
    three = fit_profile([seen(name, limit_w) for limit_w in (300.0, 200.0, 150.0)], V100)
    assert off(three, name, 175.0) < 0.01
    assert off(three, name, 175.0) < off(one, name, 175.0) / 2


def test_a_clock_that_was_locked_is_not_mistaken_for_a_cap():
    load, controls = load_workload("resnet50", V100).step, ControlSettings(300.0, (900.0, 900.0))
    warm_c = steady_state.steady_c(V100, load, controls)
    time_s, energy_j = map(float, steady_state.step_at(V100, load, 900.0, warm_c))
    busy = 1 - load.phases[0].time_s / time_s
    profile = fit_profile([RecordedSteps(controls, time_s, energy_j / time_s, 900.0, busy)], V100)
    assert off(profile, "resnet50", 300.0) < 0.05


def test_on_another_board_it_is_transferred_and_says_so():
    shape = TrainingShape(
        "mine", steps=100, epochs=2, validation_s=10.0, epoch_end_s=1.0, first_s=2.0
    )
    run = seen("resnet50", 300.0)
    same = fit_workload(shape, [run], V100, V100)
    other = fit_workload(shape, [run], V100, load_board("a100"))
    assert "assumed" in same.source
    assert other.source.startswith("transferred from v100")
    assert sum(p.time_s for p in other.step.phases) < sum(p.time_s for p in same.step.phases)
    assert (same.samples, same.epochs, same.epoch_end_s) == (100, 2, 1.0)
    validation_s = same.validation_steps * sum(p.time_s for p in same.validation.phases)
    assert validation_s == pytest.approx(10.0, rel=0.02)
    more = same.warmup_steps * (same.warmup_factor - 1) * sum(p.time_s for p in same.step.phases)
    assert more == pytest.approx(2.0, rel=1e-6)
