"""From a run directory of known power to its result."""

import json
import random
from dataclasses import replace

import pytest

from joulewise.analyse import run_spans
from joulewise.analyse.run_result import analyse
from joulewise.analyse.stored_result import read_result, write_result
from joulewise.data import Source, WarningCode, total
from joulewise.data.run_result_json import as_json
from joulewise.hooks.marks import Marks
from joulewise.report.views.run import run_view
from joulewise.store.layout import MARKS, RESULT, STREAM, StreamKind, stream_path
from joulewise.store.manifest import CommandRecord
from joulewise.store.runs import read_summary
from tests.helpers.run_directories import PID, START, MadeRun, S, device


def noisy(level_w):
    """A level with a sensor's noise, so that it does not look stuck."""
    noise = random.Random(0)
    return lambda t: level_w(t) + noise.gauss(0, 0.2)


def ramp(t):
    return 100 + 10 * max(0, t)


@pytest.fixture
def made(tmp_path):
    run = MadeRun(tmp_path / "20261116-003512-7f3a")
    run.fast(device("gpu0"), noisy(ramp))
    run.fast(device("cpu0", source=Source.MODELLED), lambda _: 20)
    run.processes("gpu0", (-1, []), (0.2, [(PID, "python", True)]))
    return run


def test_energies_are_those_of_the_course(made):
    result = analyse(made.write())
    gpu = result.run.devices["gpu0"]
    assert gpu.energy.value == pytest.approx(1500, abs=gpu.energy.error_sampling + 2)
    assert gpu.energy.error_sampling < 0.02 * 1500
    assert gpu.energy.error_gain == pytest.approx(1.96 * 0.025 * gpu.energy.value, rel=1e-3)
    assert gpu.mean_w == pytest.approx(150, rel=0.01)
    assert gpu.peak_w == pytest.approx(200, rel=0.01)
    assert gpu.counter_j == pytest.approx(gpu.integral_j, rel=0.02)
    assert result.run.devices["cpu0"].energy.source is Source.MODELLED
    assert result.run.total.value == pytest.approx(1700, rel=0.01)
    assert result.run.total.source is Source.MIXED
    assert (result.time_s, result.start_monotonic_ns) == (10, START)
    assert (result.state, result.exit_code) == ("complete", 0)


def test_every_span_on_every_device(made):
    made.spans(("training", None, 1, 9), ("epoch", 0, 1, 5), ("epoch", 1, 5, 9))
    result = analyse(made.write())
    summary = [(one.span.name, one.span.index) for one in result.spans]
    assert summary == [("training", None), ("epoch", 0), ("epoch", 1)]
    training, *epochs = result.spans
    for span in epochs:
        middle_s = (span.span.start_ns + span.span.end_ns) / 2 / S - START / S
        assert span.devices["gpu0"].energy.value == pytest.approx(4 * ramp(middle_s), rel=0.02)
        assert set(span.devices) == {"gpu0", "cpu0"}
    assert training.total.value == pytest.approx(sum(e.total.value for e in epochs), rel=1e-3)
    epoch = result.details["spans"]["epoch"]
    assert epoch["count"] == 2
    assert epoch["time_s"]["mean"] == 4
    assert epoch["energy_j"]["mean"] == pytest.approx(training.total.value / 2, rel=1e-3)


def test_a_span_that_was_cut_off_is_in_no_figure(made):
    made.spans(("epoch", 0, 1, 4), ("epoch", 1, 4, 7))
    Marks(made.path / MARKS).begin("epoch", 2, 40, START + 7 * S)
    result = analyse(made.write())
    assert [one.span.closed for one in result.spans] == [True, True, False]
    epoch = result.details["spans"]["epoch"]
    assert (epoch["count"], epoch["unfinished"], epoch["announced"]) == (2, 1, 40)
    assert epoch["time_s"]["min"] == epoch["time_s"]["max"] == 3
    each_j = [one.total.value for one in result.spans[:2]]
    assert epoch["energy_j"]["mean"] == pytest.approx(sum(each_j) / 2)


def test_each_training_announces_its_own_epochs(made):
    """Fits of two and of three epochs were shown as "5 of 3"."""
    marks = Marks(made.path / MARKS)
    for number, (start_s, first, epochs) in enumerate([(0, 0, 2), (3, 0, 3), (7, 3, 5)]):
        end_ns = START + (start_s + epochs - first) * S
        marks.whole("training", START + start_s * S, end_ns, number)
        for place, index in enumerate(range(first, epochs)):
            start_ns = START + (start_s + place) * S
            marks.whole("epoch", start_ns, start_ns + S, index, epochs)
        marks.whole("fold", START + start_s * S - 1, end_ns + 1, number, 3)
    kinds = analyse(made.write()).details["spans"]
    # The third goes on where the second ended: two epochs, up to the fifth.
    assert (kinds["epoch"]["count"], kinds["epoch"]["announced"]) == (7, 7)
    assert (kinds["fold"]["count"], kinds["fold"]["announced"]) == (3, 3)
    assert kinds["training"]["announced"] is None


def test_without_marked_trainings_one_begins_where_the_index_restarts(made):
    marks = Marks(made.path / MARKS)
    for place, (index, epochs) in enumerate([(0, 5), (1, 5), (0, 3), (1, 3), (2, 3)]):
        marks.whole("epoch", START + place * S, START + (place + 1) * S, index, epochs)
    epoch = analyse(made.write()).details["spans"]["epoch"]
    assert (epoch["count"], epoch["announced"]) == (5, 8)  # the first was stopped early


def test_steps_are_summarised_by_epoch_and_training(made, monkeypatch):
    monkeypatch.setattr(run_spans, "MAX_STEPS", 1)
    marks = Marks(made.path / MARKS)
    for training in range(2):
        start_ns = START + training * 4 * S
        marks.whole("training", start_ns, start_ns + 4 * S, training)
        marks.whole("epoch", start_ns, start_ns + 4 * S, 0, 1)
        for step in range(2):
            marks.whole("step", start_ns + step * S, start_ns + (step + 1) * S, step)
    steps = analyse(made.write()).details["steps"]
    assert [(one["training"], one["epoch"], one["count"]) for one in steps] == [
        (0, 0, 2),
        (1, 0, 2),
    ]


def test_many_steps_become_a_summary(made, monkeypatch):
    monkeypatch.setattr(run_spans, "MAX_STEPS", 10)
    steps = [("step", i, 1 + 0.5 * i, 1.4 + 0.5 * i) for i in range(16)]
    made.spans(("epoch", 0, 1, 5), ("epoch", 1, 5, 8), *steps)
    result = analyse(made.write())
    assert [one.span.name for one in result.spans] == ["epoch", "epoch"]
    assert result.details["spans"]["step"]["count"] == 16
    by_epoch = {one["epoch"]: one for one in result.details["steps"]}
    assert {epoch: one["count"] for epoch, one in by_epoch.items()} == {0: 8, 1: 6, None: 2}
    assert by_epoch[0]["time_s"]["mean"] == pytest.approx(0.4)
    assert by_epoch[0]["energy_j"]["mean"] == pytest.approx(0.4 * (ramp(2.95) + 20), rel=0.03)


def test_of_too_many_some_are_measured_and_all_are_counted(made, monkeypatch):
    monkeypatch.setattr(run_spans, "MAX_STEPS", 10)
    monkeypatch.setattr(run_spans, "MAX_SPANS", 10)
    monkeypatch.setattr(run_spans, "SAMPLED_SPANS", 12)
    mine = [("mine", i, 1 + 0.1 * i, 1.05 + 0.1 * i) for i in range(40)]
    made.spans(("epoch", 0, 1, 9), *mine, *[("step", i, 1 + i, 1.5 + i) for i in range(8)])
    result = analyse(made.write())
    assert {one.span.name for one in result.spans} == {"epoch", "step"}
    summary = result.details["spans"]["mine"]
    assert (summary["count"], summary["time_s"]["mean"]) == (40, pytest.approx(0.05))
    assert summary["energy_j"]["mean"] == pytest.approx(0.05 * (ramp(3) + 20), rel=0.15)


def test_only_the_first_of_many_names_are_summarised(made, monkeypatch):
    monkeypatch.setattr(run_spans, "MAX_NAMES", 3)
    made.spans(*((f"layer {i}", i, i / 50, i / 50 + 1) for i in range(400)))
    result = analyse(made.write())
    first = ["layer 0", "layer 1", "layer 2"]
    assert list(result.details["spans"]) == first
    assert [each.span.name for each in result.spans] == first
    assert result.details["more_names"] == 397
    assert "397 more names of spans" in " ".join(run_view(result).notes)


def test_of_too_many_spans_those_of_rare_names_are_listed(made, monkeypatch):
    monkeypatch.setattr(run_spans, "MAX_SPANS", 10)
    made.spans(*(("batch", i, i / 10, i / 10 + 0.1) for i in range(8)))
    made.spans(*(("epoch", i, 2 * i, 2 * i + 1) for i in range(4)))
    result = analyse(made.write())
    assert [each.span.name for each in result.spans] == ["epoch"] * 4
    assert result.details["spans"]["batch"]["count"] == 8
    assert result.details["spans"]["batch"]["energy_j"]["mean"] is not None


def test_of_many_names_that_are_too_short_some_are_named(made):
    made.spans(*((f"layer {i}", i, 1 + i / 10, 1.001 + i / 10) for i in range(7)))
    (warning,) = [w for w in analyse(made.write()).warnings if w.code is WarningCode.SPAN_TOO_SHORT]
    assert "'layer 4'" in warning.message
    assert "'layer 5'" not in warning.message
    assert "and those of 2 more names" in warning.message


def test_few_steps_are_listed(made):
    made.spans(*[("step", i, 1 + 0.5 * i, 1.4 + 0.5 * i) for i in range(16)])
    result = analyse(made.write())
    assert [one.span.index for one in result.spans] == list(range(16))
    assert "steps" not in result.details


def test_the_run_goes_from_the_first_command_to_the_last(made):
    commands = (
        CommandRecord(1, ("a",), START + S, START + 4 * S, 0),
        CommandRecord(2, ("b",), START + 2 * S, START + 6 * S, 0),
    )
    result = analyse(made.write(commands=commands))
    assert (result.start_monotonic_ns, result.time_s) == (START + S, 5)


def test_a_run_that_was_killed_goes_up_to_its_last_row(made):
    command = CommandRecord(PID, ("a",), START)
    changed = {"commands": (command,), "state": "recording", "exit_code": None}
    result = analyse(made.write(**changed, monotonic_end_ns=None, wall_end_ns=None))
    assert result.state == "killed"
    assert result.run.total.at_least
    assert result.exit_code is None
    assert result.time_s == pytest.approx(10.48, abs=0.03)
    assert "recorder_ended" in [warning.code.value for warning in result.warnings]


def test_a_trace_that_was_cut_off_is_read_up_to_there(made):
    run = made.write()
    path = stream_path(run, "gpu0", StreamKind.FAST, STREAM)
    path.write_bytes(path.read_bytes()[:-1000])
    result = analyse(run)
    assert result.run.devices["gpu0"].energy is None  # it was one batch
    assert result.missing == ("gpu0",)
    assert result.run.total == replace(result.run.devices["cpu0"].energy, at_least=True)


def test_nothing_was_recorded(tmp_path):
    made = MadeRun(tmp_path / "run")
    made.devices += [device("gpu0"), device("gpu1", measured=())]
    result = analyse(made.write())
    assert result.run.total is None
    assert as_json(result)["energy_j"] == {"total": None, "gpu0": None, "gpu1": None}
    assert result.missing == result.counted == ("gpu0", "gpu1")
    assert result.excluded == ()


def test_no_device_at_all(tmp_path):
    made = MadeRun(tmp_path / "run").spans(("epoch", 0, 1, 2))
    result = analyse(made.write())
    assert result.run.total is None
    assert result.run.devices == {}
    assert result.details["spans"]["epoch"]["energy_j"]["mean"] is None


def test_the_total_without_a_lost_gpu_is_a_lower_bound(made):
    made.fast(device("gpu1"), noisy(ramp), lost=[(-9, 99)])
    made.processes("gpu1", (0.2, [(PID, "python", True)]))
    result = analyse(made.write())
    assert result.counted == ("gpu0", "cpu0", "gpu1")
    assert result.missing == ("gpu1",)
    assert result.run.devices["gpu1"].energy is None
    known = [result.run.devices[key].energy for key in ("gpu0", "cpu0")]
    assert result.run.total == replace(total(known), at_least=True)
    assert (WarningCode.UNAVAILABLE, "gpu1") in [(w.code, w.device) for w in result.warnings]


@pytest.mark.parametrize("used", ["gpu0", "gpu1"])
def test_two_dies_with_one_reading_are_in_the_total_once(tmp_path, used):
    made = MadeRun(tmp_path / "run").fast(device("gpu0", contains=("gpu1",)), lambda _: 300.0)
    made.devices.append(device("gpu1", measured=()))
    for key in ("gpu0", "gpu1"):
        made.processes(key, (0.1, [(PID, "python", True)] if key == used else []))
    result = analyse(made.write())
    assert (result.counted, result.missing) == (("gpu0",), ())
    assert result.run.total.value == pytest.approx(3_000, rel=0.02)
    assert not result.run.total.at_least
    assert [(out.device, out.reason) for out in result.excluded] == [
        ("gpu1", "part of the energy of gpu0")
    ]


def test_the_total_of_a_die_that_another_reports_for_is_a_lower_bound(tmp_path):
    made = MadeRun(tmp_path / "run").fast(device("cpu0"), lambda _: 50.0)
    made.devices.append(device("gpu1", measured=()))
    made.processes("gpu1", (0.1, [(PID, "python", True)]))
    result = analyse(made.write())
    assert result.missing == ("gpu1",)
    assert result.run.total.at_least


def test_a_gap_widens_the_error(tmp_path):
    def gpu_error(name, **lost):
        made = MadeRun(tmp_path / name)
        made.fast(device("gpu0", measured=("power_w",)), noisy(ramp), **lost)
        made.processes("gpu0", (0.2, [(PID, "python", True)]))
        return analyse(made.write()).run.devices["gpu0"].energy.error_sampling

    assert gpu_error("gap", lost=[(3, 5)]) > 5 * gpu_error("whole")


def test_the_stored_result_is_the_same(made):
    made.spans(("epoch", 0, 1, 5))
    run = made.write(name="é", tags=("a", "b"))
    result = analyse(run)
    write_result(run, result)
    kept = read_result(run)
    assert as_json(kept) == as_json(result)
    assert kept.details["about"]["command"] == "python train.py"
    summary = read_summary(run)
    assert summary["energy_j"] == as_json(result)["energy_j"]
    assert not {"spans", "details"} & set(summary)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": 99}'])
def test_a_result_of_another_version_is_none(made, damage):
    run = made.write()
    (run / RESULT).write_text(damage)
    assert read_result(run) is None


def test_no_result(made):
    assert read_result(made.write()) is None


def test_details_tell_how_it_was_measured(made):
    details = json.loads(json.dumps(as_json(analyse(made.write()))))["details"]
    assert details["devices"]["gpu0"]["effective_hz"] == pytest.approx({"gpu0": 50.0})
    assert details["cpu"] == {
        "command_s": 1.5,
        "recorder_s": 0.2,
        "busy_s": None,
        "command_share_j": None,
    }
    assert details["devices"]["cpu0"]["sources"]["power_w"] == "modelled"
