"""The page of published choices is what its script makes: a part of it is made again."""

import calibration
import published

from joulewise.simulate.published_caps import GPUS, read_table
from tests.helpers.paths import ROOT
from tools.fit_workloads.table import networks

DOCS = ROOT / "docs"
PAGE = (DOCS / "reference" / "published.md").read_text("utf-8")
SIMULATED = (DOCS / "explanation" / "simulated-gpu.md").read_text("utf-8")


def test_a_network_comes_out_as_the_page_shows_it():
    for it in published.swept("rtx6000", "alexnet"):
        assert published.line(it) in PAGE.splitlines()


def test_all_of_the_published_table_is_there():
    rows = [line for line in PAGE.splitlines() if line.startswith(("| v100 ", "| rtx6000 "))]
    assert len(rows) == 2 * 6 * 4 + len(published.BANDS)
    assert all(line in PAGE for line in (*published.HEADER, *published.BAND_HEADER))


def test_the_words_of_the_page_are_those_of_its_script():
    words, *_ = published.INTRODUCTION.partition("{table}")
    assert PAGE.startswith(words.format(seed=published.SEED))


def test_the_model_without_noise_comes_as_near_as_its_page_says():
    """Sweeps with noise and a sensor have figures of their own, on the page that is linked."""
    rows = read_table()
    choices = [
        choice
        for board in GPUS.values()
        for network in networks(rows, board)
        for choice in calibration.chosen(rows, board, network)
    ]
    near = sum(abs(it.cap_w - it.row.cap_w) <= 15 for it in choices)
    words = " ".join(SIMULATED.split())
    assert f"published ones in {near} of {len(choices)} cases" in words
    worst = 100 * max(it.excess for it in choices)
    assert f"never more than {worst:.2f} % worse than the simulated best" in words
    assert "(../reference/published.md)" in words
