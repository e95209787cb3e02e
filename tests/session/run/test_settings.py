"""Power limits and clocks for the time of a run, which are as before when it has ended."""

import json
import os
import subprocess
import sys

import pytest

from joulewise.errors import UsageError
from joulewise.session.settings import Settings
from tests.helpers.processes import DEADLINE_S, JOULEWISE

PYTHON = sys.executable
UNRULED = {"SLURM_JOB_ID": "", "KUBERNETES_SERVICE_HOST": ""}  # as in an ordinary login
LIMITS = (
    "nvidia-smi --query-gpu=power.limit --format=csv,noheader,nounits | cut -d. -f1 | paste -sd' '"
)
BEFORE = "nvidia-smi -i 0 -pl 250 >/dev/null; nvidia-smi -i 1 -pl 260 >/dev/null"
# Trains for a while, changes the limit behind our back, and trains on.
CHANGES = """
import subprocess, time
from joulewise.simulate import gpu
for limit_w in 180, None:
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        gpu(0).step("resnet50", batch_size=128)
    if limit_w:
        subprocess.run(["nvidia-smi", "-i", "0", "-pl", str(limit_w)], stdout=subprocess.DEVNULL)
"""


@pytest.fixture
def sim(tmp_path):
    """A shell script on two simulated GPUs at 250 and 260 W, where $LIMITS shows them."""
    (tmp_path / "limits").write_text(LIMITS)

    def run(script, *options, gpu="v100x2", **environ):
        return subprocess.run(
            [
                *(*JOULEWISE, "sim", "--gpu", gpu, "--as-root", *options, "--"),
                *(
                    "bash",
                    "-c",
                    f'joulewise() {{ {PYTHON} -m joulewise "$@"; }}; {BEFORE}; {script}',
                ),
            ],
            cwd=tmp_path,
            env={**os.environ, **UNRULED, "COLUMNS": "200", **environ},
            capture_output=True,
            text=True,
            check=False,
            timeout=5 * DEADLINE_S,  # the longest take 5 s on an idle machine
        )

    run.folder = tmp_path
    return run


def manifest(sim):
    (path,) = sim.folder.glob("joulewise-runs/*/run.json")
    return json.loads(path.read_text())


def settings(sim):
    devices = manifest(sim)["devices"]
    return {each["info"]["key"]: each["settings"] for each in devices if each["settings"]}


def test_the_limit_holds_while_the_command_runs_and_is_as_before_after(sim):
    ran = sim("joulewise run --power-limit 170 -- bash limits; echo $?; bash limits")
    assert ran.stdout.splitlines() == ["170 170", "0", "250 260"]
    assert settings(sim) == {"gpu0": {"power_limit_w": 170}, "gpu1": {"power_limit_w": 170}}
    assert " · gpu0, gpu1 at 170 W\n" in ran.stderr


def test_what_is_set_is_shown_once_for_gpus_alike_and_nothing_when_it_went_back(sim):
    ran = sim(
        "nvidia-smi -i 1 -pl 250 >/dev/null; "
        "joulewise run --power-limit 170 --sm-clock 1200 -- true; "
        "nvidia-smi -i 1 -pl 170 >/dev/null; joulewise run --power-limit 170 -- true"
    )
    clock = "SM clock locked at 1200 MHz"
    said = [line for line in ran.stderr.splitlines() if line.startswith("joulewise: gpu")]
    assert said == [
        f"joulewise: gpu0, gpu1: power limit 250 -> 170 W, {clock} for this run",
        "joulewise: gpu0: power limit 250 -> 170 W for this run",
        "joulewise: gpu1: power limit stays at 170 W for this run",
    ]


def test_many_gpus_alike_are_shown_in_short(sim):
    ran = sim(
        "nvidia-smi -pl 250 >/dev/null; joulewise run --power-limit 170 --sm-clock 1201 -- true",
        gpu="v100x4",
    )
    said = [line for line in ran.stderr.splitlines() if line.startswith("joulewise: gpu")]
    assert said == [
        "joulewise: gpu0-gpu3: power limit 250 -> 170 W, SM clock locked at 1200 MHz for this run",
        "joulewise: gpu0-gpu3: SM clock set to 1200 MHz, the nearest supported to 1201",
    ]


def test_only_gpus_that_the_command_sees_are_set(sim):
    ran = sim("joulewise run --power-limit 170 -- bash limits", CUDA_VISIBLE_DEVICES="1")
    assert ran.stdout.splitlines() == ["250 170"]


def test_named_gpus_are_set_though_the_command_does_not_see_them(sim):
    ran = sim(
        "joulewise run --gpu 0 --power-limit 170 -- bash limits; bash limits",
        CUDA_VISIBLE_DEVICES="1",
    )
    assert ran.stdout.splitlines() == ["170 260", "250 260"]


def test_percent_are_of_each_boards_own_default(sim):
    ran = sim("joulewise run --power-limit 80% -- bash limits; bash limits", gpu="v100,v100-pcie")
    assert ran.stdout.splitlines() == ["240 200", "250 250"]


@pytest.mark.parametrize("asked", ["180", "180W", "'180 w'", "60%", "'60 %'"])
def test_a_limit_may_have_its_unit(sim, asked):
    ran = sim(f"joulewise run --power-limit {asked} -- bash limits")
    assert ran.stdout.splitlines() == ["180 180"]


def test_a_clock_is_recorded_though_the_driver_does_not_tell_it(sim):
    ran = sim("joulewise run --gpu 0 --sm-clock 1201 -- true")
    assert ran.returncode == 0
    assert settings(sim)["gpu0"] == {"power_limit_w": 250, "sm_clock_mhz": 1200}
    assert " · gpu0 at SM clock 1200 MHz\n" in ran.stderr


@pytest.mark.parametrize(
    ("options", "says", "status"),
    [
        ("--power-limit 20", "gpu0's power limit cannot be 20 W\n", 2),
        (
            "--power-limit 20%",
            (
                "gpu0's power limit cannot be 60 W (20 % of its default 300 W)\n"
                "  give 150 to 300 W, or 50 to 100 %\n"
            ),
            2,
        ),
        ("--power-limit much", "'much' is not a power limit\n", 2),
        ("--power-limit 170 --gpu 7", "there is no gpu7\n", 2),
        ("--power-limit 170 --gpu a", "'a' is not a list of GPUs\n", 2),
        (
            "--gpu 0",
            "--gpu needs a setting\n  add --power-limit or a clock, or leave out --gpu\n",
            2,
        ),
        ("--force", "--force needs a setting\n", 2),
        ("--mem-clock 877", "gpu0's ", 125),
    ],
)
def test_what_cannot_be_set_stops_before_the_command_starts(sim, options, says, status):
    ran = sim(f"joulewise run {options} -- echo started; echo $?; bash limits")
    assert ran.stdout.splitlines() == [str(status), "250 260"]
    assert ran.stderr.startswith(f"joulewise: {says}")
    assert len(ran.stderr.splitlines()) == 2
    assert not list(sim.folder.glob("joulewise-runs/*"))


def test_a_limit_that_one_gpu_refuses_stays_on_none(sim):
    ran = sim(
        "joulewise run --power-limit 80% -- echo started; bash limits",
        *("--fault", "gpu1:limit-refused"),
        gpu="v100,v100-pcie",
    )
    assert ran.stdout.splitlines() == ["250 250"]
    assert ran.returncode == 0


def test_what_someone_else_has_set_stays_is_reported_and_marks_the_run(sim):
    (sim.folder / "change.py").write_text(CHANGES)
    ran = sim(f"joulewise run --power-limit 170 -- {PYTHON} change.py; echo $?; bash limits")
    assert ran.stdout.splitlines() == ["0", "180 260"]
    assert "joulewise: gpu0's power limit is at 180 W, which joulewise did not set" in ran.stderr
    assert "gpu0: its power limit changed during the run: from 170 W to 180 W" in ran.stderr


def test_the_commands_status_stays_and_its_end_by_a_signal_changes_nothing(sim):
    ran = sim(
        "joulewise run --power-limit 170 -- bash -c 'exit 7'; echo $?; bash limits; "
        "joulewise run --power-limit 170 -- bash -c 'kill -9 $$'; echo $?; bash limits"
    )
    assert ran.stdout.splitlines() == ["7", "250 260", "137", "250 260"]


def test_a_limit_that_does_not_go_back_is_reported_and_is_our_failure(sim):
    (sim.folder / "wait").write_text(
        "until ! nvidia-smi -i 0 -L >/dev/null 2>&1; do sleep 0.1; done"
    )
    ran = sim(
        "joulewise run --power-limit 170 -- bash wait; echo $?; "
        "nvidia-smi -i 1 --query-gpu=power.limit --format=csv,noheader",
        *("--fault", "gpu0:lost@12s"),
    )
    assert ran.stdout.splitlines() == ["125", "260.00 W"]
    assert "joulewise: gpu0's power limit could not be put back to 250 W: " in ran.stderr


# Kills the guardian whose journal is there, and has another command find what it left.
KILLS = """
guardian=$(basename $JOULEWISE_STATE/leases/*.journal); kill -9 ${guardian%%-*}
while readlink /proc/${guardian%%-*}/exe; do sleep 0.02; done >/dev/null  # it takes a moment to die
joulewise ls; bash limits
"""


UNGUARDED = ": the settings may not hold until the run ends\n"


def test_a_killed_guardian_is_shown_at_once_and_marks_the_run(sim):
    (sim.folder / "kills").write_text(f'joulewise() {{ {PYTHON} -m joulewise "$@"; }}; {KILLS}')
    ran = sim("joulewise run --power-limit 170 --json told.json -- bash kills; echo $?")
    assert ran.stdout.splitlines()[-2:] == ["250 260", "0"]
    assert f"\njoulewise: the guardian of the settings was killed{UNGUARDED}" in ran.stderr
    assert " is still running, but its guardian was killed\n" in ran.stderr
    payload = json.loads((sim.folder / "told.json").read_text())
    assert "settings_unguarded" in {each["code"] for each in payload["warnings"]}


# Kills the recorder of the run as well, before its guardian.
KILLS_RECORDER = """
import json, os, signal
folder = os.path.dirname(os.environ["JOULEWISE_MARKS"])
with open(f"{folder}/run.json") as file:
    os.kill(json.load(file)["recorder"]["pid"], signal.SIGKILL)
"""


def test_a_guardian_killed_after_the_recorder_marks_the_run_too(sim):
    (sim.folder / "kill.py").write_text(KILLS_RECORDER)
    kills = f'joulewise() {{ {PYTHON} -m joulewise "$@"; }}; {PYTHON} kill.py; {KILLS}'
    (sim.folder / "kills").write_text(kills)
    ran = sim("joulewise run --power-limit 170 --json told.json -- bash kills; echo $?")
    assert ran.stdout.splitlines()[-2:] == ["250 260", "0"]
    assert f"\njoulewise: the guardian of the settings was killed{UNGUARDED}" in ran.stderr
    payload = json.loads((sim.folder / "told.json").read_text())
    codes = [each["code"] for each in payload["warnings"]]
    assert codes.count("settings_unguarded") == codes.count("recorder_ended") == 1


def test_a_guardian_killed_where_nothing_is_measured_is_said(sim):
    (sim.folder / "sitecustomize.py").write_text(
        "import sys; sys.modules['joulewise.session.recording'] = None"
    )
    (sim.folder / "kills").write_text(f'joulewise() {{ {PYTHON} -m joulewise "$@"; }}; {KILLS}')
    ran = sim(
        "export PYTHONPATH=$PWD:$PYTHONPATH; "
        "joulewise run --power-limit 170 -- bash kills; echo $?",
    )
    assert ran.stdout.splitlines()[-2:] == ["250 260", "0"]
    assert "the command is not measured" in ran.stderr
    assert f"\njoulewise: the guardian of the settings was killed{UNGUARDED}" in ran.stderr


SAID_SO = "until grep -E 'guard service (ended|was killed)' said; do sleep 0.05; done"
# In a job, root asks the service, too.
BY_SERVICE = f"""
{PYTHON} -m joulewise guard --group root --socket guard.sock 2>guard.log & guard=$!
until grep -q "listening at" guard.log; do
  kill -0 $guard || {{ cat guard.log >&2; exit 1; }}  # a guard that was refused never listens
  sleep 0.05
done
export JOULEWISE_GUARD=guard.sock guard
SLURM_JOB_ID=7 joulewise run --power-limit 170 --json told.json -- bash work 2>said; echo $?
bash limits; kill $guard 2>/dev/null; wait $guard
"""


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start the guard service")


def by_service(sim, work):
    (sim.folder / "said_so").write_text(SAID_SO)
    (sim.folder / "work").write_text(work)
    ran = sim(BY_SERVICE)
    assert (sim.folder / "said").exists(), ran.stderr
    said = (sim.folder / "said").read_text()
    codes = {
        each["code"] for each in json.loads((sim.folder / "told.json").read_text())["warnings"]
    }
    return ran.stdout.splitlines(), said, codes


@as_root
def test_the_service_is_named_where_it_sets_the_limit(sim):
    shown, said, codes = by_service(sim, "bash limits")
    assert shown == ["170 170", "0", "250 260"]
    service = "for this run, by the guard service\n"
    assert f"joulewise: gpu0: power limit 250 -> 170 W {service}" in said
    assert f"joulewise: gpu1: power limit 260 -> 170 W {service}" in said
    assert "settings_unguarded" not in codes


@as_root
def test_a_service_that_ends_shows_what_it_put_back_and_the_command_goes_on(sim):
    ends = "kill $guard; timeout 60 bash said_so; bash limits"
    shown, said, codes = by_service(sim, ends)
    back = "gpu1's power limit back to 260 W, gpu0's power limit back to 250 W"
    line = f"joulewise: the guard service ended and put {back}; "
    line += "the command goes on without these settings"
    assert shown == [line, "250 260", "0", "250 260"]
    assert "joulewise restore" not in said
    assert "settings_unguarded" in codes


@as_root
def test_a_killed_service_is_named(sim):
    shown, said, codes = by_service(sim, "kill -9 $guard; timeout 60 bash said_so")
    assert shown[0] == f"joulewise: the guard service was killed{UNGUARDED}".rstrip()
    assert "guardian of" not in said
    assert "settings_unguarded" in codes


def test_settings_know_whether_there_are_any():
    assert Settings().is_nothing
    assert not Settings(power_limit="70%").is_nothing
    with pytest.raises(UsageError, match="not a power limit"):
        Settings(power_limit="-5")
