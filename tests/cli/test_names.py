"""Every verb that takes a name understands the same spellings: see ``report.resolve``."""

import json

import pytest

from joulewise.data.sweeps import Setting
from joulewise.errors import UsageError
from joulewise.report.resolve import (
    GroupRef,
    RunRef,
    SweepRef,
    TableRef,
    resolve,
    sweep_of_last_run,
)
from joulewise.store.index import folder_index
from joulewise.store.layout import INDEX
from joulewise.sweep.space import Space
from joulewise.sweep.spec import SweepSpec
from joulewise.sweep.stored_sweeps import create_sweep

OLD, NEW, OTHER = "20260101-000000-aaaa", "20260102-000000-bbbb", "20260103-000000-cccc"
RUN_SPELLINGS = {
    "the id": NEW,
    "the beginning of an id": "20260102",
    "a name, of the newest": "baseline",
    "a tag, of the newest": "tuned",
    "the path of a run": "{store}/" + NEW,
    "a folder with runs": "{store}/../copies",
}
SWEEP_SPELLINGS = ("{id}", "{start}", "monday", "{store}/sweeps/{id}")


@pytest.fixture
def runs(make_run, store):
    make_run(OLD, name="baseline", tags=("tuned",))
    make_run(NEW, name="baseline", tags=("tuned",), group="job7.0", watts=150.0)
    make_run(OTHER, name="other", watts=180.0)
    (store.parent / "copies").mkdir()
    (store.parent / "copies" / NEW).symlink_to(store / NEW)


@pytest.fixture
def sweep(store):
    setting = Setting.of({"power_limit_w": 150.0})
    return create_sweep(store, SweepSpec(name="monday"), Space((setting,), setting)).name


def run_shown_by(verb, joulewise, name, tmp_path):
    """The id of the run that a verb takes ``name`` for."""
    if verb in {"show", "report"}:
        return json.loads(joulewise(verb, name, "--json", "-").stdout)["id"]
    if verb == "export":
        path = tmp_path / "spans.json"
        assert joulewise("export", name, "--what", "spans", "-o", str(path)).returncode == 0
        return {"joules": sum(row["energy_j"] for row in json.loads(path.read_text()))}
    compared = json.loads(joulewise("compare", name, OTHER, "--json", "-").stdout)
    return compared["a"]["runs"][-1]


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("verb", ["show", "report", "export", "compare"])
def test_each_verb_finds_the_same_run_by_every_spelling(joulewise, store, tmp_path, verb):
    expected = run_shown_by(verb, joulewise, NEW, tmp_path)
    for spelling in RUN_SPELLINGS.values():
        name = spelling.format(store=store)
        assert run_shown_by(verb, joulewise, name, tmp_path) == expected, name


@pytest.mark.usefixtures("runs")
def test_last_is_the_newest_run(joulewise, tmp_path):
    for verb in ("show", "report"):
        assert run_shown_by(verb, joulewise, "last", tmp_path) == OTHER


@pytest.mark.usefixtures("runs", "sweep")
def test_last_asks_no_index_where_the_newest_run_is_of_no_sweep(store, monkeypatch):
    """Otherwise it would read every sweep of a large store that has no index yet."""
    monkeypatch.setattr(folder_index, "SMALL_STORE", 0)  # which has no index on disk
    found = resolve(store, "last")
    assert found == RunRef((store / OTHER,), is_exact=True)
    assert not (store / INDEX).exists()
    assert sweep_of_last_run(store, found.newest) is None
    assert not (store / INDEX).exists()


@pytest.mark.usefixtures("runs")
def test_a_group_is_understood_by_its_name_and_its_job(joulewise, store):
    for name in ("job7.0", "job7"):
        assert isinstance(resolve(store, name), GroupRef)
        for verb in (("show",), ("report", "--json", "-"), ("compare", OTHER)):
            assert joulewise(*verb, name).returncode == 0
        refused = joulewise("export", name, "-o", "-")
        assert refused.returncode == 2
        assert "is a group" in refused.stderr
        assert NEW in refused.stderr


@pytest.mark.usefixtures("runs")
def test_a_sweep_is_understood_by_every_verb_and_refused_with_the_right_one(
    joulewise, store, sweep
):
    for spelling in SWEEP_SPELLINGS:
        name = spelling.format(id=sweep, start=sweep[:-1], store=store)
        assert resolve(store, name) == SweepRef(store / "sweeps" / sweep)
        assert joulewise("choose", name, "--json", "-").returncode == 0
        assert joulewise("report", name, "--json", "-").returncode == 0
        for verb in (("show",), ("export", "-o", "-")):
            refused = joulewise(*verb, name)
            assert refused.returncode == 2
            assert f"choose {sweep}" in refused.stderr
        assert "is a sweep and" in joulewise("compare", name, OTHER).stderr


@pytest.mark.usefixtures("runs", "sweep")
def test_a_run_is_refused_by_choose_with_the_verb_that_shows_it(joulewise):
    for name in (NEW, "baseline", "tuned", "job7"):
        refused = joulewise("choose", name)
        assert refused.returncode == 2
        assert f"show {name}" in refused.stderr


@pytest.mark.usefixtures("runs", "sweep")
def test_a_name_that_nothing_has_is_the_same_error_of_every_verb(joulewise):
    for verb in (("show",), ("report",), ("export", "-o", "-"), ("compare", OTHER)):
        refused = joulewise(*verb, "baselnie")
        assert refused.returncode == 2
        assert "has no run, tag, group or sweep 'baselnie'" in refused.stderr
        assert "baseline" in refused.stderr


def test_a_name_is_resolved_to_its_kind_by_a_fixed_order(make_run, store, tmp_path, sweep):
    table = tmp_path / "measured.csv"
    table.write_text("lr,time_s,energy_j\n1,1,1\n")
    make_run(OLD, name="x", tags=("y", "monday"), group="x")
    make_run(NEW, name="x", group="y")
    assert resolve(store, OLD) == RunRef((store / OLD,), is_exact=True)
    assert resolve(store, "x") == RunRef((store / OLD, store / NEW))
    assert resolve(store, "y") == RunRef((store / OLD,))
    assert resolve(store, "monday") == RunRef((store / OLD,))
    assert resolve(store, sweep) == SweepRef(store / "sweeps" / sweep)
    assert resolve(store, str(table)) == TableRef(table)
    for nothing in ("", ".", "..", "z"):
        with pytest.raises(UsageError):
            resolve(store, nothing)
    with pytest.raises(UsageError, match="begins 2 runs"):
        resolve(store, "2026")
