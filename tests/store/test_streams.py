"""Streams that are cut anywhere, and what is read back."""

import math
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from joulewise.store.arrow_stream import RowBuffer, Stream, message, read_batches
from joulewise.store.layout import PACKED, STREAM, TRACE, StreamKind, stream_path
from joulewise.store.parquet import compact
from joulewise.store.trace import open_device_stream

COLUMNS = ("power_w", "energy_j")


def batch(start, rows=10):
    taken = RowBuffer(COLUMNS)
    for t in range(start, start + rows):
        taken.add(t, 0, (100.0 + t / 1000, t / 7))
    return taken.take()


@pytest.fixture
def run(tmp_path):
    (tmp_path / TRACE).mkdir()
    return tmp_path


def record(run, batches, key="gpu0", lane=StreamKind.FAST):
    stream = Stream(stream_path(run, key, lane, STREAM), batches[0].columns)
    for each in batches:
        stream.add(each)
    stream.file.flush()
    stream.file.close()


def column(reader, name):
    return np.concatenate([chunk[name] for chunk in reader.chunks([name])])


def test_what_was_written_is_read_back(run):
    record(run, [batch(0), batch(10)])
    reader = open_device_stream(run, "gpu0", StreamKind.FAST)
    assert reader.columns == ("t_ns", *COLUMNS)
    assert reader.rows == 20
    assert column(reader, "t_ns").tolist() == list(range(20))
    assert column(reader, "energy_j").tolist() == [t / 7 for t in range(20)]


def test_a_stream_that_does_not_exist_is_none(run):
    assert open_device_stream(run, "gpu0", StreamKind.BUFFER) is None


def test_a_stream_cut_anywhere_ends_with_its_last_whole_batch(run):
    record(run, [batch(0), batch(10), batch(20)])
    path = stream_path(run, "gpu0", StreamKind.FAST, STREAM)
    whole = path.read_bytes()
    size = len(message(batch(0)))
    header = len(whole) - 3 * size
    for kept in range(len(whole) + 1):
        path.write_bytes(whole[:kept])
        assert sum(b.num_rows for b in read_batches(path)) == max(0, (kept - header) // size) * 10


def test_zeros_at_the_end_as_a_power_cut_leaves_them_are_no_rows(run):
    record(run, [batch(0)])
    path = stream_path(run, "gpu0", StreamKind.FAST, STREAM)
    path.write_bytes(path.read_bytes() + bytes(4096))
    assert open_device_stream(run, "gpu0", StreamKind.FAST).rows == 10


def test_an_empty_file_is_not_a_stream(run):
    stream_path(run, "gpu0", StreamKind.FAST, STREAM).touch()
    assert open_device_stream(run, "gpu0", StreamKind.FAST) is None


@pytest.mark.parametrize("packed", [False, True])
def test_what_could_not_be_read_is_null_in_the_file_and_nan_to_a_reader(run, packed):
    taken = RowBuffer(COLUMNS)
    for t in range(20):
        taken.add(t, 0, (math.nan if t == 9 else 1.0, math.nan if t > 15 else 2.0))
    record(run, [taken.take()])
    (stored,) = read_batches(stream_path(run, "gpu0", StreamKind.FAST, STREAM))
    assert stored.column("power_w").null_count == 1
    assert stored.column("energy_j").null_count == 4
    if packed:
        compact(run, over_rows=0)
    reader = open_device_stream(run, "gpu0", StreamKind.FAST)
    assert np.flatnonzero(np.isnan(column(reader, "power_w"))).tolist() == [9]
    assert np.flatnonzero(np.isnan(column(reader, "energy_j"))).tolist() == [16, 17, 18, 19]


def test_milliwatts_are_read_back_exactly():
    taken = RowBuffer(["power_w"])
    said_mw = [*range(0, 8_192_000, 997), 8_191_999]
    for mw in said_mw:
        taken.add(0, 0, (mw / 1000,))
    assert [round(value * 1000) for value in taken.take().values[1]] == said_mw


def test_packing_keeps_every_value_and_leaves_one_file(run):
    record(run, [batch(0, 1000), batch(1000, 500)])
    before = open_device_stream(run, "gpu0", StreamKind.FAST)
    kept = {name: column(before, name) for name in before.columns}
    assert compact(run, over_rows=0) == [stream_path(run, "gpu0", StreamKind.FAST, PACKED)]
    assert [path.name for path in (run / TRACE).iterdir()] == ["gpu0.parquet"]
    after = open_device_stream(run, "gpu0", StreamKind.FAST)
    assert after.rows == 1500
    for name, values in kept.items():
        assert np.array_equal(values, column(after, name))


@pytest.mark.parametrize("point", ["compact-written", "compact-renamed"])
def test_killed_while_packing_a_run_is_whole_and_packed_the_next_time(run, point):
    record(run, [batch(0, 100)])
    code = "import sys, pathlib; from joulewise.store.parquet import compact; "
    code += "compact(pathlib.Path(sys.argv[1]), over_rows=0)"
    environ = {**os.environ, "JOULEWISE_TEST_KILL_AT": point}
    killed = subprocess.run([sys.executable, "-c", code, str(run)], env=environ, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(list((run / TRACE).iterdir())) == 2
    assert column(open_device_stream(run, "gpu0", StreamKind.FAST), "t_ns").tolist() == list(
        range(100)
    )
    compact(run, over_rows=0)
    assert [path.name for path in (run / TRACE).iterdir()] == ["gpu0.parquet"]
    assert column(open_device_stream(run, "gpu0", StreamKind.FAST), "t_ns").tolist() == list(
        range(100)
    )


def test_small_runs_stay_as_they_are(run):
    record(run, [batch(0)])
    assert compact(run) == []
    assert [path.name for path in (run / TRACE).iterdir()] == ["gpu0.arrows"]


def test_many_small_batches_come_in_few_large_chunks(run, monkeypatch):
    monkeypatch.setattr("joulewise.store.trace.CHUNK_ROWS", 1000)
    record(run, [batch(start) for start in range(0, 5000, 10)])
    chunks = list(open_device_stream(run, "gpu0", StreamKind.FAST).chunks(["energy_j", "t_ns"]))
    assert [len(chunk["t_ns"]) for chunk in chunks] == [1000] * 5
    assert list(chunks[0]) == ["energy_j", "t_ns"]


def test_a_packed_stream_is_read_row_group_by_row_group_in_order(run, monkeypatch):
    monkeypatch.setattr("joulewise.store.parquet.GROUP_ROWS", 256)
    record(run, [batch(start, 100) for start in range(0, 1000, 100)])
    compact(run, over_rows=0)
    chunks = list(open_device_stream(run, "gpu0", StreamKind.FAST).chunks(["t_ns"]))
    assert [len(chunk["t_ns"]) for chunk in chunks] == [256, 256, 256, 232]
    assert np.concatenate([chunk["t_ns"] for chunk in chunks]).tolist() == list(range(1000))
