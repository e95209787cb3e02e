"""The controller tunes a job in virtual time, whatever the job does."""

import math
from collections import Counter
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from joulewise.data.codec import encode
from joulewise.data.tuning import TuningState, tune_json
from joulewise.metrics.metric import parse
from joulewise.metrics.result import Interval
from joulewise.optimise.live import tuning_record
from joulewise.optimise.live.controller import Controller
from joulewise.optimise.live.policy.choice import SettledReason, TuningChoice
from joulewise.optimise.live.policy.tuning_policy import TuningPolicy
from joulewise.optimise.live.savings import estimate_saving
from joulewise.optimise.live.tuning_options import TuningOptions
from joulewise.optimise.live.tuning_record import TuningRecord
from joulewise.store.tuning_file import load_tuning, write_tuning
from tests.helpers.virtual_job import LIMITS_W, REFERENCE, S, Step, candidates, make_job

SLOW = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def is_settled(job):
    return job.controller.chosen is not None


def edp_excess(job):
    """By how much the choice's true energy-delay product is above the least one, as a share."""
    products = [math.prod(job.true(index)) for index in range(len(LIMITS_W))]
    return products[job.controller.chosen] / min(products) - 1


def held_at_end(job):
    return job.history[-1][1]


@dataclass
class ScriptedPolicy:
    """Stands in for the policy: asks for candidates in turn, and settles on the last one."""

    plan: tuple[int, ...]
    look: int = 6
    place: int = 0

    def __post_init__(self):
        self.candidates, self.reference = tuple(candidates()), REFERENCE
        self.metric = parse("edp")
        self.told, self.changes, self.excluded = [], (), set()
        self.steps_in_values = []
        self.tried = self.fitted = ()
        self.choice = None
        self.settled = False

    def ask(self):
        return self.plan[min(self.place, len(self.plan) - 1)], self.look

    def tell(self, index, times_s, energies_j, *, discard=None, steps_in_value=1.0):
        assert discard == 0
        self.steps_in_values.append(steps_in_value)
        self.place += index == self.ask()[0]
        self.told.append((index, list(times_s), list(energies_j)))

    def confirm(self):
        pass

    def settle(self):
        samples = {index: np.mean(energies_j) for index, _, energies_j in self.told}
        best, one = min(samples, key=samples.get), Interval(1.0, 1.0, 1.0)
        reason = SettledReason.EXPLORATION_LIMIT
        self.choice = TuningChoice(best, self.candidates[best], 0.5, 0.01, reason, one, one)
        self.settled = True

    def knowledge(self):
        return ()

    def exclude(self, index):
        self.excluded.add(index)
        self.plan = tuple(each for each in self.plan if each != index) or (REFERENCE,)

    def restart(self, reason):
        self.changes = (*self.changes, reason)


# It finds the best, and holds it


@pytest.mark.parametrize("step_s", [0.05, 0.25, 1.0])
def test_it_settles_near_the_best_and_holds_it(step_s):
    job = make_job("edp", step_s=step_s).run(2000, until=is_settled)
    assert edp_excess(job) < 0.01
    tuning = job.controller.tuning()
    assert tuning.time_to_settle_s <= 63 or tuning.steps_to_settle <= 95
    job.run(300)
    assert held_at_end(job) == job.controller.chosen
    assert job.controller.state is TuningState.HOLDING


def test_blocks_that_are_told_have_the_true_means():
    policy = ScriptedPolicy((REFERENCE, 5, 3))
    job = make_job(policy=policy, noise=0.0).run(80)
    for index, times_s, energies_j in policy.told:
        time_s, energy_j = job.true(index)
        assert times_s == pytest.approx([time_s] * len(times_s), rel=0.005)
        assert energies_j == pytest.approx([energy_j] * len(energies_j), rel=0.005)
    assert {index for index, _, _ in policy.told} == {REFERENCE, 5, 3}


def test_the_policy_is_told_how_many_steps_a_block_has():
    policy = ScriptedPolicy((REFERENCE, 5, 3))
    make_job(policy=policy, step_s=0.25, noise=0.0).run(80)
    assert policy.steps_in_values[0] == pytest.approx(TuningOptions().shortest_block_s / 0.25)


def test_late_energies_cost_no_steps():
    """While they are awaited, the job goes on at the setting, and these steps are told as well."""
    policies = [ScriptedPolicy((REFERENCE, 5, 3)), ScriptedPolicy((REFERENCE, 5, 3))]
    for policy, late_s in zip(policies, (0.0, 2.0), strict=True):
        make_job(policy=policy, late_s=late_s).run(200)
    at_first, late = (
        sum(len(t) for index, t, _ in policy.told if index == 5) for policy in policies
    )
    assert late > at_first


@pytest.mark.parametrize(("epoch_steps", "validation_s"), [(5, 1.0), (2, 0.5), (40, 5.0)])
def test_epochs_shorter_than_a_trial(epoch_steps, validation_s):
    job = make_job("edp", epoch_steps=epoch_steps, validation_s=validation_s)
    job.run(2000, until=is_settled)
    assert edp_excess(job) < 0.01


def test_gradient_accumulation():
    job = make_job("edp", factor=lambda k: 0.7 if k % 4 else 1.9).run(2000, until=is_settled)
    assert edp_excess(job) < 0.015


def test_warm_up_steps_are_not_told():
    policy = ScriptedPolicy((REFERENCE, 5))
    job = make_job(policy=policy, noise=0.0, factor=lambda k: 4.0 - 0.4 * k if k < 7 else 1.0)
    job.run(60)
    time_s, _ = job.true(REFERENCE)
    assert policy.told[0][1][0] == pytest.approx(time_s, rel=0.01)


def test_nothing_is_wanted_while_it_warms_up():
    job = make_job().run(3)
    assert {index for _, index, _ in job.decisions} == {None}


# It watches


def test_a_change_of_the_job_begins_another_exploration():
    job = make_job("edp", factor=lambda k: 1.0 if k < 500 else 1.6).run(1500)
    tuning = job.controller.tuning()
    assert tuning.changes
    assert tuning.settled
    assert edp_excess(job) < 0.01


def test_a_steady_job_is_explored_once():
    job = make_job("edp", noise=0.01).run(4000)
    assert job.controller.tuning().changes == ()


def test_heat_is_no_change():
    job = make_job("edp", leak=0.025, noise=0.002).run(3000)
    assert job.controller.tuning().changes == ()


# Limits


def broken_runs(job, bound):
    """How many steps in a row the job was at a setting that truly breaks the bound."""
    base_s, _ = job.true(REFERENCE)
    breaks = [job.true(index)[0] > bound * base_s for _, index in job.history]
    return [len(list(group)) for is_broken, group in groupby(breaks) if is_broken]


def test_a_setting_that_breaks_the_bound_is_left_after_one_trial():
    policy = ScriptedPolicy((REFERENCE, 0, 0, 0, 0, 0, 0), look=8)
    job = make_job(policy=policy, options=TuningOptions(max_slowdown=1.05), late_s=2.0).run(150)
    # Two blocks of a second at 0.3 s a step, the transient, and a step in which it is noticed.
    assert 0 < max(broken_runs(job, 1.05)) <= 14
    assert policy.excluded == {0}
    assert held_at_end(job) == REFERENCE


@pytest.mark.parametrize("noise", [0.003, 0.02])
@pytest.mark.parametrize("bound", [1.05, 1.1])
def test_the_bound_holds_after_exploring(noise, bound):
    job = make_job("energy", options=TuningOptions(max_slowdown=bound), noise=noise).run(1500)
    base_s, _ = job.true(REFERENCE)
    held = [index for _, index, state in job.decisions if state == "holding"]
    breaks = [job.true(index)[0] > 1.01 * bound * base_s for index in held]
    runs = [len(list(group)) for is_broken, group in groupby(breaks) if is_broken]
    assert max(runs, default=0) <= 40  # a trial of the policy's longest look


def busy_host(seed, mean_s=0.03, rho=0.97, steps=3000):
    """Host time of each step: it wanders over some 30 steps, and single steps stall."""
    rng = np.random.default_rng(seed)
    wander, level = rng.normal(0, (1 - rho**2) ** 0.5, steps), 0.0
    added = []
    for each in wander:
        level = rho * level + each
        added.append(mean_s * np.exp(0.5 * level) * rng.exponential(1.0))
    return added


@pytest.mark.parametrize("seed", range(6))
def test_the_bound_holds_beside_a_busy_host(seed):
    """Broken: one look at the reference and at the choice is enough at the limit of exploration."""
    added = busy_host(seed)
    options = TuningOptions(max_slowdown=1.1)
    job = make_job("energy", options=options, seed=seed, host_s=added.__getitem__).run(1200)
    base_s = job.true(REFERENCE)[0] + 0.034
    held = [job.true(index)[0] + 0.034 for _, index, state in job.decisions if state == "holding"]
    breaks = [time_s > 1.1 * 1.01 * base_s for time_s in held]
    runs = [len(list(group)) for is_broken, group in groupby(breaks) if is_broken]
    assert max(runs, default=0) <= 40
    reasons = [change.reason for change in job.controller.tuning().changes]
    assert "the job changed while it explored" not in reasons
    assert len(reasons) <= 2  # the host wanders by half: the bound is looked at again


def test_exploring_ends_at_the_limit_with_the_best_that_is_known():
    policy = ScriptedPolicy((REFERENCE, 10, 4, 6) * 100)
    job = make_job(policy=policy).run(2000, until=is_settled)
    tuning = job.controller.tuning()
    assert LIMITS_W[job.controller.chosen] == LIMITS_W[4]
    assert 60 <= tuning.time_to_settle_s <= 65
    assert tuning.steps_to_settle >= 90
    assert "no longer" in tuning.reason


def test_with_a_bound_the_end_of_the_exploration_looks_at_the_best_by_the_fitted_curves():
    """Broken: ``confirm`` plans nothing, so that one that was tried before is kept: 2.9 % more."""
    options = TuningOptions(max_slowdown=1.1, max_exploration_s=24.0, max_exploration_steps=10)
    job = make_job("energy", options=options).run(2000, until=is_settled)
    tuning = job.controller.tuning()
    assert tuning.time_to_settle_s <= 27
    assert tuning.chosen in {tried.settings for tried in tuning.tried}
    base_s, _ = job.true(REFERENCE)
    true = [job.true(index) for index in range(len(LIMITS_W))]
    least_j = min(energy_j for time_s, energy_j in true if time_s <= 1.1 * base_s)
    time_s, energy_j = job.true(job.controller.chosen)
    assert time_s <= 1.1 * 1.005 * base_s
    assert energy_j <= 1.01 * least_j


def test_after_the_limit_it_still_explores_again_when_the_job_changes():
    """Broken: the policy has not settled, and takes the steps held for those of a look."""
    options = TuningOptions(max_exploration_s=18.0, max_exploration_steps=10)
    job = make_job("edp", options=options, power_factor=lambda k: 1.0 if k < 300 else 0.7)
    job.run(2000, until=is_settled)
    assert job.steps < 300
    job.run(2000, until=lambda job: job.controller.tuning().changes)
    (change,) = job.controller.tuning().changes
    assert change.reason == "the energy of a step has changed"


def test_of_long_steps_ninety_are_explored():
    policy = ScriptedPolicy((REFERENCE, 10, 4, 6) * 100)
    job = make_job(policy=policy, step_s=3.0).run(2000, until=is_settled)
    assert 90 <= job.controller.tuning().steps_to_settle <= 92


def test_it_stops_exploring_when_little_of_the_job_is_left():
    policy = ScriptedPolicy((REFERENCE, 10, 4, 6) * 100)
    job = make_job(policy=policy, epoch_steps=40, epochs=3).run(2000)
    tuning = job.controller.tuning()
    assert tuning.settled
    assert "left" in tuning.reason
    assert tuning.time_to_settle_s < 40


def test_what_is_left_of_an_epoch_grows_less_while_it_lasts():
    policy = ScriptedPolicy((REFERENCE, 10, 4, 6) * 100)
    job = make_job(policy=policy, epoch_steps=100, epochs=2).run(2000)
    tuning = job.controller.tuning()
    assert "left" in tuning.reason
    half_s = (job.t_ns / S - 5) / 2
    assert 1.2 * half_s < tuning.time_to_settle_s < 2 * half_s


def test_a_refused_setting_is_never_tried_again():
    refused = frozenset(range(5))
    job = make_job("edp", refused=refused).run(1500)
    assert is_settled(job)
    assert not {index for _, index in job.history} & refused
    wanted = [index for _, index, _ in job.decisions if index in refused]
    assert all(count == 1 for count in Counter(wanted).values())
    assert job.controller.tuning().notes


def test_a_refused_reference_ends_the_tuning():
    controller = make_job().controller
    controller.refuse(REFERENCE, 6 * S, "no right")
    assert controller.update(7 * S).index is None
    assert controller.state is TuningState.ENDED
    assert "no right" in controller.reason


def test_readings_that_stop_end_the_tuning():
    job = make_job("edp", can_read=lambda t_s: t_s < 20).run(2000)
    assert job.controller.state is TuningState.ENDED
    assert "could not be read" in job.controller.reason


def test_a_gap_in_the_readings_is_survived():
    job = make_job("edp", can_read=lambda t_s: not 12 < t_s < 15).run(2000, until=is_settled)
    assert edp_excess(job) < 0.01


@pytest.mark.parametrize("validation_s", [6.0, 12.0, 25.0])
def test_short_epochs_with_a_long_validation_are_measured(validation_s, monkeypatch):
    """A block is complete when the next epoch begins, long after its steps.

    Their energy is looked up half a second after that.
    """
    job = make_job("edp", epoch_steps=3, validation_s=validation_s)
    add_steps = job.controller.add_steps

    def add_and_update(steps):
        add_steps(steps)
        job.controller.update(steps[-1].end_ns)

    monkeypatch.setattr(job.controller, "add_steps", add_and_update)
    job.run(2000, until=is_settled).run(9)
    assert job.controller.state is TuningState.HOLDING
    assert edp_excess(job) < 0.01


def test_steps_of_another_kind_are_explored_alone():
    job = make_job("edp").run(2000, until=is_settled).run(40)
    job.controller.begin_anew(job.t_ns, "its steps are known by marks now")
    job.step_s = 0.75  # of the same work: three waves of the power
    job.run(1).run(2000, until=lambda job: job.controller.state is TuningState.HOLDING)
    tuning = job.controller.tuning()
    assert edp_excess(job) < 0.01
    assert [change.reason for change in tuning.changes] == ["its steps are known by marks now"]
    (before,) = (one for one in tuning.tried if one.settings == tuning.reference)
    assert before.step_time_s.mean == pytest.approx(job.true(REFERENCE)[0], rel=0.02)


# Steps that stop


def exploring_elsewhere(job):
    decision = job.decisions[-1]
    return decision[2] == "exploring" and decision[1] != REFERENCE


def test_where_steps_stop_in_a_trial_the_reference_is_wanted_until_they_return():
    job = make_job("edp").run(500, until=exploring_elsewhere)
    controller, index, t_ns = job.controller, job.index, job.t_ns
    wanted = [controller.update(t_ns + second * S).index for second in range(40)]
    assert wanted == [index] * 11 + [REFERENCE] * 29
    controller.set_in_force(REFERENCE, t_ns + 11 * S)
    controller.add_steps([Step(t_ns + 40 * S, t_ns + 41 * S)])
    assert controller.update(t_ns + 41 * S).index == index


def test_long_steps_are_waited_for():
    job = make_job("edp", step_s=3.0).run(500, until=exploring_elsewhere)
    assert job.controller.update(job.t_ns + 25 * S).index == job.index
    assert job.controller.update(job.t_ns + 90 * S).index == REFERENCE


def test_usual_pauses_are_waited_for():
    policy = ScriptedPolicy((REFERENCE, 5), look=200)
    options = TuningOptions(max_exploration_s=1e4)
    job = make_job(policy=policy, options=options, epoch_steps=20, validation_s=15.0).run(310)
    last_ns = job.history[-1][0].end_ns
    assert job.controller.update(last_ns + 29 * S).index == 5
    assert job.controller.update(last_ns + 31 * S).index == REFERENCE


# Proof and checks


def true_saving(job):
    (time_s, energy_j), (base_s, base_j) = job.true(job.controller.chosen), job.true(REFERENCE)
    return 1 - energy_j / base_j, 1 - time_s / base_s


@pytest.mark.parametrize("leak", [0.0, 0.025])
def test_a_proof_states_the_true_saving(leak):
    job = make_job("edp", options=TuningOptions(prove=True), leak=leak).run(3000)
    tuning = job.controller.tuning()
    assert TuningState.PROVING in {phase.state for phase in tuning.phases}
    assert tuning.state is TuningState.HOLDING
    assert tuning.saving.method == "proof"
    energy, time = true_saving(job)
    assert tuning.saving.energy.value == pytest.approx(energy, abs=tuning.saving.energy.error)
    assert tuning.saving.time.value == pytest.approx(time, abs=tuning.saving.time.error + 1e-3)
    assert tuning.saving.energy.error <= 0.012


def test_a_job_that_ends_in_its_proof_says_what_is_known():
    job = make_job("edp", options=TuningOptions(prove=True), leak=0.02)
    job.run(3000, until=is_settled).run(280)
    assert job.controller.state is TuningState.PROVING
    job.controller.end(job.t_ns)
    saving = job.controller.tuning().saving
    assert saving.method == "proof"
    assert saving.energy.value == pytest.approx(true_saving(job)[0], abs=saving.energy.error)


def test_a_proof_under_way_says_what_all_its_blocks_tell():
    """Also where it was asked before, as each second for tuning.json."""
    job = make_job("edp", options=TuningOptions(prove=True), noise=0.003)
    job.run(3000, until=lambda job: len(job.controller._proof.blocks) >= 4)
    job.controller.tuning()
    job.run(3000, until=lambda job: len(job.controller._proof.blocks) >= 11)
    of_all = estimate_saving(job.controller._proof.blocks).as_saving("proof")
    assert job.controller.tuning().saving == of_all
    assert of_all.pairs == 5


def test_checks_take_the_share_that_was_asked_for():
    job = make_job("edp", options=TuningOptions(keep_checking=0.05), noise=0.005).run(6000)
    tuning = job.controller.tuning()
    steps = Counter()
    for phase in tuning.phases:
        steps[phase.state] += phase.steps
    share = steps[TuningState.CHECKING] / (steps[TuningState.CHECKING] + steps[TuningState.HOLDING])
    assert 0.025 <= share <= 0.052
    assert tuning.saving.method == "checks"
    assert tuning.saving.energy.value == pytest.approx(
        true_saving(job)[0], abs=tuning.saving.energy.error + 0.005
    )


def test_checks_keep_their_share_for_hours(monkeypatch):
    """Also when their phases are so many that the oldest are shown as one."""
    monkeypatch.setattr(tuning_record, "_MOST_PHASES", 30)
    job = make_job("edp", options=TuningOptions(keep_checking=0.05)).run(8000)
    at_reference = [index == REFERENCE for _, index in job.history[4000:]]
    assert 0.025 <= np.mean(at_reference) <= 0.055


def test_no_block_of_a_check_counts_twice():
    job = make_job("edp", options=TuningOptions(keep_checking=0.5), noise=0.005).run(2500)
    blocks = list(job.controller._check_blocks)
    assert len(blocks) > 100
    assert all(a.end_s <= b.start_s for a, b in pairwise(blocks))


def test_the_steps_of_a_thousand_checks_are_counted():
    policy = TuningPolicy(candidates(), REFERENCE, "edp")
    record = TuningRecord(policy, TuningOptions(keep_checking=0.02), 0, REFERENCE)
    for second in range(100_000):
        is_check = second % 100 < 2
        state = TuningState.CHECKING if is_check else TuningState.HOLDING
        record.enter(state, REFERENCE if is_check else 3, second * S)
        record.add_step(Step(second * S, second * S + S // 2), 3)
    assert record.steps_in(TuningState.CHECKING) == 2000
    assert record.steps_in(TuningState.HOLDING) == 98_000


def test_without_checks_the_reference_is_left_alone():
    job = make_job("edp").run(1500)
    assert TuningState.CHECKING not in {phase.state for phase in job.controller.tuning().phases}


def test_logged_figures_are_compared_between_settings():
    job = make_job("edp", options=TuningOptions(prove=True))
    for _ in range(800):
        job.run(2)
        job.controller.add_logged("loss", 1.0, job.t_ns)
        job.controller.add_logged("not finite", math.nan, job.t_ns)
    (metric,) = job.controller.tuning().program_metrics
    assert metric.name == "loss"
    assert metric.reference.mean == metric.chosen.mean == 1.0


def test_a_figure_of_a_time_with_several_settings_counts_for_none():
    """As the loss of an epoch in which several settings were tried."""
    job = make_job("edp")
    controller = job.controller
    job.run(2000, until=is_settled)
    controller.add_logged("loss", 1.0, job.t_ns)  # since the start: all that was tried
    assert controller.tuning().program_metrics == ()
    job.run(20)
    controller.add_logged("loss", 2.0, job.t_ns)
    assert set(controller._record._logged["loss"]) == {controller.chosen}


def test_figures_that_are_too_large_to_compute_with_are_noted():
    job = make_job("edp", options=TuningOptions(prove=True)).run(2000, until=is_settled)
    for value in (1e200, -1e300, 1e16):
        job.run(2)
        job.controller.add_logged("loss", value, job.t_ns)
    notes = job.controller.tuning().notes
    assert notes == tuple(
        f"loss reached {value}; such values are not compared" for value in ("1e+200", "-1e+300")
    )


FIGURES = st.floats(allow_nan=True) | st.sampled_from([1e16, -(2.0**53), 1.7e18, 1e100, 1e200, 0.0])


@SLOW
@given(st.lists(FIGURES, max_size=30), st.sampled_from([None, 1.05, 1e300]))
def test_whatever_is_logged_its_file_can_be_read(tmp_path_factory, figures, bound):
    job = make_job("edp", options=TuningOptions(prove=True, max_slowdown=bound))
    job.run(60)
    record = job.controller._record
    job.controller.chosen = 3
    for at, value in enumerate(figures):
        index = REFERENCE if at % 2 else 3
        job.controller.set_in_force(index, job.t_ns)
        job.controller.add_logged("loss", 0.0, job.t_ns)
        job.t_ns += S
        job.controller.add_logged("loss", value, job.t_ns)
        record.add_step(Step(job.t_ns, job.t_ns + 1), index)
    tuning = job.controller.tuning()
    counted = {at % 2 for at, value in enumerate(figures) if abs(value) <= 1e100}
    assert tuning.program_metrics or len(counted) < 2
    run = tmp_path_factory.mktemp("run")
    write_tuning(run, tuning, durable=False)
    assert encode(load_tuning(run)) == encode(tuning)


# The record


def test_the_cost_of_exploring_is_that_of_its_steps():
    job = make_job("edp", noise=0.0)
    job.run(2000, until=is_settled).run(400)
    tuning = job.controller.tuning()
    exploring = [p for p in tuning.phases if p.state is TuningState.EXPLORING]
    assert tuning.exploration.steps == sum(phase.steps for phase in exploring)
    begin_s, end_s = exploring[0].start_s, exploring[-1].end_s
    inside = [
        (step, index) for step, index in job.history if begin_s < (step.end_ns - 5 * S) / S <= end_s
    ]
    joules = sum(job.true(index)[1] for _, index in inside)
    assert tuning.exploration.time_s == pytest.approx(end_s - begin_s, rel=0.03)
    assert tuning.exploration.energy_j == pytest.approx(joules, rel=0.05)


def test_each_exploration_is_compared_within_its_phase_of_the_job():
    """A job whose steps take three times as long later: exploring cost little in both phases."""
    job = make_job("edp", noise=0.0, factor=lambda step: 1.0 if step < 500 else 3.0)
    job.run(500)
    first = job.controller.tuning().exploration
    job.run(700)
    controller, exploration = job.controller, job.controller.tuning().exploration
    assert controller.state is TuningState.HOLDING
    assert len(controller.tuning().changes) == 1
    begun_s = controller.tuning().changes[0].at_s
    phases = [p for p in controller.tuning().phases if p.state is TuningState.EXPLORING]
    later = [phase for phase in phases if phase.start_s >= begun_s]
    held_s = 3.0 * job.true(controller.chosen)[0]
    extra_s = sum(p.end_s - p.start_s - p.steps * held_s for p in later)
    assert exploration.steps == sum(phase.steps for phase in phases)
    assert exploration.extra_time_s == pytest.approx(first.extra_time_s + extra_s, abs=8 * held_s)


@pytest.mark.parametrize("overhead_w", [0.0, 50.0])
def test_the_saving_is_that_of_the_means_in_the_table(overhead_w):
    """One kind of number: what is said of the choice follows from what is shown of the steps."""
    options = TuningOptions(overhead_w=overhead_w)
    policy = TuningPolicy(candidates(), REFERENCE, "energy", overhead_w=overhead_w)
    job = make_job(policy=policy, options=options, noise=0.03).run(400, until=is_settled).run(60)
    tuning = job.controller.tuning()
    tried = {one.settings: one for one in tuning.tried}
    choice, before = tried[tuning.chosen], tried[tuning.reference]
    energy = 1 - choice.step_energy_j.mean / before.step_energy_j.mean
    time = 1 - choice.step_time_s.mean / before.step_time_s.mean
    assert tuning.saving.method == "trials"
    assert tuning.saving.energy.value == pytest.approx(energy, abs=1e-9)
    assert tuning.saving.time.value == pytest.approx(time, abs=1e-9)
    # And of energies within the boundary: the overhead draws as long as a step takes.
    index = job.controller.chosen
    time_s, energy_j = job.true(index)
    assert choice.step_energy_j.mean == pytest.approx(energy_j + overhead_w * time_s, rel=0.03)
    (fitted,) = (one for one in tuning.fitted if one.settings == tuning.chosen)
    assert fitted.step_energy_j.mean == pytest.approx(choice.step_energy_j.mean, rel=0.03)


@pytest.mark.parametrize("is_proof_wanted", [True, False])
def test_a_proof_that_did_not_come_to_its_end_is_told(is_proof_wanted):
    job = make_job("energy", options=TuningOptions(prove=is_proof_wanted))
    job.run(2000, until=is_settled).run(30)
    job.controller.end(job.t_ns)
    notes = job.controller.tuning().notes
    assert any("--prove did not come to its end" in note for note in notes) == is_proof_wanted


def test_an_end_before_the_job_is_told_apart_from_why_the_choice_was_made():
    job = make_job("edp").run(2000, until=is_settled)
    why = job.controller.reason
    job.controller.end(job.t_ns, "rank 1 has marked nothing for 5 s", is_early=True)
    tuning = job.controller.tuning()
    assert tuning.reason == why
    assert tuning.early_end.reason == "rank 1 has marked nothing for 5 s"
    assert tuning.early_end.at_s == pytest.approx(tuning.phases[-1].start_s)


def test_its_json_is_plain():
    job = make_job("edp", options=TuningOptions(prove=True)).run(400)
    payload = tune_json(job.controller.tuning())
    assert payload["axes"] == ["power_limit_w"]
    assert payload["reference"] == {"power_limit_w": 300.0}
    assert payload["exploration"]["steps"] > 0


def test_a_job_that_ends_at_once():
    controller = make_job().controller
    controller.end(5 * S)
    tuning = controller.tuning()
    assert not tuning.settled
    assert tuning.chosen is None
    assert "before a setting was chosen" in tuning.reason


def test_a_controller_without_steps_wants_nothing():
    controller = make_job().controller
    assert [controller.update(second * S).index for second in range(5, 60)] == [None] * 55


JOBS = st.fixed_dictionaries(
    {
        "step_s": st.sampled_from([0.05, 0.3, 2.0]),
        "noise": st.sampled_from([0.0, 0.005, 0.05]),
        "epoch_steps": st.sampled_from([1, 3, 17, 10**9]),
        "validation_s": st.sampled_from([0.0, 2.0]),
        "late_s": st.sampled_from([0.0, 1.5]),
        "leak": st.sampled_from([0.0, 0.03]),
        "seed": st.integers(0, 1000),
        "refused": st.frozensets(st.integers(0, REFERENCE - 1), max_size=4),
    }
)
OPTIONS = st.builds(
    TuningOptions,
    prove=st.booleans(),
    keep_checking=st.sampled_from([0.0, 0.05]),
    proof_block_s=st.just(2.0),
    max_slowdown=st.sampled_from([None, 1.05]),
)


@SLOW
@given(JOBS, OPTIONS, st.integers(0, 250), st.none() | st.integers(50, 200), st.data())
def test_whatever_happens(job_options, options, steps, change_at, data):
    factor = (lambda k: 1.0 if k < change_at else 1.4) if change_at else (lambda _: 1.0)
    gap = data.draw(st.integers(0, 60))
    job = make_job(
        "edp",
        options=options,
        factor=factor,
        can_read=lambda t_s: not gap < t_s < gap + 4,
        **job_options,
    )
    job.run(steps)
    controller: Controller = job.controller
    controller.end(job.t_ns)
    late = Step(job.t_ns, job.t_ns + S)
    controller.add_steps([late])
    controller.refuse(3, job.t_ns, "late")
    for block in controller.pending_blocks():
        controller.add_energy(block, 1.0)
    # Nothing is wanted after the end, whatever still comes.
    assert controller.update(job.t_ns + 5 * S).index is None
    assert controller.state is TuningState.ENDED
    tuning = controller.tuning()
    # Every step is counted in one phase; phases touch, in order.
    assert sum(phase.steps for phase in tuning.phases) == job.steps + 1
    assert all(a.end_s == b.start_s for a, b in zip(tuning.phases, tuning.phases[1:], strict=False))
    exploring = sum(p.steps for p in tuning.phases if p.state is TuningState.EXPLORING)
    assert tuning.exploration.steps == exploring
    # No refused setting was wanted twice.
    wanted = Counter(i for _, i, _ in groupby_changes(job.decisions) if i in job.refused)
    assert all(count == 1 for count in wanted.values())
    tune_json(tuning)


def groupby_changes(decisions):
    return [next(group) for _, group in groupby(decisions, key=lambda decision: decision[1])]
