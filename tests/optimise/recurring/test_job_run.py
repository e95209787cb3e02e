"""`joulewise job run`: tries, outcomes, exit statuses, and what it does not disturb."""

import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys

import pytest

from joulewise.data.jobs import TryStatus
from joulewise.optimise.recurring.store.tables import REVISION_TABLE
from joulewise.store.manifest import read_manifest
from joulewise.units import NS_PER_S
from tests.helpers.processes import DEADLINE_S, JOULEWISE, eventually
from tests.helpers.run_processes import runs
from tests.optimise.recurring.job_runs import NEW, PYTHON, replaced


def test_a_recurrence_that_reaches_its_target(job):
    ran = job.run(*NEW, environ={"EPOCHS": json.dumps({"16": 3})})
    assert (ran.stdout, ran.returncode) == ("batch size 16\n", 0)
    told = job.told()
    assert (told["job"], told["recurrence"], told["reached"]) == ("nightly", 1, True)
    assert told["target"] == {"metric": "val_acc", "value": 1.0, "wanted": "val_acc>=1.0"}
    (one,) = told["tries"]
    assert one["settings"] == {"batch_size": 16}
    assert (one["status"], one["epochs"], one["exit_code"]) == ("reached", 3, 0)
    assert one["cost"] == told["cost"] > 0
    (run,) = runs(job.store)
    assert one["run"] == run.name
    assert set(read_manifest(run).tags) == {"job:nightly", "recurrence:1", "try:1"}
    (stored,) = job.history().tries
    assert (stored.status, stored.run, stored.cost) == (TryStatus.REACHED, run.name, one["cost"])


def test_the_cost_counts_from_the_first_epoch_to_the_target(job):
    # It takes a second to start, and goes on for LAST epochs of EPOCH_S whatever it has reached.
    goes_on = "import time; time.sleep(1)\n" + PYTHON[2].replace("if value >= 1:", "if False:")
    command = (sys.executable, "-c", goes_on, "{batch_size}")
    environ = {"EPOCHS": json.dumps({"16": 1}), "EPOCH_S": "0.5", "LAST": "5"}
    assert job.run(*NEW, command=command, environ=environ).returncode == 0
    (one,) = job.told()["tries"]
    (run,) = runs(job.store)
    ended = read_manifest(run).commands[0]
    whole_s = (ended.end_ns - ended.start_ns) / NS_PER_S
    assert one["epochs"] == 1
    # Four epochs of 0.5 s follow the target.
    assert 0.5 <= one["time_s"] < whole_s - 1 - 4 * 0.5


def test_a_missed_target_is_tried_again_at_most_so_often(job):
    ran = job.run(*NEW, "--max-tries", "2", environ={"EPOCHS": "{}", "LAST": "2"})
    assert ran.stdout == "batch size 16\nbatch size 8\n"
    assert ran.returncode == 1
    told = job.told()
    assert not told["reached"]
    assert [one["status"] for one in told["tries"]] == ["missed", "missed"]
    assert [one["epochs"] for one in told["tries"]] == [2, 2]
    assert told["cost"] == sum(one["cost"] for one in told["tries"])


def test_no_try_has_signals_blocked_that_the_first_had_not(job):
    shows = "print(open('/proc/self/status').read().split('SigBlk:')[1].split()[0])\n"
    command = (sys.executable, "-c", shows + PYTHON[2], "{batch_size}")
    ran = job.run(*NEW, "--max-tries", "2", command=command, environ={"LAST": "1"})
    first, _, second, _ = ran.stdout.splitlines()
    assert first == second


def test_a_later_recurrence_needs_its_name_and_the_command(job):
    environ = {"EPOCHS": json.dumps({"16": 2, "8": 2})}
    assert job.run(*NEW, environ=environ).returncode == 0
    ran = job.run(environ=environ)
    assert (ran.stdout, ran.returncode) == ("batch size 8\n", 0)
    assert job.told()["recurrence"] == 2


def test_a_try_ends_after_its_epochs(job):
    ran = job.run(*NEW, "--max-tries", "1", environ={"LAST": "1000", "EPOCH_S": "0.2"})
    assert ran.returncode == 1
    (one,) = job.told()["tries"]
    assert (one["status"], one["exit_code"]) == ("missed", 128 + signal.SIGTERM)
    assert one["epochs"] >= 5
    assert "the target was missed in 5 epochs" in ran.stderr


def test_a_hopeless_try_is_stopped_at_the_end_of_an_epoch(job):
    new = [word if word != "5" else "1000" for word in NEW]
    environ = {"LAST": "1000", "EPOCH_S": "0.2", "BUDGET": "1e-3"}
    ran = job.run(*new, "--max-tries", "1", environ=environ)
    assert ran.returncode == 1
    (one,) = job.told()["tries"]
    assert one["status"] == "stopped_early"
    assert one["stopped_early"]
    assert one["epochs"] < 1000
    assert one["cost"] > 1e-3
    (stored,) = job.history().tries
    assert stored.status is TryStatus.STOPPED_EARLY


def test_the_command_ends_at_the_target_only_if_asked_to(job):
    goes_on = PYTHON[2].replace("if value >= 1:", "if False:")
    command = (sys.executable, "-c", goes_on, "{batch_size}")
    environ = {"EPOCHS": json.dumps({"16": 2}), "EPOCH_S": "0.3", "LAST": "1000"}
    ran = job.run(*NEW, "--stop-at-target", command=command, environ=environ)
    assert ran.returncode == 0
    (one,) = job.told()["tries"]
    assert (one["status"], one["epochs"]) == ("reached", 2)
    assert one["exit_code"] == 128 + signal.SIGTERM


def test_a_command_that_fails_is_not_tried_again(job):
    ran = job.run(*NEW, command=("sh", "-c", "echo {batch_size}; exit 3"))
    assert (ran.stdout, ran.returncode) == ("16\n", 3)
    (stored,) = job.history().tries
    assert (stored.status, stored.exit_code) == (TryStatus.FAILED, 3)


def test_a_metric_that_is_never_logged_is_named_with_those_that_are(job):
    ran = job.run(*NEW, environ={"LOGGED": "accuracy", "EPOCHS": json.dumps({"16": 2})})
    assert ran.returncode == 1
    assert "val_acc was never logged" in ran.stderr
    assert "only accuracy" in ran.stderr
    assert "joulewise.log(val_acc=...)" in ran.stderr
    assert len(job.history().tries) == 1


def test_arguments_arrive_as_they_are(job):
    shows = "import sys; print(sys.argv[1:])"
    words = ("a b", "it's", 'say "{batch_size}"', "$HOME", "{{batch_size}}", "*;&|", "--", "")
    ran = job.run(*NEW, command=(sys.executable, "-c", shows, *words))
    arrived = [w.replace("{batch_size}", "16") for w in words]
    arrived[4] = "{batch_size}"
    assert ran.stdout == f"{arrived}\n"


def test_the_command_has_its_standard_input(job):
    ran = job.run(*NEW, command=("sh", "-c", "cat; exit {batch_size}"), input="typed")
    assert (ran.stdout, ran.returncode) == ("typed", 16)


def test_a_batch_that_does_not_fit_is_learned_and_the_next_try_is_smaller(job):
    fails = 'import sys\nif sys.argv[1] == "16": raise MemoryError("CUDA out of memory")\n'
    command = (sys.executable, "-c", fails + PYTHON[2], "{batch_size}")
    ran = job.run(*NEW, command=command, environ={"EPOCHS": json.dumps({"8": 1})})
    assert ran.returncode == 0
    assert [one["status"] for one in job.told()["tries"]] == ["crashed", "reached"]
    assert "inferred" in ran.stderr
    (state,) = job.history().policy_states
    assert state.state["crashed"] == [16, 32]


def test_memory_errors_are_found_in_a_log_file(job):
    # Not Python: no hook notes the error.
    command = ("sh", "-c", "echo terminate: std::bad_alloc >&2; exit {batch_size}")
    words, options = job.start(*NEW, "--max-tries", "1", command=command)
    with (job.folder / "log").open("w") as log:
        subprocess.run(words, stderr=log, check=False, timeout=DEADLINE_S, **options)
    (stored,) = job.history().tries
    assert stored.status is TryStatus.CRASHED


def test_other_errors_are_no_lack_of_memory(job):
    fails = 'raise ValueError("memory is fine")'
    job.run(*NEW, command=(sys.executable, "-c", fails, "{batch_size}"))
    (stored,) = job.history().tries
    assert stored.status is TryStatus.FAILED


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_recurrence(number, job):
    words, options = job.start(*NEW, environ={"EPOCH_S": "60"}, stdout=subprocess.PIPE)
    with subprocess.Popen(words, stderr=subprocess.PIPE, **options) as process:
        assert process.stdout.readline() == "batch size 16\n"
        eventually(lambda: job.history().tries)
        process.send_signal(number)
        out, said = process.communicate(timeout=DEADLINE_S)
    # Python ends by KeyboardInterrupt as by the signal itself.
    assert (out, process.returncode) == ("", 128 + number)
    assert "it was asked to end" in said
    (stored,) = job.history().tries
    assert (stored.status, stored.exit_code) == (TryStatus.FAILED, 128 + number)


def test_a_killed_worker_takes_its_command_along_and_its_try_expires(job):
    words, options = job.start(*NEW, environ={"EPOCH_S": "60"}, stdout=subprocess.PIPE)
    with subprocess.Popen(words, stderr=subprocess.DEVNULL, **options) as process:
        assert process.stdout.readline() == "batch size 16\n"
        process.kill()
        assert process.stdout.read() == ""  # nobody holds it open any more
    (lost,) = job.history().tries
    assert lost.status is TryStatus.RUNNING
    with sqlite3.connect(job.database) as connection:  # an hour later
        connection.execute("UPDATE joulewise_job_tries SET lease_ends_wall_ns = 0")
    (lost,) = job.history().tries
    assert lost.status is TryStatus.EXPIRED
    assert job.run(environ={"EPOCHS": json.dumps({"8": 1})}).returncode == 0
    (state,) = job.history().policy_states
    assert state.state["cancelled"] == [16]


@pytest.mark.parametrize(("policy", "why"), [("failing", "no idea"), ("gone", "no_longer_there")])
def test_a_policy_that_raises_leaves_the_training_at_the_default(policy, why, job):
    new = [word if word != "in-turn" else policy for word in NEW]
    ran = job.run(*new, environ={"EPOCHS": json.dumps({"16": 1})})
    assert (ran.stdout, ran.returncode) == ("batch size 16\n", 0)
    (line,) = [line for line in ran.stderr.splitlines() if why in line]
    assert "batch_size is 16, the default" in line
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ("exit", "SystemExit: 7"),
        ("restore", "out of ideas"),
        ("beliefs", "out of ideas"),
        ("type", "not BatchSizeBelief"),
    ],
)
def test_whatever_of_a_policy_raises_is_one_line_and_the_training_goes_on(broken, why, job):
    environ = {"EPOCHS": json.dumps({"16": 1, "8": 1}), "BROKEN": ""}
    assert job.run(*replaced("--policy", "breaking"), environ=environ).returncode == 0
    job.environ = {**job.environ, **environ, "BROKEN": broken}
    ran = job.run()
    assert ran.returncode == 0
    assert job.told()["reached"]
    assert job.told()["policy"]["best"] is not None
    # A policy that is made again begins with the default, too.
    anew = broken in {"exit", "restore"}
    assert ran.stdout == ("batch size 16\n" if anew else "batch size 8\n")
    assert len([line for line in ran.stderr.splitlines() if why in line]) == 1, ran.stderr
    shown = job.verb("show", "nightly")
    assert shown.returncode == 0
    assert (why in shown.stderr) == (broken != "exit")
    for said in (ran.stderr, shown.stderr):
        assert "Traceback" not in said
        assert "bug in joulewise" not in said


def test_a_database_that_is_lost_meanwhile_is_told_at_the_next_run(job):
    # The training puts a folder in the place of the database.
    hides = f"import os\nos.rename({str(job.database)!r}, {str(job.folder / 'kept')!r})\n"
    hides += f"os.mkdir({str(job.database)!r})\n"
    command = (sys.executable, "-c", PYTHON[2] + hides, "{batch_size}")
    ran = job.run(*NEW, command=command, environ={"EPOCHS": json.dumps({"16": 1})})
    assert ran.returncode == 0, ran.stderr
    assert "told at the next" in ran.stderr
    job.database.rmdir()
    (job.folder / "kept").rename(job.database)
    assert job.history().tries[0].status is TryStatus.RUNNING
    again = job.run(environ={"EPOCHS": json.dumps({"8": 1})})
    assert again.returncode == 0
    first, _ = job.history().tries
    assert (first.status, first.epochs) == (TryStatus.REACHED, 1)
    assert "which it had missed" in again.stderr
    assert "which it had missed" not in job.run(environ={"EPOCHS": "{}", "LAST": "1"}).stderr


def test_without_a_usable_database_nothing_is_started(job):
    for address in (job.folder, "postgresql://nobody:secret@127.0.0.1:9/none"):
        ran = job.run(*NEW, "--jobs", str(address))
        assert ran.returncode in {2, 125}, address
        assert ran.stdout == ""
        assert "secret" not in ran.stderr
        assert "Traceback" not in ran.stderr
        assert len(ran.stderr.strip().splitlines()) == 2
    assert not runs(job.store)


def test_a_store_that_cannot_be_made_is_one_line_and_a_hint(job):
    (job.folder / "file").write_text("")
    job.store = job.folder / "file" / "store"
    ran = job.run(*NEW)
    assert (ran.stdout, ran.returncode) == ("", 125)
    assert "cannot make a run in" in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 2


def test_the_next_command_can_be_pasted(job):
    jobs = job.folder / "our jobs.sqlite"
    words, options = job.start(*NEW, "--jobs", str(jobs), environ={"EPOCHS": '{"16": 1}'})
    words[words.index("nightly")] = "every night"
    ran = subprocess.run(words, capture_output=True, check=True, timeout=DEADLINE_S, **options)
    (line,) = [line for line in ran.stderr.splitlines() if "job show" in line]
    pasted = shlex.split(line.partition("  #")[0].strip())
    shown = subprocess.run(
        [*JOULEWISE, *pasted[1:]],
        capture_output=True,
        check=True,
        timeout=DEADLINE_S,
        env=job.environ,
    )
    assert b"every night" in shown.stdout


def test_a_database_of_a_newer_joulewise_is_refused_before_training(job):
    assert job.run(*NEW, environ={"EPOCHS": json.dumps({"16": 1})}).returncode == 0
    with sqlite3.connect(job.database) as connection:
        connection.execute(f"UPDATE {REVISION_TABLE} SET version_num = '9999'")
    ran = job.run()
    assert (ran.stdout, ran.returncode) == ("", 125)
    assert "newer" in ran.stderr
    assert len(runs(job.store)) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--set, --default, --target, --max-epochs are missing"),
        (replaced("--default", "batch_size=17"), "17 is not among 8, 16, 32"),
        (replaced("--default", "width=16"), "is not batch_size=VALUE"),
        (replaced("--set", "batch_size=8,x"), "'x' is not a whole number"),
        (replaced("--set", "batch_size=8,16.5"), "'16.5' is not a whole number"),
        (replaced("--set", "width=8,16"), "is not width=VALUE"),
        (replaced("--set", "batch_size"), "is not NAME=VALUES"),
        (replaced("--set", "batch_size=16:max"), "without a GPU"),
        (replaced("--target", "val_acc"), "is not a metric"),
        (replaced("--policy", "nobody"), "nobody"),
        ((*NEW, "--metric-regex", "val=([0-9]+)"), "has no group named value"),
        ((*NEW, "--metric-regex", "(?P<value"), "is not a regular expression"),
        ((*NEW, "--axis", "fan"), "there is no axis 'fan'"),
        ((*NEW, "--json", "-"), "stdout belongs to the command"),
    ],
)
def test_a_wrong_request_is_one_line_and_a_hint(words, said, job):
    command, options = job.start(*words)
    command[command.index("--no-tune")] = "--force"
    ran = subprocess.run(command, capture_output=True, check=False, timeout=DEADLINE_S, **options)
    assert (ran.stdout, ran.returncode) == ("", 2)
    assert said in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 2
    assert not job.store.exists() or not runs(job.store)


def test_a_program_that_is_not_there_is_no_recurrence(job):
    ran = job.run(*NEW, command=("no-such-program", "{batch_size}"))
    assert (ran.stdout, ran.returncode) == ("", 127)
    assert job.run(*NEW, environ={"EPOCHS": json.dumps({"16": 1})}).returncode == 0
    assert job.told()["recurrence"] == 1


@pytest.mark.parametrize("command", [("true",), ("echo", "{batchsize}")])
def test_a_command_without_the_parameter_is_refused(command, job):
    ran = job.run(*NEW, command=command)
    assert (ran.stdout, ran.returncode) == ("", 2)


def test_a_job_cannot_change_under_what_it_has_learned(job):
    assert job.run(*NEW, environ={"EPOCHS": json.dumps({"16": 1})}).returncode == 0
    ran = job.run("--eta", "1")
    assert (ran.stdout, ran.returncode) == ("", 2)
    assert "has eta 0.5, not 1.0" in ran.stderr


def test_a_wrong_metric_is_mended_by_another_target(job):
    environ = {"LOGGED": "accuracy", "EPOCHS": json.dumps({"16": 2})}
    assert job.run(*NEW, environ=environ).returncode == 1
    ran = job.run("--target", "accuracy>=1", environ=environ)
    assert ran.returncode == 0
    assert "target is accuracy>=1.0 from now on, and was val_acc>=1.0" in ran.stderr
    told = job.told()
    assert (told["recurrence"], told["target"]["wanted"]) == (2, "accuracy>=1.0")
    refused = job.run("--target", "accuracy>=0.5", environ=environ)
    assert (refused.returncode, "joulewise job forget nightly" in refused.stderr) == (2, True)


@pytest.mark.parametrize("is_option", [False, True])
def test_a_password_is_stored_and_shown_nowhere(job, postgresql, is_option):
    address = postgresql.password_url(postgresql.new_database())
    environ = {"EPOCHS": json.dumps({"16": 1})}
    if is_option:
        ran = job.run(*NEW, "--jobs", address, environ=environ)
        verbs = ("ls", "--jobs", address), ("report", "nightly", "--jobs", address)
    else:
        job.environ = {**job.environ, "JOULEWISE_JOBS": address}
        ran = job.run(*NEW, environ=environ)
        verbs = ("ls",), ("report", "nightly")
    assert ran.returncode == 0
    page = job.folder / "page.html"
    listed, reported = job.verb(*verbs[0]), job.verb(*verbs[1], "-o", str(page))
    assert (listed.returncode, reported.returncode) == (0, 0), reported.stderr
    assert "nightly" in listed.stdout
    assert not job.database.exists()  # it was PostgreSQL
    texts = [ran.stdout, ran.stderr, listed.stdout, listed.stderr, reported.stderr]
    files = [path for path in job.store.rglob("*") if path.is_file()]
    assert len(runs(job.store)) == 1
    for text in (
        *texts,
        *(path.read_bytes().decode("latin-1") for path in (*files, job.report, page)),
    ):
        assert "s3cret" not in text


def test_a_metric_is_read_in_the_output(job):
    prints = "import sys; print(sys.stdout.isatty())\nfor i in range(4): print(f'val={i/3:.3f}')"
    pattern = r"val=(?P<value>[0-9.]+)"
    ran = job.run(
        *NEW,
        "--metric-regex",
        pattern,
        command=(sys.executable, "-c", prints + "\n#{batch_size}"),
    )
    assert ran.returncode == 0
    assert ran.stdout == "False\nval=0.000\nval=0.333\nval=0.667\nval=1.000\n"
    (one,) = job.told()["tries"]
    assert (one["status"], one["epochs"]) == ("reached", 4)
    again = job.run(command=(sys.executable, "-c", prints + "\n#{batch_size}"))
    assert again.returncode == 0, again.stderr  # it is stored
    assert job.told()["reached"]


def test_a_metric_is_read_on_a_terminal_which_the_program_still_has(job):
    prints = "import sys; print(sys.stdout.isatty()); print('val=1.0')"
    words, options = job.start(
        *NEW,
        "--metric-regex",
        r"val=(?P<value>[0-9.]+)",
        command=(sys.executable, "-c", prints + "\n#{batch_size}"),
    )
    ours, theirs = os.openpty()
    with subprocess.Popen(words, stdout=theirs, stderr=subprocess.PIPE, **options) as process:
        os.close(theirs)
        assert process.wait(DEADLINE_S) == 0
        shown = os.read(ours, 4096)
    os.close(ours)
    assert shown == b"True\r\nval=1.0\r\n"
    assert job.told()["reached"]


def test_a_single_value_without_epochs_teaches_what_one_costs(job):
    logs = "import joulewise; joulewise.log(val_acc=1)  #{batch_size}"
    assert job.run(*NEW, command=(sys.executable, "-c", logs)).returncode == 0
    (one,) = job.told()["tries"]
    assert (one["status"], one["epochs"]) == ("reached", 1)
    assert one["epoch_cost"] == one["cost"] > 0
