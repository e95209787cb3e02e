"""The tables of sensors: with units, nothing where nothing was read, of old results none."""

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from joulewise.analyse.group import GroupRun
from joulewise.analyse.run_result import analyse
from joulewise.report.html.pages import run_page
from joulewise.report.resolve import LoadedRuns
from joulewise.report.terminal.run import draw
from joulewise.report.views.run_tables import sensor_tables
from joulewise.store.manifest import read_manifest
from tests.helpers.run_directories import MadeRun, device


@pytest.fixture
def run(tmp_path):
    """A sensor that updates five times a second, polled at 50 Hz; idle for the first half."""
    made = MadeRun(tmp_path / "run", seconds=20.0)
    made.fast(device("gpu0"), lambda t: 100 + int(5 * t + 1e-6))
    made.slow(
        "gpu0",
        gpu_utilisation_pct=lambda t: 0 if t < 10 else 90,
        performance_state=lambda t: 8 if t < 10 else 0,
        memory_used_b=lambda _: 2**30,
        pcie_rx_mb_s=lambda _: np.nan,
    )
    made.spans(("train", 0, 9.9, 20))
    return made.write()


def tables(result):
    return {table.title: table for table in sensor_tables({"": result})}


def test_readings_have_units_and_what_was_not_read_is_nothing(run):
    rows = {row[1]: row[2:] for row in tables(analyse(run))["Sensors over the run"].rows}
    assert rows["memory used"] == ("1 GiB", "1 GiB", "1 GiB")
    assert rows["GPU utilisation"][1:] == ("0 %", "90 %")
    assert rows["PCIe received"] == rows["temperature"] == (None, None, None)


def test_states_have_their_share(run):
    rows = tables(analyse(run))["Share of the time in each state"].rows
    assert [row[1:] for row in rows] == [
        ("performance state", "P0", "52.4"),
        ("performance state", "P8", "47.6"),
    ]


def test_spans_have_their_own_means(run):
    table = tables(analyse(run))["Sensors by span, means"]
    assert [column.title for column in table.columns] == [
        "span",
        "device",
        "GPU utilisation",
        "memory used",
    ]
    assert table.rows == (("train", "gpu0", "90 %", "1 GiB"),)


def test_new_values_never_read_as_more_than_readings(run):
    table = tables(analyse(run))["Readings per second with a new value, of all readings"]
    power = next(each for each in table.records if each["quantity"] == "power_w")
    assert power["run_new_hz"] == pytest.approx(5, rel=0.02)
    assert power["run_read_hz"] == pytest.approx(50)
    shown = next(row for row in table.rows if row[1] == "power")
    for cell in shown[3:]:
        new, read = map(float, cell.split(" of "))
        assert new <= read


def test_show_errors_says_how_often_sensors_had_something_new(run):
    out = io.StringIO()
    draw(analyse(run), Console(file=out, width=100), errors=True)
    assert "of 50.0" in out.getvalue()
    out = io.StringIO()
    draw(analyse(run), Console(file=out, width=100))
    assert "of 50.0" not in out.getvalue()


def test_a_result_from_before_has_no_such_tables_and_the_rest_of_its_page(run):
    result = analyse(run)
    old = {key: value for key, value in result.details.items() if not key.startswith("sensor")}
    before = replace(result, details=old)
    assert all(not table.rows for table in sensor_tables({"": before}))
    found = LoadedRuns(before, (run,), (GroupRun(read_manifest(run), before),))
    titles = [section.title for section in run_page(found, run.parent).sections]
    assert "Sensors" not in titles
    assert "Energy" in titles
    draw(before, Console(file=io.StringIO()), errors=True)


def test_the_page_has_them(run):
    result = analyse(run)
    found = LoadedRuns(result, (run,), (GroupRun(read_manifest(run), result),))
    (section,) = [it for it in run_page(found, run.parent).sections if it.title == "Sensors"]
    assert len(section.tables) == 4
    assert section.folded
