"""The judge's short form, where its folder and the measured curves are at hand."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest

from joulewise.optimise.live import make_policy
from tests.helpers.paths import ROOT

JUDGE = ROOT.parent / "shared/judge/live_tuning.py"
TRACES = ROOT.parent / "shared/data/zeus-traces"

pytestmark = pytest.mark.skipif(
    not (JUDGE.is_file() and TRACES.is_dir()), reason="needs the judge and the measured curves"
)


@pytest.fixture(scope="module")
def judge():
    spec = importlib.util.spec_from_file_location("live_tuning_judge", JUDGE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def play(judge, *, change):
    jobs = judge.curves(judge.DATA / "clock-curves/stage_curves.csv", TRACES, "v100,rtx6000")
    rows = []
    for i in range(0, len(jobs), 6):
        job = jobs[i]
        alike = [
            each
            for each in jobs
            if each.board == job.board and len(each.settings) == len(job.settings)
        ]
        other = alike[(alike.index(job) + len(alike) // 2) % len(alike)] if change else None
        steps = 1200 if change else 400
        rows += [judge.play(job, other, make_policy, m, steps, 1) for m in judge.METRICS]
    return rows, np.array([row["over_best"] <= judge.WITHIN[row["metric"]] for row in rows])


def test_near_the_best_on_measured_curves(judge):
    rows, near = play(judge, change=False)
    assert near.mean() >= 0.94  # of 56; the bar of 96 % is for all 3280
    assert np.mean([row["steps"] for row in rows]) <= 90
    assert np.mean([row["off"] for row in rows]) <= 130
    assert np.mean([row["broken"] for row in rows if row["metric"] == "slowdown:1.1"]) <= 0.08


def test_near_the_best_after_a_change(judge):
    _, near = play(judge, change=True)
    assert near.mean() >= 0.88
