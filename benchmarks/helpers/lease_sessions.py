"""Whoever holds leases in a round of kills, and the simulated GPUs whose settings they change."""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pynvml

from helpers.kill_rounds import (
    DEADLINE_S,
    GUARDIAN,
    MARK,
    LeftError,
    ended,
    kill,
    kill_all,
    marked,
    until,
    words,
)
from joulewise.process.linux import parent_pid
from joulewise.simulate.model import ControlSettings
from joulewise.simulate.nvml.shared_memory import SharedGpuMemory

BOARDS = "v100x3,a100"  # the last has a memory clock that can be locked
GPUS = 4
RESTORED_S = 2.0
HOLD_S = 0.7
HOLDER = f"""
import ctypes, multiprocessing, os, signal, sys, time
from contextlib import nullcontext
from joulewise import control
from joulewise.simulate.nvml.shared_memory import SharedGpuMemory

def nap():
    time.sleep({DEADLINE_S})

def clock(mhz):
    return {{"sm_clock_mhz": mhz}} if "clock" in sys.argv else {{}}

child = multiprocessing.get_context("fork").Process(target=nap, daemon=True)
child.start()
print(child.pid, flush=True)
with control.lease(["gpu0", "gpu1", "gpu2"], power_limit_w=211, **clock(900)):
    # As a library written in C forks: nobody closes its end of the line to the guardian.
    if ctypes.PyDLL(None).fork() == 0:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        nap()
        os._exit(0)
    with (
        control.lease(["gpu2", "gpu3"], power_limit_w=177, **clock(1005)),
        control.lease("gpu3", mem_clock_mhz=1215) if clock(0) else nullcontext(),
    ):
        time.sleep({HOLD_S})
    # What was locked before is nowhere but in the journal.
    controls = SharedGpuMemory.open(os.environ["JOULEWISE_SIM"]).controls(2)
    wanted = ((900, 900) if clock(0) else None, 211)
    print("inner ended", (controls.sm_lock_mhz, controls.limit_w) == wanted, flush=True)
"""
NAP = f"import time; time.sleep({2 * HOLD_S})"
RUN = ["-m", "joulewise", "run", "--no-hooks", "--power-limit", "211", "--", sys.executable]


class Gpus:
    """The simulated GPUs, whose locks NVML does not tell: the simulator's own memory does."""

    def __init__(self) -> None:
        pynvml.nvmlInit()
        self._shared = SharedGpuMemory.open(os.environ["JOULEWISE_SIM"])

    def start(self, chance: random.Random) -> list[ControlSettings]:
        """Limits that are nobody's default, another one on each GPU."""
        for gpu, limit_w in enumerate(chance.sample(range(225, 299), GPUS)):
            handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)
            pynvml.nvmlDeviceSetPowerManagementLimit(handle, limit_w * 1000)
        return self.now()

    def now(self) -> list[ControlSettings]:
        return [self._shared.controls(gpu) for gpu in range(GPUS)]

    def unlock(self) -> None:
        """What a failed round has left locked, the next must not meet."""
        for gpu in range(GPUS):
            pynvml.nvmlDeviceResetGpuLockedClocks(pynvml.nvmlDeviceGetHandleByIndex(gpu))
        pynvml.nvmlDeviceResetMemoryLockedClocks(pynvml.nvmlDeviceGetHandleByIndex(GPUS - 1))


@dataclass(frozen=True)
class Session:
    """A shell, its holder, the holder's children and their guardian, before they are killed."""

    shell: subprocess.Popen[str]
    environ: dict[str, str]
    is_run: bool

    @classmethod
    @contextmanager
    def begun(
        cls,
        state: Path,
        stop_at: str | None,
        *program: str,
        more: Mapping[str, str] | None = None,
    ) -> Iterator[Session]:
        """Everyone of it is gone after the block."""
        environ = {**os.environ, **(more or {}), MARK: secrets.token_hex(8)}
        environ |= {"JOULEWISE_STATE": str(state), "JOULEWISE_STORE": str(state / "runs")}
        stopping = {"JOULEWISE_TEST_KILL_AT": f"{stop_at}:STOP"} if stop_at else {}
        shell = subprocess.Popen(
            ["sh", "-c", '"$@"; :', "sh", sys.executable, *program],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**environ, **stopping},
            start_new_session=True,
        )
        assert shell.stdout is not None
        try:
            yield cls(shell, environ, is_run=program[:3] == tuple(RUN[:3]))
        finally:
            kill_all(environ[MARK])
            shell.kill()
            shell.wait()
            shell.stdout.close()

    @cached_property
    def holder(self) -> int:
        until(lambda: bool(self._children(self.shell.pid)), "the shell has started it")
        return self._children(self.shell.pid)[0]

    @cached_property
    def child(self) -> int:
        """The holder tells which it is; of a run it is the command, while there is one."""
        if self.is_run:
            return next((pid for pid in self._children(self.holder) if NAP in words(pid)), 0)
        assert self.shell.stdout is not None
        return int(self.shell.stdout.readline())

    def guardian(self) -> int | None:
        return next((pid for pid in marked(self.environ[MARK]) if GUARDIAN in words(pid)), None)

    def kill(self, victims: Sequence[str], number: signal.Signals) -> None:
        if "group" in victims:
            os.killpg(self.shell.pid, number)
            return
        pids = {"parent": self.shell.pid, "holder": self.holder, "child": self.child}
        pids["guardian"] = self.guardian() or 0
        everyone = marked(self.environ[MARK])
        chosen = everyone if "all" in victims else [pids[each] for each in victims]
        for pid in chosen:  # stopped first, so that all die at one moment
            kill(pid, signal.SIGSTOP if len(chosen) > 1 and number == signal.SIGKILL else 0)
        for pid in chosen:
            kill(pid, number)

    def check_inner(self) -> None:
        """What the holder has seen when its inner leases ended, if it came so far."""
        assert self.shell.stdout is not None
        if "inner ended False" in self.shell.stdout.read():
            raise LeftError("an inner lease did not go back to the outer one")

    def _children(self, pid: int) -> list[int]:
        return [each for each in marked(self.environ[MARK]) if parent_pid(each) == pid]


@contextmanager
def service(folder: Path, stop_at: str | None) -> Iterator[subprocess.Popen[bytes]]:
    address = folder / "guard.sock"
    stopping = {"JOULEWISE_TEST_KILL_AT": f"{stop_at}:STOP"} if stop_at else {}
    process = subprocess.Popen(
        [sys.executable, "-m", "joulewise", "guard", "--socket", str(address), "--group", "root"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **stopping, "JOULEWISE_STATE": str(folder / "state")},
    )
    try:
        until(address.exists, "the service listens")
        yield process
        process.terminate()
        process.wait(DEADLINE_S)
    finally:
        process.kill()
        process.wait()


def settled_s(gpus: Gpus, begin: list[ControlSettings], session: Session, killed_s: float) -> float:
    """When a control was last seen to differ from before, until nobody is left who may change one.

    Where the holder lives on, the time counts from its own end.
    """
    last_s = killed_s
    deadline_s = killed_s + DEADLINE_S
    while True:
        is_over = ended(session.holder) and session.guardian() is None
        now, now_s = gpus.now(), time.monotonic()
        if not ended(session.holder):
            killed_s = last_s = now_s  # it has lived on, and ends by itself
        elif now != begin:
            last_s = now_s
        if last_s - killed_s > RESTORED_S or now_s > deadline_s or (is_over and now != begin):
            wrong = (
                f"gpu{i} {a} was {b}"
                for i, (a, b) in enumerate(zip(now, begin, strict=True))
                if a != b
            )
            raise LeftError(f"after {now_s - killed_s:.1f} s: {'; '.join(wrong)}")
        if is_over:
            return last_s - killed_s
        time.sleep(0.005)
