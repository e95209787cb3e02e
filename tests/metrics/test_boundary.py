import pytest

from joulewise.data.devices import Source
from joulewise.data.energy import Energy
from joulewise.errors import UsageError
from joulewise.metrics.boundary import View
from joulewise.metrics.evaluate import evaluate
from joulewise.metrics.metric import parse
from joulewise.metrics.result import SweepWarningCode
from joulewise.simulate.published_caps import read_table
from tests.helpers.sweeps import grid, limit, measured, sweep, trial

ENERGY = (parse("energy"),)


@pytest.fixture(scope="module")
def published():
    """ResNet-50 on a V100, as in the published table."""
    rows = [row for row in read_table() if (row.board, row.network) == ("v100", "resnet50")]
    trials = {row.cap_w: trial(limit(row.cap_w), 0, row.time_s, row.energy_j) for row in rows}
    return sweep(trials.values(), limit(300))


def find_warnings(result):
    return {it.code: it for it in result.warnings}


@pytest.mark.parametrize(
    ("overhead_w", "node_pct", "break_even_w"), [(112, -13.9, 303), (650, 10.4, 303)]
)
def test_what_the_gpu_saves_the_node_may_pay_for(published, overhead_w, node_pct, break_even_w):
    result = evaluate(published, ENERGY, View(overhead_w=overhead_w))
    choice = result.best["energy"]
    assert choice.setting == limit(150)
    assert round(100 * (choice.at["gpu"].mean - 1), 1) == -31.5
    assert round(100 * (choice.at["node"].mean - 1), 1) == node_pct
    assert round(choice.break_even_w) == break_even_w
    warning = find_warnings(result).get(SweepWarningCode.COSTS_ELSEWHERE)
    assert bool(warning) == (node_pct > 0)
    if warning:
        assert "saves 31.5 % of the GPU's energy and costs 10.4 % more" in warning.message
        assert "650 W given for the rest of the node" in warning.message
        assert "--boundary node" in warning.hint


def test_each_boundary_has_a_choice_of_its_own(published):
    result = evaluate(published, ENERGY, View(overhead_w=650))
    assert result.choices["gpu"]["energy"].setting == limit(150)
    assert result.choices["node"]["energy"].setting == limit(260)
    assert result.choices["wall"]["energy"].setting == limit(260)
    assert evaluate(published, ENERGY, View("node", overhead_w=650)).best[
        "energy"
    ].setting == limit(260)


def test_figures_are_those_of_the_boundary_asked_for(published):
    gpu, node, wall = (
        evaluate(published, ENERGY, View(name, overhead_w=100, pue=1.2)).reference.energy_j.mean
        for name in ("gpu", "node", "wall")
    )
    assert gpu == 69_886
    assert node == pytest.approx(69_886 + 100 * 266.4)
    assert wall == pytest.approx(1.2 * node)


def test_what_is_assumed_is_said(published):
    assumed = evaluate(published, ENERGY)
    assert assumed.assumed == ("node", "wall")
    assert assumed.sources["node"] == "GPU measured, 112 W assumed for the rest of the node"
    assert assumed.sources["wall"].endswith("times an assumed PUE of 1.58")
    given = evaluate(published, ENERGY, View(overhead_w=80, pue=1.1))
    assert given.assumed == ()
    assert given.sources["wall"] == (
        "GPU measured, 80 W given for the rest of the node, times the given PUE of 1.1"
    )


def with_rest(block, power_w, time_s, gpu_j, rest):
    return trial(limit(power_w), block, time_s, None, energy={"gpu": measured(gpu_j), **rest})


def rest_of(value):
    return {"rest": Energy(value, 0.0, value, Source.MODELLED)}


def test_a_rest_that_was_measured_is_taken():
    trials = [with_rest(0, 300, 10, 3000, rest_of(500)), with_rest(0, 200, 12, 2000, rest_of(600))]
    result = evaluate(sweep(trials, limit(300)), ENERGY, View("node"))
    assert [point.energy_j.mean for point in result.points] == [3500, 2600]
    assert result.sources["node"] == "GPU measured, CPU and memory modelled, nothing else"
    assert "node" not in result.assumed


def test_a_mixture_is_called_one():
    parts = [Energy(100.0, 0.0, 0.0, source) for source in (Source.MODELLED, Source.MIXED)]
    trials = [
        trial(limit(300), block, 10, None, energy={"gpu": measured(3000.0), "rest": rest})
        for block, rest in enumerate(parts)
    ]
    result = evaluate(sweep(trials, limit(300)), ENERGY)
    assert (
        result.sources["node"] == "GPU measured, CPU and memory from several sources, nothing else"
    )


def test_a_rest_that_only_some_runs_have_is_taken_of_none():
    trials = [with_rest(0, 300, 10, 3000, rest_of(500)), with_rest(0, 200, 12, 2000, {})]
    result = evaluate(sweep(trials, limit(300)), ENERGY, View("node"))
    assert [point.energy_j.mean for point in result.points] == [3000 + 1120, 2000 + 1344]
    assert "node" in result.assumed


def test_a_machine_without_a_gpu_has_a_node():
    trials = [
        trial(limit(300), block, 10, None, gpu="", energy=rest_of(500.0)) for block in range(2)
    ]
    alone = sweep(trials, limit(300))
    at_gpu = evaluate(alone, ENERGY)
    assert at_gpu.reference.energy_j is None
    assert (
        find_warnings(at_gpu)[SweepWarningCode.NO_ENERGY].hint == "count the node: --boundary node"
    )
    at_node = evaluate(alone, ENERGY, View("node"))
    assert at_node.reference.energy_j.mean == 500
    assert at_node.sources["node"].startswith("no GPU in use")


def test_a_gpu_that_was_not_read_makes_the_node_unknown():
    trials = [trial(limit(300), 0, 10, None, energy=rest_of(500.0))]
    assert evaluate(sweep(trials, limit(300)), ENERGY, View("node")).reference.energy_j is None


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"boundary": "house"}, "no boundary"),
        ({"per": "week"}, "cannot count per"),
        ({"overhead_w": -1.0}, "0 W"),
        ({"overhead_w": float("nan")}, "0 W"),
        ({"pue": 0.9}, "at least 1"),
    ],
)
def test_a_view_that_cannot_be_meant_is_refused(how, message):
    with pytest.raises(UsageError, match=message):
        View(**how)


def test_faster_and_cheaper_costs_nobody():
    cheap = grid(lambda w: (400 - w, w * 100), [200, 300], 200)
    assert SweepWarningCode.COSTS_ELSEWHERE not in find_warnings(evaluate(cheap, ENERGY))


def test_nothing_is_added_to_a_module_that_contains_cpu_and_memory():
    trials = [trial(limit(300), block, 10.0, 5000.0, is_module=True) for block in range(3)]
    result = evaluate(sweep(trials, limit(300)), ENERGY, View("node", pue=1.0))
    assert result.reference.energy_j.mean == pytest.approx(5000.0)
    assert "CPU and memory included" in result.sources["node"]
    apart = [trial(limit(300), block, 10.0, 5000.0) for block in range(3)]
    result = evaluate(sweep(apart, limit(300)), ENERGY, View("node", pue=1.0))
    assert result.reference.energy_j.mean > 5000.0
