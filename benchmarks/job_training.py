"""A real torch training as a recurring job, by the command line: what its recurrences cost.

    python benchmarks/job_training.py [--recurrences 12] [--store FOLDER] [--policy NAME]

Each recurrence is `joulewise job run` of examples/recurring_training.py with data of its own. The
default batch size is a large one, at which an epoch is short and many are needed. It needs no GPU:
the energy is that of the CPU, and there is no limit to tune. Its claim is not how much is saved,
which depends on the machine, but that every recurrence reaches its target and is remembered.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from helpers.verdict import Verdicts

TRAINING = Path(__file__).parents[1] / "examples" / "recurring_training.py"
JOULEWISE = (sys.executable, "-m", "joulewise")
JOB = (
    *("--set", "batch_size=32,64,...,1024", "--default", "batch_size=512"),
    *("--target", "val_acc>=0.9", "--max-epochs", "100"),
)


def recur(store: Path, *options: str) -> dict[str, Any]:
    """Run one recurrence, and return its JSON."""
    report = store / "recurrence.json"
    report.unlink(missing_ok=True)
    command = [sys.executable, str(TRAINING), "--batch-size", "{batch_size}"]
    subprocess.run(
        [
            *(*JOULEWISE, "--store", str(store), "job", "run", "example", "--no-tune"),
            *(*options, "--json", str(report), "--", *command),
        ],
        stdout=subprocess.DEVNULL,
        check=False,
    )
    told: dict[str, Any] = json.loads(report.read_text("utf-8"))
    return told


def show(told: dict[str, Any]) -> None:
    tries = ", ".join(
        f"{one['settings']['batch_size']} ({one['status']}, {one['epochs']} epochs)"
        for one in told["tries"]
    )
    print(f"{told['recurrence']:3d}  {told['cost']:8.1f} J  {told['time_s']:6.1f} s  {tries}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--recurrences", type=int, default=12)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--policy")
    given = parser.parse_args()
    policy = ("--policy", given.policy) if given.policy else ()
    with tempfile.TemporaryDirectory() as folder:
        store = given.store or Path(folder)
        store.mkdir(parents=True, exist_ok=True)
        print("  #      cost    time  tries")
        told = []
        for number in range(given.recurrences):
            told.append(recur(store, *((*JOB, *policy) if not number else ())))
            show(told[-1])
        listed = subprocess.run(
            [*JOULEWISE, "--store", str(store), "job", "ls", "--json", "-"],
            capture_output=True,
            check=True,
        )
        (standing,) = json.loads(listed.stdout)["jobs"]
    verdicts = Verdicts()
    reached = sum(one["reached"] for one in told)
    verdicts.at_least("recurrences that reached the target", reached, given.recurrences)
    verdicts.at_least("recurrences remembered", standing["recurrences"], given.recurrences)
    saving = standing["saving"]
    print(f"best {standing['best']}, saving {'unknown' if saving is None else f'{saving:.0%}'}")
    verdicts.show()
    return 0 if verdicts.all_met else 1


if __name__ == "__main__":
    sys.exit(main())
