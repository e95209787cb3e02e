"""The judge's short form, where its folder and the traces are at hand."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from joulewise.optimise.recurring import make_policy
from tests.helpers.paths import ROOT

JUDGE = ROOT.parent / "shared/judge/recurring_jobs.py"
TRACES = ROOT.parent / "shared/data/zeus-traces"

pytestmark = pytest.mark.skipif(
    not (JUDGE.is_file() and TRACES.is_dir()), reason="needs the judge and Zeus' traces"
)


@pytest.fixture(scope="module")
def judge():
    spec = importlib.util.spec_from_file_location("recurring_jobs_judge", JUDGE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.parametrize("dataset", ["imagenet", "sentiment140"])
def test_less_regret_than_zeus_on_measured_jobs(judge, dataset):
    train = judge.read(TRACES / "summary_train.csv")
    power = judge.read(TRACES / "summary_power_rtx6000.csv")
    cell = judge.Cell("rtx6000", dataset, power, train, 0.5)
    costs = [cell.replay(make_policy, 0.5, seed)[0].mean() for seed in (1, 2)]
    regret = sum(costs) / len(costs) / cell.oracle - 1
    assert regret < judge.ZEUS_REGRET["rtx6000", dataset]
