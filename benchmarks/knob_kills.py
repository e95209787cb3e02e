"""Kills whoever holds leases, by all means and at all moments, and looks at every knob after.

A shell starts a holder, the holder starts children and takes leases of several simulated GPUs
whose limits are not the defaults: of limits, of clocks on top of clocks, and of a memory clock; or
it is a `joulewise run --power-limit`. Then a random one or two of shell, holder and child get
SIGKILL, SIGTERM or SIGINT, or their whole process group does, half of the time at a random
moment, half while the guardian stands still at a named point of its own. Within 2 s every knob of
every GPU is what it was. The harder rounds kill the guardian, too: there the next command, the next
lease, or the service puts back. A kill before anything was turned shows little, so enough of them
must have met something turned.

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
from functools import cached_property
from pathlib import Path

import pynvml

from joulewise.command.alive import parent, stat_fields
from joulewise.simulate.client import available
from joulewise.simulate.model import Knobs
from joulewise.simulate.nvml.shared import Shared

BOARDS = "v100x3,a100"  # the last has a memory clock that can be locked
GPUS = 4
RESTORED_S = 2.0
DEADLINE_S = 60.0
HOLD_S = 0.7
MOMENTS_S, RUN_MOMENTS_S = (0.0, 1.4), (0.3, 3.5)
LEAST_TURNED = 0.4  # of all rounds
MARK = "JOULEWISE_KNOB_ROUND"
GUARDIAN = "joulewise.control.guardian_process"
POINTS = ("after-journal", "before-set", "in-restore")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
VICTIMS = (
    *(("holder",), ("parent",), ("child",)),
    *(("holder", "parent"), ("holder", "child"), ("parent", "child")),
    ("group",),
)
# How often the holder passes each point, without clocks and with them.
PASSES = {"after-journal": (2, 3), "before-set": (5, 11), "in-restore": (5, 11)}
RUN_PASSES = {"after-journal": 1, "before-set": GPUS, "in-restore": GPUS}
HOLDER = f"""
import ctypes, multiprocessing, os, signal, sys, time
from contextlib import nullcontext
from joulewise import control
from joulewise.simulate.nvml.shared import Shared

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
    knobs = Shared.open(os.environ["JOULEWISE_SIM"]).knobs(2)
    wanted = ((900, 900) if clock(0) else None, 211)
    print("inner ended", (knobs.sm_lock_mhz, knobs.limit_w) == wanted, flush=True)
"""
NAP = f"import time; time.sleep({2 * HOLD_S})"
RUN = ["-m", "joulewise", "run", "--no-hooks", "--power-limit", "211", "--", sys.executable]
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
    is_run: bool = False


SPARED = [Kind(" and ".join(victims), victims) for victims in VICTIMS]
RUNS = [Kind(f"run: {kind.name}", kind.victims, is_run=True) for kind in SPARED]
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
        return [each for each in marked(self.environ[MARK]) if parent(each) == pid]


@dataclass(frozen=True)
class Result:
    """Whether a knob was turned at the kill, and after how long all were back; None if never."""

    was_turned: bool
    restored_s: float | None


def play(gpus: Gpus, kind: Kind, chance: random.Random, point: str | None) -> Result:
    begin = gpus.start(chance)
    number = signal.SIGKILL if kind.after else chance.choice(SIGNALS)
    clock = chance.random() < 0.5 and not kind.is_run
    program = [*RUN, "-c", NAP] if kind.is_run else ["-c", HOLDER, *(["clock"] if clock else [])]
    stop_at = None
    if point:
        most = RUN_PASSES[point] if kind.is_run else PASSES[point][clock]
        stop_at = f"{point}:{chance.randint(1, most)}"
    with (
        tempfile.TemporaryDirectory() as state,
        Session.begun(Path(state), stop_at, *program) as session,
    ):
        _ = session.holder, kind.is_run or session.child  # they are there
        if stop_at:
            until(lambda: is_stopped(session.guardian()), f"the guardian is at {stop_at}")
        else:
            time.sleep(chance.uniform(*(RUN_MOMENTS_S if kind.is_run else MOMENTS_S)))
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
            restored_s = settled_s(gpus, begin, session, killed_s)
            kill_all(session.environ[MARK])
            session.check_inner()
            return Result(was_turned, restored_s)
        except LeftError as error:
            print(f"FAILED: {kind.name} {stop_at or 'at a random moment'}: {error}", flush=True)
            return Result(was_turned, None)


def play_with_service(gpus: Gpus, chance: random.Random, point: str | None) -> Result:
    """A holder under a scheduler, whose leases are the service's: everyone else is killed."""
    begin = gpus.start(chance)
    stop_at = f"{point}:{chance.randint(1, PASSES[point][1])}" if point else None
    with tempfile.TemporaryDirectory() as folder, service(Path(folder), stop_at) as running:
        joined = {"JOULEWISE_GUARD": f"{folder}/guard.sock", "SLURM_JOB_ID": "1"}
        program = ["-c", HOLDER, "clock"]
        with Session.begun(Path(folder, "job"), None, *program, more=joined) as session:
            _ = session.holder, session.child
            if stop_at:
                until(lambda: is_stopped(running.pid), f"the service is at {stop_at}")
            else:
                time.sleep(chance.uniform(*MOMENTS_S))
            session.kill(SERVICE.victims, signal.SIGKILL)
            was_turned = gpus.now() != begin
            running.send_signal(signal.SIGCONT)
            killed_s = time.monotonic()
            while gpus.now() != begin and time.monotonic() < killed_s + RESTORED_S:
                time.sleep(0.005)
            restored_s = time.monotonic() - killed_s
    is_well = gpus.now() == begin and restored_s < RESTORED_S  # also after the service has ended
    if not is_well:
        print(f"FAILED: {SERVICE.name} {stop_at or ''}: {gpus.now()} was {begin}", flush=True)
    return Result(was_turned, restored_s if is_well else None)


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


def kill_all(token: str) -> None:
    for pid in marked(token):
        kill(pid, signal.SIGKILL)


def kill(pid: int, number: int) -> None:
    if pid and not ended(pid):
        os.kill(pid, number)


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise LeftError(f"waited in vain until {what}")
        time.sleep(0.005)


def rounds(
    kinds: Sequence[Kind], count: int, chance: random.Random
) -> Iterator[tuple[Kind, str | None]]:
    """Kinds in turn, of which there is an odd number, so that each meets moments and points."""
    mixed = chance.sample(kinds, len(kinds))
    for number in range(count):
        point = POINTS[number // 2 % len(POINTS)] if number % 2 else None
        yield mixed[number % len(mixed)], point


def harder(count: int) -> Iterator[tuple[Kind, str | None]]:
    for number in range(count):
        kind = HARDER[number % len(HARDER)]
        yield kind, (None, *POINTS)[number // len(HARDER) % (1 + len(POINTS))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--harder", type=int, default=48, help="rounds that kill the guardian")
    parser.add_argument("--runs", type=int, default=28, help="rounds with `joulewise run`")
    parser.add_argument("--service", type=int, default=16, help="rounds with the service")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if not available():
        sim = ["-m", "joulewise", "sim", "--gpu", BOARDS]
        os.execv(sys.executable, [sys.executable, *sim, "--", sys.executable, *sys.argv])
    chance = random.Random(arguments.seed)
    gpus = Gpus()
    results: dict[str, list[Result]] = {}
    spared = rounds(SPARED, arguments.rounds, chance)
    runs = rounds(RUNS, arguments.runs, chance)
    for kind, point in [*spared, *runs, *harder(arguments.harder)]:
        gpus.unlock()
        results.setdefault(kind.name, []).append(play(gpus, kind, chance, point))
    for number in range(arguments.service):
        gpus.unlock()
        point = (None, *POINTS)[number % (1 + len(POINTS))]
        results.setdefault(SERVICE.name, []).append(play_with_service(gpus, chance, point))
    print(f"{'killed':44} {'rounds':>6} {'turned':>6} {'restored':>8} {'worst':>8}")
    for name, of_kind in results.items():
        times_s = [each.restored_s for each in of_kind if each.restored_s is not None]
        turned = sum(each.was_turned for each in of_kind)
        worst = f"{1000 * max(times_s):.0f} ms" if times_s else "-"
        print(f"{name:44} {len(of_kind):6} {turned:6} {len(times_s):8} {worst:>8}")
    everything = [each for of_kind in results.values() for each in of_kind]
    well = sum(each.restored_s is not None for each in everything)
    print(f"{well} of {len(everything)} restored")
    turned = sum(each.was_turned for each in everything)
    if turned < LEAST_TURNED * len(everything):
        print(f"only {turned} kills met anything turned: that shows too little")
        sys.exit(1)
    sys.exit(well < len(everything))


if __name__ == "__main__":
    main()
