"""Sensors that fail and clocks that are set: a gap and a warning, never the command's trouble."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.paths import BENCHMARKS
from tests.helpers.processes import DEADLINE_S, JOULEWISE, eventually, gone, python
from tests.helpers.run_processes import environment, run, running, runs

COMPILER = shutil.which("cc")
WALL_CLOCK = Path(__file__).parent / "wall_clock.c"
# One GPU each, so that one run of some seconds shows what becomes of all of them. The driver keeps
# its samples for about two seconds: a board that is away for longer leaves a gap.
BLIND = {
    "gpu1:lost@9s-13s;gpu1:counter-unsupported": "gap",
    "gpu2:call=GetPowerUsage,code=15@9s-13s;gpu2:call=GetSamples,code=15@9s-13s;"
    "gpu2:counter-unsupported": "gap",
    "gpu5:stuck@10s;gpu5:counter-unsupported": "sensor_stuck",
}
ODD = {  # here the counter or the driver's samples tell what happened meanwhile
    "gpu10:lost@9s-13s": "gap",
    "gpu3:counter-reset@10s": "counter_reset",
    "gpu4:counter-backwards=200J@10s": "counter_reset",
    "gpu6:slow=600ms@9s-13s": "recorder_late",
}
HARMLESS = ["gpu7:stale=500ms", "gpu8:denied;gpu8:limit-refused", "gpu9:counter-unsupported"]
# From its own start, which on a busy machine is up to 9 s late: the faults, whose times are those
# of the simulation, come after it and end before it. They take less than half of it, since what is
# seen for less than half has no energy.
TRAINS_FOR_S = "16"
LOAD = """
import threading
from joulewise.simulate.client import gpu
until_s = time.monotonic() + float(sys.argv[1])
def train(device):
    while time.monotonic() < until_s:
        device.step("resnet50", steps=1)
trainings = [threading.Thread(target=train, args=(gpu(index),)) for index in range(11)]
[training.start() for training in trainings]
[training.join() for training in trainings]
print("trained")
sys.exit(5)
"""


@pytest.fixture(scope="module")
def faulty_result(tmp_path_factory):
    """The result of a training on simulated GPUs, most of which have a fault in mid-run."""
    store = tmp_path_factory.mktemp("store")
    faults = [word for fault in (*BLIND, *ODD, *HARMLESS) for word in ("--fault", fault)]
    sim = [*JOULEWISE, "sim", "--gpu", "v100x11", "--latency", "none", *faults, "--"]
    done = subprocess.run(
        [*sim, *JOULEWISE, "--store", str(store), "run", *python(LOAD), TRAINS_FOR_S],
        capture_output=True, text=True, check=False, timeout=DEADLINE_S, env=environment(),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (5, "trained\n"), done.stderr
    assert "Traceback" not in done.stderr
    (folder,) = runs(store)
    return json.loads((folder / "result.json").read_text())


def share(payload, key):
    gpu = payload["energy_j"][key]
    return gpu["error_sampling"] / gpu["value"]


def codes(payload, key):
    return {warning["code"] for warning in payload["warnings"] if warning["device"] == key}


@pytest.mark.parametrize(("fault", "code"), [*BLIND.items(), *ODD.items()])
def test_a_fault_in_mid_run_is_a_warning(fault, code, faulty_result):
    key = fault.partition(":")[0]
    assert code in codes(faulty_result, key), faulty_result["warnings"]
    assert code not in codes(faulty_result, "gpu0")
    assert key in faulty_result["counted"]


@pytest.mark.parametrize("fault", BLIND)
def test_what_was_not_seen_widens_the_error(fault, faulty_result):
    assert share(faulty_result, fault.partition(":")[0]) > 2 * share(faulty_result, "gpu0")


@pytest.mark.parametrize("fault", [*ODD, *HARMLESS])
def test_a_fault_that_hides_nothing_changes_no_energy(fault, faulty_result):
    key = fault.partition(":")[0]
    assert faulty_result["energy_j"][key]["value"] == pytest.approx(
        faulty_result["energy_j"]["gpu0"]["value"], rel=0.2
    )


def test_without_the_library_the_rest_is_measured(tmp_path):
    sim = [*JOULEWISE, "sim", "--gpu", "v100", "--fault", "library-absent", "--"]
    done = subprocess.run(
        [*sim, *JOULEWISE, "--store", str(tmp_path), "run", "--", "true"],
        capture_output=True, text=True, check=False, timeout=DEADLINE_S, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0
    assert "cpu0" in done.stderr


@pytest.mark.parametrize(
    ("boards", "fault", "key"),
    [
        ("v100", "gpu0:slow=600s,call=GetHandleByIndex", "gpu0"),
        ("v100x2", "gpu1:slow=600s,call=GetHandleByIndex", "gpu1"),
        ("v100x2", "gpu1:slow=600s,call=GetUUID", "gpu1"),
        ("v100x2", "gpu1:slow=600s,call=GetTotalEnergyConsumption", "gpu1"),
        ("v100", "gpu*:slow=600s,call=GetCount", "nvidia"),
    ],
)
def test_a_driver_that_hangs_is_missing_and_the_command_starts(tmp_path, boards, fault, key):
    sim = [*JOULEWISE, "sim", "--gpu", boards, "--fault", fault, "--"]
    result = tmp_path / "r.json"
    wanted = ["run", "--json", str(result), "--", "sh", "-c", "exit 4"]
    done = subprocess.run(
        [*sim, *JOULEWISE, "--store", str(tmp_path), *wanted],
        capture_output=True, text=True, check=False, timeout=DEADLINE_S, env=environment(),
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    reports = json.loads(result.read_text())
    assert key in reports["counted"]
    assert reports["energy_j"][key] is None
    assert reports["energy_j"]["cpu0"]["value"] > 0
    assert reports["energy_j"]["total"]["at_least"] is True
    assert ("device_unavailable", key) in [(w["code"], w["device"]) for w in reports["warnings"]]
    if key == "gpu1":  # the other one is there
        assert reports["energy_j"]["gpu0"]["value"] > 0


def test_a_driver_that_hangs_in_its_samples_is_measured_and_shown_so(tmp_path):
    sim = [*JOULEWISE, "sim", "--gpu", "v100", "--fault", "gpu0:slow=600s,call=GetSamples", "--"]
    result = tmp_path / "r.json"
    program = (
        "import sys; from joulewise.simulate import gpu; gpu(0).step('resnet50', steps=5); "
        "sys.exit(4)"
    )
    wanted = ["run", "--json", str(result), "--", sys.executable, "-c", program]
    done = subprocess.run(
        [*sim, *JOULEWISE, "--store", str(tmp_path), *wanted],
        capture_output=True, text=True, check=False, timeout=DEADLINE_S, env=environment(),
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    reports = json.loads(result.read_text())
    assert "gpu0" in reports["counted"]
    assert reports["energy_j"]["gpu0"]["value"] > 0
    gaps = [
        w["message"] for w in reports["warnings"] if (w["code"], w["device"]) == ("gap", "gpu0")
    ]
    assert any("samples" in gap and "had not answered" in gap for gap in gaps)


def test_without_a_recorder_the_command_runs_unmeasured(tmp_path):
    """The recorder's first write of run.json is its last."""
    environ = environment(JOULEWISE_TEST_KILL_AT="before-rename-run.json:1")
    result = tmp_path / "r.json"
    command = ["--json", str(result), *python("print('ran'); sys.exit(3)")]
    done = run(tmp_path / "store", *command, env=environ)
    assert (done.returncode, done.stdout) == (3, "ran\n")
    nothing = {"id": None, "exit_code": 3, "energy_j": None, "logged": []}
    assert json.loads(result.read_text()) == nothing
    assert done.stderr.count("\n") == 1
    assert "the recorder ended at once: the command is not measured" in done.stderr


def test_a_fault_in_our_report_leaves_the_command_its_exit_status(tmp_path):
    breaks = "import sys; sys.modules['joulewise.report.terminal.run'] = None; "
    main = "from joulewise.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", breaks + main, "--store", str(tmp_path),
         "run", *python("sys.exit(3)")],
        capture_output=True, text=True, check=False, timeout=DEADLINE_S, env=environment(),
    )  # fmt: skip
    assert done.returncode == 3
    assert "joulewise: the result cannot be shown: ModuleNotFoundError" in done.stderr


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_a_clock_set_back_changes_nothing_but_is_reported(tmp_path):
    """Only our own processes see the false clock; what they measure by cannot be set."""
    library, offset_s = tmp_path / "wall_clock.so", tmp_path / "offset_s"
    subprocess.run(
        [COMPILER, "-shared", "-fPIC", "-o", str(library), str(WALL_CLOCK), "-ldl"], check=True
    )
    environ = environment(LD_PRELOAD=str(library), WALL_CLOCK_OFFSET_S=str(offset_s))
    code = f"sleep 1.3; echo -3600 > '{offset_s}'; sleep 1.3"
    result = tmp_path / "r.json"
    command = ["--", "env", "-u", "LD_PRELOAD", "sh", "-c", code]
    done = run(tmp_path / "store", "--json", str(result), *command, env=environ)
    assert done.returncode == 0, done.stderr
    reports = json.loads(result.read_text())
    assert 2.6 <= reports["time_s"] < DEADLINE_S
    assert "wall_clock_set" in codes(reports, None)
    assert reports["energy_j"]["total"]["value"] > 0
    assert "gap" not in {w["code"] for w in reports["warnings"]}


# A handler may run within a print(), where another one fails as reentrant: it writes by itself.
PLAIN = """
def handle(number, frame):
    os.write(1, b"got %d\\n" % number)
    sys.exit(7)
signal.signal(signal.SIGTERM, handle)
print(os.getpid(), flush=True)
signal.pause()
"""


def test_elsewhere_plain_handlers_pass_signals_on(tmp_path):
    """As on macOS: no signalfd, timerfd or death with the parent."""
    with running(tmp_path, code=PLAIN, env=environment(JOULEWISE_PLAIN="1")) as session:
        session.process.terminate()
        output, said = session.process.communicate(timeout=DEADLINE_S)
        assert (session.process.returncode, output) == (7, "got 15\n")
        assert "not on Linux" in said.splitlines()[0]
        assert "total" in said
        assert session.manifest()["state"] == "complete"


def test_elsewhere_the_recorder_ends_the_command_of_a_killed_joulewise(tmp_path):
    with running(tmp_path, env=environment(JOULEWISE_PLAIN="1")) as session:
        session.kill(session.process.pid)
        for pid in (session.command_pid, session.recorder_pid):
            eventually(lambda pid=pid: gone(pid))
        assert session.manifest()["state"] == "stopped"


def test_a_hundred_kills_ten_of_them_here():
    script = BENCHMARKS / "kills.py"
    done = subprocess.run(
        [sys.executable, str(script), "--rounds", "10", "--seed", str(os.getpid())],
        capture_output=True, text=True, check=False, timeout=300, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
