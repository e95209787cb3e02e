"""``show`` of a run that is being recorded says what the run will take."""

import json
import os

import pytest

from joulewise.process.linux import boot_id, started_ticks
from joulewise.store.layout import LIVE
from joulewise.store.manifest import CommandRecord, RecorderRecord
from tests.helpers.run_directories import START

ID = "20261116-003512-7f3a"
OUTLOOK = {
    "time_s": {"value": 50.0, "low": 45.0, "high": 55.0},
    "energy_j": {"value": 1e4, "low": 9e3, "high": 1.1e4},
}


@pytest.fixture
def recording(make_run):
    me = RecorderRecord(os.getpid(), started_ticks(os.getpid()))
    changed = {"commands": (CommandRecord(1, ("sleep",), START),), "monotonic_end_ns": None}
    changed |= {"recorder": me, "boot_id": boot_id(), "state": "recording", "exit_code": None}
    return make_run(ID, result=False, **changed)


def test_the_forecast_is_shown_and_in_the_json(joulewise, recording):
    live = {"time_s": 5.0, "epochs": {"done": 2, "total": 10}, "outlook": OUTLOOK}
    (recording / LIVE).write_text(json.dumps(live))
    assert (
        "at 5.00 s: epoch 2 of 10 is done; the whole run takes 50.0 s"
        in joulewise("show", ID).stdout
    )
    payload = json.loads(joulewise("show", ID, "--json", "-").stdout)
    assert payload["outlook"] == {"at_s": 5.0, "epochs": {"done": 2, "total": 10}, **OUTLOOK}


@pytest.mark.parametrize("damage", [None, "", "[]", "{}"])
def test_a_run_that_reports_nothing_yet_has_none(joulewise, recording, damage):
    if damage is not None:
        (recording / LIVE).write_text(damage)
    assert json.loads(joulewise("show", ID, "--json", "-").stdout)["outlook"] is None


def test_a_run_that_is_over_has_none(joulewise, make_run):
    run = make_run(ID)
    (run / LIVE).write_text(json.dumps({"epochs": {}, "outlook": OUTLOOK}))
    assert json.loads(joulewise("show", ID, "--json", "-").stdout)["outlook"] is None
