"""A run's data in files that other programs read."""

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from joulewise.store.arrow_stream import schema, write_stream
from joulewise.store.checksums import write_final_checksums
from joulewise.store.layout import RESULT, STREAM, StreamKind, stream_path
from joulewise.store.trace import open_device_stream
from tests.helpers.run_directories import PID, MadeRun, device

ID = "20261116-003512-7f3a"


@pytest.fixture
def run(make_run):
    return make_run(ID)


def rows_of(ran):
    assert ran.returncode == 0, ran.stderr
    return list(csv.DictReader(io.StringIO(ran.stdout)))


def test_the_trace_is_every_reading_of_every_device(joulewise, run):
    rows = rows_of(joulewise("export", ID, "-o", "-"))
    assert list(rows[0]) == ["t_s", "device", "t_ns", "energy_j", "power_w", "source"]
    assert {row["device"] for row in rows} == {"gpu0", "gpu1", "cpu0"}
    mine = [row for row in rows if row["device"] == "gpu0"]
    lane = open_device_stream(run, "gpu0", StreamKind.FAST)
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
    assert list(rows[0])[3:] == ["gpu_utilisation_pct", "temperature_c", "source"]
    assert float(rows[-1]["temperature_c"]) == pytest.approx(60)


def test_a_lane_that_was_not_recorded_is_an_empty_table(joulewise, run):
    del run
    assert rows_of(joulewise("export", ID, "--what", "samples", "-o", "-")) == []


def test_samples_of_a_quantity_besides_power(joulewise, make_run):
    run = make_run(ID)
    t_ns = [5 * 10**9, 6 * 10**9]
    columns = {"t_ns": t_ns, "sm_clock_mhz": [1380.0, 1530.0]}
    table = pa.Table.from_pydict(columns, schema=schema(tuple(columns)))
    write_stream(stream_path(run, "gpu0", StreamKind.BUFFER_SM_CLOCK, STREAM), table)
    what = ("--what", "samples", "--quantity", "sm_clock_mhz")
    rows = rows_of(joulewise("export", ID, *what, "-o", "-"))
    assert [(int(row["t_ns"]), float(row["sm_clock_mhz"])) for row in rows] == [
        (t_ns[0], 1380),
        (t_ns[1], 1530),
    ]
    assert joulewise("export", ID, *what[2:], "-o", "-").returncode == 2


def test_every_span_once_with_the_energy_of_what_counts(joulewise, run):
    del run
    rows = rows_of(joulewise("export", ID, "--what", "spans", "-o", "-"))
    assert [(row["name"], row["index"]) for row in rows] == [("epoch", "0"), ("'=epoch()", "1")]
    assert float(rows[0]["energy_j"]) == pytest.approx(880, rel=0.02)
    assert rows[0]["source"] == "mixed"
    assert "device" not in rows[0]


def test_every_span_on_every_device_that_counts(joulewise, run):
    del run
    rows = rows_of(joulewise("export", ID, "--what", "span-devices", "-o", "-"))
    result = [(row["name"], row["index"], row["device"]) for row in rows]
    assert result == [
        ("epoch", "0", "gpu0"),
        ("'=epoch()", "1", "gpu0"),
        ("epoch", "0", "cpu0"),
        ("'=epoch()", "1", "cpu0"),
    ]
    gpu = rows[0]
    assert (float(gpu["start_s"]), float(gpu["end_s"])) == (1, 5)
    assert float(gpu["energy_j"]) == pytest.approx(800, rel=0.02)
    assert float(gpu["error_gain_j"]) == pytest.approx(0.049 * float(gpu["energy_j"]), rel=0.01)
    assert gpu["source"] == "measured"


def test_the_spans_of_a_device_that_does_not_count(joulewise, run):
    del run
    wanted = ("--what", "span-devices", "--device", "gpu1")
    rows = rows_of(joulewise("export", ID, *wanted, "-o", "-"))
    assert [row["device"] for row in rows] == ["gpu1", "gpu1"]


def test_a_span_is_of_no_single_device(joulewise, run):
    del run
    ran = joulewise("export", ID, "--what", "spans", "--device", "gpu1", "-o", "-")
    assert ran.returncode == 2
    assert "--what span-devices" in ran.stderr


@pytest.mark.parametrize("seconds", [60, 1800])
def test_show_export_and_report_agree_to_the_last_digit(joulewise, store, tmp_path, seconds):
    """Of half an hour not all rows are held, and what is near depends on what is asked for."""
    made = MadeRun(store / ID, seconds=seconds, hz=10.0)
    made.fast(device("gpu0"), lambda t: 230 if t % 7 < 4 else 40)
    epochs = [("epoch", i, i * seconds / 6 + 0.31, (i + 1) * seconds / 6 + 0.31) for i in range(5)]
    steps = [("step", i, 7 * i + 0.01, 7 * i + 4.02) for i in range(seconds // 7)]
    made.spans(*epochs, *steps).processes("gpu0", (0, [(PID, "python", True)])).write()
    shown = json.loads(joulewise("show", ID, "--json", "-").stdout)["spans"]
    payload = {(span["name"], span["index"]): span["energy_j"] for span in shown}
    rows = [
        row
        for what in ("spans", "span-devices")
        for row in json.loads(
            joulewise("export", ID, "--what", what, "--format", "json", "-o", "-").stdout
        )
    ]
    assert len(rows) == 2 * len(payload)
    for row in rows:
        energy = payload[row["name"], row["index"]][row.get("device", "total")]
        assert row["energy_j"] == energy["value"]
        assert row["error_sampling_j"] == energy["error_sampling"]
        assert row["error_gain_j"] == energy["error_gain"]
        assert row["at_least"] == energy["at_least"]
    ran = joulewise("report", ID, "--figures", str(tmp_path / "figures"), "--format", "csv")
    assert ran.returncode == 0, ran.stderr
    (path,) = (tmp_path / "figures").glob("*epochs*.csv")
    drawn = list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))
    assert [float(row["energy_j"]) for row in drawn] == [
        payload["epoch", i]["total"]["value"] for i in range(5)
    ]


def test_a_result_of_an_older_version_is_exported_as_it_is_shown(joulewise, run):
    """What is kept is not computed anew for ``show``; the next version may compute otherwise."""
    path = run / RESULT
    kept = json.loads(path.read_text("utf-8"))
    kept["spans"][0]["energy_j"]["gpu0"]["value"] = 123.25
    del kept["crc32"], kept["head_crc32"]
    path.write_text(json.dumps(kept), "utf-8")
    wanted = ("--what", "span-devices", "--device", "gpu0")
    rows = rows_of(joulewise("export", ID, *wanted, "-o", "-"))
    assert float(rows[0]["energy_j"]) == 123.25


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
    assert rows[0].keys() == {"t_s", "device", "t_ns", "energy_j", "power_w", "source"}
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


def test_a_damaged_trace_is_exported_up_to_the_damage_with_a_word(joulewise, run):
    write_final_checksums(run)
    whole = rows_of(joulewise("export", ID, "--device", "gpu0", "-o", "-"))
    path = stream_path(run, "gpu0", StreamKind.FAST, STREAM)
    path.write_bytes(path.read_bytes()[:-50])
    ran = joulewise("export", ID, "--device", "gpu0", "-o", "-")
    assert ran.returncode == 0
    assert len(rows_of(ran)) < len(whole)
    assert "trace/gpu0.arrows is damaged" in ran.stderr
