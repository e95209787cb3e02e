"""The table of benchmarks has a row for every program, and names no other."""

import re

from tests.helpers.paths import BENCHMARKS

PAGE = (BENCHMARKS / "README.md").read_text("utf-8")
STARTED_BY_OTHERS = {"training.py", "told_training.py", "zeus_training.py"}


def test_every_program_has_a_row_and_every_row_a_program():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "`" in line]
    named = {re.match(r"\| [^|]+ \| `(\w+\.py)", row)[1] for row in rows}
    assert named == {path.name for path in BENCHMARKS.glob("*.py")} - STARTED_BY_OTHERS


def test_every_row_has_a_result_or_says_that_there_is_none():
    rows = re.findall(r"^\| .+ \| `\w+\.py.* \| (.+) \|$", PAGE, re.MULTILINE)
    assert all(re.search(r"\d", result) or result.startswith("not recorded") for result in rows)


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (BENCHMARKS / target).exists(), target
