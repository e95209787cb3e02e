"""The truth file: exact at every row, linear between rows, and never in the way."""

import csv
import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.errors import UsageError
from joulewise.simulate.realtime.truth import Truth, energy_rows
from joulewise.simulate.timeline import PIECE, Timeline
from joulewise.units import NS_PER_S
from tests.helpers.processes import DEADLINE_S
from tests.helpers.sim_processes import SIM

START_NS = 7_000_000_123
LONGEST_NS = 10_000_000


def timeline(start_ns, changes):
    """Power that changes as told: (lasting ns, power)."""
    pieces, t_ns, energy_j = [], start_ns, 0.0
    for lasting_ns, power_w in changes:
        pieces.append((t_ns, energy_j, power_w, 0, 0, 0, 0, 0, 0, 0))
        t_ns += lasting_ns
        energy_j += power_w * lasting_ns / NS_PER_S
    return Timeline(np.array(pieces, PIECE), t_ns)


changes = st.lists(
    st.tuples(st.integers(1, 80_000_000), st.floats(1, 400, width=32)), min_size=1, max_size=30
)


def under_sim(*arguments, check=True):
    return subprocess.run(
        [*SIM, "--gpu", "v100", *arguments],
        check=check,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


@given(changes, st.floats(0.01, 0.99), st.integers(0, 1 << 60))
def test_rows_come_at_every_change_and_every_10_ms_however_it_is_cut(changes, cut, moment):
    whole = timeline(START_NS, changes)
    cut_ns = START_NS + int(cut * (whole.end_ns - START_NS))
    first = energy_rows(whole, START_NS, cut_ns)
    second = energy_rows(whole, cut_ns, whole.end_ns, last=True)
    t_ns = np.concatenate([[START_NS], first[0], second[0]])
    energy_j = np.concatenate([[0.0], first[1], second[1]])
    assert set(whole.pieces["t_ns"].tolist()) <= set(t_ns.tolist())
    assert t_ns[-1] == whole.end_ns
    assert (np.diff(t_ns) > 0).all()
    assert np.diff(t_ns).max() <= LONGEST_NS
    t = START_NS + moment % (whole.end_ns - START_NS)
    between_j = np.interp(t, t_ns, energy_j)
    assert between_j == pytest.approx(float(whole.energy_at(t)), rel=1e-9, abs=1e-9)


@given(changes, changes)
def test_the_file_is_in_order_of_time_and_has_both_energies(tmp_path_factory, one, two):
    path = tmp_path_factory.mktemp("truth") / "truth.csv"
    lines = [timeline(START_NS, one), timeline(START_NS, two)]
    end_ns = min(line.end_ns for line in lines)
    truth = Truth(path)
    truth.start([1.0, 0.97], START_NS)
    truth.write(lines, (START_NS + end_ns) // 2)
    truth.write(lines, end_ns, last=True)
    truth.close()
    rows = read(path)
    times = [int(row["monotonic_ns"]) for row in rows]
    assert times == sorted(times)
    for gpu, (line, gain) in enumerate(zip(lines, (1.0, 0.97), strict=True)):
        own = [row for row in rows if row["gpu"] == str(gpu)]
        first, last = own[0], own[-1]
        assert (int(first["monotonic_ns"]), float(first["energy_j"])) == (START_NS, 0.0)
        assert int(last["monotonic_ns"]) == end_ns
        energy_j = float(line.energy_at(end_ns))
        assert float(last["energy_j"]) == pytest.approx(energy_j, abs=1e-6)
        assert float(last["sensed_j"]) == pytest.approx(gain * energy_j, abs=1e-6)


def test_a_file_that_cannot_be_written_is_reported_at_once(tmp_path):
    with pytest.raises(UsageError, match="cannot write"):
        Truth(tmp_path)


def test_a_pipe_or_a_terminal_is_refused_since_its_reader_could_stop_the_gpus(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    ours, theirs = pty.openpty()
    for path, what in ((pipe, "not a file"), (os.ttyname(theirs), "terminal")):
        done = under_sim("--truth", os.fspath(path), "--", "true", check=False)
        assert done.returncode == 2
        assert what in done.stderr.splitlines()[0]
    os.close(ours)
    os.close(theirs)


def test_a_full_disk_is_reported_once_and_affects_nobody(capsys):
    truth = Truth(Path("/dev/full"))
    truth.start([1.0], START_NS)
    truth.write([timeline(START_NS, [(10**9, 100.0)])], START_NS + 10**8)
    truth.close()
    message = "joulewise: /dev/full ends early: No space left on device\n"
    assert capsys.readouterr().err.startswith(message)


def test_a_disk_that_fills_up_leaves_whole_rows(tmp_path, capsys, monkeypatch):
    truth = Truth(tmp_path / "truth.csv")
    truth.start([1.0], START_NS)

    class Full:
        name, closed = "truth.csv", False

        def __init__(self, file):
            self.file, self.room_b = file, 100

        def write(self, data):
            if not self.room_b:
                raise OSError(28, "No space left on device")
            done, self.room_b = self.file.write(data[: self.room_b]), 0
            return done

        def fileno(self):
            return self.file.fileno()

        def close(self):
            self.closed = True
            self.file.close()

    # Nothing real fills up after so many bytes without the right to mount one.
    monkeypatch.setattr(truth, "_file", Full(truth._file))
    truth.write([timeline(START_NS, [(10**9, 100.0)])], START_NS + 10**9)
    truth.write([timeline(START_NS, [(10**9, 100.0)])], START_NS + 10**9)
    assert capsys.readouterr().err.count("ends early") == 1
    assert (tmp_path / "truth.csv").read_bytes().endswith(b",0.000000\n")


def test_a_simulation_writes_it_to_the_very_end(tmp_path):
    path = tmp_path / "truth.csv"
    code = """
import os, sys, time
def written():
    size = os.path.getsize(sys.argv[1])
    while os.path.getsize(sys.argv[1]) == size:
        time.sleep(0.01)
    return time.monotonic_ns()
print(written(), written())
"""
    options = ["--gpu", "v100,rtx6000", "--workload", "mnist-big", "--truth", str(path)]
    done = under_sim(*options, "--", sys.executable, "-c", code, str(path))
    start_ns, end_ns = map(int, done.stdout.split())
    rows = read(path)
    for gpu in "01":
        own = [(int(r["monotonic_ns"]), float(r["energy_j"])) for r in rows if r["gpu"] == gpu]
        t_ns, energy_j = map(np.array, zip(*own, strict=True))
        assert t_ns[0] < start_ns
        assert t_ns[-1] > end_ns
        assert np.diff(t_ns).max() <= LONGEST_NS
        assert (np.diff(energy_j) > 0).all()
        mean_w = np.diff(np.interp([start_ns, end_ns], t_ns, energy_j)) / (end_ns - start_ns) * 1e9
        assert 100 < mean_w < 300


def test_a_full_disk_while_the_command_runs_keeps_its_exit_status():
    done = under_sim("--truth", "/dev/full", "--", "sh", "-c", "exit 3", check=False)
    assert done.returncode == 3
    first, hint = done.stderr.splitlines()
    assert first == "joulewise: /dev/full ends early: No space left on device"
    assert "command is not affected" in hint


def test_an_existing_file_is_replaced(tmp_path):
    path = tmp_path / "truth.csv"
    path.write_text("old " * 1000)
    under_sim("--truth", os.fspath(path), "--", "true")
    assert "old" not in path.read_text()
