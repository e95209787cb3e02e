"""``joulewise sim``: the command is as free as without it, and nothing is left of either."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.helpers.processes import (
    DEADLINE_S,
    eventually,
    first_line,
    gone,
    python,
    stop_resume_and_interrupt,
)
from tests.helpers.run_processes import environ_of
from tests.helpers.sim_processes import SIM, running_sim


def sim(*arguments, **options):
    return subprocess.run(
        [*SIM, *arguments], capture_output=True, text=True, check=False, timeout=180, **options
    )


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("pass", 0),
        ("sys.exit(3)", 3),
        ("os.kill(os.getpid(), signal.SIGTERM)", 128 + 15),
        ("os.kill(os.getpid(), signal.SIGKILL)", 128 + 9),
    ],
)
def test_the_exit_status_is_the_commands(code, status):
    done = sim("--gpu", "v100", *python(code))
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")


def test_input_and_output_are_the_commands():
    code = "print(sys.stdin.read()[::-1]); print('oh', file=sys.stderr)"
    done = sim("--gpu", "v100", *python(code), input="abc")
    assert (done.stdout, done.stderr) == ("cba\n", "oh\n")


def test_other_descriptors_are_passed_on():
    read, write = os.pipe()
    done = sim("--gpu", "v100", *python(f"os.write({write}, b'through')"), pass_fds=[write])
    os.close(write)
    assert (done.returncode, os.read(read, 100)) == (0, b"through")
    os.close(read)


def test_a_program_can_know_that_the_gpus_are_simulated():
    code = (
        "import ctypes; library = ctypes.CDLL('libnvidia-ml.so.1');"
        "print(ctypes.c_int.in_dll(library, 'joulewise_simulated').value)"
    )
    done = sim("--gpu", "v100", *python(code))
    assert (done.returncode, done.stdout) == (0, "1\n")


def test_a_program_can_know_the_simulations_own_load():
    code = (
        "import pynvml as n; n.nvmlInit(); print(os.environ['JOULEWISE_SIM_PID']);"
        "gpu = n.nvmlDeviceGetHandleByIndex(0);"
        "print(*(p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(gpu)))"
    )
    done = sim("--gpu", "v100", "--workload", "resnet50", *python(code))
    engine, *holders = done.stdout.split()
    assert holders == [engine]
    idle = sim("--gpu", "v100", *python(code))
    assert idle.stdout.split()[1:] == []


def test_options_after_the_command_are_the_commands():
    assert sim("--gpu", "v100", "echo", "--gpu", "a100").stdout == "--gpu a100\n"


def test_the_command_finds_our_library_first_and_keeps_its_environment():
    environ = {**os.environ, "LD_LIBRARY_PATH": "/somewhere", "CUDA_VISIBLE_DEVICES": "1"}
    names = ("LD_LIBRARY_PATH", "PATH", "CUDA_VISIBLE_DEVICES", "OPENBLAS_NUM_THREADS")
    code = f"print(*(os.environ.get(name) for name in {names}), sep='\\n')"
    done = sim("--gpu", "v100", *python(code), env=environ)
    library, path, devices, threads = done.stdout.splitlines()
    first, second = library.split(os.pathsep)
    assert (Path(first) / "libnvidia-ml.so.1").exists()
    assert second == "/somewhere"
    assert (Path(path.split(os.pathsep)[0]) / "nvidia-smi").exists()
    assert (devices, threads) == ("1", environ.get("OPENBLAS_NUM_THREADS", "None"))


@pytest.mark.parametrize(
    ("options", "answer"), [([], "Insufficient Permissions"), (["--as-root"], "set")]
)
def test_only_root_may_set_unless_everyone_counts_as_root(options, answer):
    code = """
import pynvml as nvml
nvml.nvmlInit()
gpu = nvml.nvmlDeviceGetHandleByIndex(0)
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    nvml.nvmlDeviceSetPowerManagementLimit(gpu, 200_000)
    print("set")
except nvml.NVMLError as error:
    print(error)
"""
    assert sim("--gpu", "v100", *options, *python(code)).stdout == f"{answer}\n"


def test_each_simulation_has_a_state_folder_of_its_own_that_goes_with_it():
    code = "d = os.environ['JOULEWISE_STATE']; open(d + '/journal', 'w').close(); print(d)"
    folders = [Path(sim("--gpu", "v100", *python(code)).stdout.strip()) for _ in range(2)]
    assert folders[0] != folders[1]
    assert not any(folder.parent.exists() for folder in folders)


def test_a_simulation_does_not_ask_the_guard_service_of_the_machine(monkeypatch):
    code = "print(os.environ['JOULEWISE_GUARD']); print(os.environ['JOULEWISE_STATE'])"
    monkeypatch.delenv("JOULEWISE_GUARD", raising=False)
    guard, state = sim("--gpu", "v100", *python(code)).stdout.split()
    assert Path(guard).parent == Path(state)
    monkeypatch.setenv("JOULEWISE_GUARD", "one-of-my-own.sock")
    assert sim("--gpu", "v100", *python(code)).stdout.split()[0] == "one-of-my-own.sock"


@pytest.mark.parametrize(
    ("arguments", "status", "message", "hint"),
    [
        (["--gpu", "v101", "--", "true"], 2, "'v101'", "v100, v100-pcie, rtx6000, a100, laptop"),
        (["--gpu", "v100x0", "--", "true"], 2, "'v100x0'", "v100x2"),
        (["--gpu", "v100,", "--", "true"], 2, "''", "v100"),
        (["--gpu", "v100x65", "--", "true"], 2, "65", "64"),
        (["--gpu", "v100x99999999999999999999", "--", "true"], 2, "too many", "64"),
        (["--gpu", "v100", "--workload", "gpt9", "--", "true"], 2, "'gpt9'", "resnet50"),
        (["--gpu", "v100", "--batch-size", "8", "--", "true"], 2, "--batch-size", "--workload"),
        (["--gpu", "v100", "--fault", "gpu0:melt", "--", "true"], 2, "'melt'", "gpuN"),
        (["--gpu", "v100", "--fault", "gpu3:lost", "--", "true"], 2, "gpu3", "gpu0"),
        (["--gpu", "v100", *33 * ["--fault", "gpu0:lost"], "--", "true"], 2, "33 faults", "32"),
        (
            ["--gpu", "v100", "--truth", "/no/such/folder/t.csv", "--", "true"],
            2,
            "/no/such",
            "fold",
        ),
        (["--gpu", "v100", "--truth", "-", "--", "true"], 2, "stdout", "file"),
        (["--gpu", "v100", "--fault", "", "--", "true"], 2, "''", "gpuN"),
        (["--gpu", "v100"], 2, "no command", "-- nvidia-smi"),
        (["--", "true"], 2, "--gpu", "--help"),
        (["--gpu", "v100", "--", "no-such-program"], 127, "no-such-program", "path"),
        (["--gpu", "v100", "--", "/etc/passwd"], 126, "not executable", "chmod"),
        (["--gpu", "v100", "--", "/etc"], 126, "folder", "program"),
    ],
)
def test_bad_input_gets_one_line_a_hint_and_nothing_else(
    arguments, status, message, hint, tmp_path
):
    done = sim("--truth", str(tmp_path / "truth.csv"), *arguments)
    first, second = done.stderr.splitlines()
    assert done.returncode == status
    assert first.startswith("joulewise: ")
    assert message in first
    assert hint in second
    assert (done.stdout, list(tmp_path.iterdir())) == ("", [])


def test_a_script_that_the_system_cannot_run(tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    done = sim("--gpu", "v100", "--", str(script))
    assert (done.returncode, len(done.stderr.splitlines())) == (127, 2)
    script.write_text("no first line")
    done = sim("--gpu", "v100", "--", str(script))
    assert (done.returncode, len(done.stderr.splitlines())) == (126, 2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_to_the_simulation_reaches_the_command(number):
    code = f"""
def handle(number, frame):
    os.write(1, b"got %d\\n" % number)  # a print() within that of "ready" would fail as reentrant
    sys.exit(7)
signal.signal({int(number)}, handle)
print("ready", flush=True)
signal.pause()
"""
    process = subprocess.Popen(
        [*SIM, "--gpu", "v100", *python(code)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert first_line(process.stdout) == "ready\n"
        process.send_signal(number)
        assert process.communicate(timeout=DEADLINE_S)[0] == f"got {int(number)}\n"
        assert process.returncode == 7
    finally:
        process.kill()


def test_at_a_terminal_ctrl_z_stops_fg_resumes_and_ctrl_c_reaches_the_command_once(tmp_path):
    screen = stop_resume_and_interrupt([*SIM, "--gpu", "v100"], tmp_path)
    assert "interrupted once" in screen


@pytest.mark.parametrize("load", [[], ["--workload", "mnist-big"]])
def test_when_the_simulation_is_killed_nothing_is_left(load):
    with running_sim("--gpu", "v100x2", *load) as sim:
        eventually(lambda: len(sim.children()) == 3)  # the janitor, and the witness of signals
        children = sim.children()
        assert sim.command_pid in children
        sim.kill()
        for child in children:
            eventually(lambda child=child: gone(child))
        assert not sim.folder.exists()


def test_the_command_of_the_fixture_starts_no_other_program():
    """For a moment after an exec, a process has no environment in /proc: readers would miss it."""
    with running_sim("--gpu", "v100") as sim:
        sim.process.stdin.write("past it\n")
        sim.process.stdin.flush()
        assert first_line(sim.process.stdout) == "past it\n"
        program = Path(f"/proc/{sim.command_pid}/exe").readlink()
        assert program == Path(shutil.which("sh")).resolve()
        assert environ_of(sim.command_pid)["JOULEWISE_SIM"] == sim.shared


def test_when_the_command_is_killed_nothing_is_left():
    with running_sim("--gpu", "v100") as sim:
        children = sim.children()
        os.kill(sim.command_pid, signal.SIGKILL)
        assert sim.process.wait(DEADLINE_S) == 128 + 9
        assert all(map(gone, children))
        assert not sim.folder.exists()
        sim.process.returncode = 0  # as the fixture expects of a command that ended by itself


def test_the_end_of_output_comes_with_the_end_of_the_command():
    """Nobody who reads the output waits for the janitor: killed, the simulation ends it."""
    with running_sim("--gpu", "v100") as sim:
        sim.kill()
        assert sim.process.communicate(timeout=DEADLINE_S)[0] == ""


ORPHAN = """
from joulewise.errors import SimulationError
from joulewise.simulate import gpu
device = gpu(0)
device.step("mnist-big")
if os.fork() == 0:
    os.setsid()
    for descriptor in range(3):
        os.close(descriptor)
    try:
        while True:
            device.step("mnist-big")
    except SimulationError as error:
        open(sys.argv[1] + "~", "w").write(error.message)
        os.rename(sys.argv[1] + "~", sys.argv[1])
    os._exit(0)
"""


def test_what_outlives_the_command_finds_its_gpus_gone(tmp_path):
    report = tmp_path / "report"
    done = sim("--gpu", "v100", *python(ORPHAN), str(report))
    assert done.returncode == 0, done.stderr
    assert eventually(lambda: report.exists() and report.read_text())


def test_what_outlives_a_killed_simulation_finds_its_gpus_gone(tmp_path):
    report = tmp_path / "report"
    code = ORPHAN + "print(os.environ['JOULEWISE_SIM'], flush=True)\nsignal.pause()"
    process = subprocess.Popen(
        [*SIM, "--gpu", "v100", *python(code), str(report)], stdout=subprocess.PIPE, text=True
    )
    shared = Path(first_line(process.stdout).strip())
    process.kill()
    process.communicate(timeout=DEADLINE_S)
    assert eventually(lambda: report.exists() and report.read_text())
    eventually(lambda: not shared.parent.exists())


def test_help_shows_an_example():
    done = sim("--help")
    assert "joulewise sim --gpu v100x8 --workload resnet50 -- nvidia-smi" in done.stdout
