"""A run's data in files that other programs read."""

import csv
import io
import json
from pathlib import Path

import pytest
from pyarrow import parquet

from joulewise.record.layout import Lane
from joulewise.record.trace import open_lane
from made_run import MadeRun, device

ID = "20261116-003512-7f3a"


@pytest.fixture
def run(make_run):
    return make_run(ID)


def rows_of(ran):
    assert ran.returncode == 0, ran.stderr
    return list(csv.DictReader(io.StringIO(ran.stdout)))


def test_the_trace_is_every_reading_of_every_device(joulewise, run):
    rows = rows_of(joulewise("export", ID, "-o", "-"))
    assert list(rows[0]) == ["t_s", "device", "t_ns", "energy_j", "power_w"]
    assert {row["device"] for row in rows} == {"gpu0", "gpu1", "cpu0"}
    mine = [row for row in rows if row["device"] == "gpu0"]
    lane = open_lane(run, "gpu0", Lane.FAST)
    (chunk,) = lane.chunks(["t_ns", "power_w"])
    assert [int(row["t_ns"]) for row in mine] == chunk["t_ns"].tolist()
    assert [float(row["power_w"]) for row in mine] == pytest.approx(chunk["power_w"].tolist())
    assert float(mine[0]["t_s"]) == pytest.approx(-1)


def test_one_device(joulewise, run):
    del run
    rows = rows_of(joulewise("export", ID, "--device", "cpu0", "-o", "-"))
    assert {row["device"] for row in rows} == {"cpu0"}


def test_the_other_sensors(joulewise, run):
    del run
    rows = rows_of(joulewise("export", ID, "--what", "sensors", "-o", "-"))
    assert list(rows[0])[3:] == ["gpu_utilisation_pct", "temperature_c"]
    assert float(rows[-1]["temperature_c"]) == pytest.approx(60)


def test_a_lane_that_was_not_recorded_is_an_empty_table(joulewise, run):
    del run
    assert rows_of(joulewise("export", ID, "--what", "samples", "-o", "-")) == []


def test_every_span_on_every_device_and_the_total(joulewise, run):
    del run
    rows = rows_of(joulewise("export", ID, "--what", "spans", "-o", "-"))
    told = [(row["name"], row["index"], row["device"]) for row in rows]
    assert told[:2] == [("epoch", "0", "gpu0"), ("'=epoch()", "1", "gpu0")]
    assert told[-1] == ("'=epoch()", "1", "total")
    assert len(rows) == 2 * 4
    gpu, total = rows[0], rows[-2]
    assert (float(gpu["start_s"]), float(gpu["end_s"])) == (1, 5)
    assert float(gpu["energy_j"]) == pytest.approx(800, rel=0.02)
    assert float(total["energy_j"]) == pytest.approx(880, rel=0.02)
    assert float(gpu["error_gain_j"]) == pytest.approx(0.049 * float(gpu["energy_j"]), rel=0.01)
    assert (gpu["source"], total["source"]) == ("measured", "mixed")


def test_the_spans_of_one_device_have_no_total(joulewise, run):
    del run
    rows = rows_of(joulewise("export", ID, "--what", "spans", "--device", "gpu1", "-o", "-"))
    assert [row["device"] for row in rows] == ["gpu1", "gpu1"]


def test_spans_agree_with_what_is_shown(joulewise, run):
    del run
    shown = json.loads(joulewise("show", ID, "--json", "-").stdout)["spans"][0]["energy_j"]
    rows = json.loads(
        joulewise("export", ID, "--what", "spans", "--format", "json", "-o", "-").stdout
    )
    for row in rows[::2]:
        told = shown[row["device"]]
        assert row["energy_j"] == pytest.approx(told["value"])
        assert row["error_sampling_j"] == pytest.approx(told["error_sampling"], rel=1e-3)
        assert row["error_gain_j"] == pytest.approx(told["error_gain"], rel=1e-4)


def test_a_formula_is_text_in_csv_and_itself_elsewhere(joulewise, run):
    del run
    rows = json.loads(
        joulewise("export", ID, "--what", "spans", "--format", "json", "-o", "-").stdout
    )
    assert rows[1]["name"] == "=epoch()"


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_files_of_each_kind(joulewise, run, tmp_path, form):
    del run
    path = tmp_path / f"trace.{form}"
    ran = joulewise("export", ID, "-o", str(path))
    assert ran.returncode == 0
    assert ran.stdout == ""
    assert ran.stderr == f"{3 * 575} rows in {path}\n"
    read = {
        "csv": lambda: list(csv.DictReader(io.StringIO(path.read_text()))),
        "json": lambda: json.loads(path.read_text()),
        "parquet": lambda: parquet.read_table(path).to_pylist(),
    }
    rows = read[form]()
    assert len(rows) == 3 * 575
    assert rows[0].keys() == {"t_s", "device", "t_ns", "energy_j", "power_w"}
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [path.name]


def test_what_could_not_be_read_is_null(joulewise, store):
    other = MadeRun(store / "gap").fast(device("gpu0"), lambda _: 200, lost=[(3, 5)]).write()
    rows = json.loads(joulewise("export", other.name, "--format", "json", "-o", "-").stdout)
    assert sum(row["power_w"] is None for row in rows) == 100


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["-o", "trace.xlsx"], "add --format"),
        (["-o", "/nonexistent/trace.csv"], "cannot write /nonexistent/trace.csv"),
        (["--device", "gpu9", "-o", "-"], "has no device 'gpu9'"),
        ([], "Missing option"),
    ],
)
def test_what_cannot_be(joulewise, run, args, word):
    del run
    ran = joulewise("export", ID, *args)
    assert ran.returncode == 2
    assert word in ran.stderr
    assert ran.stderr.count("\n") == 2


def test_a_full_disk(joulewise, run):
    del run
    ran = joulewise("export", ID, "--format", "csv", "-o", "/dev/full")
    assert ran.returncode == 125
    assert "cannot write /dev/full: the disk is full" in ran.stderr
    assert Path("/dev/full").is_char_device()
