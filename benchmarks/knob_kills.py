"""Kills whoever holds leases, by all means and at all moments, and looks at every knob after.

A shell starts a holder, the holder starts children and takes leases of several simulated GPUs
whose limits are not the defaults. Then a random one or two of shell, holder and child get SIGKILL,
SIGTERM or SIGINT, or their whole process group does, half of the time at a random moment, half
while the guardian stands still at a named point of its own. Within 2 s every knob of every GPU is
what it was. The harder rounds kill the guardian, too: there the next command, the next lease, or
the service puts back.

    python benchmarks/knob_kills.py --rounds 200
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pynvml

from joulewise.command.alive import stat_fields
from joulewise.simulate.client import available
from joulewise.simulate.model import Knobs
from joulewise.simulate.nvml.shared import Shared

GPUS = 4
RESTORED_S = 2.0
DEADLINE_S = 60.0
HOLD_S = 0.7
MARK = "JOULEWISE_KNOB_ROUND"
GUARDIAN = "joulewise.control.guardian_process"
POINTS = ("after-journal", "before-set", "in-restore")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
VICTIMS = (
    *(("holder",), ("parent",), ("child",)),
    *(("holder", "parent"), ("holder", "child"), ("parent", "child")),
    ("group",),
)
# What the holder turns: an outer lease and, on top of it, an inner one.
CHANGES = {"after-journal": 2, "before-set": 7, "in-restore": 7}
HOLDER = f"""
import ctypes, multiprocessing, os, signal, sys, time
from joulewise import control

def nap():
    time.sleep({DEADLINE_S})

child = multiprocessing.get_context("fork").Process(target=nap, daemon=True)
child.start()
print(os.getppid(), os.getpid(), child.pid, flush=True)
clock = {{"sm_clock_mhz": 1005}} if "clock" in sys.argv else {{}}
with control.lease(["gpu0", "gpu1", "gpu2"], power_limit_w=211):
    # As a library written in C forks: nobody closes its end of the line to the guardian.
    if ctypes.PyDLL(None).fork() == 0:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        nap()
        os._exit(0)
    with control.lease(["gpu2", "gpu3"], power_limit_w=177, **clock):
        time.sleep({HOLD_S})
"""
LEASE = """
from joulewise import control
control.lease("gpu1", power_limit_w=222).release()
"""
NEXT = {
    "joulewise ls": ["-m", "joulewise", "ls"],
    "a new lease": ["-c", LEASE],
    "joulewise restore": ["-m", "joulewise", "restore"],
}


class LeftError(Exception):
    """A knob that is not what it was."""


@dataclass(frozen=True)
class Kind:
    """What a round does; ``after`` is who puts back where the guardian is killed as well."""

    name: str
    victims: tuple[str, ...]
    after: str | None = None


SPARED = [Kind(" and ".join(victims), victims) for victims in VICTIMS]
HARDER = [
    Kind(f"{name}, then {after}", victims, after)
    for name, victims in (
        ("holder and guardian", ("holder", "guardian")),
        ("all at once", ("all",)),
    )
    for after in NEXT
]
SERVICE = Kind("all at once, then the service", ("all",), "the service")


class Gpus:
    """The simulated GPUs, whose locks NVML does not tell: the simulator's own memory does."""

    def __init__(self) -> None:
        pynvml.nvmlInit()
        self._shared = Shared.open(os.environ["JOULEWISE_SIM"])

    def start(self, chance: random.Random) -> list[Knobs]:
        """Limits that are nobody's default, another one on each GPU."""
        for gpu, limit_w in enumerate(chance.sample(range(225, 299), GPUS)):
            handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)
            pynvml.nvmlDeviceSetPowerManagementLimit(handle, limit_w * 1000)
        return self.now()

    def now(self) -> list[Knobs]:
        return [self._shared.knobs(gpu) for gpu in range(GPUS)]

    def unlock(self) -> None:
        """What a failed round has left locked, the next must not meet."""
        for gpu in range(GPUS):
            pynvml.nvmlDeviceResetGpuLockedClocks(pynvml.nvmlDeviceGetHandleByIndex(gpu))


@dataclass(frozen=True)
class Session:
    """A shell, its holder, the holder's children and their guardian, before they are killed."""

    token: str
    parent: int
    holder: int
    child: int
    environ: dict[str, str]

    @classmethod
    @contextmanager
    def begun(
        cls,
        state: Path,
        stop_at: str | None,
        *arguments: str,
        more: Mapping[str, str] | None = None,
    ) -> Iterator[Session]:
        """Everyone of it is gone after the block."""
        environ = {**os.environ, **(more or {}), MARK: secrets.token_hex(8)}
        environ["JOULEWISE_STATE"] = str(state)
        stopping = {"JOULEWISE_TEST_KILL_AT": f"{stop_at}:STOP"} if stop_at else {}
        shell = subprocess.Popen(
            ["sh", "-c", '"$@"; :', "sh", sys.executable, "-c", HOLDER, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**environ, **stopping},
            start_new_session=True,
        )
        assert shell.stdout is not None
        try:
            parent, holder, child = map(int, shell.stdout.readline().split())
            yield cls(environ[MARK], parent, holder, child, environ)
        finally:
            for pid in marked(environ[MARK]):
                kill(pid, signal.SIGKILL)
            shell.kill()
            shell.wait()
            shell.stdout.close()

    def guardian(self) -> int | None:
        return next((pid for pid in marked(self.token) if GUARDIAN in words(pid)), None)

    def kill(self, victims: Sequence[str], number: signal.Signals) -> None:
        if "group" in victims:
            os.killpg(self.parent, number)
            return
        pids = {"parent": self.parent, "holder": self.holder, "child": self.child}
        pids["guardian"] = self.guardian() or 0
        chosen = marked(self.token) if "all" in victims else [pids[each] for each in victims]
        for pid in chosen:  # stopped first, so that all die at one moment
            kill(pid, signal.SIGSTOP if len(chosen) > 1 and number == signal.SIGKILL else 0)
        for pid in chosen:
            kill(pid, number)


@dataclass(frozen=True)
class Result:
    """Whether a knob was turned at the kill, and after how long all were back; None if never."""

    was_turned: bool
    restored_s: float | None


def play(gpus: Gpus, kind: Kind, chance: random.Random, point: str | None) -> Result:
    begin = gpus.start(chance)
    number = signal.SIGKILL if kind.after else chance.choice(SIGNALS)
    clock = ["clock"] if chance.random() < 0.5 else []
    most = CHANGES.get(point or "", 0) - (2 if not clock and point != "after-journal" else 0)
    stop_at = f"{point}:{chance.randint(1, most)}" if point else None
    with (
        tempfile.TemporaryDirectory() as state,
        Session.begun(Path(state), stop_at, *clock) as session,
    ):
        if stop_at:
            until(lambda: is_stopped(session.guardian()), f"the guardian is at {stop_at}")
        else:
            time.sleep(chance.uniform(0, 1.8))
        session.kill(kind.victims, number)
        killed_s = time.monotonic()
        was_turned = gpus.now() != begin
        if not kind.after:
            kill(session.guardian() or 0, signal.SIGCONT)
        else:
            until(lambda: session.guardian() is None, "the guardian has ended")
            subprocess.run(
                [sys.executable, *NEXT[kind.after]],
                env=session.environ,
                capture_output=True,
                check=False,
            )
            killed_s = time.monotonic()
        try:
            return Result(was_turned, settled_s(gpus, begin, session, killed_s))
        except LeftError as error:
            print(f"FAILED: {kind.name} {stop_at or 'at a random moment'}: {error}", flush=True)
            return Result(was_turned, None)


def play_with_service(gpus: Gpus, chance: random.Random) -> Result:
    """A holder under a scheduler, whose leases are the service's: everyone else is killed."""
    begin = gpus.start(chance)
    with tempfile.TemporaryDirectory() as folder, service(Path(folder)) as address:
        joined = {"JOULEWISE_GUARD": address, "SLURM_JOB_ID": "1"}
        with Session.begun(Path(folder, "job"), None, more=joined) as session:
            time.sleep(chance.uniform(0, 1.2))
            session.kill(SERVICE.victims, signal.SIGKILL)
            killed_s = time.monotonic()
            was_turned = gpus.now() != begin
            while gpus.now() != begin and time.monotonic() < killed_s + RESTORED_S:
                time.sleep(0.005)
            restored_s = time.monotonic() - killed_s
    is_well = gpus.now() == begin and restored_s < RESTORED_S  # also after the service has ended
    if not is_well:
        print(f"FAILED: {SERVICE.name}: {gpus.now()} was {begin}", flush=True)
    return Result(was_turned, restored_s if is_well else None)


@contextmanager
def service(folder: Path) -> Iterator[str]:
    address = folder / "guard.sock"
    process = subprocess.Popen(
        [sys.executable, "-m", "joulewise", "guard", "--socket", str(address), "--group", "root"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "JOULEWISE_STATE": str(folder / "state")},
    )
    try:
        until(address.exists, "the service listens")
        yield str(address)
        process.terminate()
        process.wait(DEADLINE_S)
    finally:
        process.kill()
        process.wait()


def settled_s(gpus: Gpus, begin: list[Knobs], session: Session, killed_s: float) -> float:
    """When a knob was last seen that is not as it was, until nobody is left who might turn one.

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


def marked(token: str) -> list[int]:
    """Everyone who has inherited the round's mark, and lives."""
    needle = f"{MARK}={token}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and not ended(int(entry.name)):
            try:
                environ = Path(entry.path, "environ").read_bytes()
            except OSError:
                continue
            if needle in environ:
                found.append(int(entry.name))
    return found


def words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def is_stopped(pid: int | None) -> bool:
    return pid is not None and state(pid) == "T"


def ended(pid: int) -> bool:
    return state(pid) == "Z"


def state(pid: int) -> str:
    fields = stat_fields(pid)
    return fields[0] if fields else "Z"


def kill(pid: int, number: int) -> None:
    if pid and not ended(pid):
        os.kill(pid, number)


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise LeftError(f"waited in vain until {what}")
        time.sleep(0.005)


def rounds(count: int) -> Iterator[tuple[Kind, str | None]]:
    """Kinds in turn, each at a random moment and at a point as often."""
    for number in range(count):
        kind = SPARED[number // 2 % len(SPARED)]
        yield kind, POINTS[number // 2 % len(POINTS)] if number % 2 else None


def harder(count: int) -> Iterator[tuple[Kind, str | None]]:
    for number in range(count):
        kind = HARDER[number % len(HARDER)]
        yield kind, (None, *POINTS)[number // len(HARDER) % (1 + len(POINTS))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--harder", type=int, default=48, help="rounds that kill the guardian")
    parser.add_argument("--service", type=int, default=10, help="rounds with the service")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if not available():
        sim = ["-m", "joulewise", "sim", "--gpu", f"v100x{GPUS}"]
        os.execv(sys.executable, [sys.executable, *sim, "--", sys.executable, *sys.argv])
    chance = random.Random(arguments.seed)
    gpus = Gpus()
    results: dict[str, list[Result]] = {}
    for kind, point in [*rounds(arguments.rounds), *harder(arguments.harder)]:
        gpus.unlock()
        results.setdefault(kind.name, []).append(play(gpus, kind, chance, point))
    for _ in range(arguments.service):
        gpus.unlock()
        results.setdefault(SERVICE.name, []).append(play_with_service(gpus, chance))
    print(f"{'killed':44} {'rounds':>6} {'turned':>6} {'restored':>8} {'worst':>8}")
    for name, of_kind in results.items():
        times_s = [each.restored_s for each in of_kind if each.restored_s is not None]
        turned = sum(each.was_turned for each in of_kind)
        worst = f"{1000 * max(times_s):.0f} ms" if times_s else "-"
        print(f"{name:44} {len(of_kind):6} {turned:6} {len(times_s):8} {worst:>8}")
    everything = [each for of_kind in results.values() for each in of_kind]
    well = sum(each.restored_s is not None for each in everything)
    print(f"{well} of {len(everything)} restored")
    sys.exit(well < len(everything))


if __name__ == "__main__":
    main()
