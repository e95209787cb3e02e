from dataclasses import replace

import numpy as np
import pytest

from joulewise.data.sweeps import CONFIRMING
from joulewise.metrics.evaluate import evaluate
from joulewise.metrics.intervals import ratios
from joulewise.metrics.metric import parse
from joulewise.metrics.winner import pick, settled, stated
from tests.helpers.sweeps import grid, limit, table, trial

CANDIDATES, BLOCKS, NOISE = 31, 5, 0.01
EDP = parse("edp")


def drawn(rng, truth=0.0, noise=NOISE, reference_noise=NOISE, blocks=BLOCKS):
    """A table whose rows but the first are candidates, with log EDP ratios of ``truth``."""
    rows = rng.normal(0, 1, (CANDIDATES + 1, blocks)) * np.full((CANDIDATES + 1, 1), NOISE)
    rows[1:] *= (np.broadcast_to(noise, CANDIDATES) / NOISE)[:, None]
    rows[0] *= reference_noise / NOISE
    rows[1:] += np.broadcast_to(truth, CANDIDATES)[:, None]
    return table(np.ones_like(rows), np.exp(rows))


def played(tries=1200, **how):
    """The share of stated intervals that hold the truth; Student's share; the mean error."""
    rng = np.random.default_rng(3)
    truth = np.broadcast_to(how.get("truth", 0.0), CANDIDATES)
    inside, plainly, errors = 0, 0, []
    for _ in range(tries):
        by = ratios(EDP, drawn(rng, **how), "gpu")
        picked = pick(by, 0)
        if picked.row == 0:  # a reference that won is 1, and is said to be
            inside, plainly = inside + 1, plainly + 1
            continue
        true = np.exp(truth[picked.row - 1])
        said, plain = stated(picked, by, 0), by.interval(picked.row)
        inside += said.low <= true <= said.high
        plainly += plain.low <= true <= plain.high
        errors.append(said.mean / true - 1)
    return inside / tries, plainly / tries, float(np.mean(errors))


def test_over_a_flat_optimum_the_winners_interval_holds_the_truth():
    inside, plainly, error = played(truth=-0.1)
    assert inside >= 0.95
    assert plainly < 0.87  # the winner's curse
    assert abs(error) < 0.001


def test_there_is_no_more_luck_than_lead():
    rng = np.random.default_rng(8)
    for _ in range(100):
        by = ratios(EDP, drawn(rng, noise=0.05, reference_noise=0.05), "gpu")
        assert stated(pick(by, 0), by, 0).mean <= 1 + 1e-12


CURVE = 0.1 * np.linspace(-1, 1, CANDIDATES) ** 2


@pytest.mark.parametrize(
    "how",
    [
        {"truth": 0.0},
        {"truth": CURVE - 0.1},
        {"truth": -0.1, "noise": np.where(np.arange(CANDIDATES) % 3, 0.01, 0.03)},
        {"truth": -0.1, "reference_noise": 0.03},
        {"truth": -0.1, "blocks": 3},
        {"truth": -0.1, "blocks": 10},
    ],
    ids=[
        "no better than the reference",
        "curved",
        "some noisier",
        "a noisy reference",
        "three blocks",
        "ten blocks",
    ],
)
def test_so_it_does_elsewhere(how):
    inside, _, error = played(500, **how)
    assert inside >= 0.93
    assert abs(error) < 0.004


def test_a_lucky_run_is_no_match_for_five():
    rows = np.full((4, 5), np.nan)
    rows[0], rows[1], rows[2], rows[3, 0] = 100.0, 90.0, 91.0, 70.0
    assert pick(ratios(EDP, table(np.ones((4, 5)), rows), "gpu"), 0).row == 1


def test_all_single_runs_can_win():
    picked = pick(ratios(EDP, table(np.ones((3, 1)), [[100.0], [90.0], [80.0]]), "gpu"), 0)
    assert picked.row == 2


def test_what_is_ruled_out_does_not_win():
    by = ratios(parse("slowdown:1.1"), table([[1, 1], [1.2, 1.2]], [[100, 100], [50, 50]]), "gpu")
    assert pick(by, 0).row == 0


def test_without_a_reference_nothing_wins():
    rows = [[np.nan, np.nan], [90.0, 91.0], [80.0, 82.0]]
    assert pick(ratios(EDP, table(np.ones((3, 2)), rows), "gpu"), 0) is None


def test_of_nothing_nothing_wins():
    assert pick(ratios(EDP, table(np.ones((2, 1)), np.full((2, 1), np.nan)), "gpu"), 0) is None


def searched(pairs):
    """Limits tried once, of which a lucky one looked best; the search knew better."""
    made = grid(lambda w: (10.0, 60.0 if w == 150 else w / 3), (150, 200, 250, 300), 300, blocks=1)
    confirmed = [
        trial(limit(w), CONFIRMING + block, 10.0, joules * (1 + block / 100))
        for block in range(pairs)
        for w, joules in ((200, 70.0 + block), (300, 100.0))
    ]
    sure = {"metrics": {"energy": {"settings": {"power_limit_w": 200}}}}
    return replace(made, trials=(*made.trials, *confirmed), sure=sure)


def test_what_a_search_settled_on_is_stated_by_its_confirmation_alone():
    choice = evaluate(searched(3)).best["energy"]
    assert choice.setting == limit(200)
    assert choice.energy.mean == pytest.approx((0.70 * 0.71 * 0.72) ** (1 / 3))
    assert choice.energy.low < 0.70
    assert choice.energy.high > 0.72


def test_a_search_that_confirmed_nothing_has_decided_all_the_same():
    choice = evaluate(searched(0)).best["energy"]
    assert choice.setting == limit(200)
    assert choice.energy.low is None


def test_what_a_search_decided_and_no_run_has_is_not_best():
    made = searched(0)
    made = replace(made, trials=tuple(it for it in made.trials if it.setting != limit(200)))
    assert evaluate(made).best["energy"].setting == limit(150)


def test_what_was_settled_for_one_boundary_is_not_for_another():
    made = replace(searched(3), asked={"boundary": "node"})
    assert evaluate(made).best["energy"].score.mean != pytest.approx((0.7 * 0.71 * 0.72) ** (1 / 3))


def test_two_pairs_that_agree_by_chance_do_not_state_an_error_of_nothing():
    """How far runs scatter is taken from all of them."""
    made = grid(lambda w: (10.0, w / 3), (150, 200, 250, 300), 300, blocks=1)
    confirmed = [
        trial(limit(w), CONFIRMING + block, 10.0, joules * factor)
        for block, factor in enumerate((1.0, 1.03))
        for w, joules in ((200, 70.0), (300, 100.0))
    ]
    sure = {"metrics": {"energy": {"settings": {"power_limit_w": 200}}}}
    energy = (
        evaluate(replace(made, trials=(*made.trials, *confirmed), sure=sure)).best["energy"].energy
    )
    assert energy.mean == pytest.approx(0.7)
    assert energy.high - energy.low > 0.03


def test_confirmed_intervals_hold_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(7)
    inside, tries, widths = 0, 400, []
    for _ in range(tries):
        rows = np.full((5, 9), np.nan)
        noise = rng.normal(0, 0.02, rows.shape)
        rows[range(5), range(5)] = 0.0
        rows[0, [5, 6]] = rows[1, [5, 6]] = rows[0, 7] = rows[2, 8] = 0.0
        by = ratios(EDP, table(np.ones_like(rows), np.exp(rows + noise)), "gpu")
        fresh = np.zeros(9, bool)
        fresh[[5, 6]] = True
        said = stated(settled(by, 1, 0, fresh), by, 0)
        inside += said.low <= 1 <= said.high
        widths.append(said.high - said.low)
    assert 0.92 <= inside / tries <= 0.99
    assert min(widths) > 0.005
