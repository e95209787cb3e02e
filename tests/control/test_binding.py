import re
import subprocess
import sys

import pytest

from joulewise.control import Lease
from joulewise.control.binding import Binding, binding
from processes import JOULEWISE

IDLE, FREE, CAPPED = 0x1, 0x0, 0x4


@pytest.mark.parametrize(
    ("reasons", "mean_w", "expected"),
    [
        ([FREE] * 10, 120, Binding.NEVER),
        ([FREE] * 9 + [CAPPED], 149, None),
        ([CAPPED] * 10, 149, None),
        ([CAPPED] * 10, 190, Binding.BELOW_FLOOR),
        ([CAPPED] * 10, 155, None),
        ([CAPPED] * 8 + [FREE] * 2, 190, None),
        ([CAPPED] * 10, None, None),
        ([FREE] * 4, 120, None),
        ([IDLE] * 50 + [FREE] * 4, 60, None),
        ([IDLE | CAPPED] * 50 + [FREE] * 5, 60, Binding.NEVER),
        ([], None, None),
    ],
)
def test_a_limit_binds_or_not(reasons, mean_w, expected):
    assert binding(150, reasons, mean_w) is expected


IN_SIM = """
import sys, time
from joulewise import control
from joulewise.control.binding import Watch
from joulewise.devices import Options, discover
from joulewise.simulate import client

workload, limit_w = sys.argv[1], float(sys.argv[2])
gpu, = (one for one in discover(Options()).devices if one.info.key == "gpu0")
with control.lease(gpu, power_limit_w=limit_w) as held:
    client.Gpu(0).step(workload)
    watch = Watch([gpu], held.enforced, period_s=0.05)
    ends_s = time.monotonic() + 1.5
    while time.monotonic() < ends_s:
        client.Gpu(0).step(workload)
    print(*watch.end())
"""


@pytest.mark.parametrize(
    ("board", "workload", "limit_w", "said"),
    [
        ("v100", "mnist-small", 150, r"gpu0 never needed .* limit of 150 W: it never binds\n"),
        ("v100", "resnet50", 150, r"\n"),
        ("a100", "vgg19", 100, r"gpu0 drew 11\d W under a limit of 100 W: .* below the floor\n"),
    ],
)
def test_a_simulated_board_under_a_limit(board, workload, limit_w, said):
    program = [sys.executable, "-c", IN_SIM, workload, str(limit_w)]
    command = [*JOULEWISE, "sim", "--gpu", board, "--", *program]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert re.fullmatch(said, told.stdout), told.stdout + told.stderr


class OneLook:
    """A watch that has seen enough, since a real one looks for seconds."""

    def __init__(self, devices, enforced):
        self._said = (f"{devices} under {enforced['gpu0']}",)

    def end(self):
        return self._said


class Line:
    era = 0

    def release(self, _era, _hold):
        return []


def test_a_lease_says_at_its_end_what_its_limits_did(monkeypatch):
    monkeypatch.setattr(sys.modules["joulewise.control.lease"], "Watch", OneLook)
    held = Lease(Line(), {"hold": "1", "enforced": {"gpu0": {}}, "notes": ["first"]})
    held.watch(["a device"])
    held.release()
    assert held.notes == ("first", "['a device'] under {}")
