"""What is shown of a tuning: what won, what it saves, what exploring took, what was tried."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from joulewise.data.sweeps import Setting
from joulewise.data.tuning import (
    Exploration,
    SavedShare,
    Saving,
    SettingSteps,
    StepEstimate,
    Tuning,
    TuningEnd,
    TuningRestart,
    TuningState,
)
from joulewise.metrics.metric import parse
from joulewise.optimise.live.policy.objective import TuningObjective
from joulewise.report.terminal.tuning import draw
from joulewise.report.views.tuning import best_setting, saving_text, tuner_state, tuning_view
from tests.helpers import written_tunings as written

BEFORE, CHOSEN = (
    Setting.of({"power_limit_w": limit, "sm_clock_mhz": clock})
    for limit, clock in ((300.0, None), (195.0, 1222.0))
)
SAVING = Saving(SavedShare(0.212, 0.014), SavedShare(-0.102, 0.012), "proof", 12)


def steps_at(setting, time_s, energy_j):
    time = StepEstimate(time_s, time_s * 0.99, time_s * 1.01)
    return SettingSteps(setting, 20, time, StepEstimate(energy_j))


def tuning(**changes):
    known = {
        "metric": "eds:2.0",
        "axes": ("power_limit_w", "sm_clock_mhz"),
        "state": TuningState.ENDED,
        "settled": True,
        "reason": "it is the best with high probability",
        "reference": BEFORE,
        "chosen": CHOSEN,
        "devices": ("gpu0",),
        "tried": (steps_at(BEFORE, 0.108, 23.4), steps_at(CHOSEN, 0.119, 18.4)),
        "saving": SAVING,
        "exploration": Exploration(164, 19.6, 3140.0, 0.078, 115.0),
        "changes": (TuningRestart(61.0, "the time of a step has changed"),),
    }
    return Tuning(**{**known, **changes})


def test_what_won_and_what_it_saves():
    shown = tuning_view(tuning())
    saved = "saves 21.2 ± 1.4 % of the energy, for 10.2 ± 1.2 % more time"
    assert shown.finding == f"195 W, SM 1222 MHz {saved}"
    facts = "\n".join(shown.facts)
    wanted = (
        "known by blocks of steps at both settings in turn (--prove), 12 comparisons; the table"
    )
    assert wanted in facts
    assert "exploring took 164 steps, 19.6 s and 3.14 kJ: 115 J more" in facts
    assert "explored again after 1 min 01 s: the time of a step has changed" in facts
    assert [row[0] for row in shown.tried.rows] == [
        "195 W, SM 1222 MHz (chosen)",
        "300 W, SM unlocked (before)",
    ]


@pytest.mark.parametrize("bound", [None, 1.05])
def test_how_sure_the_choice_is_is_shown_with_the_tolerance_of_the_policy(bound):
    facts = tuning_view(tuning(probability=0.984, max_slowdown=bound)).facts
    tolerance = TuningObjective(parse("eds:2.0"), 0, bound).tolerance
    assert any(f"by more than {100 * tolerance:g} %: 98.4 %" in fact for fact in facts)
    assert not any("probability that" in fact for fact in tuning_view(tuning()).facts)


def test_no_choice_is_shown_as_certain():
    facts = tuning_view(tuning(probability=1.0)).facts
    assert any(fact.endswith(": 99.9 %") for fact in facts)


def test_a_choice_that_was_never_measured_is_named_below_the_table():
    unmeasured = tuning(tried=(steps_at(BEFORE, 0.108, 23.4),), changes=())
    assert f"{CHOSEN} (chosen) by the fitted curves" in tuning_view(unmeasured).tried.note
    assert not tuning_view(tuning(changes=())).tried.note


def test_a_loss_is_called_one():
    loss = Saving(SavedShare(-0.02, 0.01), SavedShare(0.05, 0.01), "trials", 0)
    wanted = "takes 2.0 ± 1.0 % more of the energy, in 5.0 ± 1.0 % less time"
    assert saving_text(loss) == wanted


def test_a_saving_by_the_fitted_curves_is_called_so_wherever_it_is_shown():
    fitted = tuning(saving=replace(SAVING, method="fit", pairs=0), state=TuningState.HOLDING)
    shown = tuning_view(fitted)
    by_fit = "10.2 ± 1.2 % more time (by the fitted curves)"
    assert by_fit in shown.finding
    assert by_fit in tuner_state(fitted)
    assert any("known by the curves fitted to all measured steps" in fact for fact in shown.facts)
    assert any("fitted" in cell for row in shown.account.rows for cell in row)


@pytest.mark.parametrize(
    ("is_restored", "said"), [(True, "are back"), (False, "may not be back"), (None, "guardian")]
)
def test_a_tuning_that_ended_before_its_command_says_when_and_why(is_restored, said):
    ended = tuning(early_end=TuningEnd(61.0, "rank 1 has marked nothing for 5 s", is_restored))
    facts = tuning_view(ended).facts
    (line,) = (fact for fact in facts if fact.startswith("tuning ended after 1 min 01 s: rank 1"))
    assert said in line
    assert line in tuner_state(ended)
    # Why the choice was made is another matter.
    assert any(fact.startswith("chosen because it is the best") for fact in facts)


def test_nothing_was_chosen():
    nothing = tuning(chosen=None, settled=False, saving=None, reason="the program marked no steps")
    assert tuning_view(nothing).finding == "Nothing was chosen: the program marked no steps"


def test_the_setting_before_may_be_the_best():
    shown = tuning_view(tuning(chosen=BEFORE, saving=None))
    assert shown.finding.startswith("300 W, SM unlocked, the setting before, was kept: ")


def test_of_many_settings_the_chosen_the_one_before_and_the_cheapest_are_listed():
    others = tuple(
        steps_at(Setting.of({"power_limit_w": 100.0 + i}), 0.1, 10.0 + i) for i in range(20)
    )
    shown = tuning_view(tuning(tried=(*tuning().tried, *others)))
    assert len(shown.tried.rows) == 8
    assert shown.tried.note.startswith(
        "14 more settings tried, settings tried before it explored again"
    )
    assert not tuning_view(tuning(changes=())).tried.note
    assert len(shown.tried.records) == 22
    names = " ".join(row[0] for row in shown.tried.rows)
    assert "(chosen)" in names
    assert "(before)" in names


@pytest.mark.parametrize("columns", [80, 60])
def test_it_fits_a_terminal(columns):
    out = io.StringIO()
    draw(tuning(), Console(file=out, width=columns, highlight=False))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= columns
    assert any("195 W, SM 1222 MHz (chosen)" in line for line in lines)


def test_the_state_while_it_explores():
    state = tuner_state(written.exploring_tuning())
    assert state == (
        "tuning: exploring, 34 steps, now 250 W, SM 900 MHz; best so far 200 W, SM 1200 MHz"
    )


def test_the_state_while_it_holds_counts_the_steps_of_checks():
    ended = written.ended_tuning()
    held = replace(ended, state=TuningState.CHECKING, phases=ended.phases[:7])
    assert tuner_state(held) == (
        "tuning: checking, 40 steps, now 300 W, SM unlocked (as before); "
        "200 W, SM 1200 MHz saves 24.0 ± 1.0 % of the energy, for 8.0 ± 1.0 % more time"
    )


def test_the_best_so_far_holds_the_bound():
    exploring = written.exploring_tuning()
    assert best_setting(exploring) == written.CHOSEN
    assert best_setting(replace(exploring, max_slowdown=1.05)) == written.BEFORE


@pytest.mark.parametrize("metric", ["cost:0.5", "unknown"])
def test_without_a_score_there_is_no_best_so_far(metric):
    state = tuner_state(replace(written.exploring_tuning(), metric=metric))
    assert "best so far" not in state


def test_a_choice_from_before_the_job_changed_is_not_explained_by_the_search_that_goes_on():
    ended = written.ended_tuning()
    searching = replace(
        ended, phases=ended.phases[:5], reason="it explores again: the time of a step has changed"
    )
    facts = tuning_view(searching).facts
    assert (
        "chosen before the steps changed; compared with 300 W, SM unlocked, the setting before"
        in facts
    )
