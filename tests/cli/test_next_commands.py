"""What ``show`` proposes to run next can be run."""

import shlex

import pytest

ID, OTHER = "20261116-003512-7f3a", "20261116-003513-11bc"


@pytest.mark.parametrize("which", [ID, "job 7"], ids=["run", "group"])
def test_each_proposed_command_works(which, joulewise, make_run, monkeypatch, tmp_path):
    make_run(ID, group="job 7", host={"name": "n1"}, boot_id="1")
    make_run(OTHER, group="job 7", host={"name": "n2"}, boot_id="2")
    monkeypatch.chdir(tmp_path)
    shown = joulewise("show", which).stdout.splitlines()
    proposed = [line.partition("#")[0] for line in shown if line.startswith("  joulewise --store")]
    assert len(proposed) > 1
    for line in proposed:
        _, _, _, *arguments = shlex.split(line)
        done = joulewise(*arguments)
        assert done.returncode == 0, (line, done.stderr)
    assert (tmp_path / "trace.csv").stat().st_size
