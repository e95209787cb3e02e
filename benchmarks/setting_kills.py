"""Kills whoever holds leases, by all means and at all moments, and looks at every control after.

A shell starts a holder, the holder starts children and takes leases of several simulated GPUs
whose limits are not the defaults: of limits, of clocks on top of clocks, and of a memory clock; or
it is a `joulewise run --power-limit`. Then a random one or two of shell, holder and child get
SIGKILL, SIGTERM or SIGINT, or their whole process group does, half of the time at a random
moment, half while the guardian stands still at a named point of its own. Within 2 s every control
of every GPU is as before. Harder rounds kill the guardian, too: there the next command, the next
lease, or the service puts back. A kill before anything was changed shows little, so enough of them
must have met a changed setting.

    python benchmarks/setting_kills.py --rounds 200
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.kill_rounds import MARK, LeftError, is_stopped, kill, kill_all, until
from helpers.lease_sessions import (
    BOARDS,
    GPUS,
    HOLDER,
    NAP,
    RESTORED_S,
    RUN,
    Gpus,
    Session,
    service,
    settled_s,
)

from joulewise.simulate.client import available

MOMENTS_S, RUN_MOMENTS_S = (0.0, 1.4), (0.3, 3.5)
LEAST_CHANGED = 0.4  # of all rounds
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
LEASE = """
from joulewise import control
control.lease("gpu1", power_limit_w=222).release()
"""
NEXT = {
    "joulewise ls": ["-m", "joulewise", "ls"],
    "a new lease": ["-c", LEASE],
    "joulewise restore": ["-m", "joulewise", "restore"],
}


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


@dataclass(frozen=True)
class Result:
    """Whether a control had changed at the kill; how long until all were back, None if never."""

    was_changed: bool
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
        was_changed = gpus.now() != begin
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
            return Result(was_changed, restored_s)
        except LeftError as error:
            print(f"FAILED: {kind.name} {stop_at or 'at a random moment'}: {error}", flush=True)
            return Result(was_changed, None)


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
            was_changed = gpus.now() != begin
            running.send_signal(signal.SIGCONT)
            killed_s = time.monotonic()
            while gpus.now() != begin and time.monotonic() < killed_s + RESTORED_S:
                time.sleep(0.005)
            restored_s = time.monotonic() - killed_s
    is_well = gpus.now() == begin and restored_s < RESTORED_S  # also after the service has ended
    if not is_well:
        print(f"FAILED: {SERVICE.name} {stop_at or ''}: {gpus.now()} was {begin}", flush=True)
    return Result(was_changed, restored_s if is_well else None)


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
        sim = ["-m", "joulewise", "sim", "--gpu", BOARDS, "--as-root"]
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
    print(f"{'killed':44} {'rounds':>6} {'changed':>7} {'restored':>8} {'worst':>8}")
    for name, of_kind in results.items():
        times_s = [each.restored_s for each in of_kind if each.restored_s is not None]
        changed = sum(each.was_changed for each in of_kind)
        worst = f"{1000 * max(times_s):.0f} ms" if times_s else "-"
        print(f"{name:44} {len(of_kind):6} {changed:7} {len(times_s):8} {worst:>8}")
    everything = [each for of_kind in results.values() for each in of_kind]
    well = sum(each.restored_s is not None for each in everything)
    print(f"{well} of {len(everything)} restored")
    changed = sum(each.was_changed for each in everything)
    if changed < LEAST_CHANGED * len(everything):
        print(f"only {changed} kills met anything changed: that shows too little")
        sys.exit(1)
    sys.exit(well < len(everything))


if __name__ == "__main__":
    main()
