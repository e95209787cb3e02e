"""The energy so far ends at the run's energy, with the run's error: exactly, whatever happened."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from joulewise.analyse.chunks import ArrayStream
from joulewise.analyse.curves.run import run_curves
from joulewise.analyse.curves.series import accumulate_energy
from joulewise.analyse.run_result import analyse
from joulewise.analyse.stored_result import write_result
from joulewise.data import Source
from joulewise.store.layout import StreamKind
from tests.helpers.run_directories import PID, MadeRun, device

some = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
stretches = st.lists(
    st.tuples(st.floats(0, 8), st.floats(0.05, 3)).map(lambda pair: (pair[0], sum(pair))),
    max_size=2,
)


def noisy(level_w, seed=0):
    noise = random.Random(seed)
    return lambda t_s: level_w + 80 * (t_s % 3 > 1) + noise.gauss(0, 3)


@some
@given(stretches, st.booleans(), st.floats(3.0, 30.0))
def test_it_ends_at_the_result(tmp_path_factory, lost, counts, seconds):
    made = MadeRun(tmp_path_factory.mktemp("made") / "run", seconds=seconds)
    made.processes("gpu0", (-1, []), (0.1, [(PID, "python", True)]))
    measured = ("power_w", "energy_j") if counts else ("power_w",)
    made.fast(device("gpu0", measured=measured), noisy(150), lost=lost)
    made.fast(device("cpu0", source=Source.MODELLED), noisy(60, 1))
    curves = run_curves(made.write())
    total, cumulative = curves.result.run.total, curves.cumulative
    if total is None or total.at_least:
        assert cumulative is None
        return
    assert (cumulative.energy_j[-1], cumulative.error_j[-1]) == (total.value, total.error)
    assert cumulative.t_s[-1] == pytest.approx(seconds)
    assert (cumulative.energy_j[0], cumulative.error_j[0]) == (0.0, 0.0)
    uses = curves.result.run.devices
    for one in curves.devices:  # and so does each device, by the same windows computed anew
        assert one.cumulative.energy_j[-1] == pytest.approx(uses[one.key].energy.value, rel=1e-9)
        assert one.cumulative.error_j[-1] == pytest.approx(uses[one.key].energy.error, rel=0.01)


@some
@given(st.lists(st.floats(20, 290), min_size=5, max_size=40), st.integers(1, 30))
def test_pieces_add_up_to_what_was_drawn_so_far(levels_w, pieces):
    t_ns = (np.arange(len(levels_w) * 10) * 1e8).astype(np.int64)
    power_w = np.repeat(levels_w, 10)
    count_j = np.append(0, np.cumsum(power_w[1:] * 0.1))
    lane = ArrayStream({"t_ns": t_ns, "power_w": power_w, "energy_j": count_j})
    edges_ns = np.linspace(t_ns[2], t_ns[-3], pieces + 1).astype(np.int64)
    cumulative, _ = accumulate_energy(
        lambda _, which: lane if which is StreamKind.FAST else None,
        device("gpu0"),
        edges_ns,
        faulty=False,
    )
    added_j = np.cumsum(cumulative.mean_w[1:] * np.diff(cumulative.t_s))
    assert cumulative.energy_j[1:] == pytest.approx(added_j, rel=1e-6)


def test_an_unknown_total_has_no_curve(tmp_path):
    made = MadeRun(tmp_path / "run")
    made.fast(device("gpu0"), noisy(150), lost=[(-1, 20)])
    assert run_curves(made.write()).cumulative is None


def test_time_without_an_answer_widens_the_error_as_it_does_the_results(tmp_path):
    made = MadeRun(tmp_path / "run", seconds=20.0)
    made.processes("gpu0", (-1, []), (0.1, [(PID, "python", True)]))
    made.fast(device("gpu0"), noisy(150), counter_lost=[(8, 12)])
    curves = run_curves(made.write())
    (gpu,) = curves.devices
    use = curves.result.run.devices["gpu0"]
    # 1 % of what was drawn in the 4 s of 20 in which nothing checked the counter.
    assert use.energy.error_sampling > 0.01 * use.energy.value * 4 / 20
    assert gpu.cumulative.error_j[-1] == pytest.approx(use.energy.error, rel=1e-9)


def test_the_curve_ends_at_the_stored_result(tmp_path):
    """It may have been computed by an earlier version: one run has one energy all the same."""
    made = MadeRun(tmp_path / "run")
    run = made.fast(device("gpu0"), noisy(150)).write()
    result = analyse(run)
    kept = replace(result.run.total, value=result.run.total.value + 1)
    write_result(run, replace(result, run=replace(result.run, total=kept)))
    cumulative = run_curves(run).cumulative
    assert (cumulative.energy_j[-1], cumulative.error_j[-1]) == (kept.value, kept.error)
