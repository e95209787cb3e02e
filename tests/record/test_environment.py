"""Where a run took place, and what of it may be recorded."""

import subprocess

import pytest

from joulewise.record.environment import git_state, read_run_environment, recorded_variables

GIT = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}


@pytest.fixture
def repository(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        return subprocess.run(
            ["git", "-C", str(tmp_path), *identity, *arguments],
            check=True, capture_output=True, text=True, env=GIT,
        ).stdout.strip()  # fmt: skip

    git("init", "-b", "main")
    (tmp_path / "train.py").write_text("1")
    git("add", ".")
    git("commit", "-m", "first")
    tmp_path.joinpath("sub").mkdir()
    return tmp_path, git


def test_the_commit_and_whether_files_differ_from_it(repository):
    folder, git = repository
    commit = git("rev-parse", "HEAD")
    assert git_state(folder / "sub", GIT) == {"commit": commit, "branch": "main", "dirty": "no"}
    (folder / "results.txt").write_text("not of the repository")
    assert git_state(folder, GIT)["dirty"] == "no"
    (folder / "train.py").write_text("2")
    assert git_state(folder, GIT)["dirty"] == "yes"


def test_outside_of_a_repository_there_is_no_commit(tmp_path):
    assert git_state(tmp_path, GIT) == {}


def test_without_git_there_is_no_commit(repository):
    folder, _ = repository
    assert git_state(folder, {**GIT, "PATH": "/nonexistent"}) == {}


def test_only_variables_on_the_list_are_recorded():
    environ = {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "OMP_NUM_THREADS": "4",
        "SLURM_JOB_ID": "77",
        "SLURM_JWT": "eyJ",
        "NCCL_DEBUG": "INFO",
        "LOCAL_RANK": "0",
        "HF_TOKEN": "hf_x",
        "WANDB_API_KEY": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "HOME": "/home/me",
        "MY_CUDA_VISIBLE_DEVICES": "x",
    }
    assert recorded_variables(environ).keys() == {
        "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "SLURM_JOB_ID", "NCCL_DEBUG", "LOCAL_RANK"
    }  # fmt: skip


def test_a_secret_in_a_recorded_variable_is_masked():
    assert recorded_variables({"XLA_FLAGS": "--xla_dump=https://me:pw@host/x"}) == {
        "XLA_FLAGS": "--xla_dump=https://***@host/x"
    }


def test_the_surroundings_are_words(tmp_path):
    found = read_run_environment(tmp_path, {})
    assert found.versions["joulewise"]
    assert found.versions["pyarrow"]
    assert found.host["kernel"].startswith("Linux ")
    assert all(isinstance(v, str) for part in (found.host, found.versions) for v in part.values())
