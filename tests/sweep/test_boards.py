"""The boards that a space is resolved against: found by NVML, or simulated."""

import json
import os
import subprocess
import sys

import pytest

from joulewise.data.sweeps import MEM_CLOCK, POWER_LIMIT, SM_CLOCK
from joulewise.errors import DeviceError, UsageError
from joulewise.session import gpu_discovery
from joulewise.session.gpu_discovery import DiscoveredCpu, DiscoveredDevices, DiscoveredGpu
from joulewise.simulate.boards import BOARDS
from joulewise.sweep.boards import TargetBoard, boards, find_boards, simulated
from joulewise.sweep.spec import SweepSpec

SHOWS = """
import json, os, sys
from dataclasses import asdict
from joulewise.sweep.boards import find_boards
print(json.dumps([asdict(board) for board in find_boards(json.loads(sys.argv[1]), os.environ)]))
"""


def found_in_sim(tmp_path, kinds, named, **environ):
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "joulewise", "sim", "--gpu", kinds, "--"),
            *(sys.executable, "-c", SHOWS, json.dumps(named)),
        ],
        env={**os.environ, "JOULEWISE_POWERCAP": str(tmp_path / "none"), **environ},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(ran.stdout)


@pytest.mark.parametrize("name", BOARDS)
def test_a_simulated_board_is_what_its_driver_tells(tmp_path, name):
    (found,) = found_in_sim(tmp_path, name, [])
    (board,) = simulated(name)
    made = TargetBoard(
        **{
            **found,
            "uid": board.uid,
            "sm_clocks_mhz": tuple(found["sm_clocks_mhz"]),
            "mem_clocks_mhz": tuple(found["mem_clocks_mhz"]),
        }
    )
    assert made == board


def test_only_an_axis_of_clocks_has_clocks():
    board = TargetBoard("gpu0", "", "", sm_clocks_mhz=(900.0,), mem_clocks_mhz=(1200.0,))
    axes = (SM_CLOCK, MEM_CLOCK, POWER_LIMIT, "fan_pct")
    assert [board.clocks_mhz(name) for name in axes] == [(900.0,), (1200.0,), (), ()]


def test_only_those_that_the_command_sees_or_that_are_named(tmp_path):
    second = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1"}
    one = found_in_sim(tmp_path, "v100x2,rtx6000", [], **second)
    assert [board["key"] for board in one] == ["gpu1"]
    named = found_in_sim(tmp_path, "v100x2,rtx6000", [2], **second)
    assert [board["name"] for board in named] == [simulated("rtx6000")[0].name]


@pytest.fixture
def found(monkeypatch):
    """What a machine has; the real look is in the tests above, this one needs no GPU."""

    def put(*devices):
        asked_of = []

        def find(environ):
            asked_of.append(dict(environ))
            if devices == (None,):
                raise DeviceError("the GPUs do not answer", "look")
            graphics = tuple(each for each in devices if isinstance(each, DiscoveredGpu))
            return DiscoveredDevices(
                graphics, tuple(each for each in devices if isinstance(each, DiscoveredCpu))
            )

        monkeypatch.setattr(gpu_discovery, "discover_settable", find)
        return asked_of

    return put


PACKAGE = DiscoveredCpu("cpu0", "package-0", "a CPU", now_w=65.0, lowest_w=20.0, highest_w=4095.0)


def test_packages_are_boards_at_the_limit_that_they_have(found):
    found(DiscoveredGpu("gpu0", "GPU-0", visible=False), PACKAGE)
    assert find_boards((), {}) == (TargetBoard("cpu0", "package-0", "a CPU", 20.0, 65.0, 4095.0),)
    assert not find_boards((), {})[0].is_gpu
    with pytest.raises(UsageError, match="there is no gpu1") as error:
        find_boards((1,), {})
    assert error.value.hint == "this machine has gpu0"


def test_hanging_driver_is_ignored_without_controls(found):
    found(None)
    assert boards(SweepSpec(axes={"b": "1,2"}), {}) == ()
    with pytest.raises(DeviceError, match="do not answer"):
        boards(SweepSpec(axes={POWER_LIMIT: "150"}), {})
    with pytest.raises(DeviceError, match="do not answer"):
        boards(SweepSpec(axes={"b": "1,2"}, gpus=(0,)), {})


def test_the_commands_own_environment_decides_what_it_sees(found):
    asked_of = found(PACKAGE)
    environ = {"CUDA_VISIBLE_DEVICES": "1", "LR": "{lr}"}
    boards(SweepSpec(axes={"lr": "1,2"}, environ=environ), {"A": "1", "CUDA_VISIBLE_DEVICES": "0"})
    assert asked_of == [{"A": "1", "CUDA_VISIBLE_DEVICES": "1"}]
