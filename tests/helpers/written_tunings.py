"""Tunings as a tuner writes them, without one: over two axes, over one, and while it explores."""

from dataclasses import replace

from joulewise.data.sweeps import Setting
from joulewise.data.tuning import (
    Exploration,
    FittedSetting,
    SavedShare,
    Saving,
    SettingSteps,
    StepEstimate,
    StepSource,
    Tuning,
    TuningPhase,
    TuningRestart,
    TuningState,
)

LIMITS, CLOCKS = (150.0, 200.0, 250.0, 300.0), (900.0, 1200.0, 1500.0, None)


def setting(limit_w, clock_mhz):
    return Setting.of({"power_limit_w": limit_w, "sm_clock_mhz": clock_mhz})


BEFORE, CHOSEN, OTHER = setting(300.0, None), setting(200.0, 1200.0), setting(250.0, 900.0)


def time_s(at):
    """Falls with both the limit and the clock."""
    return 0.13 - 0.00005 * at["power_limit_w"] - 0.00001 * (at.get("sm_clock_mhz") or 1530.0)


def energy_j(at):
    return 5.0 + 0.05 * at["power_limit_w"] + 0.002 * (at.get("sm_clock_mhz") or 1530.0)


def estimate(mean, share=0.02):
    return StepEstimate(mean, mean * (1 - share), mean * (1 + share))


def steps_at(at, steps=20):
    return SettingSteps(at, steps, estimate(time_s(at)), estimate(energy_j(at)))


def fitted_at(at):
    return FittedSetting(at, estimate(time_s(at), 0.05), estimate(energy_j(at), 0.05))


def phase(state, at, start_s, end_s, steps=20):
    return TuningPhase(TuningState(state), at, start_s, end_s, steps)


def ended_tuning():
    return Tuning(
        metric="eds:2.0",
        axes=("power_limit_w", "sm_clock_mhz"),
        state=TuningState.ENDED,
        settled=True,
        reason="it is the best with high probability",
        reference=BEFORE,
        chosen=CHOSEN,
        devices=("gpu0",),
        step_source=StepSource.MARKS,
        probability=0.97,
        tried=(steps_at(BEFORE), steps_at(CHOSEN, 120), steps_at(OTHER)),
        saving=Saving(SavedShare(0.24, 0.01), SavedShare(-0.08, 0.01), "proof", 12),
        exploration=Exploration(54, 10.5, 1500.0, 0.8, 115.0),
        changes=(TuningRestart(6.0, "the time of a step has changed"),),
        phases=(
            phase("warming up", None, 0.0, 1.0, 5),
            phase("exploring", BEFORE, 1.0, 2.0),
            phase("exploring", OTHER, 2.0, 3.0, 14),
            phase("holding", CHOSEN, 3.0, 6.0, 40),
            phase("exploring", CHOSEN, 6.0, 7.0),
            phase("holding", CHOSEN, 7.0, 9.0, 30),
            phase("checking", BEFORE, 9.0, 10.0, 10),
            phase("ended", None, 10.0, 10.0, 0),
        ),
        fitted=tuple(fitted_at(setting(limit, clock)) for limit in LIMITS for clock in CLOCKS),
    )


def tuning_over_limits():
    """The same over power limits alone."""

    def limit_of(at):
        return Setting.of({"power_limit_w": at["power_limit_w"]})

    whole = ended_tuning()
    return replace(
        whole,
        axes=("power_limit_w",),
        reference=limit_of(BEFORE),
        chosen=limit_of(CHOSEN),
        tried=tuple(steps_at(limit_of(one.settings)) for one in whole.tried),
        fitted=tuple(fitted_at(Setting.of({"power_limit_w": limit})) for limit in LIMITS),
        phases=tuple(
            replace(one, settings=one.settings and limit_of(one.settings)) for one in whole.phases
        ),
    )


def exploring_tuning():
    whole = ended_tuning()
    return replace(
        whole,
        state=TuningState.EXPLORING,
        settled=False,
        reason="it is looking for the best setting",
        chosen=None,
        saving=None,
        changes=(),
        phases=whole.phases[:3],
    )
