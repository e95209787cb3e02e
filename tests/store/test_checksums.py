"""Checksums of run directories: what they find, and what of a damaged file still counts."""

import json
import os

import numpy as np
import pytest

from joulewise.errors import JoulewiseError
from joulewise.store.checksums import (
    DamagedJsonError,
    RecordingChecksums,
    damaged_files,
    read_checked_json,
    with_checksum,
    write_final_checksums,
)
from joulewise.store.files import MOST_PREFIXES, GrowingFile
from joulewise.store.layout import (
    CHECKSUM_LOG,
    CHECKSUMS,
    MANIFEST,
    MARKS,
    PROCESSES,
    STREAM,
    TRACE,
    StreamKind,
    stream_path,
)
from joulewise.store.manifest import read_manifest
from joulewise.store.parquet import compact
from joulewise.store.trace import open_device_stream
from tests.helpers.run_directories import MadeRun, device

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
                    payload = read_checked_json(bytes(content))
                except DamagedJsonError:
                    continue
                assert {key: payload.get(key) for key in "abc"} == {
                    key: known[key] for key in "abc"
                }

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
        flip(stream_path(run, "gpu0", StreamKind.FAST, STREAM), 5000)
        assert damaged_files(run) == ()

    @pytest.mark.parametrize("at", [0, 500, 5000, -1])
    def test_a_flipped_bit_is_found(self, run, at):
        flip(stream_path(run, "gpu0", StreamKind.FAST, STREAM), at)
        [damage] = damaged_files(run)
        assert damage.file == f"{TRACE}/gpu0.arrows"

    def test_of_a_file_that_is_wrong_from_its_first_byte_on_no_beginning_is_named(self, run):
        path = stream_path(run, "gpu0", StreamKind.FAST, STREAM)
        path.write_bytes(bytes(path.stat().st_size))
        [damage] = damaged_files(run)
        assert damage.reason == "none of it is what was recorded"

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
        with stream_path(run, "gpu0", StreamKind.FAST, STREAM).open("ab") as file:
            file.write(bytes(48))
        assert len(damaged_files(run)) == 1

    def test_row_groups_before_the_damage_are_read(self, run, monkeypatch):
        monkeypatch.setattr("joulewise.store.parquet.GROUP_ROWS", 4000)
        before = times(run)
        compact(run, over_rows=0)
        write_final_checksums(run)
        path = stream_path(run, "gpu0", StreamKind.FAST, ".parquet")
        flip(path, int(path.stat().st_size * 0.8))
        assert times(run).tolist() == before[:8000].tolist()

    def test_of_a_packed_file_without_its_index_nothing_is_read(self, run):
        compact(run, over_rows=0)
        write_final_checksums(run)
        path = stream_path(run, "gpu0", StreamKind.FAST, ".parquet")
        flip(path, -20)
        assert open_device_stream(run, "gpu0", StreamKind.FAST) is None


def test_the_last_checksums_keep_the_ends_of_what_was_written(tmp_path):
    """A run of seconds is smaller than a block: its batches are known one by one all the same."""
    path = tmp_path / TRACE / "gpu0.arrows"
    path.parent.mkdir()
    file = GrowingFile(path)
    for i in range(3):
        file.add(bytes([i]) * 700)
        file.flush()
    file.close()
    RecordingChecksums(tmp_path).save({path: file.prefixes})
    write_final_checksums(tmp_path)
    assert damaged_files(tmp_path) == ()
    flip(path, 1500)
    assert [each.sound_b for each in damaged_files(tmp_path)] == [1400]


def times(run):
    reader = open_device_stream(run, "gpu0", StreamKind.FAST)
    return np.concatenate([chunk["t_ns"] for chunk in reader.chunks(["t_ns"])])


def test_a_file_that_grows_keeps_few_checksums_of_its_beginnings(tmp_path):
    file = GrowingFile(tmp_path / "grows")
    for i in range(500):
        file.add(bytes([i % 256]) * 10)
        file.flush()
    file.close()
    sizes = [size_b for size_b, _ in file.prefixes]
    assert len(sizes) <= MOST_PREFIXES + 1
    assert (sizes[0], sizes[-1]) == (10, 5000)
    # Evenly: damage in the middle of a long run does not cost all that was before it.
    assert max(np.diff(sizes)) <= 2 * 5000 / (MOST_PREFIXES // 2)


class TestWhileRecording:
    """A run whose recorder is killed: only what it had appended is there."""

    @pytest.fixture
    def recorded(self, tmp_path):
        """Three writes of a stream and of marks, the checksums saved after the first."""
        run = tmp_path / "run"
        (run / TRACE).mkdir(parents=True)
        (run / MARKS).mkdir()
        stream, marks = GrowingFile(run / TRACE / "gpu0.arrows"), run / MARKS / "1-1.marks"
        checksums = RecordingChecksums(run)
        for number in range(3):
            stream.add(bytes([number]) * 1000)
            stream.flush()
            with marks.open("ab") as file:
                file.write(bytes([number]) * 48)
            prefixes = {stream.path: stream.prefixes}
            checksums.append(prefixes)
            if number == 0:
                checksums.save(prefixes)
        stream.close()
        checksums.close()
        return run

    def test_an_undamaged_run_has_no_damage(self, recorded):
        assert damaged_files(recorded) == ()

    @pytest.mark.parametrize("at", [0, 999, 1500, 2999])
    def test_a_flipped_bit_is_found_wherever_it_is(self, recorded, at):
        flip(recorded / TRACE / "gpu0.arrows", at)
        [damage] = damaged_files(recorded)
        assert damage.sound_b == at // 1000 * 1000

    @pytest.mark.parametrize("at", [0, 47, 100, 143])
    def test_also_in_the_marks(self, recorded, at):
        flip(recorded / MARKS / "1-1.marks", at)
        [damage] = damaged_files(recorded)
        assert damage.sound_b == at // 48 * 48

    @pytest.mark.parametrize("size_b", [0, 1000, 2000, 2500])
    def test_a_file_that_was_cut_is_found(self, recorded, size_b):
        os.truncate(recorded / TRACE / "gpu0.arrows", size_b)
        [damage] = damaged_files(recorded)
        assert damage.reason == f"it has {size_b} of 3000 bytes"

    def test_what_was_written_after_the_last_line_may_be_there(self, recorded):
        with (recorded / TRACE / "gpu0.arrows").open("ab") as file:
            file.write(bytes(500))
        assert damaged_files(recorded) == ()

    def test_no_damage_to_the_log_makes_another_file_damaged(self, recorded):
        path = recorded / CHECKSUM_LOG
        whole = path.read_bytes()
        for at in range(len(whole)):
            flip(path, at, at % 8)
            assert {damage.file for damage in damaged_files(recorded)} <= {CHECKSUM_LOG}
            path.write_bytes(whole[:at])
            assert {damage.file for damage in damaged_files(recorded)} <= {CHECKSUM_LOG}
            path.write_bytes(whole)

    @pytest.mark.parametrize("file", [CHECKSUMS, CHECKSUM_LOG])
    def test_checksums_that_are_none_are_damage_themselves(self, recorded, file):
        (recorded / file).write_bytes(b"something else")
        assert file in {damage.file for damage in damaged_files(recorded)}

    @pytest.mark.parametrize("file", [CHECKSUMS, CHECKSUM_LOG])
    def test_checksums_that_are_not_there_are_none(self, recorded, file):
        (recorded / file).unlink()
        assert damaged_files(recorded) == ()

    def test_saving_empties_the_log(self, recorded):
        lines = (recorded / CHECKSUM_LOG).read_text().splitlines()
        assert len(lines) == 2

    def test_a_line_that_a_full_disk_cut_does_not_spoil_the_next(self, tmp_path, monkeypatch):
        path = tmp_path / TRACE / "gpu0.arrows"
        path.parent.mkdir()
        checksums = RecordingChecksums(tmp_path)
        whole_write = os.write
        for number in range(3):
            monkeypatch.setattr(
                os,
                "write",
                (lambda fd, data: whole_write(fd, data[:9])) if number == 1 else whole_write,
            )
            checksums.append({path: [(number + 1, number)]})
        checksums.close()
        lines = (tmp_path / CHECKSUM_LOG).read_text().splitlines()
        assert [line.count(path.name) for line in lines] == [1, 1]

    def test_the_last_checksums_take_the_place_of_the_log(self, recorded):
        write_final_checksums(recorded)
        assert not (recorded / CHECKSUM_LOG).exists()
        flip(recorded / TRACE / "gpu0.arrows", 1500)
        assert len(damaged_files(recorded)) == 1
