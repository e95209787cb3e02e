"""`joulewise job run` in a process of its own, with small programs that train nothing."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from joulewise.optimise.recurring.store.job_store import JobStore
from tests.helpers.processes import DEADLINE_S, JOULEWISE
from tests.optimise.recurring.plugged_policies import plugged_environ

# Epochs that take no time; the target is reached in epoch EPOCHS[batch_size], at 1.0. Where a value
# has no epochs, it is never reached. It ends after LAST epochs.
TRAINING = """
import json, os, sys, time
import joulewise
epochs = json.loads(os.environ.get("EPOCHS", "{}")).get(sys.argv[1])
last = int(os.environ.get("LAST", "5"))
name = os.environ.get("LOGGED", "val_acc")
print("batch size", sys.argv[1], flush=True)
with joulewise.span("training"):
    for number in range(last):
        with joulewise.span("epoch", number):
            time.sleep(float(os.environ.get("EPOCH_S", "0")))
        value = (number + 1) / epochs if epochs else 0.1
        joulewise.log(**{name: value})
        if value >= 1:
            break
"""
NEW = (
    *("--set", "batch_size=8,16,32", "--default", "batch_size=16"),
    *("--target", "val_acc>=1", "--max-epochs", "5", "--policy", "in-turn"),
)


def replaced(option, value):
    """The words of a new job with another value of an option."""
    words = list(NEW)
    words[words.index(option) + 1] = value
    return words


PYTHON = (sys.executable, "-c", TRAINING, "{batch_size}")


@dataclass
class JobRuns:
    """Recurrences of job ``nightly`` in a store of their own; ``environ`` is what they get."""

    folder: Path
    environ: dict = field(default_factory=dict)

    def __post_init__(self):
        self.store = self.folder / "store"
        self.report = self.folder / "report.json"
        self.environ = plugged_environ(self.folder / "plugged", **self.environ)

    def start(self, *words, command=PYTHON, environ=(), **more):
        options = ("--json", str(self.report), "--no-tune")
        own = [*JOULEWISE, "--store", str(self.store), "job", "run", "nightly", *options]
        environ = {**self.environ, **dict(environ)}
        return [*own, *words, "--", *command], {"env": environ, "text": True, **more}

    def run(self, *words, **more):
        command, options = self.start(*words, **more)
        self.report.unlink(missing_ok=True)
        return subprocess.run(
            command, capture_output=True, check=False, timeout=DEADLINE_S, **options
        )

    def told(self):
        return json.loads(self.report.read_text())

    def verb(self, *words):
        return subprocess.run(
            [*JOULEWISE, "--store", str(self.store), "job", *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_S,
            env=self.environ,
        )

    @property
    def database(self):
        return self.store / "jobs.sqlite"

    def history(self):
        return JobStore.open(self.database, for_writing=False).history("nightly")
