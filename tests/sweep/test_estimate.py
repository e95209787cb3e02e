"""What a sweep will take, told before it starts, and never made up."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from joulewise.analyse.stored_result import write_result
from joulewise.data import DeviceInfo, Energy, Kind, RunResult, Source, Span, SpanResult
from joulewise.data.sweeps import POWER_LIMIT, SM_CLOCK, Planned
from joulewise.errors import UsageError
from joulewise.simulate.boards import load_board
from joulewise.simulate.model import ControlSettings
from joulewise.simulate.physics import steady_state
from joulewise.simulate.workloads import load_workload
from joulewise.store.manifest import (
    CommandRecord,
    RecordedDevice,
    read_manifest,
    working_directory,
    write_manifest,
)
from joulewise.store.runs import new_run
from joulewise.sweep.boards import simulated
from joulewise.sweep.estimate import estimate
from joulewise.sweep.runners.virtual import VirtualRunner
from joulewise.sweep.space import Grid, resolve
from joulewise.sweep.spec import SimulationSpec, SweepSpec
from tests.helpers.processes import JOULEWISE

V100 = simulated("v100")
NOWHERE = Path("nowhere")
SIM = SweepSpec(
    axes={POWER_LIMIT: "150,300", SM_CLOCK: "900,unlocked", "batch_size": "64,128"},
    simulated=SimulationSpec("v100", "resnet50"),
)
COMMAND = SweepSpec(
    command=("sh", "-c", "exit 0", "{b}"), axes={POWER_LIMIT: "150,300", "b": "1,2"}
)


def test_a_simulated_sweep_takes_what_the_physics_says():
    space = resolve(SIM, V100)
    result = estimate(SIM, space, NOWHERE, price_per_kwh=0.3)
    board = load_board("v100")
    time_s = energy_j = 0.0
    for limit_w, lock, batch in (
        (limit_w, lock, batch)
        for limit_w in (150, 300)
        for lock in (None, (900, 900))
        for batch in (64, 128)
    ):
        workload = load_workload("resnet50", board, batch)
        each_s, each_j = steady_state.steady_run(board, workload, ControlSettings(limit_w, lock))
        time_s, energy_j = time_s + float(each_s), energy_j + float(each_j)
    assert result.runs == 40
    assert result.time_s == pytest.approx(5 * time_s)
    assert result.energy_j == pytest.approx(5 * energy_j)
    assert result.price == pytest.approx(5 * energy_j / 3.6e6 * 0.3)
    assert "the physical model of the simulated v100" in result.basis.source
    assert set(result.basis.amounts) == set(space.points)


def test_epochs_of_a_simulated_workload_count():
    once = replace(SIM, axes={"epochs": "1"})
    twice = replace(SIM, axes={"epochs": "2"})
    times_s = [estimate(each, resolve(each, V100), NOWHERE).time_s for each in (once, twice)]
    assert times_s[1] == pytest.approx(2 * times_s[0], rel=0.01)


def test_a_workload_like_a_runs_takes_about_what_that_run_took(tmp_path):
    asked = SweepSpec(axes={POWER_LIMIT: "300"}, simulated=SimulationSpec("v100", "resnet50"))
    space = resolve(asked, V100)
    made = VirtualRunner(asked, space, tmp_path, "once").run(Planned(space.reference, 0))
    like = replace(asked, simulated=SimulationSpec("v100", like=made.run))
    result = estimate(like, resolve(like, V100), tmp_path)
    assert result.time_s == pytest.approx(5 * made.time_s, rel=0.03)
    assert result.energy_j == pytest.approx(5 * made.energy["gpu"].value, rel=0.1)
    other = replace(like, axes={"batch_size": "64"})
    with pytest.raises(UsageError, match="cannot predict other batch sizes"):
        estimate(other, resolve(other, V100), tmp_path)


@pytest.mark.parametrize(
    ("lanes", "repeat", "warm_up"), [(1, 5, 0), (2, 5, 1), (4, 2, 3), (3, 3, 0)]
)
def test_runs_are_those_of_the_grid_shared_by_slots(lanes, repeat, warm_up):
    asked = replace(SIM, repeat=repeat, warm_up=warm_up)
    space = resolve(asked, V100)
    result = estimate(asked, space, NOWHERE, lanes=lanes)
    assert result.runs == Grid(space, asked, lanes).left
    alone = estimate(replace(asked, repeat=1, warm_up=0), space, NOWHERE)
    longest = -(-repeat // lanes) + warm_up / len(space.points)
    assert result.time_s == pytest.approx(longest * alone.time_s)


def test_a_search_makes_as_many_runs_as_it_says():
    space = resolve(SIM, V100)
    result = estimate(SIM, space, NOWHERE, runs=10, lanes=4)
    whole = estimate(SIM, space, NOWHERE)
    assert result.runs == 10
    assert result.energy_j == pytest.approx(whole.energy_j / 4)
    assert result.time_s == pytest.approx(whole.time_s * 3 / 40)


def test_estimate_without_earlier_runs_is_unknown(tmp_path):
    result = estimate(COMMAND, resolve(COMMAND, V100), tmp_path)
    assert (result.runs, result.time_s, result.most_s, result.energy_j, result.price) == (
        20,
        *[None] * 4,
    )
    assert result.basis.source == "no earlier run of this command is in the store"


def test_a_timeout_bounds_the_time_of_runs_that_are_tried_twice(tmp_path):
    asked = replace(COMMAND, timeout_s=60, cool_down="10s")
    result = estimate(asked, resolve(asked, V100), tmp_path)
    assert result.time_s is None
    assert result.most_s == 2 * 20 * 60 + 19 * 10


def test_cooling_down_for_a_time_counts_and_to_a_temperature_is_left_out(tmp_path, made):
    made(100, 5000)
    plain = estimate(COMMAND, resolve(COMMAND, V100), tmp_path)
    waiting = replace(COMMAND, cool_down="10s")
    result = estimate(waiting, resolve(waiting, V100), tmp_path)
    assert result.time_s == pytest.approx(plain.time_s + 19 * 10)
    assert not result.left_out
    cooling = replace(COMMAND, cool_down="50C")
    result = estimate(cooling, resolve(cooling, V100), tmp_path)
    assert result.time_s == plain.time_s
    assert result.left_out == "the time to cool down to 50 °C"


@pytest.fixture
def made(tmp_path):
    """Writes an earlier run of the command above, as a recorder leaves it."""

    def make(
        time_s, energy_j, *, word="1", limit_w=300, clock_mhz=None, board=V100[0].name, **more
    ):
        run = new_run(tmp_path)
        settings = {POWER_LIMIT: limit_w} | ({SM_CLOCK: clock_mhz} if clock_mhz else {})
        info = DeviceInfo("gpu0", Kind.GPU, board, "GPU-0", "nvidia")
        given = {
            "cwd": working_directory(),
            "commands": (CommandRecord(1, (*COMMAND.command[:-1], word), 0, 1, 0),),
            "state": "complete",
            "exit_code": 0,
            "devices": (RecordedDevice(info, settings=settings),),
        }
        write_manifest(run, replace(read_manifest(run), **{**given, **more}))
        energy = None if energy_j is None else Energy(energy_j, 1.0, 1.0, Source.MEASURED)
        span = Span("run", None, 0, round(time_s * 1e9))
        whole = SpanResult(span, energy, {})
        write_result(run, RunResult(run.name, 0, "complete", 0, whole))

    return make


def amounts(reported):
    return {
        (setting.get(POWER_LIMIT), setting["b"]): (amount.time_s, amount.energy_j)
        for setting, amount in reported.basis.amounts.items()
    }


def test_earlier_runs_at_the_same_settings_are_averaged(tmp_path, made):
    made(100, 5000, word="1", limit_w=150)
    made(110, 5200, word="1", limit_w=150)
    made(80, 8000, word="1", limit_w=300)
    made(200, 9000, word="2", limit_w=150)
    made(160, 16000, word="2", limit_w=300)
    result = estimate(COMMAND, resolve(COMMAND, V100), tmp_path)
    assert amounts(result) == {
        (150, "1"): (105, 5100),
        (300, "1"): (80, 8000),
        (150, "2"): (200, 9000),
        (300, "2"): (160, 16000),
    }
    assert result.time_s == pytest.approx(5 * (105 + 80 + 200 + 160))
    assert result.energy_j == pytest.approx(5 * (5100 + 8000 + 9000 + 16000))
    assert result.basis.source == "5 earlier runs of this command"


def test_runs_at_other_limits_serve_where_there_are_no_better_ones_and_that_is_said(tmp_path, made):
    made(80, 8000, word="1", limit_w=300)
    result = estimate(COMMAND, resolve(COMMAND, V100), tmp_path)
    assert amounts(result) == {(150, "1"): (80, 8000), (300, "1"): (80, 8000)}
    assert result.time_s == pytest.approx(20 * 80)
    assert result.basis.source == "1 earlier run of this command, at 1 of the 4 settings"


def test_a_locked_clock_is_another_setting(tmp_path, made):
    asked = replace(COMMAND, axes={SM_CLOCK: "900,1200", "b": "1"})
    made(100, 5000, clock_mhz=900)
    made(80, 8000)
    result = estimate(asked, resolve(asked, V100), tmp_path)
    by_clock = {s.get(SM_CLOCK): each.time_s for s, each in result.basis.amounts.items()}
    assert by_clock == {900: 100, None: 80, 1200: 90}


@pytest.mark.parametrize(
    "other",
    [
        {"word": "3"},
        {"cwd": "/elsewhere"},
        {"board": "another board"},
        {"exit_code": 1},
        {"state": "stopped"},
        {"commands": ()},
    ],
)
def test_runs_of_other_commands_do_not_count(tmp_path, made, other):
    made(80, 8000, **other)
    assert not estimate(COMMAND, resolve(COMMAND, V100), tmp_path).basis.amounts


def test_unmeasured_energy_is_unknown(tmp_path, made):
    made(80, None)
    result = estimate(COMMAND, resolve(COMMAND, V100), tmp_path, price_per_kwh=0.3)
    assert result.time_s == pytest.approx(20 * 80)
    assert (result.energy_j, result.price) == (None, None)


def test_a_run_of_joulewise_itself_is_one_to_go_by(tmp_path):
    asked = SweepSpec(command=("sh", "-c", ": {b}"), axes={"b": "1,2"}, cwd=str(tmp_path))
    subprocess.run(
        [*JOULEWISE, "--store", "runs", "run", "--", "sh", "-c", ": 1"],
        cwd=tmp_path,
        check=True,
        stderr=subprocess.DEVNULL,
    )
    result = estimate(asked, resolve(asked, ()), tmp_path / "runs")
    (amount,) = result.basis.amounts.values()
    assert result.time_s == pytest.approx(10 * amount.time_s)
    assert amount.time_s > 0
    assert result.basis.source == "1 earlier run of this command, at 1 of the 2 settings"
