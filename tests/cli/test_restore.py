"""What a killed joulewise left set goes back: by hand, by the next command, at the end of a job."""

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from joulewise.cli import restore
from joulewise.control.holds import Change, Hold, LeaseHolder
from joulewise.control.permissions import EPILOG
from joulewise.data import ControlKind
from joulewise.errors import PermissionDeniedError
from joulewise.process.linux import boot_id, pid_namespace
from joulewise.process.state_dir import ENDING, FOLDER, make_state_folder
from tests.helpers.processes import JOULEWISE

PYTHON = sys.executable
UNRULED = {"SLURM_JOB_ID": "", "KUBERNETES_SERVICE_HOST": ""}  # as in an ordinary login
# Changes settings, and dies with its guardian: ``left.py gpu0,gpu1 power_limit_w=170``.
LEFT = """
import os, select, signal, sys
from pathlib import Path
from joulewise import control
name, _, value = sys.argv[2].partition("=")
control.lease(sys.argv[1].split(","), **{name: float(value)})
(journal,) = Path(os.environ["JOULEWISE_STATE"], "leases").glob("*.journal")
guardian = int(journal.name.partition("-")[0])
watch = os.pidfd_open(guardian)
os.kill(guardian, signal.SIGKILL)
select.select([watch], [], [])
print(os.getpid(), flush=True)
os._exit(0)
"""
LIMITS = (
    "nvidia-smi --query-gpu=power.limit --format=csv,noheader,nounits | cut -d. -f1 | paste -sd' '"
)
BEFORE = "nvidia-smi -i 0 -pl 250 >/dev/null; nvidia-smi -i 1 -pl 260 >/dev/null"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")


def words(line):
    return " ".join(line.split())


@pytest.fixture
def sim(tmp_path):
    """A shell script on two simulated GPUs at 250 and 260 W, with ``left`` and ``joulewise``."""
    (tmp_path / "left.py").write_text(LEFT)

    def run(script, *options, **environ):
        tools = (
            f"left() {{ {PYTHON} {tmp_path}/left.py $@; }}; "
            f"joulewise() {{ {PYTHON} -m joulewise $@; }}"
        )
        return subprocess.run(
            [
                *(*JOULEWISE, "sim", "--gpu", "v100x2", "--as-root", *options, "--"),
                *("bash", "-c", f"{tools}; {BEFORE}; {script}"),
            ],
            cwd=tmp_path,
            env={**os.environ, **UNRULED, **environ},
            capture_output=True,
            text=True,
            check=False,
        )

    run.folder = tmp_path
    return run


def test_what_was_left_goes_back_to_what_it_was_and_the_table_shows_so(sim):
    ran = sim(f"left gpu0,gpu1 power_limit_w=170; {LIMITS}; joulewise restore && {LIMITS}")
    lines = ran.stdout.splitlines()
    assert lines[1] == "170 170"
    assert words(lines[2]) == "device setting from to outcome"
    assert words(lines[3]) == "gpu1 power limit 170 W 260 W restored"
    assert words(lines[4]) == "gpu0 power limit 170 W 250 W restored"
    assert lines[5] == "250 260"


def test_a_clock_is_unlocked(sim):
    ran = sim("left gpu0 sm_clock_mhz=1200 >/dev/null; joulewise restore")
    assert words(ran.stdout.splitlines()[1]) == "gpu0 SM clock 1200 MHz default restored"


def test_nothing_is_left(sim):
    ran = sim("joulewise restore")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "Nothing to restore.\n", "")


def test_what_somebody_else_has_set_since_stays(sim):
    ran = sim(
        "left gpu0 power_limit_w=170 >/dev/null; nvidia-smi -i 0 -pl 180 >/dev/null; "
        f"joulewise restore --json - && {LIMITS}"
    )
    payload, limits = json.loads(ran.stdout.rpartition("}")[0] + "}"), ran.stdout.splitlines()[-1]
    assert [each["outcome"] for each in payload["undone"]] == ["changed since"]
    assert limits == "180 260"


def test_what_a_living_process_holds_stays_and_is_shown(sim):
    code = (
        "from joulewise import control; import subprocess, sys; "
        "lease = control.lease('gpu0', power_limit_w=170); "
        "subprocess.run([sys.executable, '-m', 'joulewise', 'restore']); lease.release()"
    )
    ran = sim(f'{PYTHON} -c "{code}"')
    nothing, _, row, last = ran.stdout.splitlines()
    assert nothing == "Nothing to restore. In use now:"
    assert words(row).startswith("gpu0 power limit 170 W 250 W pid ")
    assert last == "A setting in use goes back by itself when the process that holds it ends."
    assert ran.stderr == ""


def test_a_lost_gpu_is_reported_and_the_other_restored(sim):
    assert sim("left gpu0,gpu1 power_limit_w=170; cp $JOULEWISE_STATE/leases/*.journal .").stdout
    ran = sim(
        "mkdir -p $JOULEWISE_STATE/leases; cp *.journal $JOULEWISE_STATE/leases/; "
        "nvidia-smi -i 1 -pl 170 >/dev/null; joulewise restore --json told.json; echo $?; "
        "nvidia-smi -i 1 --query-gpu=power.limit --format=csv,noheader; "
        "joulewise restore --epilog; echo $?",
        *("--fault", "gpu0:lost"),
    )
    payload = json.loads((sim.folder / "told.json").read_text())
    outcomes = {each["device"]: each["outcome"] for each in payload["undone"]}
    assert outcomes == {"gpu0": "not restored", "gpu1": "restored"}
    assert ran.stdout.splitlines()[3:5] == ["125", "260.00 W"]
    assert ran.stdout.splitlines()[-1] == "125"
    assert "joulewise: gpu0's power limit could not be put back to 250 W: " in ran.stderr


def test_what_was_done_is_reported_though_the_json_cannot_be_written(sim):
    ran = sim(
        "left gpu0 power_limit_w=170 >/dev/null; "
        f"joulewise restore --json no/such/told.json; echo $?; {LIMITS}"
    )
    *_, row, status, limits = ran.stdout.splitlines()
    assert words(row) == "gpu0 power limit 170 W 250 W restored"
    assert (status, limits) == ("2", "250 260")
    assert ran.stderr.startswith("joulewise: cannot write no/such/told.json")


def test_after_a_reboot_there_is_nothing_to_undo(sim):
    ran = sim(
        "left gpu0 power_limit_w=170 >/dev/null; "
        'sed -i \'s/"boot_id": "/&another-/\' $JOULEWISE_STATE/leases/*.journal; '
        f"joulewise restore && {LIMITS}; ls $JOULEWISE_STATE/leases"
    )
    assert ran.stdout.splitlines() == [
        "Settings that were left changed have been undone by a reboot.",
        "170 260",
    ]


def test_the_next_command_puts_back_and_shows_so_in_a_line(sim):
    ran = sim(f"left gpu0 power_limit_w=170; joulewise ls >/dev/null; {LIMITS}; joulewise ls")
    pid, limits, *_ = ran.stdout.splitlines()
    assert limits == "250 260"
    put_back = [line for line in ran.stderr.splitlines() if " back to " in line]
    assert put_back == [
        f"joulewise: gpu0's power limit back to 250 W: pid {pid} had left it at 170 W"
    ]


def test_the_next_command_shows_so_where_who_had_it_lives_on(sim):
    (sim.folder / "alone.py").write_text(
        LEFT.replace("os._exit(0)", "os.system(sys.argv[3]); os._exit(0)")
    )
    ran = sim(f"{PYTHON} alone.py gpu0 sm_clock_mhz=1200 '{PYTHON} -m joulewise ls'")
    pid = ran.stdout.split()[0]
    why = f"pid {pid} is still running, but its guardian was killed"
    line = f"joulewise: gpu0's SM clock unlocked: {why}"
    assert line in ran.stderr.splitlines()


def test_the_next_command_runs_whatever_cannot_be_put_back(sim):
    ran = sim(
        "left gpu0 power_limit_w=170 >/dev/null; "
        "sed -i s/GPU-/GPU-gone-/ $JOULEWISE_STATE/leases/*.journal; "
        "joulewise run -- echo ran; echo $?"
    )
    assert ran.stdout.split() == ["ran", "0"]
    first = ran.stderr.splitlines()[0]
    assert first.startswith("joulewise: gpu0's power limit could not be put back to 250 W: ")
    assert first.endswith(": the device is not there; run: joulewise restore")


def test_a_damaged_journal_stops_nobody(sim):
    ran = sim(
        "mkdir -p $JOULEWISE_STATE/leases; cd $JOULEWISE_STATE/leases; "
        "head -c 999 /dev/urandom > 1-a.journal; "
        "joulewise run -- echo ran; joulewise restore"
    )
    assert ran.stdout.splitlines()[0] == "ran"


def test_the_epilog_is_quiet_and_leaves_its_stamp(sim):
    ran = sim(f"joulewise restore --epilog && ls $JOULEWISE_STATE/{EPILOG}")
    assert ran.stdout.splitlines()[0].endswith(f"/{EPILOG}")
    assert ran.stderr == ""


def test_the_epilog_puts_back_what_the_job_has_left(sim):
    ran = sim(f"left gpu1 power_limit_w=170 >/dev/null; joulewise restore --epilog && {LIMITS}")
    assert "restored" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "250 260"


@as_root
def test_who_lacks_the_right_is_reported_the_command(sim):
    sim.folder.chmod(0o777)
    ran = sim(
        "left gpu0 power_limit_w=170 >/dev/null; chmod -R a+rX $JOULEWISE_STATE; "
        "setpriv --reuid 65534 --clear-groups $JOULEWISE_RESTORE",
        JOULEWISE_RESTORE=f"{PYTHON} -m joulewise restore",
    )
    assert ran.stderr.splitlines()[-2].startswith("joulewise: only root can put back the settings")
    assert "  run: sudo env JOULEWISE_STATE=" in ran.stderr
    assert ran.returncode == 125


@as_root
def test_root_is_reported_whose_a_journal_is_that_it_does_not_trust(sim):
    ran = sim(
        "left gpu0 power_limit_w=170 >/dev/null; chown nobody $JOULEWISE_STATE/leases/*.journal; "
        "joulewise restore"
    )
    assert "Nothing is left set" not in ran.stdout
    assert "another user may have written it" in ran.stderr
    assert "let user nobody run `joulewise restore`, or delete it" in ran.stderr
    assert ran.returncode == 125


@pytest.fixture
def as_nobody(tmp_path, monkeypatch):
    """``restore`` by somebody with a folder of their own, where root's is ``tmp_path / "root"``."""
    from joulewise.process import state_dir

    folders = [tmp_path / "own", tmp_path / "root"]
    monkeypatch.setattr(state_dir, "state_folders", lambda _: folders)
    monkeypatch.setattr(state_dir, "state_folder", lambda _: folders[0])
    monkeypatch.setattr("joulewise.process.state_dir.may_restore", lambda path: path != folders[1])

    def run(boot, value=150.0):
        change = Change("GPU-1", "gpu0", ControlKind.POWER_LIMIT, 250.0, value)
        hold = Hold("1", LeaseHolder(4711, 0, "python", 1.0), (change,))
        journal = make_state_folder(make_state_folder(folders[1]) / FOLDER) / f"4711-a{ENDING}"
        header = {
            "format": 1,
            "boot_id": boot,
            "node": os.uname().nodename,
            "namespace": pid_namespace(),
        }
        lines = [{**header, "pid": 4711, "ticks": 1, "began_s": 1.0}, {"begin": hold.as_json()}]
        journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return CliRunner().invoke(restore.command, [])

    return run


def test_what_root_has_left_before_a_reboot_is_nobodys_matter(as_nobody):
    ran = as_nobody("another boot")
    assert (ran.exit_code, ran.output) == (0, "Nothing to restore.\n")


def test_what_root_has_left_since_is_reported_with_the_command(as_nobody):
    ran = as_nobody(boot_id())
    assert ran.output.startswith("gpu0's power limit was left at 150 W by pid 4711 of root")
    assert isinstance(ran.exception, PermissionDeniedError)


def test_doctor_reports_who_holds_what_and_what_was_left_behind(sim):
    code = (
        "from joulewise import control; import subprocess, sys; "
        "lease = control.lease('gpu1', power_limit_w=170); "
        "subprocess.run([sys.executable, '-m', 'joulewise', 'doctor', '--json', 'doctor.json']); "
        "lease.release()"
    )
    ran = sim(
        "left gpu0 power_limit_w=180 >/dev/null; "
        f'sed -i s/GPU-/GPU-gone-/ $JOULEWISE_STATE/leases/*.journal; {PYTHON} -c "{code}"',
        SLURM_JOB_ID="",
        JOULEWISE_GUARD="/nonexistent",
        COLUMNS="200",
    )
    leases = json.loads((sim.folder / "doctor.json").read_text())["leases"]
    result = {
        each["device"]: (each["state"], each["value"], each["before"]) for each in leases["knobs"]
    }
    assert result == {"gpu0": ("left", 180, 250), "gpu1": ("held", 170, 260)}
    assert (leases["fix"], leases["service"]) == ("joulewise restore", None)
    shown = [
        words(line)
        for line in ran.stdout.partition("\nchanged settings (leases)\n")[2].splitlines()
    ]
    assert shown[1].startswith("gpu1 power limit 170 W 260 W pid ")
    assert shown[2].startswith("left behind: gpu0's power limit at 180 W, before 250 W, by pid ")
    alone = "root can" if os.geteuid() == 0 else "you can"
    assert shown[3:5] == [
        "fix: joulewise restore",
        f"no guard service here: {alone} change settings without it",
    ]


def test_doctor_reports_what_a_scheduler_means(sim):
    ran = sim("joulewise doctor", SLURM_JOB_ID="4711", JOULEWISE_GUARD="/nonexistent")
    assert "under Slurm (job 4711), which ends the guardian with the job: " in ran.stdout
    ran = sim("joulewise restore --epilog; joulewise doctor", SLURM_JOB_ID="4711")
    assert (
        "under Slurm (job 4711): the epilog restores the settings that a job leaves" in ran.stdout
    )
