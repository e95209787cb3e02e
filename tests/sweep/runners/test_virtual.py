"""Runs in virtual time are runs like any other: stored, analysed, and the same in any order."""

import errno
import sys
from dataclasses import replace

import pytest

from joulewise.analyse.run_result import analyse
from joulewise.analyse.stored_result import read_result
from joulewise.cli import main
from joulewise.data.sweeps import POWER_LIMIT, SM_CLOCK, Planned, Setting, TrialState
from joulewise.errors import JoulewiseError, UsageError
from joulewise.simulate.boards import load_board, make_unit
from joulewise.simulate.model import ControlSettings
from joulewise.simulate.virtual import simulate
from joulewise.simulate.workloads import load_workload
from joulewise.store.layout import PACKED, STREAM, StreamKind, stream_path
from joulewise.store.manifest import read_manifest
from joulewise.store.spans import read_spans
from joulewise.store.trace import open_device_stream
from joulewise.sweep.boards import boards
from joulewise.sweep.runners.virtual import VirtualRunner
from joulewise.sweep.space import resolve
from joulewise.sweep.spec import SimulationSpec, SweepSpec

ASKED = SweepSpec(
    axes={POWER_LIMIT: "150:300:50"},
    seed=7,
    simulated=SimulationSpec("v100", "ecg", run_noise=0.01),
)


def virtual(store, asked=ASKED, **changes):
    asked = replace(asked, **changes)
    return VirtualRunner(asked, resolve(asked, boards(asked, {})), store, "20260101-000000-abcd")


def limit(watts):
    return Setting.of({POWER_LIMIT: float(watts)})


def figures(trial):
    return trial.time_s, trial.energy["gpu"].value, trial.clock_mhz, trial.capped


def test_a_run_is_stored_and_its_files_tell_what_the_trial_tells(tmp_path):
    trial = virtual(tmp_path).run(Planned(limit(200), 3))
    run = tmp_path / trial.run
    again = analyse(run)
    assert trial.state is TrialState.DONE
    assert again.time_s == pytest.approx(trial.time_s)
    assert again.run.total.value == pytest.approx(trial.energy["gpu"].value, rel=1e-9)
    assert read_result(run).run.total.value == trial.energy["gpu"].value
    manifest = read_manifest(run)
    assert manifest.state == "complete"
    assert "sweep:20260101-000000-abcd" in manifest.tags
    assert manifest.devices[0].info.name.endswith("(simulated)")
    assert manifest.host["name"] == "simulated"
    assert trial.spans["epoch"].count == 10
    assert trial.spans["step"].count == 10 * 240
    buffer = open_device_stream(run, "gpu0", StreamKind.BUFFER)
    assert buffer.rows == pytest.approx(50 * trial.time_s, rel=0.05)


@pytest.mark.parametrize("words", [["show", "last"], ["ls"], ["export", "last", "-o", "-"]])
def test_the_verbs_of_stored_runs_open_it(tmp_path, words, capsys, monkeypatch):
    virtual(tmp_path).run(Planned(limit(200), 0))
    monkeypatch.setattr(sys, "argv", ["joulewise", "--store", str(tmp_path), *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    out = capsys.readouterr().out
    assert "--power-limit=200" in out or "power_w" in out


def test_figures_follow_from_seed_setting_and_block_and_not_from_the_order(tmp_path):
    plans = [Planned(limit(watts), block) for watts in (150, 250) for block in (0, 1)]
    forth, back = virtual(tmp_path / "a"), virtual(tmp_path / "b")
    one = [figures(forth.run(planned)) for planned in plans]
    other = [figures(back.run(planned)) for planned in reversed(plans)]
    assert one == other[::-1]
    assert len(set(one)) == len(plans)
    assert figures(virtual(tmp_path / "c", seed=8).run(plans[0])) != one[0]


def test_joules_are_true_within_their_error_with_one_gain_for_the_sweep(tmp_path):
    board = load_board("v100")
    gain = make_unit(board, ASKED.seed).gain
    runner = virtual(tmp_path, simulated=SimulationSpec("v100", "ecg", run_noise=0.0))
    for watts in (150, 300):
        energy = runner.run(Planned(limit(watts), 0)).energy["gpu"]
        played = simulate(
            load_workload("ecg", board), make_unit(board, 0), ControlSettings(watts), run_noise=0
        )
        assert energy.value / gain == pytest.approx(played.energy_j, abs=2 * energy.error_sampling)
    assert gain != pytest.approx(1, abs=1e-4)


def test_what_is_set_shows_in_clocks_and_time(tmp_path):
    runner = virtual(tmp_path, axes={POWER_LIMIT: "150:300:50", SM_CLOCK: "900,1530"})
    free, capped, locked = (
        runner.run(Planned(Setting.of({POWER_LIMIT: watts, SM_CLOCK: clock}), 0))
        for watts, clock in ((300.0, None), (150.0, None), (300.0, 900.0))
    )
    assert free.capped < 0.5 < capped.capped
    assert locked.capped == 0
    assert locked.clock_mhz == pytest.approx(900, abs=8)
    assert free.clock_mhz > capped.clock_mhz
    assert free.time_s < capped.time_s


def test_the_commands_own_axes_are_batch_size_and_epochs(tmp_path):
    runner = virtual(tmp_path, axes={"batch_size": "32,64", "epochs": "2,10"})

    def trial(batch_size, epochs):
        words = {"batch_size": batch_size, "epochs": epochs}
        return runner.run(Planned(Setting.of(words), 0))

    whole, short, large = trial("32", "10"), trial("32", "2"), trial("64", "10")
    assert whole.time_s == pytest.approx(5 * short.time_s, rel=0.05)
    assert large.spans["step"].count == whole.spans["step"].count / 2
    assert large.time_s < whole.time_s


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"lr": "1,2"}, "has no lr"),
        ({"epochs": "0,1"}, "epochs is 0"),
        ({"batch_size": "a"}, "batch_size is a"),
    ],
)
def test_what_a_workload_has_not_is_refused_before_the_first_run(tmp_path, axes, message):
    with pytest.raises(UsageError, match=message):
        virtual(tmp_path, axes=axes)
    assert not list(tmp_path.iterdir())


def test_hopeless_run_is_ended_at_the_first_check(tmp_path):
    runner, planned = virtual(tmp_path), Planned(limit(150), 0)
    whole = runner.run(planned)
    half_j = whole.energy["gpu"].value / 2
    stopped = runner.run(planned, lambda time_s, joules: time_s > 10 and joules["gpu"] > half_j)
    assert stopped.state is TrialState.STOPPED
    assert half_j < stopped.energy["gpu"].value < half_j + 200
    assert stopped.time_s == pytest.approx(whole.time_s / 2, rel=0.05)
    assert runner.run(planned, lambda _time_s, _joules: False).time_s == whole.time_s


def test_a_run_over_its_time_has_failed(tmp_path):
    trial = virtual(tmp_path, timeout_s=30).run(Planned(limit(150), 0))
    assert trial.state is TrialState.FAILED
    assert trial.time_s == pytest.approx(30)
    assert trial.reason == "it exceeded the time limit: 30 s"


def test_probe_has_the_given_seconds_of_steady_steps(tmp_path):
    runner = virtual(tmp_path)
    whole, look = (runner.run(Planned(limit(200), 0, look_s=look_s)) for look_s in (None, 10.0))
    assert look.state is TrialState.DONE
    assert 10 <= look.time_s < 10.5
    steps = look.spans["step"]
    mean_s = whole.spans["step"].time_s / whole.spans["step"].count
    assert steps.time_s / steps.count == pytest.approx(mean_s, rel=0.02)
    assert steps.energy["gpu"].error_sampling < 0.005 * steps.energy["gpu"].value


def test_simulated_run_that_was_not_written_down_is_adopted(tmp_path):
    planned = Planned(limit(200), 0)
    made = virtual(tmp_path).run(planned)
    later = virtual(tmp_path)
    assert later.adopt(planned) == made
    assert later.adopt(Planned(limit(200), 1)) is None


def test_full_disk_leaves_no_partial_run(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "somewhere")

    monkeypatch.setattr("joulewise.sweep.runners.virtual_record.write_stream", full)
    with pytest.raises(JoulewiseError, match=r"cannot make a run in .*: No space left"):
        virtual(tmp_path).run(Planned(limit(200), 0))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("epochs", [1, 30])
def test_only_long_streams_are_packed(tmp_path, epochs, monkeypatch):
    analysed = []

    def spy(*args, **options):
        analysed.append(options["open_stream"])
        return analyse(*args, **options)

    monkeypatch.setattr("joulewise.sweep.runners.virtual_record.analyse", spy)
    axes = {POWER_LIMIT: "150:300:50", "epochs": str(epochs)}
    setting = Setting.of({POWER_LIMIT: 200.0, "epochs": str(epochs)})
    trial = virtual(tmp_path, axes=axes).run(Planned(setting, 0))
    run = tmp_path / trial.run
    for lane in (StreamKind.FAST, StreamKind.BUFFER, StreamKind.SLOW):
        result, read = analysed[0]("gpu0", lane), open_device_stream(run, "gpu0", lane)
        assert read.columns == result.columns
        (told_rows,), (read_rows,) = result.chunks(result.columns), read.chunks(read.columns)
        for name in result.columns:
            assert read_rows[name].tolist() == told_rows[name].tolist()
        packed = stream_path(run, "gpu0", lane, PACKED).exists()
        assert packed == (read.rows > 4096)
        assert stream_path(run, "gpu0", lane, STREAM).exists() != packed
    assert stream_path(run, "gpu0", StreamKind.BUFFER, PACKED).exists() == (epochs == 30)


@pytest.mark.parametrize("timeout_s", [None, 30.0])
def test_the_spans_that_are_analysed_are_those_that_are_written(tmp_path, timeout_s, monkeypatch):
    analysed = []

    def spy(*args, **options):
        analysed.append(options["spans"])
        return analyse(*args, **options)

    monkeypatch.setattr("joulewise.sweep.runners.virtual_record.analyse", spy)
    trial = virtual(tmp_path, timeout_s=timeout_s).run(Planned(limit(150), 0))
    result, written = list(analysed[0]), list(read_spans(tmp_path / trial.run))
    assert result == written
    assert all(span.closed for span in written) == (timeout_s is None)


@pytest.mark.parametrize(("cool_down", "first_c"), [("40s", 47), ("50C", 50), ("10C", 37)])
def test_a_board_that_cools_down_begins_less_warm(tmp_path, cool_down, first_c):
    warm, cooler = (
        virtual(tmp_path, cool_down=text).run(Planned(limit(300), 0)) for text in ("", cool_down)
    )
    slow = open_device_stream(tmp_path / cooler.run, "gpu0", StreamKind.SLOW)
    (chunk,) = slow.chunks(["temperature_c"])
    assert chunk["temperature_c"][2] == pytest.approx(first_c, abs=2)
    assert cooler.energy["gpu"].value < warm.energy["gpu"].value
