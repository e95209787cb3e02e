"""A runner that runs nothing: what a sweep does with runs is the same whatever they are.

As a program it is a sweep that a test may kill: ``python fake_runner.py STORE``.
"""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from joulewise.data import Energy, Source
from joulewise.data.sweeps import POWER_LIMIT, Setting, Trial, TrialState
from joulewise.errors import JoulewiseError
from joulewise.sweep.execute import execute
from joulewise.sweep.space import Grid, Space
from joulewise.sweep.spec import SweepSpec
from joulewise.sweep.stored_sweeps import create_sweep, find_sweeps_to_continue
from joulewise.sweep.trial import tags

LIMITS_W = (150.0, 200.0, 250.0)
COMMAND = ("train",)


def setting(limit_w, **more):
    return Setting.of({POWER_LIMIT: limit_w, **more})


def space(*limits_w):
    settings = tuple(setting(limit_w) for limit_w in limits_w or LIMITS_W)
    return Space(settings, settings[-1])


def asked(**more):
    limits = ",".join(f"{limit_w:g}" for limit_w in LIMITS_W)
    return SweepSpec(COMMAND, {POWER_LIMIT: limits}, **{"repeat": 2, **more})


def trial(planned, time_s=10.0, gpu_j=1000.0, source=Source.MEASURED, **more):
    known = {"state": TrialState.DONE, "lane": planned.lane, "look_s": planned.look_s, **more}
    energy = {"gpu": Energy(gpu_j, 1.0, 2.0, source)}
    return Trial(planned.setting, planned.block, time_s=time_s, energy=energy, **known)


def failed(planned):
    return trial(planned, state=TrialState.FAILED, reason="it broke", log_tail="the last line")


class FakeRunner:
    """Each run is what ``make`` says; ``made`` has all that ended, in order."""

    def __init__(self, make=trial, slots=1):
        self.slots = slots
        self.made = []
        self.hopeless = []
        self.stopped = threading.Event()
        self._make = make

    def run(self, planned, hopeless=None):
        self.hopeless.append(hopeless)
        result = self._make(planned)
        self.made.append(planned)
        return result

    def adopt(self, planned):  # noqa: ARG002
        return None

    def stop(self):
        self.stopped.set()

    def close(self):
        pass


class StoredRunner(FakeRunner):
    """Notes every run that ends in a file, as a store keeps runs, and finds it there again."""

    def __init__(self, folder, make=trial, slots=1):
        super().__init__(make, slots)
        self._notes = folder / "notes"

    def run(self, planned, hopeless=None):
        output = super().run(planned, hopeless)
        with self._notes.open("a") as notes:
            notes.write(f"{tags('', planned)[1]}\n")
        return output

    def adopt(self, planned):
        return trial(planned) if tags("", planned)[1] in self.notes() else None

    def notes(self):
        return self._notes.read_text().split() if self._notes.exists() else []


class Watched:
    """Remembers what it was told."""

    def __init__(self, ended=lambda _: None):
        self.left = []
        self.begun = self.started_ones = ()
        self.ended_ones, self.lines = [], []
        self._ended = ended

    def began(self, sweep, left):
        self.begun = sweep.trials
        self.left.append(left)

    def started(self, planned):
        self.started_ones += (planned,)

    def ended(self, trial, sweep, left):
        assert trial in sweep.trials
        self.ended_ones.append(trial)
        self.left.append(left)
        self._ended(trial)

    def said(self, line):
        self.lines.append(line)


def go_on(folder, runner, watch=None, points=None, **more):
    """Execute the grid of the sweep in ``folder``."""
    of = asked(**more)
    return execute(folder, Grid(points or space(), of, runner.slots), runner, watch or Watched())


def main(store):
    """Begin a sweep or go on with it, its runs one after the other."""
    folder = find_sweeps_to_continue(store, [asked()])[0] or create_sweep(store, asked(), space())
    watch = Watched(lambda ended: os.write(1, f"{ended.setting} {ended.block}\n".encode()))

    def made(planned):
        if "--signals-to-runs" in sys.argv:
            time.sleep(0.3)  # by then the main thread waits; too early, the test shows nothing
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.pthread_kill(threading.get_ident(), number)
        if "--wait" in sys.argv:
            os.read(0, 1)
        return trial(planned)

    try:
        go_on(folder, StoredRunner(folder, made), watch)
    except JoulewiseError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_status)


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        main(Path(sys.argv[1]))
