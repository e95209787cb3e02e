"""Checksums of run directories: what they find, and what of a damaged file still counts."""

import json

import numpy as np
import pytest

from joulewise.errors import JoulewiseError
from joulewise.record.checksums import (
    DamagedJsonError,
    damaged_files,
    read_checked_json,
    with_checksum,
    write_checksums_so_far,
    write_final_checksums,
)
from joulewise.record.compact import compact
from joulewise.record.files import GrowingFile
from joulewise.record.layout import CHECKSUMS, MANIFEST, PROCESSES, STREAM, TRACE, Lane, lane_path
from joulewise.record.manifest import read_manifest
from joulewise.record.trace import open_lane
from made_run import MadeRun, device

TEXT = with_checksum(json.dumps({"a": 1.5, "b": [1, 2], "c": "é"}))


@pytest.fixture
def run(tmp_path):
    made = MadeRun(tmp_path / "run", seconds=200.0)
    made.fast(device("gpu0"), lambda t: 100.0 + t)
    made.processes("gpu0", (0.0, [(4242, "python", True)])).spans(("epoch", 0, 1.0, 5.0))
    path = made.write()
    write_final_checksums(path)
    return path


def flip(path, at, bit=0):
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


class TestJson:
    def test_what_was_written_is_read_back(self):
        assert read_checked_json(TEXT.encode())["a"] == 1.5

    def test_every_flipped_bit_is_found_or_changes_nothing(self):
        known = json.loads(TEXT)
        for at in range(len(TEXT.encode())):
            for bit in range(8):
                content = bytearray(TEXT.encode())
                content[at] ^= 1 << bit
                try:
                    told = read_checked_json(bytes(content))
                except DamagedJsonError:
                    continue
                assert {key: told.get(key) for key in "abc"} == {key: known[key] for key in "abc"}

    @pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1" * 400])
    def test_a_file_without_a_checksum_must_have_finite_numbers(self, number):
        with pytest.raises(DamagedJsonError):
            read_checked_json(f'{{"a": {number}}}'.encode())

    def test_a_file_of_an_earlier_version_has_none(self):
        assert read_checked_json(b'{"a": 1e3, "b": -5}') == {"a": 1000.0, "b": -5}

    def test_a_number_changed_in_run_json_is_refused_in_a_line(self, run):
        text = (run / MANIFEST).read_text()
        (run / MANIFEST).write_text(text.replace('"exit_code": 0', '"exit_code": 1'))
        with pytest.raises(JoulewiseError, match="does not match its checksum") as refused:
            read_manifest(run)
        assert "\n" not in refused.value.message


class TestFiles:
    def test_nothing_is_damaged_as_long_as_nobody_touches_it(self, run):
        assert damaged_files(run) == ()

    def test_a_run_without_checksums_has_no_known_damage(self, run):
        (run / CHECKSUMS).unlink()
        flip(lane_path(run, "gpu0", Lane.FAST, STREAM), 5000)
        assert damaged_files(run) == ()

    @pytest.mark.parametrize("at", [0, 500, 5000, -1])
    def test_a_flipped_bit_is_found(self, run, at):
        flip(lane_path(run, "gpu0", Lane.FAST, STREAM), at)
        [damage] = damaged_files(run)
        assert damage.file == f"{TRACE}/gpu0.arrows"

    def test_what_is_gone_is_found(self, run):
        (run / PROCESSES).unlink()
        assert [damage.file for damage in damaged_files(run)] == [PROCESSES]

    def test_files_that_were_swapped_are_found(self, run):
        [marks] = (run / "marks").iterdir()
        content = marks.read_bytes()
        marks.write_bytes((run / PROCESSES).read_bytes())
        (run / PROCESSES).write_bytes(content)
        assert len(damaged_files(run)) == 2

    def test_marks_of_a_process_that_goes_on_may_grow(self, run):
        [marks] = (run / "marks").iterdir()
        with marks.open("ab") as file:
            file.write(bytes(48))
        assert damaged_files(run) == ()

    def test_a_stream_that_grew_is_damaged(self, run):
        with lane_path(run, "gpu0", Lane.FAST, STREAM).open("ab") as file:
            file.write(bytes(48))
        assert len(damaged_files(run)) == 1

    def test_row_groups_before_the_damage_are_read(self, run, monkeypatch):
        monkeypatch.setattr("joulewise.record.compact.GROUP_ROWS", 4000)
        before = times(run)
        compact(run, over_rows=0)
        write_final_checksums(run)
        path = lane_path(run, "gpu0", Lane.FAST, ".parquet")
        flip(path, int(path.stat().st_size * 0.8))
        assert times(run).tolist() == before[:8000].tolist()

    def test_of_a_packed_file_without_its_index_nothing_is_read(self, run):
        compact(run, over_rows=0)
        write_final_checksums(run)
        path = lane_path(run, "gpu0", Lane.FAST, ".parquet")
        flip(path, -20)
        assert open_lane(run, "gpu0", Lane.FAST) is None


def test_the_last_checksums_keep_the_ends_of_what_was_written(tmp_path):
    """A run of seconds is smaller than a block: its batches are known one by one all the same."""
    path = tmp_path / TRACE / "gpu0.arrows"
    path.parent.mkdir()
    file = GrowingFile(path)
    for i in range(3):
        file.add(bytes([i]) * 700)
        file.flush()
    file.close()
    write_checksums_so_far(tmp_path, {path: file.prefixes})
    write_final_checksums(tmp_path)
    assert damaged_files(tmp_path) == ()
    flip(path, 1500)
    assert [each.sound_b for each in damaged_files(tmp_path)] == [1400]


def times(run):
    reader = open_lane(run, "gpu0", Lane.FAST)
    return np.concatenate([chunk["t_ns"] for chunk in reader.chunks(["t_ns"])])


def test_a_file_that_grows_keeps_few_checksums_of_its_beginnings(tmp_path):
    file = GrowingFile(tmp_path / "grows")
    for i in range(500):
        file.add(bytes([i % 256]) * 10)
        file.flush()
    file.close()
    assert len(file.prefixes) <= 65
    assert file.prefixes[-1][0] == 5000
    assert file.prefixes[0][0] == 10
