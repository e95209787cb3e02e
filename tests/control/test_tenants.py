import os
import subprocess
import sys
from dataclasses import replace

import pytest

from joulewise.control.holds import LeaseHolder
from joulewise.control.permissions import refuse_other_owners, refuse_other_users
from joulewise.data import ControlKind, DeviceInfo, Kind, Process, Unavailable
from joulewise.errors import HeldError
from tests.helpers.processes import JOULEWISE

MACHINE = "pid:[4026531836]"
CONTAINER = "pid:[4026532589]"
OURS, THEIRS = 1000, 1001
HOLDER = LeaseHolder(10, OURS, "python", 0.0)


class Board:
    """As much of a device as a courtesy looks at."""

    def __init__(self, *pids, slices=()):
        self.info = DeviceInfo("gpu0", Kind.GPU, "GPU", "GPU-1", "nvidia", slices=slices)
        self._pids = pids

    def processes(self):
        return [Process(pid, None, "compute") for pid in self._pids]


@pytest.fixture
def proc(tmp_path):
    def make(owners, namespace=MACHINE, environ="", computing=()):
        for pid, uid in owners.items():
            (tmp_path / str(pid) / "fd").mkdir(parents=True)
            (tmp_path / str(pid) / "status").write_text(f"Name:\tpython\nUid:\t{uid}\t{uid}\n")
            if pid in computing:
                (tmp_path / str(pid) / "fd/4").symlink_to("/dev/nvidia-uvm")
        (tmp_path / f"{HOLDER.pid}/environ").write_text(environ)
        (tmp_path / "self/ns").mkdir(parents=True)
        (tmp_path / "self/ns/pid").symlink_to(namespace)
        return tmp_path

    return make


def ask(board, proc, holder=HOLDER):
    refuse_other_users(holder, board, ControlKind.POWER_LIMIT, 150.0, proc)


def test_our_own_processes_are_no_strangers(proc):
    ask(Board(10, 11), proc({10: OURS, 11: OURS}))


def test_another_users_process_is_named(proc):
    with pytest.raises(HeldError, match=r"gpu0 is used by pid 11 of .*a new power limit would"):
        ask(Board(10, 11), proc({10: OURS, 11: THEIRS}))


def test_what_has_ended_meanwhile_is_nobody(proc):
    with subprocess.Popen(["true"]) as ended:
        pass
    ask(Board(ended.pid), proc({10: OURS}))


def test_one_that_lives_and_whose_owner_is_hidden_is_a_stranger(proc):
    with pytest.raises(HeldError, match=f"is used by pid {os.getpid()} of another user"):
        ask(Board(os.getpid()), proc({10: OURS}))


def test_a_device_that_does_not_tell_is_not_refused(proc):
    board = Board()
    board.processes = lambda: Unavailable("not supported")
    ask(board, proc({10: OURS}))


def test_root_through_sudo_is_the_one_who_called_it(proc):
    root = replace(HOLDER, uid=0)
    made = proc({10: 0, 11: OURS}, environ=f"A=1\0SUDO_UID={OURS}\0")
    ask(Board(11), made, root)


def test_only_root_is_taken_at_its_word(proc):
    made = proc({10: OURS, 11: THEIRS}, environ=f"SUDO_UID={THEIRS}\0")
    with pytest.raises(HeldError):
        ask(Board(11), made)


def test_in_a_container_our_computing_processes_account_for_what_the_driver_lists(proc):
    made = proc({10: OURS, 11: OURS, 12: OURS}, CONTAINER, computing=(10, 11))
    ask(Board(70010, 70011), made)


def test_in_a_container_one_more_may_be_another_tenant_whatever_its_number(proc):
    made = proc({10: OURS, 11: OURS, 12: THEIRS}, CONTAINER, computing=(10, 12))
    with pytest.raises(HeldError, match="is used by 1 process outside this container"):
        ask(Board(10, 11), made)


def test_other_mig_instances_are_other_tenants(proc):
    with pytest.raises(HeldError, match="has 1 other MIG instances"):
        ask(Board(slices=("MIG-a", "MIG-b")), proc({10: OURS}))


def test_mig_instances_that_are_all_ours_are_not(proc):
    made = proc({10: OURS}, environ="CUDA_VISIBLE_DEVICES=MIG-a,MIG-b\0")
    ask(Board(slices=("MIG-a", "MIG-b")), made)


@pytest.mark.parametrize("named", ["M", "MIG-", "MIG-a,MIG-", "MIG-a,MIG-a", ","])
def test_only_whole_names_make_a_mig_instance_ours(proc, named):
    made = proc({10: OURS}, environ=f"CUDA_VISIBLE_DEVICES={named}\0")
    with pytest.raises(HeldError, match="has 1 other MIG instances"):
        ask(Board(slices=("MIG-a", "MIG-b")), made)


class TestWhereTheHoldersWordIsNotEnough:
    def ask(self, board, proc, holder=HOLDER):
        refuse_other_owners(holder, board, ControlKind.POWER_LIMIT, 150.0, proc)

    def test_it_cannot_claim_mig_instances(self, proc):
        made = proc({10: OURS}, environ="CUDA_VISIBLE_DEVICES=MIG-a,MIG-b\0")
        with pytest.raises(HeldError, match="has 1 other MIG instances"):
            self.ask(Board(slices=("MIG-a", "MIG-b")), made)

    def test_nor_another_user(self, proc):
        made = proc({10: 0, 11: THEIRS}, environ=f"SUDO_UID={THEIRS}\0")
        with pytest.raises(HeldError, match="is used by pid 11"):
            self.ask(Board(11), made, replace(HOLDER, uid=0))

    def test_its_own_processes_are_no_strangers(self, proc):
        self.ask(Board(10, 11, slices=("MIG-a",)), proc({10: OURS, 11: OURS}))


def test_the_only_mig_instance_is_ours(proc):
    ask(Board(slices=("MIG-a",)), proc({10: OURS}))


IN_SIM = f"""
import os, signal
from joulewise import control
from joulewise.errors import HeldError
from joulewise.simulate import client

read, write = os.pipe()
other = os.fork()
if other == 0:
    os.setuid({THEIRS})
    client.Gpu(0).step("mnist-small")
    os.write(write, b"1")
    signal.pause()
os.read(read, 1)
try:
    control.lease("gpu0", power_limit_w=200)
except HeldError as error:
    print(str(other) in error.message)
with control.lease("gpu0", power_limit_w=200, force=True) as forced:
    print(forced.enforced["gpu0"]["power_limit_w"])
os.kill(other, signal.SIGKILL)
os.waitpid(other, 0)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_stranger_on_a_simulated_gpu_is_seen_and_can_be_overridden():
    command = [*JOULEWISE, "sim", "--gpu", "v100", "--", sys.executable, "-c", IN_SIM]
    output = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert (output.stdout.split(), output.stderr) == (["True", "200.0"], "")
