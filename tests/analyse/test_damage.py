"""Damaged traces: named, left out, and the energy marked as a lower bound."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.analyse.damage import SoundLanes, longest_ascent
from joulewise.analyse.run import analyse
from joulewise.analyse.stored import result_of
from joulewise.data import Caution
from joulewise.data.contract import as_json
from joulewise.record.checksums import write_final_checksums
from joulewise.record.layout import RESULT, STREAM, Lane, lane_path
from joulewise.record.manifest import read_manifest
from joulewise.report.run_view import view
from made_run import START, MadeRun, S, device

WATTS = 100.0


@pytest.fixture
def made(tmp_path):
    made = MadeRun(tmp_path / "run")
    made.fast(device("gpu0"), lambda _: WATTS)
    return made.processes("gpu0", (0.0, [(4242, "python", True)])).spans(("epoch", 0, 1.0, 5.0))


def rewrite(run, **changed):
    """The fast lane again, with ``column=function(values)`` applied."""
    path = lane_path(run, "gpu0", Lane.FAST, STREAM)
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
    return [one for one in result.warnings if one.code is Caution.DAMAGED]


def test_an_undamaged_run_has_no_such_warning(made):
    result = analyse(made.write())
    assert not damaged(result)
    assert not result.run.total.at_least
    assert result.run.total.value == pytest.approx(1000.0, rel=0.01)


@pytest.mark.parametrize(
    "change",
    [
        {"t_ns": put(200, START + 9000 * S)},
        {"t_ns": put(200, -5)},
        {"t_ns": put(200, START + 1 * S)},
        {"power_w": put(200, np.inf)},
        {"power_w": put(200, -50.0)},
        {"power_w": put(200, 5000.0)},
        {"energy_j": put(200, np.inf)},
        {"energy_j": put(200, 1e300)},
    ],
)
def test_rows_that_cannot_be_are_left_out_and_the_total_is_a_lower_bound(made, change):
    run = made.write()
    rewrite(run, **change)
    result = analyse(run)
    [warning] = damaged(result)
    assert warning.device == "gpu0"
    assert "gpu0" in warning.message
    assert result.run.total.at_least
    assert result.run.total.value == pytest.approx(1000.0, rel=0.02)
    assert not any(one.code is Caution.UNAVAILABLE for one in result.warnings)


def test_a_counter_that_jumps_is_bridged_and_told(made):
    run = made.write()
    rewrite(run, energy_j=lambda values: values.__setitem__(slice(200, None), values[200:] + 1e6))
    result = analyse(run)
    assert any(one.code is Caution.COUNTER_RESET for one in result.warnings)
    assert result.run.total.value == pytest.approx(1000.0, rel=0.05)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("is_checked", [True, False])
def test_a_stream_that_is_cut_is_never_a_whole_total(made, share, is_checked):
    run = made.write()
    if is_checked:
        write_final_checksums(run)
    path = lane_path(run, "gpu0", Lane.FAST, STREAM)
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
    path = lane_path(run, "gpu0", Lane.FAST, STREAM)
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
    known = result_of(run)
    text = (run / RESULT).read_text()
    value = f'"value": {known.run.total.value}'
    assert value in text
    (run / RESULT).write_text(text.replace(value, f'"value": {number}'))
    result = result_of(run)
    assert damaged(result)
    assert result.run.total.value == pytest.approx(known.run.total.value)


def test_spans_outside_the_run_are_left_out(made):
    made.spans(("far", 0, 9000.0, 9001.0))
    result = analyse(made.write())
    assert {one.span.name for one in result.spans} == {"epoch"}
    assert any(one.code is Caution.SPANS_LOST for one in result.warnings)


def test_a_run_that_is_moved_stays_whole(made, tmp_path):
    run = made.write()
    write_final_checksums(run)
    moved = tmp_path / "elsewhere"
    shutil.move(run, moved)
    assert SoundLanes(moved, read_manifest(moved)).find_damage() == ()


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
    rewrite(run, power_w=put(200, -50.0))
    result = analyse(run)
    total = result.run.total
    assert total.at_least
    assert total.value - total.error <= 10 * WATTS
    shown = view(result)
    assert shown.finding.endswith(": the trace of gpu0 is damaged.")
    assert " in " not in shown.rows[0].mean
