"""What a guardian sees of the limits that it holds."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from joulewise.control.guardian import LimitEffect
from joulewise.control.holds import Change, Hold, HoldStack, LeaseHolder
from joulewise.data import ControlKind, Quantity, Reading, Unavailable
from tests.helpers.processes import JOULEWISE

FREE, CAPPED = 0x0, 0x4


class Board:
    info = SimpleNamespace(vendor="nvidia")

    def __init__(self, reasons, power_w):
        self.told = {Quantity.THROTTLE: reasons, Quantity.POWER: power_w}
        self.looks = 0

    def read(self, quantity):
        self.looks += 1
        value = self.told[quantity]
        return Unavailable("lost") if value is None else Reading(value, 0)


def hold(number, limit_w=150.0):
    change = Change("GPU-0", "gpu0", ControlKind.POWER_LIMIT, 250.0, limit_w)
    return Hold(number, LeaseHolder(1, 0, "python", 0.0), (change,))


def watched(board, stacks, seconds):
    now_s = SimpleNamespace(value=0.0)
    residency = LimitEffect(lambda: now_s.value)
    for now_s.value in (half / 2 for half in range(2 * seconds)):
        residency.sample(stacks, {"GPU-0": board})
    return residency


@pytest.fixture
def stacks():
    stacks = HoldStack()
    stacks.add(hold("1"))
    return stacks


@pytest.mark.parametrize(
    ("reasons", "power_w", "said"),
    [
        (FREE, 120, ["gpu0 never needed more than its limit of 150 W: it never binds"]),
        (CAPPED, 149, []),
        (CAPPED, 190, ["gpu0 drew 190 W under a limit of 150 W: it is below the floor"]),
        (None, 190, []),
    ],
)
def test_verdicts(stacks, reasons, power_w, said):
    assert watched(Board(reasons, power_w), stacks, 10).describe(hold("1")) == said


def test_it_checks_once_a_second(stacks):
    board = Board(FREE, 120)
    watched(board, stacks, 10)
    assert board.looks == 2 * 10


def test_a_limit_under_another_is_not_in_force(stacks):
    stacks.add(hold("2", 200.0))
    residency = watched(Board(FREE, 120), stacks, 10)
    assert residency.describe(hold("1")) == []
    assert residency.describe(hold("2", 200.0))


def test_what_has_ended_is_forgotten(stacks):
    residency = watched(Board(FREE, 120), stacks, 10)
    residency.sample(stacks, {})
    assert residency.describe(hold("1"))
    stacks.remove(hold("1"))
    residency._next_s = 0.0
    residency.sample(stacks, {})
    assert residency.describe(hold("1")) == []


# Its guardian looks once a second: it takes a while to have seen enough.
IN_SIM = """
import time
from joulewise import control
from joulewise.simulate import client

with control.lease("gpu0", power_limit_w=150) as held:
    ends_s = time.monotonic() + 8
    while time.monotonic() < ends_s:
        client.Gpu(0).step("mnist-small")
print(*held.notes)
"""


def test_a_lease_shows_at_its_end_that_its_limit_never_bound():
    command = [*JOULEWISE, "sim", "--gpu", "v100", "--as-root", "--", sys.executable, "-c", IN_SIM]
    output = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert output.stdout == "gpu0 never needed more than its limit of 150 W: it never binds\n"
