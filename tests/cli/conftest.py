"""Runs for the verbs that read them."""

import math
import os
import random
import subprocess
import sys
from dataclasses import dataclass

import pytest

from joulewise.analyse.run_result import analyse
from joulewise.analyse.stored_result import write_result
from joulewise.cli import main
from joulewise.data import Source
from tests.helpers.run_directories import PID, MadeRun, device


@pytest.fixture
def store(tmp_path):
    return tmp_path / "my runs é"


@dataclass(frozen=True)
class Ran:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def joulewise(store, monkeypatch, capsys):
    """The command line on that store, in this process: a verb starts in no time."""
    # pytest-xdist hands on the width of the terminal that it was started in, or 80.
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["joulewise", "--store", str(store), *args])
        with pytest.raises(SystemExit) as end:
            main()
        return Ran(end.value.code or 0, *capsys.readouterr())

    return run


@pytest.fixture
def joulewise_alone(store):
    """The same as a process of its own, in an environment of its own."""

    def run(*args, **environ):
        return subprocess.run(
            [sys.executable, "-m", "joulewise", "--store", str(store), *args],
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    return run


@pytest.fixture
def make_run(store):
    """A run of 10 s at 200 W on gpu0 and 20 W on cpu0, in two epochs; gpu1 is another's.

    ``source`` is that of the GPUs; gpu0 is read until ``until_s`` only.
    """

    def make(
        run_id,
        *,
        result=True,
        watts=200.0,
        spans=True,
        source=Source.MEASURED,
        until_s=math.inf,
        **changed,
    ):
        noise = random.Random(0)
        made = MadeRun(store / run_id)
        gpu0 = device("gpu0", source=source)
        made.fast(gpu0, lambda _: watts + noise.gauss(0, 0.2), until_s=until_s)
        made.fast(device("gpu1", source=source), lambda _: 40 + noise.gauss(0, 0.2))
        made.fast(device("cpu0", source=Source.MODELLED), lambda _: 20)
        made.slow("gpu0", gpu_utilisation_pct=lambda _: 99, temperature_c=lambda t: 50 + t)
        made.processes("gpu0", (0, [(PID, "python", True)])).processes("gpu1", (0, []))
        if spans:
            made.spans(("epoch", 0, 1, 5), ("=epoch()", 1, 5, 9))
        path = made.write(**changed)
        if result:
            write_result(path, analyse(path))
        return path

    return make
