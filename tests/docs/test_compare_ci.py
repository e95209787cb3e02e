"""The steps that the page on comparisons gives to GitHub Actions do what it says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.helpers.paths import DOCS

PAGE = (DOCS / "how-to/compare.md").read_text("utf-8")
WORKFLOW = yaml.safe_load(re.search(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1])
TRAIN = "from joulewise.simulate import gpu; gpu(0).step('resnet50',steps={steps})"


def steps(*names):
    found = {it.get("name"): it.get("run") for it in WORKFLOW["jobs"]["energy"]["steps"]}
    return "\n".join(found[name] for name in names)


def run(script, folder, train_steps):
    """As the runner does it: bash that ends at the first failure."""
    program = folder / "train.py"
    program.write_text(TRAIN.format(steps=train_steps))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {"TRAIN": f"python {program}", "GITHUB_STEP_SUMMARY": "summary.md", "PATH": path}
    return subprocess.run(
        ["joulewise", "sim", "--gpu", "v100", "--", "bash", "-e", "-c", script],
        cwd=folder,
        env={**os.environ, **environ, "JOULEWISE_POWERCAP": str(folder / "powercap")},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="module")
def baseline(tmp_path_factory):
    """Three runs, kept as the page says."""
    folder = tmp_path_factory.mktemp("repository")
    keep = re.search(r"^\$ (for run in .*)$", PAGE, re.MULTILINE)[1]
    made = run(f"{steps('Measure three times')}\n{keep}", folder, 8)
    assert made.returncode == 0, made.stderr
    return folder / "energy-baseline"


@pytest.mark.parametrize(("train_steps", "status"), [(8, 0), (24, 1)], ids=["alike", "dearer"])
def test_the_job_fails_where_the_new_commit_takes_more(tmp_path, baseline, train_steps, status):
    shutil.copytree(baseline, tmp_path / "energy-baseline")
    measured = run(steps("Measure three times"), tmp_path, train_steps)
    assert measured.returncode == 0, measured.stderr
    # Runs of a second vary by more than 10 % on a busy machine, and start-up is most of them.
    compare = steps("Compare with the baseline").replace("--fail-if 'time>+10%'", "")
    ended = run(compare.replace("gpu0>+5%", "gpu0>+60%"), tmp_path, train_steps)
    assert ended.returncode == status, ended.stderr
    assert ("failed: gpu0" if status else "passed: gpu0") in ended.stderr
    assert "| gpu0 |" in (tmp_path / "summary.md").read_text("utf-8")
