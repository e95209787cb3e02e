"""Damaged traces: named, left out, and the energy marked as a lower bound."""

import errno
import json
import os
import shutil

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.analyse.damage import SoundStreams, longest_ascent
from joulewise.analyse.run_result import analyse
from joulewise.analyse.stored_result import load_or_compute_result
from joulewise.data import Quantity, WarningCode
from joulewise.data.run_result_json import as_json
from joulewise.report.views.run import run_view
from joulewise.store.checksums import damaged_files, write_final_checksums
from joulewise.store.files import open_regular
from joulewise.store.layout import RESULT, STREAM, StreamKind, stream_path
from joulewise.store.manifest import read_manifest
from tests.helpers.run_directories import START, MadeRun, S, device

WATTS = 100.0


@pytest.fixture
def made(tmp_path):
    made = MadeRun(tmp_path / "run")
    made.fast(device("gpu0"), lambda _: WATTS)
    return made.processes("gpu0", (0.0, [(4242, "python", True)])).spans(("epoch", 0, 1.0, 5.0))


def rewrite(run, **changed):
    """The fast lane again, with ``column=function(values)`` applied."""
    path = stream_path(run, "gpu0", StreamKind.FAST, STREAM)
    with pa.ipc.open_stream(path.read_bytes()) as reader:
        table = reader.read_all()
    columns = {name: table[name].to_numpy().copy() for name in table.column_names}
    for name, change in changed.items():
        change(columns[name])
    arrays = [pa.array(columns[field.name], field.type) for field in table.schema]
    with pa.ipc.new_stream(path, table.schema) as stream:
        stream.write_table(pa.table(arrays, schema=table.schema))


def put(row, value):
    def change(values):
        values[row] = value

    return change


def damaged(result):
    return [one for one in result.warnings if one.code is WarningCode.DAMAGED]


def test_an_undamaged_run_has_no_such_warning(made):
    result = analyse(made.write())
    assert not damaged(result)
    assert not result.run.total.at_least
    assert result.run.total.value == pytest.approx(1000.0, rel=0.01)


@pytest.mark.parametrize("t_ns", [START + 9000 * S, -5, START + 1 * S])
def test_rows_whose_time_cannot_be_are_left_out_and_the_total_is_a_lower_bound(made, t_ns):
    run = made.write()
    rewrite(run, t_ns=put(200, t_ns))
    result = analyse(run)
    [warning] = damaged(result)
    assert warning.device == "gpu0"
    assert "trace/gpu0.arrows" in warning.message
    assert result.run.total.at_least
    assert result.run.total.value == pytest.approx(1000.0, rel=0.02)
    assert not any(one.code is WarningCode.UNAVAILABLE for one in result.warnings)


@pytest.mark.parametrize(
    "change",
    [
        {"power_w": put(200, np.inf)},
        {"power_w": put(200, -50.0)},
        {"power_w": put(200, 5000.0)},
        {"energy_j": put(200, np.inf)},
        {"energy_j": put(200, 1e300)},
    ],
)
def test_a_value_that_cannot_be_is_not_read_and_the_rest_stands(made, change):
    """It is a file without a checksum; one reading of 500 has no say in the total."""
    run = made.write()
    rewrite(run, **change)
    result = analyse(run)
    [warning] = [one for one in result.warnings if one.code is WarningCode.IMPLAUSIBLE]
    assert warning.device == "gpu0"
    assert "trace/gpu0.arrows" in warning.message
    assert f"1 of {next(iter(change))}" in warning.message
    assert not damaged(result)
    assert not result.run.total.at_least
    assert result.run.total.value == pytest.approx(1000.0, rel=0.002)
    json.dumps(as_json(result), allow_nan=False)


def test_readings_of_a_verified_file_are_what_the_sensor_said(made):
    """A fan faster than its 100 %, and a power of over three times the limit, with checksums."""
    made.slow("gpu0", fan_pct=lambda _: 115.0)
    run = made.write()
    rewrite(run, power_w=put(200, 1000.0))
    write_final_checksums(run)
    result = analyse(run)
    assert not {WarningCode.DAMAGED, WarningCode.IMPLAUSIBLE} & {
        one.code for one in result.warnings
    }
    assert not result.run.total.at_least
    assert result.run.total.value == pytest.approx(1000.0, rel=0.002)
    assert result.run.devices["gpu0"].peak_w == pytest.approx(1000.0)


def test_an_infinite_reading_of_a_verified_file_is_implausible(made):
    run = made.write()
    rewrite(run, power_w=put(200, np.inf))
    write_final_checksums(run)
    result = analyse(run)
    assert [one.code for one in result.warnings if one.device == "gpu0"] == [
        WarningCode.IMPLAUSIBLE
    ]
    assert not result.run.total.at_least


def test_a_fan_may_turn_faster_than_its_100_percent(made):
    """As NVML documents, also in a file without a checksum."""
    made.slow("gpu0", fan_pct=lambda _: 115.0, gpu_utilisation_pct=lambda _: 115.0)
    [found] = SoundStreams(made.write(), read_manifest(made.path)).find_implausible()
    assert found.file == "trace/gpu0.slow.arrows"
    assert list(found.counts) == ["gpu_utilisation_pct"]


@pytest.mark.parametrize("quantity", [each for each in Quantity if each.value.endswith("_w")])
def test_every_power_has_the_limit_of_the_board(made, quantity):
    if quantity is Quantity.POWER:  # it is never in the slow lane
        made.devices.clear()
        made.fast(device("gpu0"), lambda t_s: 1e6 if 2 < t_s < 3 else WATTS)
    else:
        made.slow("gpu0", **{quantity.value: lambda _: 1e6})
    [found] = SoundStreams(made.write(), read_manifest(made.path)).find_implausible()
    assert list(found.counts) == [quantity.value]


class TestADamagedFileThatIsPutBack:
    @pytest.fixture
    def run(self, made):
        run = made.write()
        write_final_checksums(run)
        return run

    @pytest.fixture
    def stream(self, run):
        return stream_path(run, "gpu0", StreamKind.FAST, STREAM)

    def test_the_result_is_computed_again(self, run, stream, tmp_path):
        shutil.copy2(stream, tmp_path / "copy")
        content = bytearray(stream.read_bytes())
        content[len(content) // 2] ^= 1
        stream.write_bytes(content)
        assert damaged(load_or_compute_result(run))
        shutil.copy2(tmp_path / "copy", stream)
        result = load_or_compute_result(run)
        assert not damaged(result)
        assert not result.run.total.at_least
        assert result.run.total.value == pytest.approx(1000.0, rel=0.002)

    def test_damage_that_stays_is_computed_once(self, run, stream, monkeypatch):
        stream.write_bytes(stream.read_bytes()[:-100])
        found = load_or_compute_result(run)
        assert damaged(found)
        monkeypatch.setattr("joulewise.analyse.run_result.analyse", lambda _: pytest.fail("again"))
        assert as_json(load_or_compute_result(run)) == as_json(found)

    def test_an_error_of_the_disk_that_has_passed(self, run, stream, monkeypatch):
        def refused(path):
            if path == stream:
                raise OSError(errno.EIO, "Input/output error")
            return open_regular(path)

        with monkeypatch.context() as patch:
            patch.setattr("joulewise.store.checksums.open_regular", refused)
            assert damaged(load_or_compute_result(run))
        assert not damaged(load_or_compute_result(run))

    def test_a_copy_of_the_same_size_and_time_is_read_again(self, run, stream, tmp_path):
        """In one process, as ``view`` is: what it has read of a file it does not read again."""
        shutil.copy2(stream, tmp_path / "copy")
        content, times = bytearray(stream.read_bytes()), stream.stat()
        content[len(content) // 2] ^= 1
        stream.write_bytes(content)
        os.utime(stream, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert damaged_files(run)
        shutil.copy2(tmp_path / "copy", stream)
        assert stream.stat().st_mtime_ns == times.st_mtime_ns
        assert not damaged_files(run)


def test_a_counter_that_jumps_is_bridged_and_marked(made):
    run = made.write()
    rewrite(run, energy_j=lambda values: values.__setitem__(slice(200, None), values[200:] + 1e6))
    result = analyse(run)
    assert any(one.code is WarningCode.COUNTER_RESET for one in result.warnings)
    assert result.run.total.value == pytest.approx(1000.0, rel=0.05)


@pytest.mark.parametrize("state", ["complete", "recording"])
def test_a_file_of_another_stream_is_damage_without_a_checksum_too(made, state):
    made.slow("gpu0", temperature_c=lambda t: 40.0 + t)
    run = made.write(state=state)
    paths = [stream_path(run, "gpu0", lane, STREAM) for lane in (StreamKind.FAST, StreamKind.SLOW)]
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, reversed(contents), strict=True):
        path.write_bytes(content)
    result = analyse(run)
    assert {warning.device for warning in damaged(result)} == {"gpu0"}
    assert result.run.total is None


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("is_checked", [True, False])
def test_a_stream_that_is_cut_is_never_a_whole_total(made, share, is_checked):
    run = made.write()
    if is_checked:
        write_final_checksums(run)
    path = stream_path(run, "gpu0", StreamKind.FAST, STREAM)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    result = analyse(run)
    assert damaged(result)
    assert "hardly read" not in str(as_json(result))
    total = result.run.total
    assert total is None or (total.at_least and total.value < 1000.0)


def test_a_bit_that_makes_another_plausible_number_is_found_by_the_checksum(made):
    run = made.write()
    write_final_checksums(run)
    rewrite(run, power_w=put(300, WATTS + 1))
    result = analyse(run)
    assert damaged(result)
    assert result.run.total is None or result.run.total.at_least


@pytest.mark.parametrize("rows", [0, 1])
def test_a_recorder_that_died_after_one_poll(made, rows):
    run = made.write(state="recording", monotonic_end_ns=None, wall_end_ns=None)
    path = stream_path(run, "gpu0", StreamKind.FAST, STREAM)
    with pa.ipc.open_stream(path.read_bytes()) as reader:
        table = reader.read_all().slice(60, rows)
    with pa.ipc.new_stream(path, table.schema) as stream:
        stream.write_table(table)
    result = analyse(run)
    json.dumps(as_json(result), allow_nan=False)
    assert result.run.total is None or result.run.total.at_least


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_a_result_with_a_number_that_is_none_is_computed_again(made, number):
    run = made.write()
    known = load_or_compute_result(run)
    text = (run / RESULT).read_text()
    value = f'"value": {known.run.total.value}'
    assert value in text
    (run / RESULT).write_text(text.replace(value, f'"value": {number}'))
    result = load_or_compute_result(run)
    assert damaged(result)
    assert result.run.total.value == pytest.approx(known.run.total.value)


def test_spans_outside_the_run_are_left_out(made):
    made.spans(("far", 0, 9000.0, 9001.0))
    result = analyse(made.write())
    assert {one.span.name for one in result.spans} == {"epoch"}
    assert any(one.code is WarningCode.SPANS_LOST for one in result.warnings)


def test_a_run_that_is_moved_stays_whole(made, tmp_path):
    run = made.write()
    write_final_checksums(run)
    moved = tmp_path / "elsewhere"
    shutil.move(run, moved)
    assert SoundStreams(moved, read_manifest(moved)).find_damage() == ()


@given(st.lists(st.integers(-20, 20), max_size=40))
def test_the_longest_ascent_ascends_and_is_longest(values):
    chosen = longest_ascent(np.array(values, np.int64))
    picked = [values[i] for i in chosen]
    assert picked == sorted(picked)
    assert list(chosen) == sorted(set(chosen.tolist()))
    longest: list[int] = []
    for i, value in enumerate(values):
        longest.append(1 + max((longest[j] for j in range(i) if values[j] <= value), default=0))
    assert len(picked) == max(longest, default=0)


def test_a_bound_from_a_damaged_file_is_true_within_its_error_and_says_why(made):
    """It said that the device was read in a part of the run, beside the time of all of it."""
    run = made.write()
    rewrite(run, t_ns=put(200, START + 1 * S))
    result = analyse(run)
    total = result.run.total
    assert total.at_least
    assert total.value - total.error <= 10 * WATTS
    shown = run_view(result)
    assert shown.finding.endswith(": the trace of gpu0 is damaged.")
    assert " in " not in shown.rows[0].mean
