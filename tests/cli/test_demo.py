"""The demo: a full sweep in virtual time, beside what was published, and commands that work."""

import json
import shlex
import sys
from types import SimpleNamespace

import pytest

from joulewise.cli import demo, main
from joulewise.store.runs import runs


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
    table = lines[lines.index("  This sweep beside the published figures") + 2 :][:4]
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
    payload = json.loads(joulewise("demo", "--json", "-").stdout)
    assert len(payload["points"]) == 31
    by_metric = {each["metric"]: each for each in payload["published"]}
    assert by_metric["edp"]["power_limit_w"] == 180
    found = by_metric["edp"]["found"]
    assert found["power_limit_w"] == payload["best"]["edp"]["settings"]["power_limit_w"]
    assert found["energy_ratio_there"] == pytest.approx(by_metric["edp"]["energy_ratio"], abs=0.02)


@pytest.fixture
def demo_without_store(monkeypatch, tmp_path, capsys):
    """Runs the demo with the place for temporary files at ``tmp_path``; returns what it printed."""

    def run(*words):
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("JOULEWISE_STORE", raising=False)
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setattr("tempfile.tempdir", None)
        monkeypatch.setattr(sys, "argv", ["joulewise", "demo", *words])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code
        return capsys.readouterr()

    return run


def test_without_a_store_it_leaves_little_and_shows_how_to_remove_it(
    demo_without_store, tmp_path, joulewise
):
    said = demo_without_store()
    (made,) = tmp_path.iterdir()
    assert made.name.startswith("joulewise-demo-")
    assert f"rm -r {made}" in said.err
    assert not list(runs(made))
    assert sum(path.stat().st_size for path in made.rglob("*") if path.is_file()) < 3e6
    commands = [line for line in said.out.splitlines() if line.startswith("  joulewise ")]
    assert not any(" report " in line for line in commands)  # it would lack the runs
    assert joulewise(*shlex.split(commands[0], comments=True)[1:]).returncode == 0


def test_without_the_extra_no_page_is_promised(demo_without_store, monkeypatch):
    assert "the sweep and its report are in " in demo_without_store().err
    monkeypatch.setattr("joulewise.report.html.render._NEEDED", {"no_such_module": "altair"})
    said = demo_without_store()
    assert "no report" in said.err
    assert "the sweep is in " in said.err


def test_as_json_and_without_a_store_it_leaves_nothing(demo_without_store, tmp_path):
    assert json.loads(demo_without_store("--json", "-").out)["points"]
    assert not list(tmp_path.iterdir())


def test_a_demo_that_fails_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def interrupt():
        with demo._temporary() as folder:
            (folder / "run").mkdir()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert not list(tmp_path.iterdir())


def test_where_the_extra_is_missing_no_report_is_recommended(store, monkeypatch):
    monkeypatch.setattr("joulewise.report.html.render._NEEDED", {"no_such_module": "altair"})
    sweep_result = SimpleNamespace(id="20260101-000000-abcd")
    commands = demo._next(store, sweep_result, is_kept=True)
    assert not any(" report " in command for command, _ in commands)
    monkeypatch.undo()
    commands = demo._next(store, sweep_result, is_kept=True)
    assert any(" report " in command for command, _ in commands)
