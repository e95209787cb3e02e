"""The stand-in for nvidia-smi, as a program and as its parts."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pynvml as nvml
import pytest

from joulewise.simulate.nvml import nvidia_smi
from joulewise.simulate.nvml.nvidia_smi_fields import GPU_ALIASES, GPU_FIELDS
from joulewise.simulate.nvml.shared_memory import shim_path
from tests.helpers.nvml_on_manual_clock import simulated, timeline

PROGRAM = shim_path().parents[1] / "bin" / "nvidia-smi"


@pytest.fixture
def machine(monkeypatch, tmp_path):
    with simulated(monkeypatch, tmp_path, "v100", "rtx6000", "laptop") as machine:
        state = {"sm_mhz": 1305, "memory_mhz": 877, "temperature_c": 51, "throttle": 4}
        machine.shared.publish(0, timeline([(-100, 123.456)], busy=1.0, **state))
        yield machine


@pytest.fixture
def run(machine, capsys):  # noqa: ARG001
    def run(*arguments):
        status = nvidia_smi.main(arguments)
        return status, capsys.readouterr().out.splitlines()

    return run


def test_gpus_are_listed(run):
    status, lines = run("-L")
    assert status == 0
    assert len(lines) == 3
    assert re.fullmatch(r"GPU 1: Quadro RTX 6000 \(UUID: GPU-[0-9a-f-]{36}\)", lines[1])


def test_a_query_is_csv(run):
    fields = "index,name,power.draw,power.limit,clocks.sm,utilization.gpu,fan.speed,pstate"
    status, (header, values) = run("-i", "0", f"--query-gpu={fields}", "--format=csv")
    assert status == 0
    assert header.startswith(
        "index, name, power.draw [W], power.limit [W], clocks.current.sm [MHz]"
    )
    assert values == "0, Tesla V100-SXM2-16GB, 123.46 W, 300.00 W, 1305 MHz, 100 %, [N/A], P0"


def test_header_and_units_can_be_left_out(run):
    query = "--query-gpu=power.draw,clocks.mem"
    assert run("-i", "0", query, "--format=csv,noheader,nounits")[1] == ["123.46, 877"]
    assert (
        run("-i", "0", query, "--format=csv,nounits")[1][0]
        == "power.draw [W], clocks.current.memory [MHz]"
    )


def test_every_field_answers(run):
    names = [*GPU_FIELDS, *GPU_ALIASES, "index"]
    status, lines = run(f"--query-gpu={','.join(names)}", "--format=csv")
    assert status == 0
    assert [line.count(",") for line in lines] == [len(names) - 1] * 4


def test_an_unknown_field_is_named(run):
    assert run("--query-gpu=index,colour", "--format=csv") == (
        2,
        ['Field "colour" is not a valid field to query.'],
    )


@pytest.mark.parametrize("query", ["--query-gpu=", "--query-compute-apps="])
def test_no_field_is_an_unknown_field(run, query):
    assert run(query) == (2, ['Field "" is not a valid field to query.'])


def test_an_unknown_format_is_refused(run):
    status, lines = run("--query-gpu=index", "--format=json")
    assert (status, len(lines)) == (2, 1)


def test_throttle_reasons_one_by_one(run):
    reasons = "clocks_throttle_reasons"
    query = f"--query-gpu={reasons}.active,{reasons}.sw_power_cap,{reasons}.gpu_idle"
    _, (line,) = run("-i", "0", query, "--format=csv,noheader")
    assert line == "0x0000000000000004, Active, Not Active"


def test_a_gpu_is_chosen_by_any_of_its_names(run):
    names = run("--query-gpu=index,uuid,pci.bus_id", "--format=csv,noheader")[1][1].split(", ")
    for name in names:
        assert run("-i", name, "--query-gpu=index", "--format=csv,noheader") == (0, ["1"])
    status, (line,) = run("-i", "7", "-L")
    assert status == 2
    assert "GPU 7" in line


def test_processes_are_listed(run, machine):
    machine.shared.set_processes(0, [(os.getpid(), 5 << 20)])
    status, lines = run("--query-compute-apps=pid,used_memory", "--format=csv")
    assert (status, lines) == (0, ["pid, used_gpu_memory [MiB]", f"{os.getpid()}, 5 MiB"])


def test_the_table_shows_each_gpu_and_each_process(run, machine):
    machine.shared.set_processes(0, [(os.getpid(), 5 << 20), (1 << 22, 7 << 20)])
    status, lines = run()
    text = "\n".join(lines)
    assert status == 0
    assert {len(line) for line in lines[1:] if line} == {91}
    assert re.search(r"51C +P0 +123W / +300W \| +12MiB / +16160MiB \| +100% +Default", text)
    assert re.search(rf"0 +N/A +N/A +{os.getpid()} +C .* 5MiB", text)
    assert "[Not Found]" in text


def test_memory_that_the_driver_does_not_tell_is_shown_as_such(run, machine):
    machine.shared.set_processes(0, [(os.getpid(), nvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value)])
    lines = run()[1]
    assert any(re.search(rf"{os.getpid()} .* N/A +\|$", line) for line in lines)
    assert {len(line) for line in lines[1:] if line} == {91}
    _, (line,) = run("--query-compute-apps=pid,used_memory", "--format=csv,noheader")
    assert line == f"{os.getpid()}, [N/A]"


def test_the_table_without_processes_says_so(run):
    assert any("No running processes found" in line for line in run()[1])


class TestSetting:
    def test_a_limit_is_set(self, run, machine):
        assert run("-i", "0", "-pl", "200") == (
            0,
            [
                "Power limit for GPU 00000000:04:00.0 was set to 200.00 W from 300.00 W.",
                "All done.",
            ],
        )
        assert machine.shared.controls(0).limit_w == 200

    @pytest.mark.parametrize("limit", ["0", "900", "-1", "nan", "inf", "1e400"])
    def test_a_limit_outside_the_range(self, run, machine, limit):
        status, lines = run("-i", "0", f"--power-limit={limit}")
        assert (status, len(lines)) == (2, 1)
        assert "150.00 W and 300.00 W" in lines[0]
        assert machine.shared.controls(0).limit_w == 300

    def test_clocks_are_locked_and_reset(self, run, machine):
        assert run("-i", "0", "-lgc", "1005")[0] == 0
        assert machine.shared.controls(0).sm_lock_mhz == (1005, 1005)
        assert run("-i", "0", "-lgc", "900,1200")[0] == 0
        assert machine.shared.controls(0).sm_lock_mhz == (900, 1200)
        assert run("-rgc")[0] == 0
        assert machine.shared.controls(0).sm_lock_mhz is None
        assert run("-i", "2", "-lmc", "810")[0] == 0
        assert machine.shared.controls(2).memory_lock_mhz == (810, 810)
        assert run("-i", "2", "-rmc")[0] == 0
        assert machine.shared.controls(2).memory_lock_mhz is None
        assert run("-i", "0", "-ac", "877,1005")[0] == 0
        assert machine.shared.controls(0).sm_lock_mhz[1] == 1005
        assert run("-i", "0", "-rac")[0] == 0
        assert machine.shared.controls(0).sm_lock_mhz is None

    def test_modes_are_set(self, run, machine):
        assert run("-pm", "0")[0] == 0
        assert not machine.shared.persistence(0)
        assert run("-pm", "ENABLED", "-c", "EXCLUSIVE_PROCESS")[0] == 0
        query = "--query-gpu=persistence_mode,compute_mode"
        assert run("-i", "0", query, "--format=csv,noheader")[1] == ["Enabled, Exclusive_Process"]

    def test_a_board_that_cannot_has_its_own_exit_status(self, run):
        status, (line,) = run("-i", "0", "-lmc", "877")
        assert status == 3
        assert line.endswith("Not Supported")


def test_a_lost_gpu_is_reported(monkeypatch, tmp_path, capsys):
    with simulated(monkeypatch, tmp_path, "v100", faults="gpu0:lost"):
        assert nvidia_smi.main(["-L"]) == 15
    assert capsys.readouterr().out.endswith("GPU 0: GPU is lost\n")


def program(*arguments, **environ):
    return subprocess.run(
        [PROGRAM, *arguments],
        env={**os.environ, "JOULEWISE_PYTHON": sys.executable, **environ},
        check=False, capture_output=True, text=True,
    )  # fmt: skip


def test_the_program_is_on_the_path_of_clients(machine):
    done = program("-L", LD_LIBRARY_PATH=str(shim_path().parent), JOULEWISE_SIM=machine.shared.path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("GPU 0: Tesla V100")


def test_a_loop_ends_with_ctrl_c(machine):
    command = [PROGRAM, "-i", "0", "--query-gpu=power.limit", "--format=csv,noheader", "-lms", "1"]
    environ = {
        "LD_LIBRARY_PATH": str(shim_path().parent),
        "JOULEWISE_SIM": machine.shared.path,
        "JOULEWISE_PYTHON": sys.executable,
    }
    with subprocess.Popen(
        command, env={**os.environ, **environ}, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout
        assert [running.stdout.readline() for _ in range(3)] == ["300.00 W\n"] * 3
        running.send_signal(2)
    assert running.returncode == 0


@pytest.mark.parametrize("option", ["-l", "--loop-ms"])
def test_a_loop_without_a_pause_is_one(run, monkeypatch, option):
    pauses_s = []

    def sleep(pause_s):
        pauses_s.append(pause_s)
        if len(pauses_s) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(nvidia_smi.time, "sleep", sleep)
    query = ("--query-gpu=power.limit", "--format=csv,noheader")
    assert run("-i", "0", *query, option, "0") == (0, ["300.00 W"] * 3)
    assert pauses_s == [0] * 3


@pytest.mark.parametrize("pause", ["-1", "nan", "inf", "soon"])
def test_a_loop_whose_pause_is_none_is_refused(run, capsys, pause):
    with pytest.raises(SystemExit):
        run(f"--loop={pause}")
    assert re.search(rf"--loop: invalid .*'{pause}'", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("library_path", "status"), [(shim_path().parent, 9), (shim_path().parents[1] / "absent", 12)]
)
def test_without_driver_or_library_it_says_so(library_path: Path, status):
    done = program("-L", LD_LIBRARY_PATH=str(library_path), JOULEWISE_SIM="")
    assert done.returncode == status
    assert done.stdout.count("\n") == 1


def test_help_lists_the_options_and_the_fields():
    done = program("--help")
    assert done.returncode == 0
    assert "--power-limit" in done.stdout
    assert set(program("--help-query-gpu").stdout.split()) == {*GPU_FIELDS, *GPU_ALIASES}


@pytest.mark.parametrize("arguments", [["dmon"], ["-lgc", "abc"], ["-q"], ["-pl", "much"]])
def test_unknown_options_are_refused_in_two_lines(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        nvidia_smi.main(arguments)
    message = capsys.readouterr().err
    assert ended.value.code == 2
    assert message.startswith("nvidia-smi (simulated): ")
    assert len(message.splitlines()) == 2
