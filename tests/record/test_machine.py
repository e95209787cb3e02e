"""Cores and RAM, and what is allowed of them."""

import os

import pytest

from joulewise.data.runs import MachineResources
from joulewise.record.environment import read_machine

MEMINFO = "MemTotal:       65536 kB\nMemFree:        1 kB\n"
CORES = {
    f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": f"{cpu % 2},{cpu % 2 + 2}\n"
    for cpu in range(4)
}


def read(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_machine(root)


def test_siblings_are_one_physical_core(tmp_path):
    machine = read(tmp_path, {**CORES, "proc/meminfo": MEMINFO})
    assert machine.cores_physical == 2
    assert machine.cores_logical == os.cpu_count()
    assert machine.cores_allowed == len(os.sched_getaffinity(0))
    assert (machine.ram_b, machine.ram_limit_b) == (64 << 20, None)


def test_what_cannot_be_read_is_not_known(tmp_path):
    machine = read_machine(tmp_path)
    assert (machine.cores_physical, machine.ram_b, machine.ram_limit_b) == (None, None, None)


def test_the_lowest_limit_of_all_groups_around_counts(tmp_path):
    job = "sys/fs/cgroup/slurm/job"
    machine = read(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/slurm/job/step\n",
            f"{job}/step/cpu.max": "max 100000\n",
            f"{job}/cpu.max": "50000 100000\n",
            f"{job}/step/memory.max": f"{32 << 20}\n",
            f"{job}/memory.max": f"{16 << 20}\n",
            "sys/fs/cgroup/slurm/memory.max": "max\n",
        },
    )
    assert machine.cores_allowed == 0.5
    assert machine.ram_limit_b == 16 << 20


@pytest.mark.parametrize("path", ["/docker/abc", "/"])
def test_groups_of_version_1_and_those_that_only_the_host_sees(tmp_path, path):
    machine = read(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": f"5:memory:{path}\n4:cpu,cpuacct:{path}\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "25000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{8 << 20}\n",
        },
    )
    assert (machine.cores_allowed, machine.ram_limit_b) == (0.25, 8 << 20)


def test_no_limit_of_version_1_is_none(tmp_path):
    machine = read(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "5:memory:/\n4:cpu:/\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert machine.ram_limit_b is None
    assert machine.cores_allowed == len(os.sched_getaffinity(0))


def test_this_machine():
    machine = read_machine()
    assert isinstance(machine, MachineResources)
    assert machine.ram_b > 0
    assert 0 < machine.cores_allowed <= machine.cores_logical
