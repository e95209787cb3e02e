"""scipy belongs to the extra ``search``: everything else works where it cannot be imported."""

import os
import subprocess
import sys

import pytest

SIMULATED = ("--sim", "v100", "--workload", "ecg", "--power-limit", "200,300")


@pytest.fixture
def joulewise(tmp_path):
    """Run the command line where importing scipy fails, in every process that it starts."""
    package = tmp_path / "path" / "scipy"
    package.mkdir(parents=True)
    error = "ModuleNotFoundError(\"No module named 'scipy'\", name='scipy')"
    (package / "__init__.py").write_text(f"raise {error}\n")
    path = os.pathsep.join([str(package.parent), os.environ.get("PYTHONPATH", "")])
    environ = {**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)}

    def run(*arguments, status=0):
        command = [sys.executable, "-m", "joulewise", "--store", "runs", *arguments]
        ran = subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
        )
        assert ran.returncode == status, ran.stderr
        return ran.stderr

    return run


def test_run_show_compare_and_report_work_without_scipy(joulewise, tmp_path):
    for _ in range(2):
        joulewise("run", "--", sys.executable, "-c", "pass")
    first, second = sorted(path.name for path in (tmp_path / "runs").glob("20*"))
    joulewise("show", "last")
    joulewise("compare", first, second)
    joulewise("report", "last", "--output", "run.html")
    assert (tmp_path / "run.html").exists()


def test_a_grid_and_its_report_work_without_scipy(joulewise, tmp_path):
    joulewise("sweep", *SIMULATED, "--repeat", "1")
    joulewise("report", "last", "--output", "sweep.html")
    assert (tmp_path / "sweep.html").exists()


@pytest.mark.parametrize("more", [(), ("--sm-clock", "900,1200")])
def test_a_search_says_which_extra_it_needs(joulewise, more):
    error = joulewise("sweep", *SIMULATED, "--adaptive", "--by", "edp", *more, status=125)
    assert "an adaptive search needs scipy\n" in error
    assert "pip install 'joulewise[search]'" in error


def test_a_workload_like_a_run_says_which_extra_it_needs(joulewise, tmp_path):
    joulewise("sweep", *SIMULATED, "--repeat", "1")
    (run, *_) = sorted(path.name for path in (tmp_path / "runs").glob("20*"))
    like = ("--sim", "v100", "--like", run, "--power-limit", "200,300")
    error = joulewise("sweep", *like, status=125)
    assert "a workload like a run needs scipy" in error
    assert "pip install 'joulewise[search]'" in error
