"""Which processes use a device, and which of them are the command's."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field

import pytest

from joulewise.data import DeviceInfo, Kind, Process, Unavailable
from joulewise.record.processes import CommandProcesses, DeviceUsers
from joulewise.record.writer import PendingLines, RecorderNotes
from joulewise.store.layout import SIMULATION

GB = 1 << 30
GPU = DeviceInfo("gpu0", Kind.GPU, "GPU", "GPU-0", "none")


@dataclass
class Gpu:
    used_by: object = ()
    info: DeviceInfo = GPU

    ended: object = ()

    def processes(self):
        return self.used_by

    def ended_processes(self, _since_us):
        return self.ended


@dataclass
class Proc:
    """A machine's /proc, made up."""

    path: object
    inside: bool = False

    def __post_init__(self):
        (self.path / "self/ns").mkdir(parents=True)
        number = 4026532999 if self.inside else 4026531836
        (self.path / "self/ns/pid").symlink_to(f"pid:[{number}]")

    def add(self, pid, parent=1, environ="", name="python"):
        folder = self.path / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(f"{pid} ({name}) S {parent} " + "0 " * 40)
        (folder / "environ").write_bytes(environ.encode().replace(b" ", b"\0"))
        (folder / "comm").write_text(f"{name}\n")

    def remove(self, pid):
        shutil.rmtree(self.path / str(pid))


@dataclass
class Watched:
    proc: Proc
    gpu: Gpu = field(default_factory=Gpu)
    journal: PendingLines = field(default_factory=lambda: PendingLines(1000))
    notes: RecorderNotes = field(default_factory=RecorderNotes)

    def __post_init__(self):
        self.family = CommandProcesses("run-7", self.proc.path)
        self.users = DeviceUsers(self.gpu, self.family, self.journal, self.notes)

    def look(self, *processes):
        self.gpu.used_by = processes
        self.users.serve(0)
        return [json.loads(line) for line in self.journal.take().splitlines()]


@pytest.fixture
def watched(tmp_path, request):
    return Watched(Proc(tmp_path, inside=getattr(request, "param", False)))


def ours(lines):
    (line,) = lines
    return {each["pid"]: each["ours"] for each in line["processes"]}


def test_the_command_is_known_by_its_environment(watched):
    watched.proc.add(10, environ="A=1 JOULEWISE_RUN=run-7 B=2")
    watched.proc.add(11, environ="JOULEWISE_RUN=run-77")
    watched.proc.add(12)
    found = watched.look(*(Process(pid, GB, "compute") for pid in (12, 11, 10)))
    assert ours(found) == {10: True, 11: False, 12: False}


def test_the_command_is_known_by_its_ancestors(watched):
    for pid, parent in ((10, 1), (11, 10), (12, 11), (20, 1)):
        watched.proc.add(pid, parent)
    watched.family.adopt(10)
    found = watched.look(Process(12, None, "compute"), Process(20, None, "graphics"))
    assert ours(found) == {12: True, 20: False}
    assert found[0]["device"] == "gpu0"
    assert found[0]["processes"][0] == {
        "pid": 12, "memory_b": None, "kind": "compute", "name": "python", "ours": True
    }  # fmt: skip


def test_a_line_is_written_when_something_changes_and_not_before(watched):
    watched.proc.add(10)
    assert watched.look() == []
    assert watched.look(Process(10, 2 * GB, "compute"))
    assert watched.look(Process(10, 2 * GB + 1, "compute")) == []
    assert watched.look(Process(10, 4 * GB, "compute"))
    watched.family.adopt(10)
    assert ours(watched.look(Process(10, 4 * GB, "compute"))) == {10: True}
    assert watched.look(Process(10, 4 * GB, "compute")) == []
    assert ours(watched.look()) == {}


def test_a_device_that_does_not_tell_has_no_lines(watched):
    watched.gpu.used_by = Unavailable("lost")
    watched.users.serve(0)
    assert watched.journal.take() == b""


def test_who_cannot_be_seen_time_and_again_is_not_ours(watched):
    watched.look(Process(999, GB, "compute"))
    assert ours(watched.look(Process(999, GB, "compute"))) == {999: False}
    assert watched.notes.all() == ()


def test_one_that_has_just_ended_may_be_anybodys(watched):
    watched.proc.add(12)
    watched.family.adopt(12)
    watched.proc.add(13, parent=12)
    watched.look(Process(13, GB, "compute"))
    for pid in (12, 13):
        watched.proc.remove(pid)
    listed = (Process(pid, GB, "compute") for pid in (12, 13, 14))
    assert ours(watched.look(*listed)) == {12: True, 13: True, 14: None}


def test_the_load_of_the_simulation_is_called_so(tmp_path):
    proc = Proc(tmp_path)
    proc.add(55, name="joulewise")
    family = CommandProcesses("run-7", tmp_path, {"JOULEWISE_SIM_PID": "55"})
    assert family.name(55) == SIMULATION
    assert CommandProcesses("run-7", tmp_path, {}).name(55) == "joulewise"


def test_ended_processes_are_listed_where_the_driver_has_accounting(watched):
    watched.proc.add(10, environ="JOULEWISE_RUN=run-7")
    watched.look(Process(10, GB, "compute"))
    watched.proc.remove(10)
    watched.gpu.used_by = ()
    watched.gpu.ended = [Process(10, GB, "compute"), Process(11, GB, "compute")]
    watched.users.poll_again()
    look, back = (json.loads(line) for line in watched.journal.take().splitlines())
    assert look["processes"] == []
    assert {each["pid"]: each["ours"] for each in back["ended"]} == {10: True, 11: None}


@pytest.mark.parametrize("watched", [True], indirect=True)
def test_in_a_container_numbers_of_the_host_are_nobody_known(watched):
    assert ours(watched.look(Process(999, GB, "compute"))) == {999: None}
    assert watched.notes.all() == ()  # it may have ended a moment ago
    watched.look(Process(999, GB, "compute"))
    watched.look(Process(999, GB, "compute"))
    assert [note["code"] for note in watched.notes.all()] == ["host_process_ids"]


@pytest.mark.parametrize("watched", [True], indirect=True)
def test_in_a_container_too_only_a_change_is_a_line(watched):
    stranger, other = Process(999, GB, "compute"), Process(998, GB, "compute")
    assert watched.look(stranger)
    assert [watched.look(stranger) for _ in range(5)] == [[]] * 5
    assert ours(watched.look(stranger, other)) == {999: None, 998: None}
    watched.proc.add(998)
    assert ours(watched.look(stranger, other)) == {999: None, 998: False}
    assert watched.look(stranger, other) == []


def test_a_full_journal_is_noted_once(watched):
    watched.users._journal = watched.journal = PendingLines(2)
    looks = [watched.look(Process(pid, GB, "compute")) for pid in (1, 2, 3, 4)]
    assert [len(lines) for lines in looks] == [1, 1, 0, 0]
    (note,) = watched.notes.all()
    assert note["code"] == "not_stored"
    assert "processes.jsonl" in note["message"]


@pytest.mark.parametrize("watched", [True], indirect=True)
def test_in_a_container_that_has_its_own_numbers_the_command_is_known(watched):
    watched.proc.add(10, environ="JOULEWISE_RUN=run-7")
    assert ours(watched.look(Process(10, GB, "compute"))) == {10: True}
    assert watched.notes.all() == ()


def test_real_processes(tmp_path):
    family = CommandProcesses("run-9")
    environ = {**os.environ, "JOULEWISE_RUN": "run-9"}
    command = [sys.executable, "-c", "input()"]
    mine = subprocess.Popen(command, stdin=subprocess.PIPE, env=environ)
    other = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=tmp_path)
    try:
        assert family.has(other.pid) is False
        family.adopt(other.pid)
        assert family.has(other.pid) is True
        mine_seen = [family.has(mine.pid)]
        assert mine_seen == [True]
    finally:
        for process in (mine, other):
            process.stdin.close()
            process.wait()
