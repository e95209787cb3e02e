"""The wheel, not the source tree, is what people get."""

import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT

MIGRATIONS = ROOT / "src/joulewise/optimise/recurring/store/migrations"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(tmp_path_factory.mktemp("wheel"))


def build(folder: Path, **environ: str) -> Path:
    source = folder / "source"
    # Git refuses the clone of another user, as in script/as-another-user, unless told to trust it.
    git = ["git", "-c", "safe.directory=*", "-C", ROOT]
    tracked = subprocess.run(
        [*git, "ls-files", "-co", "--exclude-standard", "-z"],
        capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    for name in filter(None, tracked):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
            (source / name).chmod((ROOT / name).stat().st_mode)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*pip, "--wheel-dir", folder, source],
        check=True, capture_output=True, env={**os.environ, **environ},
    )  # fmt: skip
    (made,) = folder.glob("*.whl")
    return made


def install(wheel: Path, folder: Path) -> dict[str, str]:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder]
    subprocess.run([*pip, wheel], check=True, capture_output=True)
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_it_carries_the_data_and_the_library(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {info.filename: info for info in archive.infolist()}
    package = {name.removeprefix("joulewise/") for name in names}
    assert {
        "py.typed",
        "simulate/nvml/lib/libnvidia-ml.so.1",
        "simulate/nvml/absent/libnvidia-ml.so.1",
        "simulate/boards/v100.toml",
        "devices/host/cpus.toml",
        *(
            f"optimise/recurring/store/migrations/{path.relative_to(MIGRATIONS)}"
            for path in MIGRATIONS.rglob("*.py")
        ),
    } <= package
    assert "optimise/recurring/store/migrations/versions/revision_0001.py" in package
    assert (names["joulewise/simulate/nvml/bin/nvidia-smi"].external_attr >> 16) & stat.S_IXUSR


def test_the_installed_wheel_simulates(wheel, tmp_path):
    environ = install(wheel, tmp_path)
    sim = [
        sys.executable,
        "-P",
        "-m",
        "joulewise",
        "sim",
        "--gpu",
        "v100",
        "--",
        "nvidia-smi",
        "-L",
    ]
    done = subprocess.run(
        sim, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("GPU 0: Tesla V100")


def test_without_a_compiler_it_installs_and_sim_says_what_is_missing(tmp_path):
    made = build(tmp_path, CC="/nonexistent/cc")
    environ = install(made, tmp_path / "site")
    base = [sys.executable, "-m", "joulewise"]
    fine = subprocess.run([*base, "--help"], env=environ, cwd=tmp_path, check=False)
    assert fine.returncode == 0
    done = subprocess.run(
        [*base, "sim", "--gpu", "v100", "--", "true"],
        env=environ, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 125
    assert "compiler" in done.stderr
    assert len(done.stderr.splitlines()) == 2
