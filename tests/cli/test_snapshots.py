"""The sentences that users read, each verb's output compared as a whole with ``snapshots/*.txt``.

This is the one place where wording is checked; other tests check numbers, codes and behaviour.
After a change of wording, write the files again, and read the difference before it is committed::

    JOULEWISE_WRITE_SNAPSHOTS=1 script/test tests/cli/test_snapshots.py
    git diff tests/cli/snapshots

Runs are made of known readings, and sweeps are in virtual time with a fixed seed: their numbers are
part of a snapshot. Ids, dates, the store's path and versions are masked. Where a verb looks at this
machine or runs in real time, all numbers are masked (``#``), and spaces are joined.
"""

import os
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from joulewise.analyse.run_result import analyse
from joulewise.analyse.stored_result import write_result
from joulewise.data import Source
from joulewise.session import run as session_run
from joulewise.session.request import Ready
from tests.helpers.run_directories import PID, MadeRun, device

FOLDER = Path(__file__).with_name("snapshots")
WRITE = "JOULEWISE_WRITE_SNAPSHOTS"
SWEEP = (
    *("sweep", "--sim", "v100", "--workload", "resnet50", "--power-limit", "150,200,250,300"),
    *("--repeat", "2", "--seed", "1", "--by", "edp", "--by", "eds:1.5"),
)
SIM = ("sim", "--gpu", "v100", "--as-root", "--")
IN_THE_STORE = {
    "ls": [("ls",), ("ls", "--filter", "name=baseline energy>1kJ"), ("ls", "--filter", "name=no")],
    "show": [
        ("show", "baseline"),
        ("show", "baseline", "--errors", "--price-per-kwh", "0.3", "--gco2-per-kwh", "400"),
        ("show", "in-part"),
        ("show", "simulated"),
    ],
    "compare": [
        ("compare", "baseline", "smaller"),
        ("compare", "baseline", "simulated"),
        ("compare", "smaller", "baseline", "--fail-if", "energy>+5%"),
    ],
    "choose": [
        ("choose", "last"),
        ("choose", "last", "--by", "energy", "--points"),
        ("choose", "last", "--by", "edp", "--epochs", "90", "--runs-per-year", "50"),
        ("choose", "last", "--by", "slowdown:1.05", "--format", "markdown"),
    ],
    "sweep_plan": [(*SWEEP, "--dry-run")],
    "errors": [
        # 2: the request cannot be meant
        ("shwo",),
        ("show", "--no-such-option"),
        ("show", "no-such-run"),
        ("show", "basline"),
        ("run",),
        ("run", "--rate", "0", "--", "true"),
        ("run", "--budget", "2mj", "--", "true"),
        ("run", "--name", "--", "true"),
        ("run", "--json", "-", "--", "true"),
        ("run", "--gpu", "0", "--", "true"),
        ("run", "--power-limit", "much", "--", "true"),
        ("ls", "--filter", "colour=red"),
        ("choose", "last", "--by", "edq"),
        ("choose", "last", "--by", "eds:0.5"),
        ("compare", "baseline", "last", "--fail-if", "energy<>5%"),
        ("compare", "baseline", "last"),
        ("sweep", "--sim", "v10", "--workload", "resnet50"),
        ("sweep", "--sim", "v100", "--workload", "resnet51", "--power-limit", "150,300"),
        ("sweep", "--sim", "v100", "--workload", "resnet50", "--power-limit", "50"),
        ("sweep", "--", "true"),
        ("sim", "--gpu", "v100", "--fault", "gpu0:odd", "--", "true"),
        ("report", "last", "--format", "gif", "--figures", "figures"),
        ("export", "baseline", "--what", "everything"),
        # 126 and 127: the command cannot start
        ("run", "--", "/"),
        ("run", "--", "no-such-program"),
    ],
}


@pytest.fixture(scope="module")
def fixed_store(tmp_path_factory):
    """Four made runs, and the sweep of ``SWEEP``, whose output is in ``sweep.txt``."""
    store = tmp_path_factory.mktemp("snapshots") / "store"
    made_run(store / "20260101-000000-aaaa", name="baseline", tags=("paper",))
    made_run(store / "20260102-000000-bbbb", watts=180.0, name="smaller")
    made_run(store / "20260103-000000-cccc", until_s=6.0, name="in-part", exit_code=1)
    made_run(store / "20260104-000000-dddd", source=Source.SIMULATED, name="simulated")
    (store / "sweep.txt").write_text(transcript(alone(store, *SWEEP), SWEEP))
    return store


@pytest.fixture
def store(fixed_store):
    """What the fixture ``joulewise`` works on."""
    return fixed_store


def made_run(path, *, watts=200.0, source=Source.MEASURED, until_s=float("inf"), **manifest):
    """Ten seconds on gpu0 with two epochs in them, beside a modelled CPU and a GPU of others."""
    made = MadeRun(path)
    made.fast(device("gpu0", source=source), lambda t: watts + 5 * (t % 2), until_s=until_s)
    made.fast(device("gpu1", source=source), lambda _: 40.0)
    made.fast(device("cpu0", source=Source.MODELLED), lambda _: 20.0)
    made.slow("gpu0", gpu_utilisation_pct=lambda _: 99, temperature_c=lambda t: 50 + t)
    made.processes("gpu0", (0, [(PID, "python", True)])).processes("gpu1", (0, []))
    made.spans(("epoch", 0, 1, 5), ("epoch", 1, 5, 9))
    made.write(**manifest)
    result = analyse(path)
    write_result(path, result)
    return result


def alone(store, *arguments, **environ):
    """The command line as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "joulewise", "--store", str(store), *arguments],
        env={**{name: os.environ[name] for name in os.environ.keys() - {"COLUMNS"}}, **environ},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def transcript(ran, arguments):
    """One command with all that it printed, as a terminal and a shell would show it."""
    parts = [f"$ joulewise {shlex.join(arguments)}", ran.stdout.rstrip(), ran.stderr.rstrip()]
    return "\n".join([*filter(None, parts), f"[exit {ran.returncode}]"]) + "\n"


def masked(text, store):
    """Without what differs from machine to machine and from day to day, as wide as before."""
    text = text.replace(shlex.quote(str(store)), "STORE").replace(str(store), "STORE")
    # click makes the name of the program from that of pytest.
    text = re.sub(r"see: \S.*?joulewise\b", "see: joulewise", text)
    text = re.sub(
        r"\b20\d{6}-\d{6}-(?!(aaaa|bbbb|cccc|dddd)\b)[0-9a-f]{4}\b", "YYYYMMDD-hhmmss-xxxx", text
    )
    text = re.sub(r"\btrial:[0-9a-f]{12}\b", "trial:xxxxxxxxxxxx", text)
    text = re.sub(r"\b20\d\d-\d\d-\d\d \d\d:\d\d(:\d\d[+-]\d\d:\d\d)?", "YYYY-MM-DD hh:mm", text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def without_numbers(text):
    """Numbers as #, of whatever power of ten their unit is, and columns as two spaces."""
    text = re.sub(r"GPU-[0-9a-f-]{36}", "GPU-#", text)
    text = re.sub(r"\d+(?:[.,/]\d+)*", "#", text)
    text = re.sub(r"# [mkMGµ]?(J|Wh|W|s|Hz|B/s|iB)\b", r"# \1", text)
    return re.sub(r"(?<=\S) {2,}", "  ", text)


def check(name, text):
    """Compare with the snapshot of that name, or write it."""
    path = FOLDER / f"{name}.txt"
    if WRITE in os.environ:
        path.write_text(text, encoding="utf-8")
    assert text.splitlines() == path.read_text("utf-8").splitlines(), f"see {WRITE} in this file"


@pytest.mark.parametrize("name", IN_THE_STORE)
def test_verb(name, joulewise, store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parts = [transcript(joulewise(*arguments), arguments) for arguments in IN_THE_STORE[name]]
    check(name, masked("\n".join(parts), store))


def test_sweep(store):
    check("sweep", masked((store / "sweep.txt").read_text(), store))


def test_run(joulewise, store, monkeypatch):
    """What stands around the output of a command, of a run that is known."""
    runs = iter(["20260101-000000-aaaa", "20260103-000000-cccc"])

    def run(_command, store, _request, _budgets, callbacks):
        path = store / next(runs)
        gpu, cpu = ("gpu0", "made-up gpu0", "measured"), ("cpu0", "made-up cpu0", "modelled")
        callbacks.opening(Ready(path, (gpu, cpu), 10.0))
        result = analyse(path)
        return session_run.CommandOutcome(result.exit_code, path, result)

    monkeypatch.setattr(session_run, "run", run)
    arguments = ("run", "--", "python", "train.py")
    parts = [transcript(joulewise(*arguments), arguments) for _ in range(2)]
    check("run", masked("\n".join(parts), store))


def test_run_without_a_recorder(joulewise, store, monkeypatch):
    """The command has run, and nothing else has."""

    def run(_command, store, _request, _budgets, callbacks):
        callbacks.say("the recorder has ended unexpectedly")
        return session_run.CommandOutcome(
            0, store / "20260101-000000-aaaa", None, "it has no result"
        )

    monkeypatch.setattr(session_run, "run", run)
    arguments = ("run", "--", "python", "train.py")
    check("run_lost", masked(transcript(joulewise(*arguments), arguments), store))


@pytest.mark.parametrize(("name", "which"), [("report_sweep", "last"), ("report_run", "baseline")])
def test_report(name, which, joulewise, store):
    page = joulewise("report", which, "-o", "-")
    assert page.returncode == 0
    text = "\n".join(sentences(page.stdout))
    text = re.sub(r"(?<=^Simulated on\n).*", "HOST", text, flags=re.MULTILINE)
    text = re.sub(r"(?<=^Made by joulewise )\S+", "VERSION.", text, flags=re.MULTILINE)
    check(name, masked(text, store))


def test_doctor(tmp_path, store):
    """A simulated GPU beside a CPU that is written down, whatever this machine has."""
    proc = tmp_path / "proc"
    proc.mkdir()
    core = "processor : {0}\nvendor_id : GenuineIntel\nmodel name : Made-up CPU\nphysical id : 0\n"
    (proc / "cpuinfo").write_text("\n".join(core.format(index) for index in range(4)))
    busy = [f"{name} 100 0 100 800 0 0 0 0 0 0\n" for name in ("cpu ", "cpu0", "cpu1")]
    (proc / "stat").write_text("".join(busy) + "btime 1800000000\n")
    (proc / "meminfo").write_text("MemTotal: 33554432 kB\nMemAvailable: 16777216 kB\n")
    nothing = (f"JOULEWISE_{name}" for name in ("POWERCAP", "DMI", "HWMON", "KFD", "CPUS"))
    machine = dict.fromkeys(nothing, str(tmp_path / "nothing")) | {"JOULEWISE_PROC": str(proc)}
    ran = alone(store, *SIM, sys.executable, "-m", "joulewise", "doctor", **machine)
    text = without_numbers(ran.stdout.replace(str(tmp_path), "FOLDER"))
    # Root reads another sentence than others.
    ran.stdout = re.sub(r"(?<=no guard service here: ).*", "…", text)
    check("doctor", masked(transcript(ran, (*SIM, "joulewise", "doctor")), store))


def test_a_setting_that_no_gpu_takes(store):
    inner = ("run", "--power-limit", "5000", "--", "true")
    ran = alone(store, *SIM, sys.executable, "-m", "joulewise", *inner)
    check("errors_of_a_gpu", masked(transcript(ran, (*SIM, "joulewise", *inner)), store))


def test_a_store_that_cannot_be_made(tmp_path, store):
    """125: a failure of joulewise, not of the request."""
    (tmp_path / "file").touch()
    ran = alone(tmp_path / "file" / "store", "run", "--", "true")
    text = transcript(ran, ("--store", "file/store", "run", "--", "true"))
    check("errors_of_a_store", masked(text.replace(str(tmp_path), "FOLDER"), store))


def test_every_snapshot_is_compared():
    others = {"sweep", "run", "run_lost", "report_sweep", "report_run", "doctor"}
    others |= {"errors_of_a_gpu", "errors_of_a_store"}
    assert {path.stem for path in FOLDER.iterdir()} == {*IN_THE_STORE, *others}


_SILENT = {"script", "style", "svg", "button", "td"}
_VOID = {"br", "hr", "img", "input", "link", "meta"}
_INLINE = {"a", "b", "code", "em", "i", "span", "strong"}


class _Sentences(HTMLParser):
    """The text of a page without its scripts, its buttons and the rows of its tables."""

    def __init__(self):
        super().__init__()
        self.lines = []
        self._open = []  # whether each open element is silent
        self._text = ""

    def handle_starttag(self, tag, attrs):
        self._end_line(tag)
        if tag not in _VOID:
            self._open.append(tag in _SILENT or ("scope", "row") in attrs)

    def handle_endtag(self, tag):
        self._end_line(tag)
        self._open.pop()

    def handle_data(self, data):
        if not any(self._open):
            self._text += data

    def _end_line(self, tag):
        if tag not in _INLINE:
            self.lines += filter(None, [" ".join(self._text.split())])
            self._text = ""


def sentences(html):
    """One line for each piece of text that stands alone."""
    parser = _Sentences()
    parser.feed(html)
    return parser.lines
