import random

import pytest

from joulewise.data.sweeps import CONFIRMING, POWER_LIMIT, Planned, Setting, TrialState
from joulewise.errors import JoulewiseError, UsageError
from joulewise.metrics.boundary import View
from joulewise.metrics.metric import parse
from joulewise.search.confirmation import confirm
from joulewise.search.many_axes import bayesian
from joulewise.search.many_axes.bayesian import ManyAxesSearch
from joulewise.search.objective import Objective
from tests.helpers.search_surfaces import (
    BEST,
    REFERENCE,
    SETTINGS,
    edp,
    made,
    search,
    setting,
    wholes,
)

EDP = parse("edp")


NEVER = 1e-6
"""A tolerance that nothing is sure within: such a search goes on to the end of its budget."""


def several(settings=SETTINGS, reference=REFERENCE, metrics=(EDP,), tolerance=None, **more):
    return ManyAxesSearch(settings, reference, Objective(metrics, tolerance), **more)


@pytest.fixture(scope="module")
def ended():
    strategy = several(tolerance=NEVER)
    return strategy, search(strategy)


def test_search_ends_early_where_noise_is_low():
    strategy = several()
    trials = search(strategy)
    found = strategy.sure["metrics"]["edp"]
    assert edp(Setting.of(found["settings"])) < (1 + found["tolerance"]) * BEST
    assert len(trials) < strategy.sure["budget"]


def test_the_best_of_three_axes_is_found_with_few_runs(ended):
    strategy, trials = ended
    chosen = Setting.of(strategy.sure["metrics"]["edp"]["settings"])
    assert edp(chosen) < 1.02 * BEST
    assert len(trials) <= strategy.sure["budget"] == 46 < len(SETTINGS)
    assert strategy.left == 0


def test_each_command_variant_gets_one_whole_run(ended):
    _, trials = ended
    explored = wholes(trials)
    assert len({it.setting["batch_size"] for it in explored}) == len(explored)
    assert {it.look_s for it in trials} == {None, 10.0}
    assert all(it.setting[POWER_LIMIT] == 300.0 for it in explored)


def test_every_block_probes_the_reference_once(ended):
    _, trials = ended
    blocks = [it.block for it in trials if it.look_s and it.setting == REFERENCE]
    assert len(set(blocks)) == len(blocks) >= 4


def test_saving_is_from_confirming_whole_runs_only(ended):
    strategy, trials = ended
    found = strategy.sure["metrics"]["edp"]
    fresh = [it for it in trials if it.block >= CONFIRMING]
    assert all(it.look_s is None for it in fresh)
    assert {it.setting for it in fresh} == {REFERENCE, Setting.of(found["settings"])}
    joules = {
        setting: [it.energy["gpu"].value for it in fresh if it.setting == setting]
        for setting in {it.setting for it in fresh}
    }
    ratios = [
        a / b for a, b in zip(joules[Setting.of(found["settings"])], joules[REFERENCE], strict=True)
    ]
    assert found["saving"]["mean"] == pytest.approx(1 - sum(ratios) / 3, abs=1e-4)
    assert found["saving"]["pairs"] == 3


def test_resumed_search_continues_identically(ended):
    _, trials = ended
    for until in (1, 7, 20, 30, 43):
        resumed, result = several(tolerance=NEVER), trials[:until]
        random.Random(until).shuffle(result)
        for trial in result:
            resumed.tell(trial)
        assert resumed.ask(()) == trials[until].planned


def test_resumed_tpe_search_continues_identically():
    """What it draws follows from the seed and the number of runs."""
    trials = search(several(tolerance=NEVER, sampler="tpe", budget=26))
    for until in (11, 14, 17):
        resumed = several(tolerance=NEVER, sampler="tpe", budget=26)
        for trial in reversed(trials[:until]):
            resumed.tell(trial)
        assert resumed.ask(()) == trials[until].planned


def test_command_without_steps_takes_whole_runs():
    strategy = several(budget=24)
    trials = search(strategy, lambda planned: made(planned, marks=False))
    assert {it.look_s for it in trials} == {None}
    assert strategy.sure["remarks"] == [
        "every setting takes a whole run: the command marks no steps"
    ]
    blocks = {it.block for it in trials if it.block < CONFIRMING}
    assert {it.block for it in wholes(trials) if it.setting == REFERENCE} >= blocks - {max(blocks)}


def test_short_run_is_not_probed():
    strategy = several(budget=24)
    strategy.tell(made(Planned(REFERENCE, 0), time_s=12.0))
    assert strategy.ask(()).look_s is None
    assert "as long as a run" in strategy.sure["remarks"][0]


def test_only_allowed_settings_are_run():
    allowed = [it for it in SETTINGS if it[POWER_LIMIT] / 250 + int(it["batch_size"]) / 128 < 1.7]
    trials = search(several(allowed, budget=30))
    assert {it.setting for it in trials} <= {*allowed, REFERENCE}


def test_stopped_run_excludes_its_variant():
    """Its work is given up, and its figures are in no pair."""

    def make(planned):
        trial = made(planned)
        if planned.setting["batch_size"] == "128" and planned.look_s is None:
            return made(planned, time_s=1.0, state=TrialState.STOPPED)
        return trial

    strategy = several(budget=30)
    trials = search(strategy, make)
    assert any(it.state is TrialState.STOPPED for it in trials)
    after = [it for it in trials if it.setting["batch_size"] == "128"]
    assert len(after) == 1
    assert strategy.sure["metrics"]["edp"]["settings"]["batch_size"] != "128"


def test_failed_variant_is_not_run_again():
    strategy = several(budget=28)

    def make(planned):
        is_bad = planned.setting["batch_size"] == "128"
        return made(planned, state=TrialState.FAILED if is_bad else TrialState.DONE)

    failed = [it for it in search(strategy, make) if it.state is TrialState.FAILED]
    assert len(failed) == 1
    assert strategy.sure["metrics"]["edp"]["settings"]["batch_size"] != "128"


def test_only_fresh_pairs_confirm_a_choice():
    chosen = setting(200.0, 1000.0)
    planned = [Planned(it, block) for it in (chosen, REFERENCE) for block in (0, CONFIRMING)]
    result = {(it.setting, it.block, None): made(it) for it in planned}
    assert confirm(chosen, REFERENCE, result, View())["saving"]["pairs"] == 1


def test_failed_reference_ends_the_search():
    strategy = several()
    trials = search(strategy, lambda planned: made(planned, state=TrialState.FAILED))
    assert [it.setting for it in trials] == [REFERENCE]
    assert strategy.sure["metrics"] == {}


def test_each_metric_gets_its_own_choice():
    strategy = several(metrics=(parse("energy"), parse("time")), budget=34)
    search(strategy)
    found = strategy.sure["metrics"]
    assert found["energy"]["settings"]["sm_clock_mhz"] < 1100
    fast = found["time"]["settings"]["sm_clock_mhz"]
    assert fast is None or fast >= 1400


def test_choice_respects_the_slowdown_metric():
    strategy = several(metrics=(parse("slowdown:1.0"),), budget=32)
    search(strategy)
    chosen = Setting.of(strategy.sure["metrics"]["slowdown:1.0"]["settings"])
    assert made(Planned(chosen, 0), noise=0).time_s < 1.01 * made(Planned(REFERENCE, 0), 0).time_s


def test_slots_run_different_settings_at_once():
    strategy = several(slots=3)
    busy = []
    for _ in range(3):
        busy.append(strategy.ask(busy))
    assert [it.lane for it in busy] == [0, 1, 2]
    assert busy[0].setting == REFERENCE
    assert len({it.setting["batch_size"] for it in busy}) == 3
    assert strategy.ask(busy) is None
    for planned in busy:
        strategy.tell(made(planned))
    busy = []
    for _ in range(3):
        busy.append(strategy.ask(busy))
    assert len({(it.setting, it.block) for it in busy}) == 3
    assert {it.look_s for it in busy} == {10.0}


def test_slots_warm_up_first():
    strategy = several(warm_up=1)
    first = strategy.ask(())
    assert (first.setting, first.block) == (REFERENCE, -1)
    strategy.tell(made(first))
    assert strategy.ask(()).block == 0


def test_missing_optuna_is_an_error_with_a_hint(monkeypatch):
    monkeypatch.setattr(bayesian, "find_spec", lambda _: None)
    with pytest.raises(JoulewiseError) as result:
        several()
    assert result.value.hint == "pip install 'joulewise[search]'"


def test_tpe_is_used_without_torch(monkeypatch):
    monkeypatch.setattr(bayesian, "find_spec", lambda name: None if name == "torch" else name)
    strategy = several(budget=30)
    search(strategy)
    assert strategy.sure["sampler"] == "tpe"
    assert "torch is not installed" in strategy.sure["remarks"][0]
    assert edp(Setting.of(strategy.sure["metrics"]["edp"]["settings"])) < 1.1 * BEST


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"metrics": ()}, "needs a metric"),
        ({"metrics": (parse("cost:0.5"),)}, "highest power limit"),
        ({"tolerance": 1.5}, "tolerance"),
        ({"budget": 10}, "too few"),
        ({"settings": [REFERENCE]}, "nothing to search"),
    ],
)
def test_invalid_searches_are_refused(more, says):
    with pytest.raises(UsageError, match=says):
        several(**more)


def test_words_are_searched_as_categories():
    settings = [
        Setting.of({POWER_LIMIT: limit_w, "optimiser": word})
        for limit_w in (150.0, 200.0, 250.0, 300.0)
        for word in ("sgd", "adam", "lamb")
    ]

    def make(planned):
        word, limit_w = planned.setting["optimiser"], planned.setting[POWER_LIMIT]
        like = made(Planned(setting(limit_w, None), planned.block, planned.lane, planned.look_s))
        factor = {"sgd": 1.0, "adam": 0.7, "lamb": 1.2}[word] if planned.look_s is None else 1.0
        return made(like.planned, setting=planned.setting, time_s=factor * like.time_s)

    strategy = several(settings, settings[9])
    search(strategy, make)
    assert strategy.sure["metrics"]["edp"]["settings"]["optimiser"] == "adam"
