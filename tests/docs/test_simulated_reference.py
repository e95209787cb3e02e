"""Every board and workload that can be named is in the reference, with its own figures."""

import pytest

from joulewise.simulate.boards import BOARDS, load_board
from joulewise.simulate.workloads import WORKLOADS, load_workload
from tests.helpers.paths import DOCS

PAGE = DOCS / "reference" / "simulated.md"
ROWS = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]


def row_of(name):
    (row,) = [row for row in ROWS if f"`{name}`" in row.split("|")[1]]
    return row


@pytest.mark.parametrize("key", BOARDS)
def test_a_board(key):
    board = load_board(key)
    limits = f"{board.limits.minimum_w:.0f}-{board.limits.maximum_w:.0f} W"
    for figure in (board.name, limits, f"{board.clocks.sm_max_mhz:.0f} MHz"):
        assert figure in row_of(key)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload(name):
    assert f"| {load_workload(name, load_board('v100')).batch_size} |" in row_of(name)
