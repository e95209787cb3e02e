"""What is told of a sweep while it goes on."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from joulewise.data import Energy, Source
from joulewise.data.sweeps import Setting, Sweep, Trial, TrialState
from joulewise.metrics.metric import parse
from joulewise.report.terminal.progress import SweepProgress

LOW, HIGH = (Setting.of({"power_limit_w": limit_w}) for limit_w in (150.0, 300.0))


def trial(setting, time_s, energy_j):
    energy = {"gpu": Energy(energy_j, 1.0, 40.0, Source.MEASURED)}
    return Trial(setting, 0, TrialState.DONE, gpu="GPU-1", time_s=time_s, energy=energy)


def sweep(asked, *trials):
    limits_w = (150.0, 300.0, 300.0)
    return Sweep("abcd", asked, 0, HIGH, (LOW, HIGH), trials, limits_w=limits_w)


@pytest.mark.parametrize(("adaptive", "said"), [(True, "at most 24 runs"), (False, "24 runs")])
def test_a_search_takes_so_many_runs_at_most(adaptive, said):
    lines = []
    with SweepProgress(Console(file=io.StringIO()), parse("edp"), lines.append) as watch:
        watch.began(sweep({"adaptive": adaptive}), 24)
    assert lines == [f"sweep abcd: 2 settings, {said}"]


def test_a_reference_beside_the_settings_is_told():
    lines = []
    with SweepProgress(Console(file=io.StringIO()), parse("edp"), lines.append) as watch:
        watch.began(replace(sweep({}), settings=(LOW,)), 10)
    assert lines == ["sweep abcd: 1 setting and the reference, 10 runs"]


@pytest.mark.parametrize(
    ("asked", "best"),
    [({}, "150 W"), ({"boundary": "node", "overhead_w": 650.0}, "300 W")],
)
def test_the_best_so_far_is_that_of_what_is_counted(asked, best):
    out = io.StringIO()
    console = Console(file=out, width=120, force_terminal=True, color_system=None)
    trials = trial(HIGH, 10.0, 2000.0), trial(LOW, 13.0, 1400.0)
    with SweepProgress(console, parse("energy"), lambda _: None) as watch:
        so_far = sweep(asked, *trials)
        watch.began(replace(so_far, trials=()), 3)
        watch.ended(trials[1], so_far, 1)
    assert f"best by energy: {best}" in out.getvalue()
