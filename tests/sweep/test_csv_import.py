"""Measurements from elsewhere, read as a sweep."""

import sys

import pytest

from joulewise.errors import UsageError
from joulewise.sweep.csv_import import read_table
from tests.helpers.paths import ROOT

TRACES = ROOT.parent / "shared" / "data" / "zeus-traces"
TABLE = """power_limit_w,sm_clock_mhz,lr,time_s,power_w
300,,0.1,100,200
150,,0.1,120,130
150,1200,0.1,130,120
300,,0.1,102,198
"""


@pytest.fixture
def table(tmp_path):
    def write(text):
        path = tmp_path / "measured.csv"
        path.write_text(text)
        return path

    return write


def test_every_row_is_a_run_of_its_setting(table):
    sweep = read_table(table(TABLE))
    assert [trial.block for trial in sweep.trials] == [0, 0, 0, 1]
    assert sweep.trials[0].energy["gpu"].value == 20_000
    assert len(sweep.settings) == 3
    assert sweep.limits_w == (150, 300, 300)
    assert sweep.is_table
    assert sweep.reference == sweep.settings[0]
    assert sweep.settings[0].as_json() == {
        "power_limit_w": 300.0,
        "sm_clock_mhz": None,
        "lr": "0.1",
    }


def test_columns_for_blocks_and_energies_are_read(table):
    sweep = read_table(table("block,a,time_s,energy_j\n3,x,1,7\n4,x,2,8\n"))
    assert [(t.block, t.energy["gpu"].value) for t in sweep.trials] == [(3, 7), (4, 8)]
    assert sweep.limits_w is None


def test_samples_and_epochs_are_not_settings(table):
    text = "power_limit_w,samples,epochs,time_s,energy_j\n300,32000,2,100,900\n150,,,120,700\n"
    first, second = read_table(table(text)).trials
    assert first.setting.as_json() == {"power_limit_w": 300.0}
    assert {name: work.count for name, work in first.spans.items()} == {"sample": 32000, "epoch": 2}
    assert first.spans["sample"].energy["gpu"].value == 900
    assert second.spans == {}


def test_the_reference_may_be_named(table):
    sweep = read_table(table("lr,time_s,energy_j\n1,1,1\n2,1,1\n"), {"lr": "2"})
    assert sweep.reference["lr"] == "2"


@pytest.mark.parametrize(
    ("text", "reference", "said"),
    [
        ("", {}, "has no rows"),
        ("lr,time_s,energy_j\n", {}, "has no rows"),
        ("lr,energy_j\n1,1\n", {}, "is not a table of runs"),
        ("lr,time_s\n1,1\n", {}, "is not a table of runs"),
        ("time_s,energy_j\n1,1\n", {}, "is not a table of runs"),
        (
            "lr,time_s,energy_j\n1,0,1\n",
            {},
            "line 2: column time_s has '0', not a finite number above 0",
        ),
        (
            "lr,time_s,energy_j\n1,1,1\n1,nan,1\n",
            {},
            "line 3: column time_s has 'nan', not a finite number above 0",
        ),
        ("lr,time_s,energy_j\n1,soon,1\n", {}, "line 2: column time_s has 'soon', not a number"),
        ("lr,time_s,energy_j\n1,1,\n", {}, "line 2: column energy_j is empty"),
        (
            "power_limit_w,time_s,energy_j\nnan,1,1\n",
            {},
            "line 2: column power_limit_w has 'nan', not a finite number",
        ),
        ("lr,time_s,energy_j\n1,1,1\n\n1,x,1\n", {}, "line 4: column time_s has 'x'"),
        ('lr,time_s,energy_j\n"a\nb",1,1\n1,x,1\n', {}, "line 4: column time_s has 'x'"),
        ("power_limit_w,time_s,energy_j\n1,1,1\n", {"power_limit_w": "x"}, "has no number"),
        ("lr,time_s,energy_j\n1,1,1,9\n", {}, "line 2 has more cells than there are headings"),
        (
            "power_limit_w,time_s,energy_j\nfull,1,1\n",
            {},
            "line 2: column power_limit_w has 'full', not a number",
        ),
        (
            "block,lr,time_s,energy_j\nx,1,1,1\n",
            {},
            "line 2: column block has 'x', not a whole number",
        ),
        ("lr,time_s,energy_j\n1\n", {}, "line 2"),
        ("lr,time_s,energy_j\n1,1,1\n", {"lr": "3"}, "has no run with lr=3"),
        ("lr,time_s,energy_j\n1,1,1\n", {"b": "3"}, "has no column b"),
    ],
)
def test_invalid_table_is_refused_with_its_line(table, text, reference, said):
    with pytest.raises(UsageError, match=said):
        read_table(table(text), reference)


def test_unreadable_file_is_refused(tmp_path):
    (tmp_path / "other.csv").write_bytes(b"\xff\xfe\x00")
    for name in ("none.csv", "other.csv"):
        with pytest.raises(UsageError, match=r"cannot read|is not a CSV"):
            read_table(tmp_path / name)


@pytest.mark.skipif(not TRACES.is_dir(), reason="the published traces are not beside this folder")
def test_the_published_choice_of_batch_size_and_limit(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.delitem(sys.modules, "verdict", raising=False)
    from zeus_sweep import chosen

    result = chosen(TRACES)
    best = {name: choice.setting.as_json() for name, choice in result.best.items()}
    assert best["energy"] == {"batch_size": "32", "power_limit_w": 100.0}
    assert best["time"] == {"batch_size": "48", "power_limit_w": 250.0}
    front = [point.setting for point in result.points if point.pareto]
    assert {choice.setting for choice in result.best.values()} <= set(front)
    assert len(front) < len(result.points) / 2
