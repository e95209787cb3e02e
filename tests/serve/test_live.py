"""A run in progress, followed on the page: a real recording of a simulated GPU."""

import json
import shutil
from dataclasses import replace

import pytest

from joulewise.data import Energy, Source
from joulewise.report.terminal.live import line
from joulewise.report.views.live import RunWatch, foretold, standing
from joulewise.serve.site import LiveRuns
from joulewise.store.manifest import RecorderRecord
from joulewise.store.tuning_file import write_tuning
from tests.helpers.processes import eventually
from tests.helpers.recordings_in_progress import recorded
from tests.helpers.written_tunings import exploring_tuning


def now(view, run, after=""):
    return json.loads(view.get(f"now/{run.name}{after}").text)


def test_a_run_is_followed_from_start_to_report(view, store):
    with recorded(store, "--name", "mine", "--rate", "20", "--budget", "1MJ") as (process, run):
        state = eventually(lambda: (it := now(view, run))["devices"] and it["last_s"] > 1 and it)
        assert state["is_live"]
        gpu = state["devices"][0]
        assert (gpu["key"], gpu["limit_w"]) == ("gpu0", 300)
        at_s, mean_w, low_w, high_w = gpu["seconds"][-1]
        assert low_w <= mean_w <= high_w <= 400
        assert state["text"]["limit-0"] == "300 W"
        assert state["text"]["power-0"].endswith(" W")
        # What is new since, and no more than that.
        later = eventually(lambda: (it := now(view, run, f"?after={at_s}"))["last_s"] > at_s and it)
        assert later["devices"][0]["seconds"][0][0] >= at_s
        eventually(lambda: "1MJ: " in now(view, run)["text"]["foretold"])
        eventually(lambda: " J ±" in now(view, run)["text"]["verdict"].replace("kJ", "J"))
        listed = view.get()
        assert f'href="live/{run.name}"' in listed.text
        assert "1 in progress" in listed.words
        page = view.get(f"live/{run.name}")
        assert '<p id="ended" class="ended" role="status" hidden>' in page.text
        process.stdin.close()
        eventually(lambda: not now(view, run)["is_live"])
        assert now(view, run)["state"] == "complete"
    ended = view.get(f"live/{run.name}")
    assert '<p id="ended" class="ended" role="status">' in ended.text
    assert f'href="../run/{run.name}"' in ended.text
    assert view.get(f"run/{run.name}").status == 200
    assert f'href="run/{run.name}"' in view.get().text


def test_a_later_poll_has_the_same_seconds(store):
    with recorded(store, "--rate", "50") as (_, run):
        early = RunWatch(run)
        eventually(lambda: len(early.look().devices[0].course) > 3)
        late = RunWatch(run).look()
        seen = {second.at_s: second for second in early.look().devices[0].course}
        for second in late.devices[0].course[:-1]:
            assert seen[second.at_s] == second


def test_power_comes_from_the_counter_without_a_power_sensor(store):
    from tests.helpers.run_directories import MadeRun, device

    made = MadeRun(store / "20261116-003512-bbbb")
    made.fast(device("cpu0", measured=("energy_j",)), lambda _: 42.0)
    course = RunWatch(made.write()).look().devices[0].course
    assert [second.mean_w for second in course] == pytest.approx([42.0] * len(course))


def test_a_silent_device_has_no_power(store):
    from tests.helpers.run_directories import MadeRun, device

    made = MadeRun(store / "20261116-003512-bbbb")
    made.fast(device("gpu0"), lambda _: 200.0)
    made.fast(device("gpu1"), lambda _: 200.0, until_s=2.0)
    devices = RunWatch(made.write()).look().devices
    assert [device.power_w for device in devices] == [pytest.approx(200), None]


def test_many_pages_share_one_poll(make_run):
    run = make_run("20261116-003512-bbbb")
    clock = [100.0]
    live = LiveRuns(lambda: clock[0])
    first = live.poll(run)
    assert live.poll(run) is first
    clock[0] += 0.5
    assert live.poll(run) is not first


def test_runs_that_no_page_shows_are_forgotten(make_run):
    one, other = make_run("20261116-003512-bbbb"), make_run("20261116-003512-cccc")
    clock = [100.0]
    live = LiveRuns(lambda: clock[0])
    live.poll(one)
    clock[0] += 61
    live.poll(other)
    assert list(live._watched) == [other]
    shutil.rmtree(other)
    live.poll(one)
    assert list(live._watched) == [one]


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"t_ns": 1}', '{"energy_j": 7, "t_ns": 1}'])
def test_a_damaged_live_json_is_ignored(make_run, damage):
    run = make_run("20261116-003512-bbbb")
    (run / "live.json").write_text(damage)
    polled = RunWatch(run).look()
    assert standing(polled) == "finished · 10.5 s · no energy reported yet"
    assert list(foretold(polled)) == []


@pytest.mark.parametrize(
    ("energy_j", "low", "high", "verdict"),
    [
        (500.0, 700.0, 900.0, "budget 1kJ: 50 % used; it will suffice (700-900 J expected)"),
        (
            500.0,
            900.0,
            1100.0,
            "budget 1kJ: 50 % used; it may be exceeded (900 J - 1.10 kJ expected)",
        ),
        (
            20.0,
            1200.0,
            1300.0,
            "budget 1kJ: 2.0 % used; it will be exceeded (1.20-1.30 kJ expected)",
        ),
        (1500.0, 1600.0, 1700.0, "budget 1kJ: 150 % used, exceeded"),
    ],
)
def test_a_budget_in_words(make_run, energy_j, low, high, verdict):
    run = make_run("20261116-003512-bbbb", options={"budgets": ["1kJ"]})
    total = {"value": energy_j, "error_sampling": 1, "error_gain": 1, "source": "measured"}
    estimate = {"value": (low + high) / 2, "low": low, "high": high}
    live = {
        "t_ns": 1_005 * 10**9,
        "energy_j": {"total": total},
        "epochs": {"done": 3, "total": 10},
        "outlook": {"time_s": {"value": 10, "low": 9, "high": 11}, "energy_j": estimate},
    }
    (run / "live.json").write_text(json.dumps(live))
    outlook, budget = foretold(RunWatch(run).look())
    assert outlook.startswith("forecast: epoch 3 of 10 is done")
    assert budget == verdict


def test_devices_left_out_of_the_total_are_named_during_the_run(make_run):
    run = make_run("20261116-003512-bbbb")
    joules = {"value": 500.0, "error_sampling": 1, "error_gain": 1, "source": "measured"}
    live = {
        "t_ns": 1_005 * 10**9,
        "time_s": 5.0,
        "energy_j": {"total": joules, "gpu0": joules, "gpu1": joules},
        "counted": ["gpu1"],
        "epochs": {"done": 0, "total": None},
        "outlook": {"reason": "too early", "fix": ""},
    }
    (run / "live.json").write_text(json.dumps(live))
    assert next(foretold(RunWatch(run).look())) == "not in the total so far: gpu0"
    live["counted"] = ["gpu0"]
    (run / "live.json").write_text(json.dumps(live))
    assert next(foretold(RunWatch(run).look())).startswith("no forecast at 5.00 s: ")


def test_a_mixed_total_names_what_is_simulated_without_nested_brackets(make_run):
    now = RunWatch(make_run("20261116-003512-bbbb")).look()
    total = Energy(500.0, 1.0, 1.0, Source.MIXED)
    mixed = replace(now, total=total, simulated=("gpu0",))
    assert standing(mixed).endswith("(GPU simulated, others not)")


def test_the_page_and_a_line_say_what_the_tuner_does(view, make_run):
    recorder = RecorderRecord.of_this_process()
    run = make_run("20260101-000000-tune", state="recording", recorder=recorder)
    assert "tuning" not in now(view, run)["text"]["foretold"]
    write_tuning(run, exploring_tuning())
    state = "tuning: exploring, 34 steps, now 250 W, SM 900 MHz; best so far 200 W, SM 1200 MHz"
    eventually(lambda: state in now(view, run)["text"]["foretold"])
    assert state in view.get(f"live/{run.name}").words
    assert state in line(RunWatch(run).look())


def test_how_a_command_ended_is_said(make_run):
    run = make_run("20261116-003512-bbbb", exit_code=130)
    assert standing(RunWatch(run).look()).startswith("killed (signal 2) · ")
