"""``joulewise sweep`` as it is typed: what it refuses, what it shows, and what it ends with."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from joulewise.cli.run import command as run_verb
from joulewise.cli.sweep import command as sweep_verb
from joulewise.data.sweeps import CONTROL_AXES, CONTROL_KEYS, control_option
from joulewise.sweep.spec_file import read
from tests.helpers.paths import ROOT

SIM = ("--sim", "v100", "--workload", "resnet50")
LIMITS = ("--power-limit", "150,200,300", "--repeat", "2")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "there is nothing to sweep"),
        (("--power-limit", "150"), "no command to run"),
        ((*SIM,), "there is nothing to sweep"),
        ((*SIM, "--power-limit", "100"), "150 to 300 W"),
        ((*SIM, "--power-limit", "many"), "many"),
        ((*SIM, "--set", "power_limit_w=150,200"), "--power-limit 150,200"),
        ((*SIM, "--set", "batch_size"), "is not NAME=VALUE"),
        ((*SIM, "--set", "batch_size=0"), "batch_size is 0"),
        ((*SIM, "--set", "width=3"), "a simulated workload has no width"),
        ((*SIM, *LIMITS, "--reference", "lr=1"), "which is not an axis"),
        ((*SIM, *LIMITS, "--repeat", "0"), "--repeat"),
        ((*SIM, *LIMITS, "--cool-down", "cold"), "cold"),
        ((*SIM, *LIMITS, "--by", "enrgy"), "did you mean energy"),
        ((*SIM, *LIMITS, "--max-slowdown", "0.5"), "--max-slowdown"),
        ((*SIM, *LIMITS, "--pue", "0.5"), "--pue"),
        ((*SIM, *LIMITS, "--gpu", "one"), "is not a list of GPUs"),
        ((*SIM, *LIMITS, "--price", "0.3"), "--dry-run"),
        ((*SIM, *LIMITS, "--tolerance", "2"), "add --adaptive"),
        ((*SIM, *LIMITS, "--", "true"), "both a command and --sim"),
        (("--workload", "resnet50", *LIMITS), "--sim v100"),
        (("--sim", "v10", "--workload", "resnet50", *LIMITS), "v100"),
        (("--sim", "v100", "--workload", "resnet5", *LIMITS), "resnet50"),
        (("--set", "a=1", "--", "no-such-program", "{a}"), "no-such-program"),
        (("--set", "a=1", "--", "echo", "{b}"), "{b}"),
        (("--repeat", "3", "nowhere.toml"), "write it into the file"),
        (("nowhere.toml",), "nowhere.toml"),
    ],
)
def test_what_cannot_be_intended_is_refused_before_anything_runs(joulewise, store, arguments, said):
    ran = joulewise("sweep", *arguments)
    assert ran.returncode in {2, 127}
    assert said in ran.stderr
    assert len(ran.stderr.splitlines()) == 2
    assert not ran.stdout
    assert not store.exists()


@pytest.mark.parametrize("control", CONTROL_AXES)
def test_a_setting_is_named_alike_in_a_sweep_a_run_and_a_file(tmp_path, control):
    option = control_option(control)
    for verb in (sweep_verb, run_verb):
        assert option in {name for parameter in verb.params for name in parameter.opts}
    file = tmp_path / "sweeps.toml"
    file.write_text(f"{option.removeprefix('--').replace('-', '_')} = [200]\n")
    assert read(file)[0].axes == {control: "200"}


def test_a_control_without_an_option_is_no_axis_of_the_command_line(joulewise, monkeypatch):
    monkeypatch.setitem(CONTROL_KEYS, "fan_pct", "fan")
    ran = joulewise("sweep", *SIM, *LIMITS, "--dry-run", "--json", "-")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_json_on_stdout_is_all_there_is(joulewise):
    ran = joulewise("sweep", *SIM, *LIMITS, "--by", "edp", "--json", "-")
    payload = json.loads(ran.stdout)
    assert ran.returncode == 0
    assert [point["settings"] for point in payload["points"]] == [
        {"power_limit_w": limit_w} for limit_w in (150, 200, 300)
    ]
    assert {point["n"] for point in payload["points"]} == {2}
    assert payload["reference"]["settings"] == {"power_limit_w": 300}
    assert list(payload["best"]) == ["edp"]
    assert payload["best"]["edp"]["metrics"]["edp"].keys() == {"mean", "low", "high"}
    assert (payload["state"], payload["failed"], payload["skipped"], payload["search"]) == (
        "finished",
        [],
        [],
        None,
    )


def test_it_ends_with_the_finding_and_with_commands_that_work(joulewise):
    ran = joulewise("sweep", *SIM, *LIMITS, "--by", "edp")
    lines = ran.stdout.splitlines()
    (finding,) = [line for line in lines if line.startswith("EDP: ")]
    assert re.search(r" less energy( \([^)]+\))? and ", finding)
    assert not any("time: nothing beats" in line for line in lines)
    apply, *more = [shlex.split(line.partition("  # ")[0]) for line in lines[-3:]]
    limit = finding.split()[1]
    assert apply == ["joulewise", "run", f"--power-limit={limit}", "--", "python", "train.py"]
    assert "parabola" not in ran.stdout
    for command in more:
        again = joulewise(*command[3:])
        assert again.returncode == 0
        assert f"EDP: {limit} W takes" in again.stdout


def test_who_requested_for_no_metric_is_not_reported_that_nothing_is_faster(joulewise):
    ran = joulewise("sweep", *SIM, *LIMITS)
    findings = [line for line in ran.stdout.splitlines() if "nothing beats" in line]
    assert not any(line.startswith("time") for line in findings)
    assert "energy: 150 W takes" in ran.stdout
    asked = joulewise("sweep", *SIM, *LIMITS, "--by", "time")
    assert "time: nothing beats the reference, 300 W" in asked.stdout


def test_the_plan_of_simulated_runs_reports_what_trainings_would_take(joulewise, store):
    ran = joulewise("sweep", *SIM, "--power-limit", "full", "--dry-run", "--price", "0.3")
    assert "31 settings, 155 runs" in ran.stdout
    assert "real runs would take 12 h" in ran.stdout
    assert "in the currency of --price" in ran.stdout
    assert "it takes" not in ran.stdout
    assert not store.exists()


@pytest.mark.parametrize(
    ("limits", "said"),
    [("150,200", "2 settings and the reference, 6 runs"), ("200,300", "2 settings, 4 runs")],
)
def test_the_plan_counts_the_reference_where_it_is_no_setting(joulewise, limits, said):
    ran = joulewise("sweep", *SIM, "--power-limit", limits, "--repeat=2", "--dry-run")
    assert ran.stdout.splitlines()[0].strip() == said


def test_the_plan_of_a_search_is_its_own_guess(joulewise):
    full = (*SIM, "--power-limit", "full", "--dry-run", "--json", "-")
    grid = json.loads(joulewise("sweep", *full).stdout)
    search = json.loads(joulewise("sweep", *full, "--adaptive", "--by", "edp").stdout)
    assert grid["runs"] == 155
    assert search["runs"] < 30
    assert search["energy_j"] < grid["energy_j"] / 4


def test_a_search_shows_how_sure_it_is(joulewise):
    ran = joulewise("sweep", *SIM, "--power-limit", "full", "--adaptive", "--by", "edp")
    assert "is within 1 % of the best" in ran.stdout
    assert "pairs of these runs" in ran.stdout
    other = joulewise("choose", "last", "--by", "energy")
    assert "the search was for the best by edp" in other.stdout


def test_what_is_skipped_is_reported_with_the_reason(joulewise):
    arguments = (*SIM, "--power-limit", "150:300:25", "--repeat", "3", "--max-slowdown", "1.1")
    payload = json.loads(joulewise("sweep", *arguments, "--json", "-").stdout)
    assert payload["skipped"]
    assert {it["settings"]["power_limit_w"] for it in payload["skipped"]} <= {150, 175, 200}
    shown = joulewise("choose", "last").stdout
    assert "  skipped: 150 W" in shown
    assert "times as long" in shown


def test_a_file_with_two_benchmarks_is_two_sweeps(joulewise, tmp_path):
    path = tmp_path / "all.json"
    example = ROOT / "examples" / "sweep.toml"
    ran = joulewise("sweep", "--json", str(path), str(example))
    assert ran.returncode == 0, ran.stderr
    payload = json.loads(path.read_text())
    assert [sweep["name"] for sweep in payload["sweeps"]] == ["limits", "batches"]
    assert ran.stdout.count("Best setting per objective") == 2


def test_requested_again_afresh_it_is_another_sweep(joulewise, store):
    for _ in range(2):
        joulewise("sweep", *SIM, "--power-limit", "150,300", "--repeat", "1", "--new")
    assert len(list((store / "sweeps").iterdir())) == 2


FAILING = (
    "import sys; print('reading', flush=True); "
    "sys.exit('no such data' if sys.argv[1] == 'b' else 0)"
)


def test_the_same_command_tries_again_what_failed_until_nothing_has(joulewise, tmp_path, store):
    data = tmp_path / "data"
    code = "import os, sys; sys.exit(sys.argv[1] == 'b' and not os.path.exists(sys.argv[2]))"
    program = (sys.executable, "-c", code, "{mode}", str(data))
    command = ("--set", "mode=a,b", "--repeat=2", "--json=-", "--", *program)
    first = joulewise("sweep", *command)
    assert first.returncode == 1
    assert "the same command repeats the runs that failed" in first.stderr
    again = joulewise("sweep", *command)
    assert again.returncode == 1
    assert "2 runs are done, 2 runs left; 2 failed before and are tried again" in again.stderr
    assert {each["attempts"] for each in json.loads(again.stdout)["failed"]} == {3}
    data.touch()
    mended = joulewise("sweep", *command)
    assert mended.returncode == 0
    ids = [json.loads(ran.stdout)["id"] for ran in (first, again, mended)]
    assert len(set(ids)) == len(list((store / "sweeps").iterdir())) == 1
    assert [point["n"] for point in json.loads(mended.stdout)["points"]] == [2, 2]
    afresh = joulewise("sweep", *command)
    assert json.loads(afresh.stdout)["id"] != ids[0]


def test_a_failed_run_is_shown_with_the_end_of_its_log(joulewise, tmp_path):
    path = tmp_path / "told.json"
    command = (sys.executable, "-c", FAILING, "{mode}")
    ran = joulewise("sweep", "--set", "mode=a,b", "--repeat=1", f"--json={path}", "--", *command)
    assert ran.returncode == 1
    (failed,) = json.loads(path.read_text())["failed"]
    assert failed["settings"] == {"mode": "b"}
    assert failed["attempts"] == 2
    assert failed["log_tail"].splitlines()[-1] == "no such data"
    lines = [line.strip() for line in ran.stdout.splitlines()]
    at = lines.index("failed: mode b (1 run): the command ended with status 1")
    assert lines[at + 1 : at + 4][-2:] == ["| reading", "| no such data"]
    assert lines[at + 4] == f"log: {failed['log']}"
    assert "no such data" in Path(failed["log"]).read_text()
    assert "no GPU was in use: the energy is that of the node" in ran.stderr
    assert "System boundary: node (no GPU in use" in ran.stdout
