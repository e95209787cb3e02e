"""The demo: a full sweep in virtual time, beside what was published, and commands that work."""

import json
import shlex

import pytest

from joulewise.cli import demo
from joulewise.record.store import runs


@pytest.fixture(autouse=True)
def _few_runs(monkeypatch):
    monkeypatch.setattr(demo, "REPEAT", 2)


def test_it_chooses_beside_what_was_published_and_ends_with_commands_that_work(
    joulewise, store, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    ran = joulewise("demo")
    assert ran.returncode == 0
    lines = ran.stdout.splitlines()
    table = lines[lines.index("  Beside what was published") + 2 :][:4]
    assert [line.split()[2] for line in table] == ["150", "180", "260", "190"]
    found = [int(line.split()[1]) for line in table]
    assert all(
        abs(cap_w - int(line.split()[2])) <= 30 for cap_w, line in zip(found, table, strict=True)
    )
    assert len(list(runs(store))) == 62
    for line in lines[-3:]:
        words = shlex.split(line, comments=True)
        assert words[0] == "joulewise"
        assert joulewise(*words[1:]).returncode == 0, line


def test_json_has_the_sweep_and_the_published_choices(joulewise):
    told = json.loads(joulewise("demo", "--json", "-").stdout)
    assert len(told["points"]) == 31
    by_metric = {each["metric"]: each for each in told["published"]}
    assert by_metric["edp"]["power_limit_w"] == 180
    found = by_metric["edp"]["found"]
    assert found["power_limit_w"] == told["best"]["edp"]["settings"]["power_limit_w"]
    assert found["energy_ratio_there"] == pytest.approx(by_metric["edp"]["energy_ratio"], abs=0.02)


def test_without_a_store_it_takes_a_temporary_one(monkeypatch, tmp_path, capsys):
    import sys

    from joulewise.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JOULEWISE_STORE", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(sys, "argv", ["joulewise", "demo"])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    (made,) = tmp_path.iterdir()
    assert made.name.startswith("joulewise-demo-")
    assert f"--store {made}" in capsys.readouterr().out
