"""The pages on runs name every warning, file, column and key there is."""

from dataclasses import fields

import pytest

from joulewise.data import Energy, Quantity, RunResult, Source, Span, SpanResult, Use, WarningCode
from joulewise.data.run_result_json import as_json
from joulewise.store import layout
from joulewise.store.manifest import CommandRecord, Manifest, RecordedDevice
from tests.helpers.paths import DOCS

PAGES = DOCS / "reference"
RUN_DIRECTORY = (PAGES / "run-directory.md").read_text("utf-8")
RESULT = (PAGES / "result.md").read_text("utf-8")
WARNINGS = (PAGES / "warnings.md").read_text("utf-8")


@pytest.mark.parametrize("caution", WarningCode)
def test_every_warning_has_a_row(caution):
    rows = [line for line in WARNINGS.splitlines() if line.startswith(f"| `{caution.value}` |")]
    assert len(rows) == 1
    assert all(len(cell.strip()) > 5 for cell in rows[0].split("|")[2:4])


def test_no_warning_is_made_up():
    result = {line.split("`")[1] for line in WARNINGS.splitlines() if line.startswith("| `")}
    assert result == {caution.value for caution in WarningCode}


@pytest.mark.parametrize(
    "name",
    [layout.MANIFEST, layout.RESULT, layout.PROCESSES, layout.MISSES, layout.LIVE, layout.TUNING],
)
def test_every_file(name):
    assert f"`{name}`" in RUN_DIRECTORY


@pytest.mark.parametrize("quantity", Quantity)
def test_every_column(quantity):
    assert f"`{quantity.value}`" in RUN_DIRECTORY


@pytest.mark.parametrize("kind", [Manifest, CommandRecord, RecordedDevice])
def test_every_key_of_the_manifest(kind):
    for field in fields(kind):
        assert f"`{field.name}`" in RUN_DIRECTORY, field.name


def test_every_key_of_the_result():
    energy = Energy(1, 1, 1, Source.MEASURED)
    whole = SpanResult(Span("run", None, 0, 1), energy, {"gpu0": Use(energy)})
    payload = as_json(RunResult("id", 0, "complete", 0, whole, (whole,)))
    keys = {*payload, *payload["energy_j"]["gpu0"], *payload["spans"][0]}
    for key in keys:
        assert f"`{key}`" in RESULT, key
