"""Where a run took place, as its manifest, its result and its report have it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

import joulewise
from joulewise.report.html.pages import describe_environment
from joulewise.store.manifest import read_manifest
from tests.helpers.processes import DEADLINE_S, JOULEWISE
from tests.helpers.run_processes import environment, manifest

SIM = [*JOULEWISE, "sim", "--gpu", "v100,a100", "--latency", "none", "--"]


def test_the_environment_of_a_simulated_run(tmp_path):
    out = tmp_path / "result.json"
    store = ["--store", str(tmp_path / "store")]
    command = [sys.executable, "-c", "import torch"]
    done = subprocess.run(
        [*SIM, *JOULEWISE, *store, "run", "--json", str(out), "--", *command],
        env=environment(), capture_output=True, text=True, check=False, timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    payload = json.loads(out.read_text())["details"]["environment"]
    assert payload["frameworks"] == {"torch": {"version": torch.__version__}}
    assert payload["cores"]["logical"] == os.cpu_count()
    assert payload["cores"]["allowed"] <= os.cpu_count()
    assert payload["ram_b"]["total"] > 1 << 28
    gib = {key: round(memory_b / 2**30) for key, memory_b in payload["gpu_memory_b"].items()}
    assert gib == {"gpu0": 16, "gpu1": 40}
    kept = manifest(tmp_path / "store")
    assert kept["versions"]["torch"] == torch.__version__
    assert "keras" not in kept["versions"]  # ours has it, and the program did not use it
    (folder,) = (tmp_path / "store").glob("*/run.json")
    rows = describe_environment([read_manifest(folder.parent)], None)
    assert rows["Frameworks"] == f"torch {torch.__version__}"
    assert "logical" in rows["Cores"]
    assert rows["RAM"].split(",")[0].endswith("GiB")
    assert "GiB of memory" in rows["gpu1"]


def test_a_block_of_a_program_names_what_it_has_loaded(tmp_path):
    with joulewise.measure(store=tmp_path) as m:
        pass
    assert read_manifest(m.path).frameworks["torch"]["version"] == torch.__version__


def test_a_run_of_before_has_none_of_it(tmp_path):
    """Manifests of the version before have no such keys."""
    with joulewise.measure(store=tmp_path) as m:
        pass
    path = Path(m.path, "run.json")
    payload = json.loads(path.read_text())
    for key in ("machine", "container", "frameworks", "crc32"):
        del payload[key]
    for device in payload["devices"]:
        del device["info"]["memory_b"]
    path.write_text(json.dumps(payload))
    kept = read_manifest(m.path)
    assert (kept.machine, kept.container, kept.frameworks) == (None, None, {})
    rows = describe_environment([kept], None)
    assert not {"Container", "Cores", "RAM", "Frameworks"} & set(rows)
