"""The service as its users and its administrator meet it, on simulated GPUs."""

import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import sysconfig
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

import joulewise
from joulewise.control.holds import LeaseHolder
from joulewise.control.service import server
from joulewise.control.service.config import Config
from joulewise.control.service.server import systemd_unit
from joulewise.devices import DISCOVERY_THREAD
from joulewise.errors import JoulewiseError, PermissionDeniedError, UsageError, installed_command
from tests.helpers.failing_gpus import Board, by_uid
from tests.helpers.guard_service import (
    GROUP,
    MEMBER,
    STRANGER,
    client,
    guard,
    held,
    limits_w,
    run_as,
    simulated_gpus,
)
from tests.helpers.processes import JOULEWISE, eventually, first_line

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can change settings for others"
)
USE = """
from joulewise.simulate import client
client.Gpu(0).step("mnist-small")
print("used", flush=True)
time.sleep(600)
"""
ASK_FOR_GPU1 = """
try:
    control.lease("gpu1", power_limit_w=200)
except JoulewiseError as error:
    print(error.message)
"""
CONFIG = f"""
group = "{GROUP}"
clients_per_user = 1
[[allow]]
devices = ["gpu0"]
power_limit_w = [160, 250]
"""


@pytest.fixture(scope="module")
def gpus():
    with simulated_gpus() as environ:
        yield environ


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "guard.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def running(gpus, tmp_path, config):
    with guard(gpus, tmp_path, "--config", config) as server:
        yield server


class TestAMember:
    def test_gets_a_lease_without_asking_for_the_service(self, gpus, running):
        code = "print(dict(control.lease('gpu0', power_limit_w=200).enforced['gpu0']).values())"
        assert "200.0" in run_as(gpus, code)
        eventually(lambda: limits_w(gpus) == [290, 280])
        assert f"user {MEMBER.pw_name}" in running.log

    def test_gets_nothing_beyond_the_list(self, gpus, running):
        code = "print(refused(power_limit_w=251), refused(sm_clock_mhz=1005))"
        said = run_as(gpus, code)
        assert "OutOfRangeError" in said
        assert "it allows 160 to 250 W" in said
        assert "PermissionDeniedError: the service does not change gpu0's SM clock" in said
        assert f"user {MEMBER.pw_name}): refused: the service does not change" in running.refusals

    def test_has_everything_put_back_when_it_is_killed(self, gpus, running):  # noqa: ARG002
        with held(gpus) as process:
            process.kill()
            eventually(lambda: limits_w(gpus) == [290, 280])

    def test_has_only_so_many_connections(self, gpus, running):
        with held(gpus):
            said = run_as(gpus, "print(refused(power_limit_w=210))")
            assert f"1 holders of user {MEMBER.pw_name} are connected already" in said
            assert "not admitted" in running.refusals


class TestAStranger:
    def test_is_reported_which_group_to_join(self, gpus, running):  # noqa: ARG002
        said = run_as(gpus, "print(refused(power_limit_w=200))", STRANGER)
        assert said.startswith("PermissionDeniedError")
        assert f"sudo usermod -aG {GROUP} {STRANGER.pw_name}" in said

    def test_is_refused_where_the_socket_would_let_it_in(self, gpus, running):
        Path(gpus["JOULEWISE_GUARD"]).chmod(0o666)
        said = run_as(gpus, "print(refused(power_limit_w=200))", STRANGER)
        assert f"{STRANGER.pw_name} is not in group {GROUP}" in said
        assert f"user {STRANGER.pw_name}): not admitted" in running.refusals
        assert limits_w(gpus) == [290, 280]


def test_the_socket_is_the_groups(gpus, running):  # noqa: ARG001
    found = Path(gpus["JOULEWISE_GUARD"]).stat()
    assert stat.S_IMODE(found.st_mode) == 0o660
    assert (found.st_uid, found.st_gid) == (0, MEMBER.pw_gid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_when_it_is_ended_it_puts_everything_back(gpus, running, number):
    with held(gpus):
        assert running.end(number) == 0
        assert limits_w(gpus) == [290, 280]
    assert not Path(gpus["JOULEWISE_GUARD"]).exists()
    assert not list(Path(gpus["JOULEWISE_STATE"], "leases").glob("*.journal"))


def test_what_it_left_when_it_was_killed_it_puts_back_when_it_starts(
    gpus, running, tmp_path, config
):
    with held(gpus):
        running.end(signal.SIGKILL)
    assert limits_w(gpus) == [200, 280]
    with guard(gpus, tmp_path, "--config", config):
        assert limits_w(gpus) == [290, 280]
        assert "200" in run_as(gpus, "print(control.lease('gpu0', power_limit_w=200).enforced)")


def test_a_second_one_is_an_error(gpus, running, config):
    done = subprocess.run(
        [*JOULEWISE, "guard", "--config", config],
        env=gpus,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("joulewise: a service already listens at")
    assert running.process.poll() is None
    assert "200" in run_as(gpus, "print(control.lease('gpu0', power_limit_w=200).enforced)")


def test_the_configuration_is_read_again_and_a_bad_one_is_not_taken(gpus, running, config):
    config.write_text(CONFIG.replace("250]", "205]"))
    running.process.send_signal(signal.SIGHUP)
    eventually(lambda: "the configuration was read again" in running.log)
    assert "it allows 160 to 205 W" in run_as(gpus, "print(refused(power_limit_w=210))")
    config.write_text("group = 3")
    running.process.send_signal(signal.SIGHUP)
    eventually(lambda: "the configuration is unchanged" in running.log)
    assert "it allows 160 to 205 W" in run_as(gpus, "print(refused(power_limit_w=210))")


def test_another_group_gets_the_socket_as_well(gpus, tmp_path, config):
    config.write_text(CONFIG.replace(GROUP, "daemon"))
    with guard(gpus, tmp_path, "--config", config) as server:
        config.write_text(CONFIG)
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: Path(gpus["JOULEWISE_GUARD"]).stat().st_gid == MEMBER.pw_gid)
        assert "200" in run_as(gpus, "print(control.lease('gpu0', power_limit_w=200).enforced)")


def test_hundreds_that_come_at_once_all_find_it(gpus, running):
    running.process.send_signal(signal.SIGSTOP)  # as one that is busy
    with ExitStack() as lines:
        for _ in range(500):
            line = lines.enter_context(socket.socket(socket.AF_UNIX))
            line.setblocking(False)
            line.connect(gpus["JOULEWISE_GUARD"])
        running.process.send_signal(signal.SIGCONT)


def test_one_who_is_changed_away_all_the_time_cannot_wipe_the_log(gpus, running):
    with held(gpus):
        leased = running.log
        for _ in range(300):
            with socket.socket(socket.AF_UNIX) as line:
                line.connect(gpus["JOULEWISE_GUARD"])
                line.sendall(b"\n")
                while b"refused" not in line.recv(4096):
                    pass
        assert running.log == leased
    assert running.end() == 0
    of_root = [line for line in running.refusals.splitlines() if "user root" in line]
    assert len(of_root) <= 21 * 2  # of two windows, at most
    assert any(line.endswith("more of user root") for line in of_root)


def test_what_is_hidden_from_its_own_programs_is_changed_for_others(gpus, tmp_path):
    with guard({**gpus, "CUDA_VISIBLE_DEVICES": "1"}, tmp_path, "--group", GROUP):
        assert "200" in run_as(gpus, "print(control.lease('gpu0', power_limit_w=200).enforced)")


@pytest.mark.skipif(not shutil.which("setpriv"), reason="there is no setpriv here")
def test_the_capabilities_of_the_unit_are_enough(gpus, tmp_path, config):
    found = re.search("CapabilityBoundingSet=(.*)", systemd_unit())
    named = "".join(f",+{name.lower().removeprefix('cap_')}" for name in found[1].split())
    alone = ["setpriv", "--inh-caps=-all", f"--bounding-set=-all{named}"]
    config.write_text(CONFIG.replace(GROUP, "daemon"))
    with guard(gpus, tmp_path, "--config", config, through=alone) as server:
        config.write_text(CONFIG)
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: Path(gpus["JOULEWISE_GUARD"]).stat().st_gid == MEMBER.pw_gid)
        with held(gpus) as process:
            process.kill()
            eventually(lambda: limits_w(gpus) == [290, 280])
        with client(gpus, USE, STRANGER) as other:
            assert first_line(other.stdout) == "used\n"
            said = run_as(gpus, "print(refused(power_limit_w=200))")
            assert f"gpu0 is used by pid {other.pid} of user {STRANGER.pw_name}" in said
        assert server.end() == 0


def test_without_a_file_the_devices_own_ranges_hold(gpus, tmp_path):
    with guard(gpus, tmp_path, "--group", GROUP):
        assert "300" in run_as(gpus, "print(control.lease('gpu0', power_limit_w=300).enforced)")
        assert "OutOfRangeError" in run_as(gpus, "print(refused(power_limit_w=301))")


def test_who_has_neither_the_right_nor_a_service_is_reported_what_gives_it(gpus):
    version = f"python3.{sys.version_info.minor}"
    python = shutil.which(version, path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("no Python here that every user may run")
    paths = [str(Path(joulewise.__file__).parents[1]), sysconfig.get_path("purelib")]
    environ = {**gpus, "PYTHONPATH": os.pathsep.join(paths)}
    # A service that another test killed at its end may have left the limit of a client.
    subprocess.run([*JOULEWISE, "restore"], env=gpus, capture_output=True, check=True)
    assert limits_w(gpus) == [290, 280]
    code = f"sys.executable = {python!r}; print(refused(power_limit_w=200))"
    said = run_as(environ, code)
    assert said.startswith("PermissionDeniedError: gpu0's power limit cannot be changed")
    assert re.search(r"run `sudo -E /\S+( -m joulewise)? …`, or have an administrator set up", said)
    assert "guard --group NAME --unit" in said
    assert limits_w(gpus) == [290, 280]


def test_a_driver_that_hangs_for_one_gpu_keeps_no_other(tmp_path):
    hangs = ("--fault", "gpu1:slow=600s,call=SetPowerManagementLimit")
    with (
        simulated_gpus(*hangs, limits_w=(290,)) as gpus,
        guard(gpus, tmp_path, "--group", GROUP),
    ):
        with held(gpus):
            said = run_as(gpus, ASK_FOR_GPU1)
        assert said.startswith("gpu1's driver did not answer within 5 s; ")
        eventually(lambda: limits_w(gpus)[0] == 290)


class TestTheFinder:
    def finder(self, *found):
        self.now_s, self.looks = 0.0, iter(found)
        return server.DeviceFinder(lambda: next(self.looks), lambda: self.now_s)

    def test_a_driver_that_comes_later_is_found_after_a_while(self):
        first, later = Board("gpu0"), Board("gpu1")
        find = self.finder(by_uid(first), by_uid(first, later))
        assert find() == by_uid(first)
        assert find() == {}
        self.now_s = 5.0
        assert find() == by_uid(first, later)

    def test_what_has_no_setting_is_none_of_its_business(self):
        board = Board()
        board.controls = {}
        assert self.finder(by_uid(board))() == {}

    def test_it_does_not_wait_twice_for_a_driver_that_hangs(self):
        find = self.finder({}, by_uid(Board()))
        find()
        self.now_s = 5.0
        hangs = threading.Event()
        thread = threading.Thread(target=hangs.wait, name=DISCOVERY_THREAD)
        thread.start()
        try:
            assert find() == {}
        finally:
            hangs.set()
            thread.join()
        assert find()


class TestTheGate:
    def holder(self, uid):
        return LeaseHolder(1, uid, "python", 0.0)

    def gate(self, **settings):
        return server.AccessControl(lambda: Config(GROUP, **settings))

    def test_root_and_members_come_in(self):
        self.gate().admit(self.holder(0), [])
        self.gate().admit(self.holder(MEMBER.pw_uid), [])

    @pytest.mark.parametrize("uid", [STRANGER.pw_uid, 4_000_000_000])
    def test_others_do_not(self, uid):
        with pytest.raises(PermissionDeniedError, match="is not in group"):
            self.gate().admit(self.holder(uid), [])

    def test_root_needs_room_like_everyone(self):
        with pytest.raises(JoulewiseError, match="2 holders are connected"):
            self.gate(clients=2).admit(self.holder(0), [self.holder(0)] * 2)

    def test_one_user_does_not_take_the_room_of_all(self):
        gate = self.gate(clients_per_user=2)
        connected = [self.holder(MEMBER.pw_uid)] * 2
        with pytest.raises(JoulewiseError, match="2 holders of user"):
            gate.admit(self.holder(MEMBER.pw_uid), connected)
        gate.admit(self.holder(0), connected)

    def test_supplementary_groups_count(self, monkeypatch):
        monkeypatch.setattr(os, "getgrouplist", lambda *_: [STRANGER.pw_gid, MEMBER.pw_gid])
        self.gate().admit(self.holder(STRANGER.pw_uid), [])


def test_only_root_can_serve(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(PermissionDeniedError, match="only root") as refused:
        server.serve(tmp_path / "guard.sock", None, GROUP)
    # By its path: sudo would not find it in a virtual environment.
    assert f"`sudo {installed_command()} guard …`" in refused.value.hint


def test_a_folder_for_the_socket_is_made_aloud_but_not_a_whole_path(tmp_path, gpus):
    with pytest.raises(UsageError, match=r"cannot listen .*: No such file"):
        server.serve(tmp_path / "no/such/guard.sock", None, GROUP)
    assert not (tmp_path / "no").exists()
    socket = tmp_path / "new" / "guard.sock"
    with guard(gpus, tmp_path, "--group", GROUP, "--socket", str(socket)) as service_of_ours:
        assert f"created {socket.parent}" in service_of_ours.log
        assert socket.is_socket()


def test_a_file_in_the_sockets_place_is_left_alone(tmp_path):
    path = tmp_path / "guard.sock"
    path.write_text("precious")
    with pytest.raises(UsageError, match="is not a socket"):
        server.serve(path, None, GROUP)
    assert path.read_text() == "precious"


def test_a_path_that_is_too_long_for_a_socket(tmp_path):
    with pytest.raises(UsageError, match="cannot listen"):
        server.serve(tmp_path / ("s" * 120), None, GROUP)
