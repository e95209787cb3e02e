"""Kills workers that share one recurring job, and looks whether the store has the truth.

Many processes recur one job at once, on SQLite and on a real PostgreSQL. Each takes a recurrence,
asks for a try, renews its lease, and tells of the outcome, sometimes twice, sometimes only after
its lease is over. Meanwhile workers are killed by SIGKILL at random moments and replaced, and
others are stopped for longer than a lease, to go on as if nothing had been. The policy of the job
keeps the account of all it is told.

In the end: every outcome that a worker saw accepted is stored as it was told, none is stored twice,
none that nobody told; the policy was told of each exactly once and of nothing else; nothing is
left running, no worker printed anything, no worker hangs.

    python benchmarks/job_store.py --recurrences 1500
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import helpers  # noqa: F401 - makes tests/ importable

from joulewise.data.jobs import (
    JobDefinition,
    JobHistory,
    JobTarget,
    TryOutcome,
    TryStatus,
)
from joulewise.optimise.recurring.store import open_job_store
from tests.helpers.ledger_policy import LedgerFactory
from tests.helpers.postgresql import missing, postgres_server

JOB = JobDefinition(
    "nightly", "batch_size", (8, 16, 32, 64), 32, JobTarget.parse("val_acc>=0.65"), 100, 0.5, "-", 1
)
GPU_TYPE = "Tesla V100-PCIE-16GB"
LEASE_S = 2.0
"""Chosen: shorter than a worker that is stopped is away, longer than a transaction. Doubled: fewer
tries expire in the same time."""
STOPPED_S = 1.5 * LEASE_S
KILL_EVERY_CALLS = 20
"""Mean number of calls of the store, by all workers, between two kills. Chosen: about every fourth
try loses its worker, however fast the machine is. Doubled: half as many kills."""
STUCK_S = 300.0  # without a call that returned; chosen, as the patience of the store
_ENDS = (TryStatus.REACHED,) * 5 + (
    TryStatus.MISSED,
    TryStatus.STOPPED_EARLY,
    TryStatus.CRASHED,
    TryStatus.FAILED,
)


class Journal:
    """What a worker did, a line each, written at once: it survives the worker."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def add(self, *words: object) -> None:
        os.write(self._descriptor, (json.dumps(words) + "\n").encode())


@dataclass(frozen=True)
class Account:
    """What all workers together did, from their journals.

    ``intended`` has the outcome of each try that a worker was about to tell of, ``accepted`` the
    keys of those whose outcome was taken, once for each time.
    """

    started: set[str]
    intended: dict[str, list[object]]
    accepted: Counter[str]
    slowest_s: float


def work(address: str, folder: Path, seed: int, recurrences: int, calls: int) -> None:
    """Recur the job until there were so many recurrences; a byte to ``calls`` for each call."""
    chance = random.Random(seed)
    journal = Journal(folder / f"{os.getpid()}.jsonl")
    store = open_job_store(address, warn=lambda text: print(text, file=sys.stderr))
    host = f"host{seed % 4}"

    def timed(call, *args, **kwargs):  # noqa: ANN001, ANN002, ANN003, ANN202
        start_s = time.monotonic()
        result = call(*args, **kwargs)
        journal.add("took", time.monotonic() - start_s)
        os.write(calls, b".")
        return result

    while True:
        store.define(JOB)
        number = timed(store.begin_recurrence, JOB.name, GPU_TYPE, max_power_w=250.0, host=host)
        if number > recurrences:
            return
        for _ in range(chance.choice([1, 1, 1, 2])):
            job_try = timed(
                store.ask, JOB.name, number, GPU_TYPE,
                host=host, factory=LedgerFactory(), lease_s=LEASE_S,
            )  # fmt: skip
            journal.add("started", job_try.key)
            time.sleep(chance.uniform(0.0, 0.05))
            timed(store.renew, job_try.key, LEASE_S)
            if chance.random() < 0.02:  # its host is away, and tells after its lease
                time.sleep(1.1 * LEASE_S)
            status = chance.choice(_ENDS)
            outcome = TryOutcome(status, chance.randint(1, 99), chance.random(), chance.random())
            journal.add("intended", job_try.key, status.value, outcome.epochs, outcome.cost)
            for _ in range(chance.choice([1, 1, 1, 2])):
                if timed(store.tell, job_try.key, outcome):
                    journal.add("accepted", job_try.key)


@dataclass
class Fleet:
    """The workers of one database, and what became of them."""

    address: str
    folder: Path
    recurrences: int
    seed: int
    alive: set[int] = field(default_factory=set)
    stopped: dict[int, float] = field(default_factory=dict)  # until when
    kills: int = 0
    stops: int = 0
    failed: int = 0
    stuck: int = 0
    seconds: float = 0.0
    _calls: int = -1
    _forks: int = 0

    def run(self, count: int) -> None:
        """Let workers recur the job while they are killed, replaced and stopped."""
        chance = random.Random(self.seed)
        start_s = last_s = time.monotonic()
        reader, self._calls = os.pipe()
        for _ in range(count):
            self._fork()
        left, is_ending = KILL_EVERY_CALLS, False
        while self.alive:
            if select.select([reader], [], [], 0.1)[0]:
                left -= len(os.read(reader, left))
                last_s = time.monotonic()
            self._wake()
            is_ending = self._reap() or is_ending
            if time.monotonic() > last_s + STUCK_S:
                self.stuck = len(self.alive)
                for pid in list(self.alive):
                    self._kill(pid)
            elif left == 0:
                left = chance.randint(1, 2 * KILL_EVERY_CALLS)
                victims = sorted(self.alive - set(self.stopped))
                if victims and not is_ending:
                    time.sleep(chance.uniform(0.0, 0.1))  # at any moment of what it does
                    self._strike(chance.choice(victims), to_stop=chance.random() < 0.15)
        os.close(reader)
        os.close(self._calls)
        self.seconds = time.monotonic() - start_s

    def _fork(self) -> None:
        """Start a worker without starting Python anew, which takes longer than what it does."""
        self._forks += 1
        seed = self.seed * 1_000_000 + self._forks
        pid = os.fork()
        if pid:
            self.alive.add(pid)
            return
        status = 1
        try:
            os.dup2(os.open(self.folder / "stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
            work(self.address, self.folder, seed, self.recurrences, self._calls)
            status = 0
        except BaseException:  # noqa: BLE001 - a worker ends here, whatever happened
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def _strike(self, pid: int, *, to_stop: bool) -> None:
        if to_stop:
            os.kill(pid, signal.SIGSTOP)
            self.stopped[pid] = time.monotonic() + STOPPED_S
            self.stops += 1
        else:
            self._kill(pid)
            self.kills += 1
            self._fork()

    def _kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self.alive.discard(pid)

    def _wake(self) -> None:
        for pid, until_s in list(self.stopped.items()):
            if time.monotonic() > until_s:
                os.kill(pid, signal.SIGCONT)
                del self.stopped[pid]

    def _reap(self) -> bool:
        """Whether a worker has found that there were enough recurrences."""
        ended = {}
        for pid in self.alive:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                ended[pid] = status
        self.alive -= set(ended)
        self.failed += sum(status != 0 for status in ended.values())
        return bool(ended)


def account_of(folder: Path) -> Account:
    account = Account(set(), {}, Counter(), 0.0)
    slowest_s = 0.0
    for path in folder.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            kind, *words = json.loads(line)
            if kind == "started":
                account.started.add(words[0])
            elif kind == "intended":
                account.intended[words[0]] = words[1:]
            elif kind == "accepted":
                account.accepted[words[0]] += 1
            else:
                slowest_s = max(slowest_s, words[0])
    return Account(account.started, account.intended, account.accepted, slowest_s)


def defects(account: Account, history: JobHistory, ledger: dict[str, list[object]]) -> list[str]:
    """What is wrong with a store, given what its workers did; empty where all is right."""
    tries = {each.key: each for each in history.tries}
    stored = {
        key: [each.status.value, each.epochs, each.cost]
        for key, each in tries.items()
        if each.status not in {TryStatus.RUNNING, TryStatus.EXPIRED}
    }
    results = {TryStatus.REACHED, TryStatus.MISSED, TryStatus.STOPPED_EARLY}
    costs = Counter(each.cost for each in tries.values() if each.status in results)
    crashes = [each for each in tries.values() if each.status is TryStatus.CRASHED]
    numbers = Counter((each.recurrence, each.number) for each in tries.values())
    checks = {
        "tries lost that a worker was given": account.started - set(tries),
        "outcomes lost that were accepted": set(account.accepted) - set(stored),
        "outcomes accepted twice": [k for k, times in account.accepted.items() if times > 1],
        "outcomes that nobody told, or others": [
            key for key, outcome in stored.items() if account.intended.get(key) != outcome
        ],
        "tries with the same number": [k for k, times in numbers.items() if times > 1],
        "tries still running": [e for e in tries.values() if e.status is TryStatus.RUNNING],
        "results that the policy was not told of": costs
        - Counter(row[3] for row in ledger["told"]),
        "results that the policy was told of too often": (
            Counter(row[3] for row in ledger["told"]) - costs
        ),
        "crashes told wrongly": abs(len(crashes) - len(ledger["crashed"])) * [None],
        "tries that the policy was not asked for": abs(len(tries) - ledger["asks"]) * [None],
    }
    return [f"{len(wrong)} {what}" for what, wrong in checks.items() if wrong]


@contextmanager
def database(kind: str, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield str(folder / "jobs.sqlite")
        return
    with postgres_server() as server:
        yield server.url(server.new_database())


def judge(kind: str, workers: int, recurrences: int, seed: int) -> bool:
    """Run one database and print what came of it; whether all is right."""
    with tempfile.TemporaryDirectory() as name, database(kind, Path(name)) as address:
        folder = Path(name) / "workers"
        folder.mkdir()
        fleet = Fleet(address, folder, recurrences, seed)
        fleet.run(workers)
        store = open_job_store(address)
        time.sleep(1.1 * LEASE_S)  # the leases of those that were killed last
        number = store.begin_recurrence(JOB.name, GPU_TYPE, max_power_w=250.0, host="end")
        last = store.ask(
            JOB.name, number, GPU_TYPE, host="end", factory=LedgerFactory(), lease_s=LEASE_S
        )
        history = store.history(JOB.name)
        (state,) = history.policy_states
        ledger = dict(state.state or {})
        ledger["asks"] -= 1
        history = JobHistory(
            history.definition, tuple(each for each in history.tries if each.key != last.key)
        )
        account = account_of(folder)
        wrong = defects(account, history, ledger)
        errors = (folder / "stderr").read_text()
    statuses = Counter(each.status.value for each in history.tries)
    if fleet.failed:
        wrong.append(f"{fleet.failed} workers failed")
    if fleet.stuck:
        wrong.append(f"{fleet.stuck} workers hang")
    if errors:
        wrong.append(f"workers printed: {errors.strip().splitlines()[-1]}")
    print(
        f"{kind}: {workers} workers, {fleet.kills} killed and {fleet.stops} stopped, "
        f"{len(history.tries)} tries in {fleet.seconds:.0f} s "
        f"({', '.join(f'{count} {name}' for name, count in sorted(statuses.items()))}); "
        f"slowest call {account.slowest_s:.1f} s{'' if wrong else '; nothing lost or doubled'}"
    )
    for line in wrong:
        print(f"  WRONG: {line}")
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recurrences", type=int, default=1500, help="of the job, per database")
    parser.add_argument("--sqlite", type=int, default=32, metavar="WORKERS", help="0: leave out")
    parser.add_argument("--postgresql", type=int, default=64, metavar="WORKERS", help="likewise")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.postgresql and missing():
        print(missing(), file=sys.stderr)
        return 2
    sizes = {"sqlite": args.sqlite, "postgresql": args.postgresql}
    verdicts = [
        judge(kind, workers, args.recurrences, args.seed)
        for kind, workers in sizes.items()
        if workers
    ]
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
