"""The page of published choices is what its script makes: a part of it is made again."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import published

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "published.md").read_text("utf-8")


def test_a_network_comes_out_as_the_page_shows_it():
    for it in published.swept("rtx6000", "alexnet"):
        assert published.line(it) in PAGE.splitlines()


def test_all_of_the_published_table_is_there():
    rows = [line for line in PAGE.splitlines() if line.startswith(("| v100 ", "| rtx6000 "))]
    assert len(rows) == 2 * 6 * 4 + len(published.BANDS)
    assert all(line in PAGE for line in (*published.HEADER, *published.BAND_HEADER))
