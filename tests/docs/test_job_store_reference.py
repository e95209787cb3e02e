"""The page on the job store names every table, column and status, and no other."""

import re

import pytest

from joulewise.data.jobs import TryStatus
from joulewise.optimise.recurring.store.tables import METADATA, REVISION_TABLE
from tests.helpers.paths import DOCS

PAGE = (DOCS / "reference" / "job-store.md").read_text("utf-8")


def rows_after(sentence):
    """What is named in the first column of the table that follows a sentence."""
    table = PAGE.split(sentence)[1].split("\n\n")[1]
    return {
        name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }


@pytest.mark.parametrize("table", METADATA.tables.values(), ids=lambda table: table.name)
def test_every_column_has_its_meaning(table):
    assert rows_after(f"\n`{table.name}` has") == set(table.columns.keys())


def test_every_status_has_its_meaning():
    statuses = set(re.findall(r"^\| `(\w+)` \| it", PAGE, re.MULTILINE))
    assert statuses == {status.value for status in TryStatus}


def test_the_table_of_the_revision_is_named():
    assert f"`{REVISION_TABLE}`" in PAGE
