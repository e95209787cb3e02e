"""Spans as a table say the same as the result does, also where something could not be read."""

import pytest

from joulewise.analyse.run import analyse
from joulewise.analyse.tables import span_table
from joulewise.data import Source
from joulewise.record.manifest import read_manifest
from joulewise.record.marks import read_spans
from made_run import PID, MadeRun, device


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
    devices = read_manifest(run).devices
    _, pieces = span_table(run, devices, read_spans(run), 0, result.counted)
    rows = [row for piece in pieces for row in piece.to_pylist()]
    told = {(row["device"], row["index"]): row for row in rows}
    assert result.spans[1].devices["cpu0"].energy is None
    for span in result.spans:
        figures = {key: use.energy for key, use in span.devices.items()} | {"total": span.total}
        for key, energy in figures.items():
            row = told[key, span.span.index]
            found = [row[name] for name in ("energy_j", "error_sampling_j", "error_gain_j")]
            if energy is None:
                assert [*found, row["source"]] == [None] * 4
            else:
                parts = [energy.value, energy.error_sampling, energy.error_gain]
                assert found == pytest.approx(parts)
                assert row["source"] == energy.source.value
