"""What a sweep found beside the published choices: scores are judged as the runs have them."""

import pytest

from joulewise.metrics.evaluate import evaluate
from joulewise.metrics.metric import parse
from joulewise.report.published import METRICS, beside, published_table
from tests.helpers.sweeps import grid


def curve(power_w):
    return 100 + (300 - power_w) / 5, 200 * power_w


@pytest.fixture(scope="module")
def result():
    made = grid(curve, range(150, 305, 5), 300, noise=0.02, seed=3)
    return evaluate(made, [parse(metric) for metric in METRICS])


def test_the_score_at_the_published_cap_is_compared_with_the_least_mean(result):
    for it in beside(result, "v100", "resnet50"):
        means = {
            point.setting["power_limit_w"]: point.ratios[it.metric].mean for point in result.points
        }
        assert it.excess == pytest.approx(means[it.row.cap_w] / min(means.values()) - 1)
        assert it.excess >= it.excess_of_stated


def test_what_the_least_owes_to_luck_is_told_apart(result):
    off = [it.excess - it.excess_of_stated for it in beside(result, "v100", "resnet50")]
    assert max(off) > 0.001


def test_the_excess_is_in_the_table_and_in_the_json(result):
    found = beside(result, "v100", "resnet50")
    table = published_table(found)
    at = [column.title for column in table.columns].index("score above best")
    assert [row[at] for row in table.rows] == [f"{100 * it.excess:.1f}" for it in found]
    payload = [it.as_json()["found"]["score_there_over_best"] for it in found]
    assert payload == [1 + it.excess for it in found]
