"""Spans as a table say the same as the result does, also where something could not be read."""

import pytest

from joulewise.analyse import run_spans
from joulewise.analyse.export_tables import span_device_table, span_table
from joulewise.analyse.run_result import analyse
from joulewise.data import Source
from joulewise.hooks.marks import Marks
from joulewise.store.layout import MARKS
from joulewise.store.manifest import CommandRecord, read_manifest
from tests.helpers.run_directories import PID, START, MadeRun, S, device

ENERGY = ("energy_j", "error_sampling_j", "error_gain_j")
WATTS = ("mean_w", "peak_w", "counter_j", "integral_j")


def rows_of(pieces):
    return [row for piece in pieces for row in piece.to_pylist()]


def device_rows(run, result, only=()):
    _, pieces = span_device_table(run, read_manifest(run), result, only)
    return rows_of(pieces)


def both_tables(run, result):
    """The rows of both, those of spans as of a device named total."""
    _, pieces = span_table(run, read_manifest(run), result)
    return [*device_rows(run, result), *({**it, "device": "total"} for it in rows_of(pieces))]


def by_span(rows):
    return {(row["device"], row["name"], row["index"]): row for row in rows}


def square(t_s):
    """A load of half a second every second, which the sensor meets at no fixed phase."""
    return 250.0 if t_s % 1.0 < 0.5 else 40.0


@pytest.fixture
def run(tmp_path):
    """A counter that never answers on gpu0, and a CPU that nobody could read in the last epoch."""
    made = MadeRun(tmp_path / "run")
    sources = {"power_w": Source.MEASURED, "energy_j": Source.MODELLED}
    made.fast(device("gpu0", sources=sources), lambda t: 200 + t % 0.3, counter_lost=[(-9, 99)])
    made.fast(device("cpu0", source=Source.MODELLED), lambda t: 20 + t % 0.3, lost=[(5.5, 99)])
    made.processes("gpu0", (0, [(PID, "python", True)]))
    made.spans(("epoch", 0, 1, 5), ("epoch", 1, 6, 9.9))
    return made.write()


def test_a_table_of_spans_says_what_the_result_says(run):
    result = analyse(run)
    rows = by_span(both_tables(run, result))
    assert result.spans[1].devices["cpu0"].energy is None
    for span in result.spans:
        figures = {key: use.energy for key, use in span.devices.items()} | {"total": span.total}
        for key, energy in figures.items():
            row = rows[key, "epoch", span.span.index]
            found = [row[name] for name in ENERGY]
            if energy is None:
                assert [*found, row["source"]] == [None] * 4
                assert row["at_least"]
            else:
                assert found == [energy.value, energy.error_sampling, energy.error_gain]
                assert row["source"] == energy.source.value
                assert row["at_least"] == energy.at_least


def test_a_device_that_was_never_read_has_rows_without_an_energy(tmp_path):
    made = MadeRun(tmp_path / "run").fast(device("gpu0"), square)
    made.devices.append(device("gpu1", measured=()))
    made.spans(("epoch", 0, 1, 5))
    made.processes("gpu0", (0, [(PID, "python", True)]))
    made.processes("gpu1", (0, [(PID, "python", True)]))
    run = made.write()
    result = analyse(run)
    rows = by_span(both_tables(run, result))
    lost, total = rows["gpu1", "epoch", 0], rows["total", "epoch", 0]
    assert [lost[name] for name in (*ENERGY, *WATTS, "source")] == [None] * 8
    assert lost["at_least"]
    assert "gpu1" in result.counted
    assert (total["energy_j"], total["at_least"]) == (result.spans[0].total.value, True)
    assert not rows["gpu0", "epoch", 0]["at_least"]


def test_steps_that_a_result_only_sums_up_have_the_energies_they_would_have_in_it(
    tmp_path, monkeypatch
):
    """Each was up to 0.4 J off, as the run's other spans were not looked at."""
    made = MadeRun(tmp_path / "run", hz=10.0).fast(device("gpu0"), square)
    steps = [("step", i, 0.5 * i + 0.013, 0.5 * i + 0.5) for i in range(19)]
    made.spans(("epoch", 0, 0.5, 4.5), ("epoch", 1, 4.5, 9), *steps)
    made.processes("gpu0", (0, [(PID, "python", True)]))
    run = made.write()
    one_by_one = analyse(run)
    monkeypatch.setattr(run_spans, "MAX_STEPS", 1)
    summed = analyse(run)
    assert len(summed.spans) == 2
    rows = by_span(both_tables(run, summed))
    for span in one_by_one.spans:
        row = rows["gpu0", span.span.name, span.span.index]
        use = span.devices["gpu0"]
        assert [row[name] for name in ENERGY] == pytest.approx(
            [use.energy.value, use.energy.error_sampling, use.energy.error_gain], rel=1e-9
        )
        assert [row[name] for name in WATTS] == pytest.approx(
            [getattr(use, name) for name in WATTS], rel=1e-9
        )


def test_only_some_devices_are_wanted(run):
    assert {row["device"] for row in device_rows(run, analyse(run), ["cpu0"])} == {"cpu0"}


def test_sums_over_either_table_are_the_energy_of_the_devices_that_count(tmp_path):
    """A groupby of pandas added up devices, their total, and a GPU that another job used."""
    made = MadeRun(tmp_path / "run").fast(device("gpu0"), square)
    made.fast(device("gpu1"), lambda _t: 40.0)
    made.fast(device("cpu0", source=Source.MODELLED), lambda _t: 20.0)
    made.processes("gpu0", (0, [(PID, "python", True)])).processes("gpu1", (0, []))
    run = made.spans(("epoch", 0, 1, 5), ("epoch", 1, 5, 9)).write()
    result = analyse(run)
    assert set(result.counted) == {"gpu0", "cpu0"}
    wanted_j = sum(it.total.value for it in result.spans)
    _, pieces = span_table(run, read_manifest(run), result)
    for rows in (rows_of(pieces), device_rows(run, result)):
        assert sum(row["energy_j"] for row in rows) == pytest.approx(wanted_j)


def killed(made, last_s):
    """As a kill -9 of everything leaves it: no end of the command, and an open span."""
    made.fast(device("gpu0"), square, until_s=last_s)
    made.processes("gpu0", (0, [(PID, "python", True)]))
    command = CommandRecord(PID, ("python", "train.py"), START, None, None, None)
    return made.write(
        commands=(command,), state="recording", monotonic_end_ns=None, wall_end_ns=None
    )


def test_an_open_span_lasts_to_the_end_of_the_recording(tmp_path):
    """It had no length, and 0.0 J without an error."""
    made = MadeRun(tmp_path / "run").spans(("epoch", 0, 1, 3))
    Marks(made.path / MARKS).begin("epoch", 1, 40, START + 3 * S)
    run = killed(made, last_s=7.0)
    result = analyse(run)
    done, cut = result.spans
    assert (cut.span.end_ns, cut.span.closed) == (result.run.span.end_ns, False)
    assert cut.total.value == pytest.approx(4 * 145, rel=0.05)
    assert (done.total.at_least, cut.total.at_least) == (False, True)
    row = by_span(both_tables(run, result))["gpu0", "epoch", 1]
    assert (row["energy_j"], row["closed"], row["at_least"]) == (cut.total.value, False, True)
    assert row["end_s"] == pytest.approx(7.0, abs=0.03)


def test_an_open_step_that_the_result_only_sums_up_is_a_lower_bound_too(tmp_path, monkeypatch):
    monkeypatch.setattr(run_spans, "MAX_STEPS", 0)
    made = MadeRun(tmp_path / "run").spans(("step", 0, 1, 3))
    Marks(made.path / MARKS).begin("step", 1, None, START + 3 * S)
    run = killed(made, last_s=7.0)
    rows = by_span(both_tables(run, analyse(run)))
    assert [rows["total", "step", i]["at_least"] for i in range(2)] == [False, True]


def test_an_open_span_of_a_command_that_ended_lasts_to_its_end(tmp_path):
    made = MadeRun(tmp_path / "run").fast(device("gpu0"), square).spans(("epoch", 0, 1, 3))
    made.processes("gpu0", (0, [(PID, "python", True)]))
    Marks(made.path / MARKS).begin("epoch", 1, 40, START + 3 * S)
    result = analyse(made.write())
    cut = result.spans[1]
    assert cut.span.end_ns == result.run.span.end_ns == START + 10 * S
    assert cut.total.value == pytest.approx(7 * 145, rel=0.05)
    assert not cut.total.at_least


def test_a_span_without_a_length_has_no_energy_and_a_reason(tmp_path):
    made = MadeRun(tmp_path / "run").fast(device("gpu0"), square)
    made.spans(("load", None, 4, 4), ("epoch", 0, 1, 3))
    made.processes("gpu0", (0, [(PID, "python", True)]))
    run = made.write()
    result = analyse(run)
    _, empty = result.spans
    assert empty.total is None
    assert empty.devices["gpu0"].energy is None
    assert [w.span for w in result.warnings if "without a length" in w.message] == ["load"]
    row = by_span(both_tables(run, result))["gpu0", "load", None]
    assert (row["energy_j"], row["at_least"]) == (None, True)
