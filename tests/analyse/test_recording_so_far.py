"""A run that is being recorded: what is not yet on disk is no gap."""

import json
import os

import pytest

from joulewise.analyse.run_result import analyse
from joulewise.data import Source, WarningCode
from joulewise.hooks.marks import Marks
from joulewise.process.linux import boot_id, started_ticks
from joulewise.report.views.run import run_view
from joulewise.store.layout import LIVE, MARKS
from joulewise.store.manifest import CommandRecord, RecorderRecord
from tests.helpers.run_directories import PID, START, MadeRun, S, device


def recording(made):
    """Written by a recorder that lives: this process."""
    return made.write(
        commands=(CommandRecord(PID, ("python", "train.py"), START),),
        recorder=RecorderRecord(os.getpid(), started_ticks(os.getpid())),
        boot_id=boot_id(),
        state="recording",
        exit_code=None,
        monotonic_end_ns=None,
        wall_end_ns=None,
    )


def started(tmp_path, gpu_until_s=9.0, cpu_until_s=9.7):
    """Each device is written up to another moment, and marks are ahead of all."""
    made = MadeRun(tmp_path / "run").processes("gpu0", (0, [(PID, "python", True)]))
    made.fast(device("gpu0"), lambda t: 200 + (round(t * 50) % 7) / 10, until_s=gpu_until_s)
    made.fast(device("dram0", source=Source.ASSUMED), lambda _: 6.0, until_s=cpu_until_s)
    made.spans(*(("epoch", i, i, i + 1.0) for i in range(10)))
    Marks(made.path / MARKS).begin("epoch", 10, 14, START + 10 * S)
    return made


def test_what_is_not_written_yet_is_no_gap(tmp_path):
    result = analyse(recording(started(tmp_path)))
    assert result.state == "recording"
    assert result.time_s == pytest.approx(9.0, abs=0.03)
    assert not result.run.total.at_least
    assert result.run.total.value == pytest.approx(9 * 206.3, rel=0.01)
    assert not result.warnings
    assert run_view(result).finding.startswith("1.8")


def test_spans_are_as_of_the_same_moment(tmp_path):
    result = analyse(recording(started(tmp_path, gpu_until_s=8.5)))
    summary = result.details["spans"]["epoch"]
    assert (summary["count"], summary["unfinished"]) == (8, 1)
    assert not any(it.total.at_least for it in result.spans)
    assert max(it.span.end_ns for it in result.spans) == result.run.span.end_ns


def test_a_device_that_fell_silent_is_warned_of_during_the_run(tmp_path):
    result = analyse(recording(started(tmp_path, gpu_until_s=3.0)))
    assert result.time_s == pytest.approx(9.7, abs=0.03)
    assert result.run.total.at_least
    assert WarningCode.UNAVAILABLE in [it.code for it in result.warnings]


def test_the_forecast_has_the_time_it_was_made(tmp_path):
    run = recording(started(tmp_path))
    outlook = {"reason": "too early", "fix": ""}
    live = {"time_s": 6.5, "epochs": {"done": 6, "total": 14}, "outlook": outlook}
    (run / LIVE).write_text(json.dumps(live))
    (note,) = (it for it in run_view(analyse(run)).notes if it.startswith("no forecast"))
    assert note.startswith("no forecast at 6.50 s: epoch 6 of 14 is done")
