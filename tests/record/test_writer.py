"""Writing where the disk is full, and giving up the oldest when it stays full."""

import errno
import os
from types import SimpleNamespace

import numpy as np
import pytest

from joulewise.record.statistics import StreamStatistics
from joulewise.record.writer import PendingLines, RecorderNotes, Writer
from joulewise.store import files
from joulewise.store.arrow_stream import RowBuffer, Stream
from joulewise.store.files import GrowingFile, replace_file
from joulewise.store.layout import STREAM, TRACE, StreamKind, stream_path
from joulewise.store.trace import open_device_stream


@pytest.fixture
def disk(monkeypatch):
    """A disk with so many bytes left, which takes what fits before it refuses."""
    disk = SimpleNamespace(left_b=10**9)
    write = os.write

    def full(descriptor, data):
        if not disk.left_b:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(descriptor, bytes(data)[: disk.left_b])
        disk.left_b -= written
        return written

    monkeypatch.setattr(files.os, "write", full)
    return disk


@pytest.fixture
def recording(tmp_path):
    (tmp_path / TRACE).mkdir()
    notes, rows = RecorderNotes(), RowBuffer(["power_w"])
    writer = Writer(notes, lambda: None, backlog_b=3000)
    stream = Stream(stream_path(tmp_path, "gpu0", StreamKind.FAST, STREAM), rows.columns)
    writer.add_stream(rows, stream, StreamStatistics(0, "power_w"), is_urgent=True)
    return SimpleNamespace(run=tmp_path, notes=notes, rows=rows, writer=writer, stream=stream)


def add(recording, *times):
    for t in times:
        recording.rows.add(t, 0, (float(t),))
    recording.writer.write()


def times(run):
    reader = open_device_stream(run, "gpu0", StreamKind.FAST)
    return np.concatenate([chunk["t_ns"] for chunk in reader.chunks(["t_ns"])]).tolist()


def test_a_full_disk_loses_nothing_once_there_is_room_again(recording, disk):
    add(recording, 1, 2)
    disk.left_b = 100  # in the middle of the next batch
    add(recording, 3, 4)
    on_disk = recording.stream.file.path.stat().st_size
    add(recording, 5)
    assert recording.stream.file.path.stat().st_size == on_disk
    assert times(recording.run) == [1, 2, 3, 4, 5]  # from here, where it waits in memory
    disk.left_b = 10**9
    add(recording, 6)
    assert not recording.stream.file.backlog
    assert times(recording.run) == [1, 2, 3, 4, 5, 6]
    assert [note["code"] for note in recording.notes.all()] == ["not_stored"]


def test_a_disk_that_is_full_from_the_start_shows_what_waits(recording, disk):
    disk.left_b = 0
    add(recording, 1, 2, 3)
    assert times(recording.run) == [1, 2, 3]


def test_a_disk_that_stays_full_costs_the_oldest(recording, disk):
    add(recording, 0)
    disk.left_b = 0
    for t in range(1, 50):
        add(recording, t)
    kept = times(recording.run)
    assert sum(map(len, recording.stream.file.backlog)) <= 3000
    assert kept == [0, *range(50 - len(kept) + 1, 50)]
    assert recording.stream.file.lost == 49 - (len(kept) - 1)


def test_lines_are_written_whole_or_not_at_all(tmp_path, disk):
    journal = PendingLines(limit=3)
    file = GrowingFile(tmp_path / "misses.jsonl")
    writer = Writer(RecorderNotes(), lambda: None)
    writer.add_journal(journal, file)
    journal.add('{"a": 1}')
    writer.write()
    disk.left_b = 4
    journal.add('{"b": 2}')
    writer.write()
    assert file.path.read_text() == '{"a": 1}\n'
    disk.left_b = 10**9
    for _ in range(5):
        journal.add('{"c": 3}')  # only one more is taken
    writer.write()
    assert file.path.read_text().splitlines() == ['{"a": 1}', '{"b": 2}', '{"c": 3}']


def test_what_was_there_stays_where_it_cannot_be_replaced(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    replace_file(path, "old")

    def refuse(_descriptor):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(files.os, "fsync", refuse)
    with pytest.raises(OSError, match="full"):
        replace_file(path, "new")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("run.json", "old")]


def test_the_last_rows_are_written_when_it_ends(recording):
    recording.writer.start()
    recording.rows.add(7, 0, (7.0,))
    recording.writer.end()
    assert times(recording.run) == [7]
