"""Commands of one group on one node share a recorder, whatever happens to whom."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack

import pytest

from joulewise.session.group import address, job_id, join, listen
from tests.helpers.processes import DEADLINE_S, JOULEWISE, eventually, gone, python
from tests.helpers.run_processes import environment, manifest, run, running, runs

ENDS_WITH = "print(os.getpid(), flush=True); sys.stdin.read(); sys.exit({})"


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({}, ""),
        ({"SLURM_JOB_ID": "12"}, "12"),
        ({"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "3"}, "12.3"),
        ({"PBS_JOBID": "7.head"}, "7.head"),
        ({"LSB_JOBID": "8"}, "8"),
        ({"FLUX_JOB_ID": "f2"}, "f2"),
        ({"JOB_ID": "not a scheduler's"}, ""),
        ({"JOB_ID": "9", "SGE_O_WORKDIR": "/"}, "9"),
    ],
)
def test_the_group_is_the_schedulers_job(environ, job):
    assert job_id(environ) == job


def test_one_address_has_one_recorder_and_is_free_when_it_ends(tmp_path):
    where = address(tmp_path, "g")
    assert where != address(tmp_path, "h")
    assert where != address(tmp_path / "other", "g")
    assert join(where) is None
    listener = listen(where)
    assert listen(where) is None
    joined = join(where)
    assert joined.peer() == (os.getpid(), os.getuid())
    joined.close()
    listener.close()
    assert join(where) is None


def test_the_second_joins_and_the_last_one_shows_the_result(tmp_path):
    with running(tmp_path, "--group", "g") as first, running(tmp_path, "--group", "g") as second:
        assert first.recorder_pid == second.recorder_pid
        _, said = first.process.communicate("", timeout=DEADLINE_S)
        assert first.process.returncode == 0
        assert "together with that of another command" in said
        assert "total" not in said
        assert not gone(first.recorder_pid)
        _, said = second.process.communicate("", timeout=DEADLINE_S)
        assert "joining run" in said
        assert "total" in said
        payload = manifest(tmp_path)
        assert (payload["group"], payload["state"]) == ("g", "complete")
        assert [c["pid"] for c in payload["commands"]] == [first.command_pid, second.command_pid]
        assert all(c["end_ns"] for c in payload["commands"])


def test_who_joins_is_reported_which_options_are_the_firsts(tmp_path):
    both = ["--group", "g", "--tag", "same"]
    with (
        running(tmp_path, *both, "--name", "one") as first,
        running(tmp_path, *both, "--name", "two", "--rate", "20", "--budget", "1MJ") as second,
    ):
        _, said = second.process.communicate("", timeout=DEADLINE_S)
        result = "without its own --rate, --name, --budget"
        assert said.splitlines()[0].endswith(result)
        _, said = first.process.communicate("", timeout=DEADLINE_S)
        assert "without" not in said
    done = run(tmp_path, *both, "--", "true")
    assert "without" not in done.stderr


def test_without_a_group_two_at_once_are_two_runs(tmp_path):
    with running(tmp_path) as first, running(tmp_path) as second:
        assert first.recorder_pid != second.recorder_pid
        for session in (first, second):
            session.process.communicate("", timeout=DEADLINE_S)
    assert len(runs(tmp_path)) == 2
    for folder in runs(tmp_path):
        assert json.loads((folder / "run.json").read_text())["state"] == "complete"


def test_four_that_start_at_once_are_one_run(tmp_path):
    environ = environment(SLURM_JOB_ID="4711")
    # All have started before any ends: each makes a file, and waits for those of the others.
    code = """
import pathlib
meet = pathlib.Path(sys.argv[1])
(meet / str(os.getpid())).touch()
while len(list(meet.iterdir())) < 4:
    time.sleep(0.01)
sys.exit(int(sys.argv[2]))
"""
    meet = tmp_path / "meet"
    meet.mkdir()
    processes = [
        subprocess.Popen(
            [
                *JOULEWISE,
                "--store",
                str(tmp_path / "store"),
                "run",
                *python(code),
                str(meet),
                str(n),
            ],
            stderr=subprocess.PIPE,
            text=True,
            env=environ,
        )
        for n in range(4)
    ]
    said = [process.communicate(timeout=DEADLINE_S)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 1, 2, 3]
    assert sum(" total " in text for text in said) == 1
    payload = manifest(tmp_path / "store")
    assert (payload["group"], len(payload["commands"]), payload["state"]) == ("4711", 4, "complete")
    assert sorted(c["exit_code"] for c in payload["commands"]) == [0, 1, 2, 3]
    eventually(lambda: gone(payload["recorder"]["pid"]))


def test_a_killed_leader_takes_its_own_command_and_nobody_elses(tmp_path):
    with running(tmp_path, "--group", "g") as leader, running(tmp_path, "--group", "g") as other:
        leader.kill(leader.process.pid)
        eventually(lambda: gone(leader.command_pid))
        assert not gone(other.command_pid)
        _, said = other.process.communicate("", timeout=DEADLINE_S)
        assert other.process.returncode == 0
        assert "total" in said
        payload = manifest(tmp_path)
        assert payload["state"] == "stopped"
        assert [c["exit_code"] for c in payload["commands"]] == [137, 0]


def test_after_a_killed_recorder_the_next_begins_a_run_of_its_own(tmp_path):
    with running(tmp_path, "--group", "g") as first:
        first.kill(first.recorder_pid)
        eventually(lambda: gone(first.recorder_pid))
        assert run(tmp_path, "--group", "g", "--", "true").returncode == 0
    assert len(runs(tmp_path)) == 2


def test_all_who_find_the_recorder_gone_write_down_how_their_command_ended(tmp_path):
    group = [running(tmp_path, "--group", "g", code=ENDS_WITH.format(n)) for n in (0, 7, 0)]
    with ExitStack() as stack:
        members = [stack.enter_context(member) for member in group]
        eventually(lambda: len(manifest(tmp_path)["commands"]) == 3)
        members[0].kill(members[0].recorder_pid)
        eventually(lambda: gone(members[0].recorder_pid))
        for member in members:
            member.process.stdin.close()
        assert [member.process.wait(DEADLINE_S) for member in members] == [0, 7, 0]
        payload = manifest(tmp_path)
    assert [command["exit_code"] for command in payload["commands"]] == [0, 7, 0]
    assert (payload["exit_code"], payload["state"]) == (7, "stopped")
    assert [note["code"] for note in payload["notes"]].count("recorder_ended") == 1


def test_commands_one_after_the_other_are_runs_of_the_same_group(tmp_path):
    for _ in range(2):
        run(tmp_path, "--group", "g", "--", "true")
    groups = [json.loads((folder / "run.json").read_text())["group"] for folder in runs(tmp_path)]
    assert groups == ["g", "g"]


def test_one_that_cannot_start_leaves_the_others_their_run(tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    with running(tmp_path / "store", "--group", "g") as session:
        assert run(tmp_path / "store", "--group", "g", "--", str(script)).returncode == 127
        session.process.communicate("", timeout=DEADLINE_S)
    assert len(manifest(tmp_path / "store")["commands"]) == 1


def test_four_ranks_on_one_gpu_count_it_once(tmp_path):
    sim = [*JOULEWISE, "sim", "--gpu", "v100", "--latency", "none", "--"]
    script = tmp_path / "ranks.py"
    script.write_text("""
import os, subprocess, sys
rank = "from joulewise.simulate.client import gpu; gpu(0).step('mnist-big', steps=40)"
ranks = [subprocess.Popen([sys.executable, "-c", rank]) for _ in range(4)]
sys.exit(sum(rank.wait() for rank in ranks))
""")
    result = tmp_path / "r.json"
    command = ["--store", str(tmp_path / "store"), "run", "--json", str(result), "--"]
    done = subprocess.run(
        [*sim, *JOULEWISE, *command, sys.executable, str(script)],
        capture_output=True, text=True, check=False, timeout=DEADLINE_S, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    payload = json.loads(result.read_text())
    assert payload["counted"].count("gpu0") == 1
    parts = [payload["energy_j"][key]["value"] for key in payload["counted"]]
    assert payload["energy_j"]["total"]["value"] == pytest.approx(sum(parts))
