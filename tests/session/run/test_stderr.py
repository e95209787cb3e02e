"""Whatever becomes of stderr, the exit status is the command's, and the run is recorded."""

import fcntl
import os
import subprocess
from contextlib import contextmanager

import pytest

from joulewise.store.manifest import read_manifest
from tests.helpers.processes import DEADLINE_S, JOULEWISE
from tests.helpers.run_processes import environment, manifest, runs

FAILS = ["sh", "-c", "exit 3"]
SINKS = ["reader left", "full disk", "closed", "nobody reads", "nobody reads, non-blocking"]


@contextmanager
def sink(kind):
    """What stderr is given as; None where it is closed."""
    if kind == "closed":
        yield None
        return
    if kind == "full disk":
        descriptors = [os.open("/dev/full", os.O_WRONLY)]
    else:
        descriptors = list(os.pipe())
        if kind == "reader left":
            os.close(descriptors.pop(0))
        else:
            fill(descriptors[1], is_blocking=kind == "nobody reads")
    try:
        yield descriptors[-1]
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def fill(pipe, *, is_blocking):
    size = fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
    assert os.write(pipe, bytes(size)) == size
    os.set_blocking(pipe, is_blocking)


def status(arguments, stderr):
    return subprocess.run(
        [*JOULEWISE, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        preexec_fn=(lambda: os.close(2)) if stderr is None else None,
        env=environment(),
        check=False,
        timeout=DEADLINE_S,
    ).returncode


@pytest.mark.parametrize("kind", SINKS)
def test_run_exits_as_its_command(kind, tmp_path):
    with sink(kind) as stderr:
        assert status(["--store", str(tmp_path), "run", "--", *FAILS], stderr) == 3
    payload = manifest(tmp_path)
    assert (payload["state"], payload["exit_code"]) == ("complete", 3)


@pytest.mark.parametrize("kind", SINKS)
def test_sim_exits_as_its_command_though_it_has_something_to_say(kind):
    with sink(kind) as stderr:
        assert status(["sim", "--gpu", "v100", "--truth", "/dev/full", "--", *FAILS], stderr) == 3


def test_a_sweep_goes_on_when_its_reader_has_left(tmp_path):
    sweep = ["sweep", "--set", "x=0,0.1", "--repeat", "1", "--", "sleep", "{x}"]
    with sink("reader left") as stderr:
        assert status(["--store", str(tmp_path), *sweep], stderr) == 0
    assert [read_manifest(each).exit_code for each in runs(tmp_path)] == [0, 0]
