"""The verb itself: what it prints where, and how it ends, on this machine and on simulated GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

JOULEWISE = [sys.executable, "-m", "joulewise"]
NO_POWERCAP = {"JOULEWISE_POWERCAP": "/nonexistent"}


def run(*args, **environ):
    return subprocess.run(
        [*JOULEWISE, *args],
        env={**os.environ, **NO_POWERCAP, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_table_is_plain_text_where_there_is_no_terminal():
    ran = run("doctor")
    assert ran.returncode == 0
    assert "sensor" in ran.stdout
    assert "GPU energy: " in ran.stdout
    assert "\x1b" not in ran.stdout
    assert ran.stderr == ""


def test_json_on_stdout_is_all_there_is():
    ran = run("doctor", "--json", "-")
    assert ran.returncode == 0
    assert set(json.loads(ran.stdout)) == {"devices", "missing", "leases"}
    assert ran.stderr == ""


def test_json_in_a_file_goes_with_the_table(tmp_path):
    path = tmp_path / "doctor.json"
    ran = run("doctor", "--json", str(path))
    assert "GPU energy: " in ran.stdout
    keys = [device["key"] for device in json.loads(path.read_text())["devices"]]
    assert "cpu0" in keys


def test_json_where_nothing_can_be_written(tmp_path):
    ran = run("doctor", "--json", str(tmp_path))
    assert ran.returncode == 2
    assert ran.stderr.startswith(f"joulewise: cannot write {tmp_path}: Is a directory\n  ")


def on_stdout(stdout, *args):
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        [*JOULEWISE, *args],
        env={**buffered, **NO_POWERCAP},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


PRINTS = pytest.mark.parametrize("args", [["doctor"], ["doctor", "--json", "-"], ["--help"]])


@PRINTS
def test_a_full_disk_under_stdout_is_shown_in_two_lines(args):
    with Path("/dev/full").open("w") as full:
        ran = on_stdout(full, *args)
    assert ran.stderr.startswith("joulewise: cannot write the output: No space left on device\n  ")
    assert ran.stderr.count("\n") == 2
    assert ran.returncode == 125


@PRINTS
def test_a_reader_that_left_early_is_no_matter_to_speak_of(args):
    read, write = os.pipe()
    os.close(read)
    ran = on_stdout(write, *args)
    os.close(write)
    assert (ran.returncode, ran.stderr) == (141, "")


def test_lines_in_a_pipe_end_where_their_words_do():
    lines = run("doctor").stdout.splitlines()
    assert lines == [line.rstrip() for line in lines]


def test_a_verb_that_is_nearly_one():
    ran = run("shwo")
    assert ran.returncode == 2
    assert ran.stderr.startswith("joulewise: there is no verb 'shwo'; did you mean show?\n")


def test_the_tdp_goes_into_the_model():
    def power_of(tdp):
        found = json.loads(run("doctor", "--cpu-tdp", tdp, "--json", "-").stdout)
        (cpu,) = [device for device in found["devices"] if device["key"] == "cpu0"]
        return cpu["sensors"]["power_w"]["value"]

    assert power_of("100000") > 100 * power_of("10")


@pytest.mark.parametrize("tdp", ["0", "-5", "many", "nan", "inf"])
def test_a_tdp_that_is_none(tdp):
    ran = run("doctor", "--cpu-tdp", tdp)
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 2


def test_an_encoding_without_the_signs_is_no_reason_to_fail():
    ran = run("doctor", PYTHONIOENCODING="ascii")
    assert ran.returncode == 0
    assert "cpu0" in ran.stdout


def test_on_simulated_gpus():
    ran = run("sim", "--gpu", "v100x2", "--", *JOULEWISE, "doctor", "--json", "-")
    assert ran.returncode == 0, ran.stderr
    gpus = [device for device in json.loads(ran.stdout)["devices"] if device["kind"] == "gpu"]
    assert [gpu["key"] for gpu in gpus] == ["gpu0", "gpu1"]
    for gpu in gpus:
        assert 30 < gpu["sensors"]["power_w"]["value"] < 70
        assert gpu["sensors"]["energy_j"]["source"] == "simulated"
        limit = gpu["knobs"]["power_limit_w"]
        assert (limit["minimum"], limit["maximum"], limit["value"]) == (150, 300, 300)


def test_a_lost_gpu_has_its_reason_and_the_other_its_values():
    ran = run("sim", "--gpu", "v100x2", "--fault", "gpu1:lost@0s", "--", *JOULEWISE, "doctor")
    assert ran.returncode == 0, ran.stderr
    assert "lost" in ran.stdout
    assert "gpu0 simulated (counter)" in ran.stdout
