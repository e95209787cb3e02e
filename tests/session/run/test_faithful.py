"""``joulewise run``: the command is as free as without it."""

import json
import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.helpers.processes import (
    DEADLINE_S,
    JOULEWISE,
    eventually,
    first_line,
    gone,
    python,
    stop_resume_and_interrupt,
)
from tests.helpers.run_processes import environ_of, environment, manifest, run, running, runs


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("pass", 0),
        ("sys.exit(0)", 0),
        ("sys.exit(3)", 3),
        ("os.kill(os.getpid(), signal.SIGTERM)", 128 + 15),
        ("os.kill(os.getpid(), signal.SIGKILL)", 128 + 9),
    ],
)
def test_the_exit_status_is_the_commands(code, status, tmp_path):
    done = run(tmp_path, *python(code))
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    payload = manifest(tmp_path)
    assert (payload["state"], payload["exit_code"]) == ("complete", status)
    assert payload["commands"][0]["exit_code"] == status


def test_input_and_output_are_the_commands_byte_for_byte(tmp_path):
    everything = bytes(range(256)) * 1000
    code = "sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])"
    done = run(tmp_path, *python(code), input=everything, text=False)
    assert done.stdout == everything[::-1]


def test_what_the_command_shows_stands_between_our_lines(tmp_path):
    done = run(tmp_path, *python("print('oh', file=sys.stderr)"))
    first, second, *rest = done.stderr.splitlines()
    assert first.startswith("joulewise: ")
    assert runs(tmp_path)[0].name in first
    assert second == "oh"
    assert any(line.split()[:1] == ["total"] for line in rest)


@pytest.mark.parametrize("verb", ["run", "sim"])
@pytest.mark.parametrize("closed", [{0}, {1}, {2}, {0, 1}, {1, 2}, {0, 1, 2}], ids=str)
def test_a_closed_descriptor_stays_closed(closed, verb, tmp_path):
    report = tmp_path / "report"
    code = f"""
open_ones = [fd for fd in range(3) if os.path.exists(f'/proc/self/fd/{{fd}}')]
open({str(report)!r}, 'w').write(repr(open_ones))
sys.exit(4)
"""
    options = ["run"] if verb == "run" else ["sim", "--gpu", "v100"]
    done = subprocess.run(
        [*JOULEWISE, "--store", tmp_path / "store", *options, *python(code)],
        preexec_fn=lambda: [os.close(fd) for fd in closed],
        env=environment(),
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 4
    assert json.loads(report.read_text()) == sorted({0, 1, 2} - closed)


def test_the_command_has_no_descriptor_of_ours_and_keeps_those_it_was_given(tmp_path):
    read, write = os.pipe()
    code = "print(sorted(int(fd) for fd in os.listdir('/proc/self/fd')))"
    alone = subprocess.run(
        [*python(code)[1:]], capture_output=True, text=True, check=True, pass_fds=[write]
    )
    done = run(tmp_path, *python(code), pass_fds=[write])
    os.close(read)
    os.close(write)
    assert done.stdout == alone.stdout


def test_the_command_finds_its_world_as_it_was(tmp_path):
    code = """
import json, resource
print(json.dumps({
    "cwd": os.getcwd(), "umask": os.umask(0o77), "nice": os.nice(0),
    "blocked": [int(s) for s in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
    "signals": [str(signal.getsignal(s)) for s in signal.valid_signals()],
    "limits": [resource.getrlimit(n) for n in range(10)],
    "session": os.getsid(0), "affinity": sorted(os.sched_getaffinity(0)),
}))
"""
    alone = subprocess.run(
        python(code)[1:], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    done = run(tmp_path / "store", *python(code), cwd=tmp_path)
    assert json.loads(done.stdout) == json.loads(alone.stdout)


def test_the_environment_gains_what_marks_need_and_nothing_else(tmp_path):
    # Without a locale: Python then changes its own environment, which the command must not get.
    bare = {"PATH": os.environ["PATH"], "odd": "a=b\nc", "HOME": "/nowhere"}
    done = run(tmp_path, "--", "env", "-0", env=bare)
    after = dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry)
    added = {"JOULEWISE_RUN", "JOULEWISE_MARKS", "JOULEWISE_COMMAND", "PYTHONPATH"}
    assert set(after) == added | set(bare)
    assert {name: after[name] for name in bare} == bare


def test_options_after_the_command_are_the_commands(tmp_path):
    assert run(tmp_path, "echo", "--rate", "x").stdout == "--rate x\n"


def counts(number):
    """A command that ends with 7 if the signal comes once, with 8 if it comes again."""
    return f"""
signal.pthread_sigmask(signal.SIG_BLOCK, {{{int(number)}}})
print(os.getpid(), flush=True)
signal.sigwaitinfo({{{int(number)}}})
again = signal.sigtimedwait({{{int(number)}}}, 0.3)
sys.exit(8 if again else 7)
"""


@pytest.mark.parametrize(
    "number",
    [
        *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1),
        *(signal.SIGUSR2, signal.SIGXCPU, signal.SIGWINCH, signal.SIGCONT, signal.SIGRTMIN),
    ],
)
def test_a_signal_to_joulewise_reaches_the_command_once(number, tmp_path):
    with running(tmp_path, code=counts(number)) as session:
        session.process.send_signal(number)
        assert session.process.wait(DEADLINE_S) == 7


def one_by_one(group, number):
    """As a job manager does that knows all processes of a job."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # others end meanwhile
            if int(path.read_text().rpartition(")")[2].split()[2]) == group:
                pids.append(int(path.parent.name))
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@pytest.mark.parametrize("send", [os.killpg, one_by_one], ids=["group", "one by one"])
def test_what_the_whole_group_is_sent_reaches_the_command_once(send, tmp_path):
    """And what joulewise is sent alone afterwards is passed on all the same."""
    code = """
numbers = {signal.SIGTERM, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
print(os.getpid(), flush=True)
while (came := signal.sigwaitinfo(numbers).si_signo) != signal.SIGUSR1:
    print(came, flush=True)
"""
    with running(tmp_path, code=code, start_new_session=True) as session:
        for _ in range(2):
            send(session.process.pid, signal.SIGTERM)
            assert first_line(session.process.stdout) == "15\n"
            assert not select.select([session.process.stdout], [], [], 0.3)[0]
            session.process.send_signal(signal.SIGTERM)
            assert first_line(session.process.stdout) == "15\n"
        session.process.send_signal(signal.SIGUSR1)
        assert session.process.wait(DEADLINE_S) == 0


def test_a_signal_to_joulewise_alone_is_not_taken_for_an_earlier_one_of_others(tmp_path):
    with running(tmp_path, code=counts(signal.SIGUSR1)) as session:
        joulewise = psutil.Process(session.process.pid)
        (witness,) = eventually(
            lambda: [each for each in joulewise.children() if each.name() == "cat"]
        )
        witness.send_signal(signal.SIGUSR1)
        time.sleep(1.5)  # by then it is known that joulewise did not get it
        session.process.send_signal(signal.SIGUSR1)
        assert session.process.wait(DEADLINE_S) == 7


def test_two_signals_in_a_row_reach_the_command_once_each(tmp_path):
    """As Slurm and systemd send them: one that is stopped must go on in order to end."""
    code = """
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
print(os.getpid(), flush=True)
while (came := signal.sigwaitinfo({signal.SIGTERM, signal.SIGUSR1}).si_signo) != signal.SIGUSR1:
    print(came, flush=True)
"""
    with running(tmp_path, code=code, start_new_session=True) as session:
        one_by_one(session.process.pid, signal.SIGCONT)
        one_by_one(session.process.pid, signal.SIGTERM)
        assert first_line(session.process.stdout) == "15\n"
        assert not select.select([session.process.stdout], [], [], 0.5)[0]
        session.process.send_signal(signal.SIGUSR1)
        assert session.process.wait(DEADLINE_S) == 0


def test_a_command_in_a_group_of_its_own_gets_what_ours_is_sent(tmp_path):
    code = f"os.setpgid(0, 0)\n{counts(signal.SIGTERM)}"
    with running(tmp_path, code=code, start_new_session=True) as session:
        os.killpg(session.process.pid, signal.SIGTERM)
        assert session.process.wait(DEADLINE_S) == 7


@pytest.mark.parametrize("options", [[], ["--foreground"]], ids=["group", "alone"])
def test_what_timeout_sends_reaches_the_command_once(options, tmp_path):
    """It signals us and then its group; with --foreground, us alone."""
    timeout = subprocess.Popen(
        ["timeout", *options, "600", *JOULEWISE, "--store", str(tmp_path), "run",
         *python(counts(signal.SIGTERM))],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
        env=environment(),
    )  # fmt: skip
    with timeout:
        first_line(timeout.stdout)
        timeout.terminate()
        timeout.wait(DEADLINE_S)
    assert manifest(tmp_path)["exit_code"] == 7


def test_a_command_that_ends_its_group_is_not_reported_again(tmp_path):
    code = """
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
os.killpg(os.getpgrp(), signal.SIGTERM)
signal.sigwaitinfo({signal.SIGTERM})
again = signal.sigtimedwait({signal.SIGTERM}, 0.3)
sys.exit(8 if again else 7)
"""
    assert run(tmp_path, *python(code), start_new_session=True).returncode == 7


def test_at_a_terminal_ctrl_z_stops_fg_resumes_and_ctrl_c_reaches_the_command_once(tmp_path):
    command = [*JOULEWISE, "--store", str(tmp_path / "store"), "run"]
    screen = stop_resume_and_interrupt(command, tmp_path, environment())
    assert "interrupted once" in screen
    assert "total" in screen
    assert manifest(tmp_path / "store")["exit_code"] == 5


DAEMON = """
if os.fork() == 0:
    os.setsid()
    for descriptor in range(3):
        os.close(descriptor)
    time.sleep(600)
    os._exit(0)
"""


def test_what_the_command_leaves_running_is_neither_awaited_nor_ended(tmp_path):
    code = DAEMON.replace("if os.fork() == 0:", "pid = os.fork()\nif pid == 0:")
    done = run(tmp_path, *python(f"{code}\nprint(pid)"))
    daemon = int(done.stdout)
    try:
        assert done.returncode == 0
        assert not gone(daemon)
        eventually(lambda: gone(manifest(tmp_path)["recorder"]["pid"]))
    finally:
        os.kill(daemon, signal.SIGKILL)


def test_the_end_of_output_comes_with_the_end_of_the_command(tmp_path):
    """Whoever reads the command's output does not wait for us."""
    code = "print(os.getpid(), flush=True); os.close(1); os.close(2); sys.stdin.read()"
    with running(tmp_path, code=code, stderr=subprocess.DEVNULL) as session:
        session.kill(session.process.pid)
        assert session.process.stdout.read() == ""


def test_cpu_time_includes_the_children_it_waited_for(tmp_path):
    code = """
import subprocess
burn = "import time\\nwhile time.process_time() < 0.5: pass"
subprocess.run([sys.executable, "-c", burn])
"""
    run(tmp_path, *python(code))
    assert manifest(tmp_path)["commands"][0]["cpu_s"] > 0.5


def test_the_json_result_counts_from_the_start_to_the_reaping(tmp_path):
    done = run(tmp_path / "store", "--json", str(tmp_path / "r.json"), *python("time.sleep(0.5)"))
    payload = json.loads((tmp_path / "r.json").read_text())
    assert done.returncode == payload["exit_code"] == 0
    command = manifest(tmp_path / "store")["commands"][0]
    assert payload["start_monotonic_ns"] == command["start_ns"]
    assert payload["time_s"] == pytest.approx((command["end_ns"] - command["start_ns"]) / 1e9)
    assert 0.5 <= payload["time_s"] < DEADLINE_S


def test_our_own_processes_are_not_hooked(tmp_path):
    hooked = environment(JOULEWISE_MARKS=str(tmp_path / "elsewhere"), JOULEWISE_RUN="another")
    with running(tmp_path / "store", env=hooked) as session:
        assert "JOULEWISE_MARKS" not in environ_of(session.recorder_pid)


def test_the_recorder_keeps_nothing_of_the_command_open(tmp_path):
    with running(tmp_path) as session:
        folder = Path(f"/proc/{session.recorder_pid}/fd")
        open_ones = {entry.name: str(entry.readlink()) for entry in folder.iterdir()}
        assert [open_ones[fd] for fd in "012"] == ["/dev/null"] * 3
        assert os.getsid(session.recorder_pid) == session.recorder_pid
        pipes = [session.process.stdin, session.process.stdout, session.process.stderr]
        ours = {str(Path(f"/proc/self/fd/{pipe.fileno()}").readlink()) for pipe in pipes}
        assert not ours & set(open_ones.values())


def test_a_training_folder_may_hold_a_file_called_numpy(tmp_path):
    for name in ("numpy", "psutil", "pyarrow", "pynvml"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not this one')")
    done = run(tmp_path / "store", "true", cwd=tmp_path)
    assert (done.returncode, "total" in done.stderr) == (0, True), done.stderr


def test_a_user_whom_nobody_knows_and_without_a_home_runs_a_command(tmp_path):
    if os.geteuid() == 0:
        # The right to read lets it find Python wherever that is.
        become = [
            *("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"),
            *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
        ]
    else:
        become = ["unshare", "--user", "--map-user=12345", "--map-group=12345"]
    store = tmp_path / "store"
    store.mkdir()
    store.chmod(0o777)
    if subprocess.run([*become, "true"], check=False).returncode:
        pytest.skip("nobody can become another user here")
    homeless = {k: v for k, v in environment().items() if k not in {"HOME", "XDG_STATE_HOME"}}
    done = subprocess.run(
        [*become, *JOULEWISE, "--store", ".", "run", "--", "sh", "-c", "id -u; exit 3"],
        env=homeless, cwd=store, capture_output=True, text=True, check=False, timeout=DEADLINE_S,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "12345\n"), done.stderr
    assert manifest(store)["exit_code"] == 3
