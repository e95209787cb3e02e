"""A recorder that died after its first polls: what there is of a run is told, and nothing fails."""

import json
import shutil
import subprocess

import pyarrow as pa
import pytest

from joulewise.analyse.run_result import analyse
from joulewise.store.arrow_stream import read_batches, write_stream
from tests.helpers.processes import DEADLINE_S, JOULEWISE
from tests.helpers.run_processes import environment, runs


@pytest.fixture(scope="module", params=["v100", "rtx6000"])
def whole_run(request, tmp_path_factory):
    store = tmp_path_factory.mktemp("store")
    sim = [*JOULEWISE, "sim", "--gpu", request.param, "--workload", "resnet50", "--"]
    subprocess.run(
        [*sim, *JOULEWISE, "--store", store, "run", "--", "sleep", "1.2"],
        env=environment(), capture_output=True, check=True, timeout=DEADLINE_S,
    )  # fmt: skip
    (run,) = runs(store)
    return run


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("place", ["first", "started", "last"])
@pytest.mark.parametrize("cut", ["*", "*[0-9]", "*.buffer"], ids=["all", "polls", "samples"])
def test_a_run_of_so_few_polls_is_computed(cut, place, rows, whole_run, tmp_path):
    run = shutil.copytree(whole_run, tmp_path / whole_run.name)
    manifest = json.loads((run / "run.json").read_text())
    started_ns = manifest["commands"][0]["start_ns"]
    for path in (run / "trace").glob(f"{cut}.arrows"):
        table = pa.Table.from_batches(list(read_batches(path)))
        times_ns = table["t_ns"].to_pylist()
        started = sum(t_ns < started_ns for t_ns in times_ns)
        at = {"first": 0, "started": started, "last": max(0, len(times_ns) - rows)}[place]
        write_stream(path, table.slice(at, rows))
    manifest.update(state="recording", exit_code=None, wall_end_ns=None, monotonic_end_ns=None)
    manifest["commands"][0]["end_ns"] = None
    manifest["recorder"]["started_ticks"] = 1  # of another process
    del manifest["crc32"]
    (run / "run.json").write_text(json.dumps(manifest))
    (run / "checksums.json").unlink()  # of more rows than are there now
    result = analyse(run)
    assert result.state == "killed"
    assert "recorder_ended" in [warning.code.value for warning in result.warnings]
