"""Abuses a real ``joulewise guard`` on simulated GPUs, and watches every control meanwhile.

Clients of root, of a member of the allowed group and of a stranger send valid, mutated, random,
huge, slow and half messages, hang up in the middle, do not read, and are killed. No control may be
beyond what the service allows, nothing may stay set, and the service may neither fall nor grow.

    python benchmarks/guard_abuse.py --messages 100000
"""

from __future__ import annotations

import argparse
import grp
import json
import multiprocessing
import os
import pwd
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ctypes import Array, c_longlong
from dataclasses import dataclass, field
from pathlib import Path

import pynvml

from joulewise.control.journal import read_journals
from joulewise.simulate.model import ControlSettings
from joulewise.simulate.nvml.shared_memory import SharedGpuMemory

START_W = (290, 280, 270, 260)
ALLOWED_W = {0: (160, 250), 1: (160, 250), 2: (200, 240)}
ALLOWED_MHZ = {0: (900, 1400)}
CONFIG = """
group = "{group}"
clients = 12
clients_per_user = 5
force = true
[[allow]]
devices = ["gpu[01]"]
power_limit_w = [160, 250]
[[allow]]
devices = ["gpu2"]
power_limit_w = [200, 240]
[[allow]]
devices = ["gpu0"]
sm_clock_mhz = [900, 1400]
"""
MEMBER, STRANGER = pwd.getpwnam("nobody"), pwd.getpwnam("daemon")
ROLES = (0, 0, MEMBER.pw_uid, MEMBER.pw_uid, MEMBER.pw_uid, STRANGER.pw_uid)
DEADLINE_S = 60.0
RESTORED_S = 2.0
WARM = 0.2  # of all messages, after which memory must not grow
MOST_GROWTH_B = 4 << 20
SENT, LEASED, REFUSED, SHUT_OUT = range(4)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--messages", type=int, default=100_000)
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args()
    if "JOULEWISE_SIM" not in os.environ:
        sim = ["-m", "joulewise", "sim", "--gpu", f"v100x{len(START_W)}", "--latency", "none", "--"]
        os.execv(sys.executable, [sys.executable, *sim, sys.executable, *sys.argv])
    return abuse(given.messages, given.seed)


def abuse(messages: int, seed: int) -> int:
    chance = random.Random(seed)
    state = Path(os.environ["JOULEWISE_STATE"])
    with guard(state) as service:
        crowd = Crowd(service, messages, chance)
        watcher = Watcher()
        began_s = time.monotonic()
        with watcher:
            crowd.run(until=messages * WARM)
            before = service.memory_b(), service.descriptors()
            crowd.run(until=messages)
            after = service.memory_b(), service.descriptors()
            took_s = time.monotonic() - began_s
            restored_s = until(watcher.is_as_it_was, "every control is what it was")
            until(lambda: not any(file.holds for file in read_journals(state)), "no lease is left")
        is_alive = service.process.poll() is None
        status = service.stop()
    said = (state / "guard.stderr").read_text(errors="replace")
    bugs = [line for line in said.splitlines() if "unexpected" in line or "Traceback" in line]
    growth_b = after[0] - before[0]
    verdicts = {
        "the service lived, and ended well": is_alive and status == 0,
        "no journal is left": not read_journals(state),
        "nothing unexpected is in its log": not bugs,
        "no control was ever beyond what is allowed": not watcher.beyond,
        f"all was put back within {RESTORED_S:g} s": restored_s <= RESTORED_S,
        "some leases were given, to members and root": crowd.count(LEASED) > 0,
        "no stranger was let in": crowd.strangers_leased == 0 and crowd.count(SHUT_OUT) > 0,
        "memory is flat": growth_b <= MOST_GROWTH_B,
        "no descriptor was lost": after[1] <= before[1],
    }
    print(
        f"messages            {crowd.count(SENT):,} in {took_s:.0f} s, {crowd.kills} clients killed"
    )
    print(f"leased, refused     {crowd.count(LEASED):,}, {crowd.count(REFUSED):,}")
    print(f"strangers turned away {crowd.count(SHUT_OUT):,}")
    print(f"controls looked at     {watcher.looks:,} times, {len(watcher.seen)} states seen")
    print(f"all put back after  {restored_s:.2f} s")
    print(
        f"memory (RSS)        {before[0] / 2**20:.1f} MiB after {WARM:.0%}, "
        f"{after[0] / 2**20:.1f} MiB after all"
    )
    print(f"descriptors         {before[1]}, then {after[1]}")
    for what, well in verdicts.items():
        print(f"{'ok  ' if well else 'FAIL'} {what}")
    for line in [*bugs[:5], *map(str, watcher.beyond[:5])]:
        print(f"     {line}")
    return 0 if all(verdicts.values()) else 1


@dataclass(frozen=True)
class Service:
    process: subprocess.Popen[bytes]
    socket: Path

    def memory_b(self) -> int:
        if self.process.poll() is not None:
            raise SystemExit("the service fell")
        status = Path(f"/proc/{self.process.pid}/status").read_text().split("VmRSS:")[1]
        return int(status.split()[0]) * 1024

    def descriptors(self) -> int:
        """At rest: who was killed a moment ago may not have been let go of yet."""
        counts = []
        for _ in range(20):
            counts.append(len(list(Path(f"/proc/{self.process.pid}/fd").iterdir())))
            time.sleep(0.05)
        return min(counts)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE_S)


@contextmanager
def guard(state: Path) -> Iterator[Service]:
    path, config = state / "guard.sock", state / "guard.toml"
    config.write_text(CONFIG.format(group=grp.getgrgid(MEMBER.pw_gid).gr_name))
    for gpu, limit_w in enumerate(START_W):
        with nvml():
            handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)
            pynvml.nvmlDeviceSetPowerManagementLimit(handle, limit_w * 1000)
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices,
        (state / "guard.stderr").open("wb") as stderr,
    ):
        notices.bind(f"{folder}/notify")
        notices.settimeout(DEADLINE_S)
        process = subprocess.Popen(
            [sys.executable, "-m", "joulewise", "guard", "--config", config, "--socket", path],
            stderr=stderr,
            env={**os.environ, "NOTIFY_SOCKET": f"{folder}/notify"},
        )
        try:
            assert notices.recv(64) == b"READY=1"
            path.chmod(0o666)  # strangers shall reach the second wall, too
            yield Service(process, path)
        finally:
            process.kill()
            process.wait()


@contextmanager
def nvml() -> Iterator[None]:
    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


@dataclass
class Watcher:
    """Looks at all controls all the time: limits through NVML, locks in the simulator's memory."""

    looks: int = 0
    seen: set[tuple[int, float]] = field(default_factory=set)
    beyond: list[tuple[int, object]] = field(default_factory=list)

    def __enter__(self) -> Watcher:  # noqa: PYI034  # Self came with Python 3.11
        pynvml.nvmlInit()
        self._handles = [pynvml.nvmlDeviceGetHandleByIndex(gpu) for gpu in range(len(START_W))]
        self._shared = SharedGpuMemory.open(os.environ["JOULEWISE_SIM"])
        self._start = self._controls()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        pynvml.nvmlShutdown()

    def is_as_it_was(self) -> bool:
        return self._controls() == self._start

    def _controls(self) -> list[ControlSettings]:
        return [self._shared.controls(gpu) for gpu in range(len(START_W))]

    def _watch(self) -> None:
        while not self._ended.wait(0.0005):
            for gpu, handle in enumerate(self._handles):
                limit_w = pynvml.nvmlDeviceGetPowerManagementLimit(handle) / 1000
                self.seen.add((gpu, limit_w))
                low, high = ALLOWED_W.get(gpu, (START_W[gpu], START_W[gpu]))
                if limit_w != START_W[gpu] and not low <= limit_w <= high:
                    self.beyond.append((gpu, limit_w))
            for gpu, controls in enumerate(self._controls()):
                lock = controls.sm_lock_mhz
                low, high = ALLOWED_MHZ.get(gpu, (0, 0))
                if lock is not None and not low <= min(lock) <= max(lock) <= high:
                    self.beyond.append((gpu, lock))
            self.looks += 1


class Crowd:
    """Clients of every kind, each a process; whoever is killed has a successor."""

    def __init__(self, service: Service, messages: int, chance: random.Random) -> None:
        self._service = service
        # A stranger is turned away before it can say much.
        share = -(-messages // (len(ROLES) - 1))
        self._shares = [share // 20 if uid == STRANGER.pw_uid else share for uid in ROLES]
        self._chance = chance
        self._clients: dict[int, multiprocessing.process.BaseProcess] = {}
        self._fork = multiprocessing.get_context("fork")
        # Without a lock, which a client that is killed would keep: each writes its own alone.
        self._counts: list[Array[c_longlong]] = [self._fork.RawArray("q", 4) for _ in ROLES]
        self.kills = 0

    def count(self, what: int) -> int:
        return sum(counts[what] for counts in self._counts)

    @property
    def strangers_leased(self) -> int:
        result = zip(ROLES, self._counts, strict=True)
        return sum(counts[LEASED] for uid, counts in result if uid == STRANGER.pw_uid)

    def run(self, until: float) -> None:
        """Until so many messages are sent; then every client is killed, wherever it is."""
        while self.count(SENT) < until and self._service.process.poll() is None:
            for index in range(len(ROLES)):
                client = self._clients.get(index)
                is_done = self._counts[index][SENT] >= self._shares[index]
                if not is_done and (client is None or not client.is_alive()):
                    self._clients[index] = self._start(index)
            time.sleep(self._chance.uniform(0.02, 0.3))
            self._kill(self._chance.randrange(len(ROLES)))
        for index in list(self._clients):
            self._kill(index)

    def _start(self, index: int) -> multiprocessing.process.BaseProcess:
        seed = self._chance.random()
        given = (self._service.socket, ROLES[index], self._counts[index], self._shares[index], seed)
        client = self._fork.Process(target=pester, args=given)
        client.start()
        return client

    def _kill(self, index: int) -> None:
        client = self._clients.pop(index, None)
        if client is not None:
            self.kills += client.is_alive()
            client.kill()
            client.join()


def pester(path: Path, uid: int, counts: Array[c_longlong], share: int, seed: float) -> None:
    """One client, until its share of messages is sent."""
    if uid:
        os.setgroups([])
        os.setgid(pwd.getpwuid(uid).pw_gid)
        os.setuid(uid)
    chance = random.Random(seed)
    while counts[SENT] < share:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(1.0)
            line.connect(str(path))
            if b"ready" not in line.recv(1 << 12):
                counts[SHUT_OUT] += 1
                counts[SENT] += 1
                continue
            _talk(line, chance, counts)


def _talk(line: socket.socket, chance: random.Random, counts: Array[c_longlong]) -> None:
    holds = ["1"]
    for _ in range(chance.randint(1, 200)):
        message = _message(chance, holds)
        counts[SENT] += 1
        line.sendall(message)
        manners = chance.random()
        if manners < 0.02:  # half a message, and no more
            line.sendall(b'{"kind": "lease", "wanted"')
            return
        if manners < 0.04:
            line.shutdown(socket.SHUT_WR)
        elif manners < 0.3:  # does not listen
            continue
        answer = line.recv(1 << 16)
        holds += re.findall(r'"hold": "(\d+)"', answer.decode())
        counts[LEASED] += answer.count(b'"leased"')
        counts[REFUSED] += answer.count(b'"refused"')
        if not answer:
            return


def _message(chance: random.Random, holds: list[str]) -> bytes:
    kind = chance.random()
    if kind < 0.5:
        return _valid(chance, holds)
    if kind < 0.8:
        return _mutated(_valid(chance, holds), chance)
    if kind < 0.99:
        return chance.randbytes(chance.randint(0, 300)) + b"\n"
    return b"[" * chance.choice([1 << 10, 1 << 14, 1 << 16]) + b"\n"


def _valid(chance: random.Random, holds: list[str]) -> bytes:
    if chance.random() < 0.4:
        return json.dumps({"kind": "release", "hold": chance.choice(holds)}).encode() + b"\n"
    devices = chance.sample(["gpu0", "gpu1", "gpu2", "gpu3", "gpu9"], chance.choice([1, 1, 2]))
    wanted = [{"device": device, "settings": _settings(chance)} for device in devices]
    result = {"kind": "lease", "wanted": wanted, "force": chance.random() < 0.8}
    return json.dumps(result).encode() + b"\n"


def _settings(chance: random.Random) -> dict[str, float]:
    limits_w = [210, 220, 239.5, 180, 155, 251, 300, -1, 1e9]
    settings: dict[str, float] = {"power_limit_w": chance.choice(limits_w)}
    if chance.random() < 0.3:
        settings["sm_clock_mhz"] = chance.choice([135, 907, 1005, 1380, 1530])
    return settings


def _mutated(message: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(message) + 1)
        new = chance.choice([b"", chance.randbytes(1), chance.randbytes(1)])
        message = message[:at] + new + message[at + chance.choice([0, 1, 8]) :]
    return message + (b"" if chance.random() < 0.1 else b"\n")


def until(holds: Callable[[], bool], what: str) -> float:
    """How long it took to come true."""
    began_s = time.monotonic()
    while not holds():
        if time.monotonic() - began_s > DEADLINE_S:
            raise SystemExit(f"it never came true that {what}")
        time.sleep(0.01)
    return time.monotonic() - began_s


if __name__ == "__main__":
    sys.exit(main())
