"""What a run draws up to its last moment is read, though sensors show it later."""

import json
import subprocess

import numpy as np
import pytest

from joulewise.store.layout import StreamKind
from joulewise.store.manifest import read_manifest
from joulewise.store.trace import open_device_stream
from tests.helpers.processes import DEADLINE_S, JOULEWISE, python
from tests.helpers.run_processes import environment, runs

MS = 10**6
MEASURED = """
import joulewise, time
with joulewise.measure(store=sys.argv[1]):
    time.sleep(1.0)
"""


def on_gpu(board, *command, faults=()):
    sim = [*JOULEWISE, "sim", "--gpu", board, *faults, "--"]
    done = subprocess.run(
        [*sim, *command], capture_output=True, text=True, check=False, timeout=DEADLINE_S,
        env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def rows(folder, lane, *names):
    reader = open_device_stream(folder, "gpu0", lane)
    chunks = list(reader.chunks(names))
    return [np.concatenate([chunk[name] for chunk in chunks]) for name in names]


# A laptop's GPU idles at 1 W, which its noise and its sensor's tick of 0.1 s are a larger share of
# in one second than on boards of 15 to 42 W: 3 to 9 % were seen there, and up to 0.4 % on those.
@pytest.mark.parametrize(
    ("board", "tail_ms", "most"),
    [
        ("rtx6000", 252, 0.05),
        ("a100", 177, 0.05),
        ("v100", 55, 0.05),
        ("laptop", 252, 0.15),
    ],
)
@pytest.mark.parametrize("how", ["run", "measure"])
def test_the_counter_is_read_until_it_has_shown_the_end(tmp_path, board, tail_ms, most, how):
    shares = []
    # Readings that come late on a busy machine widen the error, so the best of a few counts.
    while len(shares) < 6 and min(shares, default=np.inf) >= most:
        shares.append(_error_of_a_short_run(tmp_path / str(len(shares)), board, tail_ms, how))
    assert min(shares) < most


def _error_of_a_short_run(store, board, tail_ms, how):
    """Sampling error over energy, of a second at idle whose end the counter has shown."""
    run = [*JOULEWISE, "--store", str(store), "run", "--", "sleep", "1.0"]
    on_gpu(board, *(run if how == "run" else (*python(MEASURED)[1:], str(store))))
    (folder,) = runs(store)
    (command,) = read_manifest(folder).commands
    t_ns, energy_j = rows(folder, StreamKind.FAST, "t_ns", "energy_j")
    changed = np.flatnonzero(np.diff(energy_j)) + 1
    # Updated since, or, where this machine was busy, read so late that it must have been.
    updated_ns, last_ns = t_ns[changed[-1] - 1], t_ns[-1]
    assert max(updated_ns - 15 * MS, last_ns - tail_ms * MS) >= command.end_ns
    assert np.count_nonzero(t_ns[changed] < command.start_ns) >= 1, "no update seen before"
    (stamps_ns,) = rows(folder, StreamKind.BUFFER, "t_ns")
    assert stamps_ns[-1] > command.end_ns
    energy = json.loads((folder / "result.json").read_text())["energy_j"]["gpu0"]
    return energy["error_sampling"] / energy["value"]


def test_a_driver_that_fails_at_the_end_delays_nothing_but_the_deadline(tmp_path):
    run = [*JOULEWISE, "--store", str(tmp_path), "run", "--", "sleep", "4"]
    on_gpu("rtx6000", *run, faults=("--fault", "gpu0:lost@3s"))
    (folder,) = runs(tmp_path)
    manifest = read_manifest(folder)
    assert manifest.state == "complete"
    (t_ns,) = rows(folder, StreamKind.FAST, "t_ns")
    assert t_ns[-1] < manifest.commands[0].end_ns + 2000 * MS
    result = json.loads((folder / "result.json").read_text())
    assert result["energy_j"]["gpu0"]["at_least"] is True
    hints = {w["code"]: w["hint"] for w in result["warnings"] if w["device"] == "gpu0"}
    assert "gap" not in hints, "nothing stands in for what was lost"
    assert "dmesg" in hints["device_unavailable"]
