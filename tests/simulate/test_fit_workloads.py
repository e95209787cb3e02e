import shutil
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from joulewise.simulate.boards import load_board
from joulewise.simulate.model import Load
from joulewise.simulate.physics import steady_state
from joulewise.simulate.published_caps import read_table
from joulewise.simulate.workloads import Profile, load_workload, profile_of, step_phases
from tools.fit_workloads import __main__ as command
from tools.fit_workloads import table
from tools.fit_workloads.published_metrics import METRICS, grid_w, scores
from tools.fit_workloads.solve import Curves, fit, pooled_prior, start_at
from tools.fit_workloads.table import fit_board, networks, table_curves

CAPS_W = np.arange(100.0, 261.0, 20.0)
TRUE = (
    Profile(0.5, 0.1, 0.7, 200.0, 30.0),
    Profile(2.0, 0.3, 0.5, 180.0, 25.0),
    Profile(0.1, 0.5, 0.6, 220.0, 20.0),
)


def true_board():
    board = load_board("rtx6000")
    clocks = replace(board.clocks, ridge_mhz=0.5 * board.clocks.sm_max_mhz, floor_v=0.7)
    return replace(board, clocks=clocks, idle=replace(board.idle, clocks_up_w=40.0))


def predict(board, profile):
    return steady_state.steady(board, Load(step_phases(profile)), CAPS_W)[:2]


def synthetic():
    times, energies = zip(*(predict(true_board(), profile) for profile in TRUE), strict=True)
    return np.array(times), np.array(energies)


def fit_to(time_s, energy_j):
    curves = Curves(load_board("rtx6000"), time_s, energy_j, 1e-4, (25.0, 60.0), predict)
    return curves, fit(curves, *start_at(curves))


def test_figures_that_made_the_curves_are_found_again():
    _, fitted = fit_to(*synthetic())
    assert fitted.board.idle.clocks_up_w == pytest.approx(40, rel=0.02)
    assert fitted.board.clocks.floor_v == pytest.approx(0.7, rel=0.02)
    assert fitted.board.clocks.ridge_mhz == pytest.approx(1050, rel=0.05)
    for profile, true in zip(fitted.profiles, TRUE, strict=True):
        assert vars(profile) == pytest.approx(vars(true), rel=0.1)


def test_caps_that_were_not_shown_are_predicted():
    time_s, energy_j = synthetic()
    hidden = np.isin(CAPS_W, (120.0, 180.0, 240.0))
    _, fitted = fit_to(np.where(hidden, np.nan, time_s), np.where(hidden, np.nan, energy_j))
    assert fitted.time_s == pytest.approx(time_s, rel=0.01)
    assert fitted.energy_j == pytest.approx(energy_j, rel=0.01)


def test_a_load_of_which_little_is_shown_falls_back_on_the_others():
    time_s, energy_j = (np.repeat(figures[:1], 3, axis=0) for figures in synthetic())
    time_s[2, 1:] = energy_j[2, 1:] = np.nan
    curves, first = fit_to(time_s, energy_j)
    _, prior = start_at(curves)
    second = fit(curves, first.own, pooled_prior(first, prior))
    away = [abs(np.log(it.time_s[2, -1] / it.time_s[0, -1])) for it in (first, second)]
    assert away[1] < away[0]


@pytest.mark.parametrize("key", ["rtx6000", "v100"])
def test_the_shipped_figures_are_those_of_the_fit(key):
    curves = table_curves(key, read_table())
    fitted = fit_board(key, read_table())
    shipped = load_board(key)
    assert shipped.clocks.ridge_mhz == pytest.approx(fitted.board.clocks.ridge_mhz, rel=0.02)
    assert shipped.clocks.floor_v == pytest.approx(fitted.board.clocks.floor_v, rel=0.02)
    assert shipped.idle.clocks_up_w == pytest.approx(fitted.board.idle.clocks_up_w, rel=0.02)
    for name, profile in zip(networks(read_table(), key), fitted.profiles, strict=True):
        assert vars(profile_of(name, shipped)) == pytest.approx(vars(profile), rel=0.05)
    known = np.isfinite(curves.time_s)
    assert fitted.time_s[known] == pytest.approx(curves.time_s[known], rel=0.02)
    assert fitted.energy_j[known] == pytest.approx(curves.energy_j[known], rel=0.02)


def test_a_network_whose_published_minima_are_beaten_is_fitted_again_alone(monkeypatch):
    again = fit_board("v100", read_table())
    monkeypatch.setattr(table, "BEATEN", np.inf)
    together = fit_board("v100", read_table())
    names = networks(read_table(), "v100")
    pairs = zip(names, again.profiles, together.profiles, strict=True)
    moved = [name for name, one, other in pairs if one != other]
    assert moved == ["inception3"]
    assert again.board == together.board
    at = names.index("inception3")
    before, after = (
        max(exceeds("v100", "inception3", it.time_s[at], it.energy_j[at]))
        for it in (together, again)
    )
    assert before > 0.013
    assert after < 0.011


@pytest.mark.parametrize("key", ["rtx6000", "v100"])
def test_no_cap_beats_a_published_minimum_by_much(key):
    board = load_board(key)
    caps_w = grid_w(board.limits.minimum_w, board.limits.maximum_w)
    worst = {
        name: max(
            exceeds(key, name, *steady_state.steady_run(board, load_workload(name, board), caps_w))
        )
        for name in networks(read_table(), key)
    }
    assert max(worst.values()) < 0.011
    assert max(excess for name, excess in worst.items() if name != "inception3") < 0.008


def exceeds(key, name, time_s, energy_j):
    limits = load_board(key).limits
    caps_w = list(grid_w(limits.minimum_w, limits.maximum_w))
    by_metric = scores(time_s, energy_j)
    return [
        by_metric[row.metric][caps_w.index(row.cap_w)] / by_metric[row.metric].min() - 1
        for row in read_table()
        if (row.board, row.network) == (key, name) and row.metric in METRICS
    ]


def test_the_table_is_whole():
    rows = read_table()
    assert len(rows) == 60
    assert len({(row.board, row.network, row.cap_w) for row in rows}) == 56
    assert {row.metric for row in rows} == {"default", *METRICS}


def test_scores_are_1_at_the_default_and_follow_their_formulas():
    time_s, energy_j = np.array([12.0, 10.0]), np.array([700.0, 1000.0])
    by_metric = scores(time_s, energy_j)
    assert [score[-1] for score in by_metric.values()] == pytest.approx([1] * 4)
    assert by_metric["min_edp"][0] == pytest.approx(0.84)
    assert by_metric["min_eds_2.0"][0] == pytest.approx(0.5 * 0.7 + 1.2 / 2)
    assert by_metric["min_eds_1.5"][0] == pytest.approx(0.5 / 1.5 * 0.7 + 1.2 / 1.5)
    assert grid_w(150, 300).tolist() == list(range(150, 301, 5))


def test_the_command_writes_the_figures_and_says_how_well_they_predict(tmp_path, monkeypatch):
    for folder in ("boards", "workloads"):
        shutil.copytree(command.HERE / folder, tmp_path / folder)
    (tmp_path / "workloads" / "fitted.toml").unlink()
    board = tmp_path / "boards" / "v100-pcie.toml"
    before = board.read_text()
    board.write_text(before.replace("floor_v = ", "floor_v = 9"))
    left_out = command.LeftOut(read_table()[0], 0.01, -0.03)
    monkeypatch.setattr(command, "HERE", tmp_path)
    monkeypatch.setattr(command, "leave_out", lambda *_: [left_out])
    result = CliRunner().invoke(command.main)
    assert result.exit_code == 0
    assert "2.00% (median), 3.00% (worst)" in result.output
    fitted = (tmp_path / "workloads" / "fitted.toml").read_text()
    assert fitted.count("step_s = ") == 12
    assert board.read_text() == before
