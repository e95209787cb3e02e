"""``joulewise run`` as a process, for tests that look at it from outside."""

import json
import os
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.processes import DEADLINE_S, JOULEWISE, eventually, first_line, gone, python


def environment(**more):
    """Ours without what a scheduler or another run would add."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("JOULEWISE_", "SLURM_"))}
    return {**own, **more}


def run(store, *arguments, text=True, **options):
    """Run it to its end; ``stdout``, ``stderr`` and ``returncode``."""
    options = {"capture_output": True, "env": environment(), **options}
    return subprocess.run(
        [*JOULEWISE, "--store", str(store), "run", *arguments],
        text=text,
        check=False,
        timeout=DEADLINE_S,
        **options,
    )


def runs(store):
    """The runs of a store in the order of their begin: an id has only the second of it."""
    manifests = Path(store).glob("*/run.json")
    return [path.parent for path in sorted(manifests, key=_began_ns)]


def _began_ns(manifest_path):
    return json.loads(manifest_path.read_text())["wall_start_ns"]


def manifest(store):
    (only,) = runs(store)
    return json.loads((only / "run.json").read_text())


@dataclass
class Running:
    process: subprocess.Popen
    command_pid: int
    recorder_pid: int
    run: Path
    others: list[int]

    @property
    def pids(self):
        return [self.process.pid, self.command_pid, self.recorder_pid]

    def kill(self, pid, number=signal.SIGKILL):
        os.kill(pid, number)

    def manifest(self):
        return json.loads((self.run / "run.json").read_text())


WAIT = "print(os.getpid(), flush=True); sys.stdin.read()"


@contextmanager
def running(store, *arguments, code=WAIT, before=(), **options):
    """A run whose command has said its pid (and those of others) and reads stdin to its end.

    ``before`` are the words of a program that starts joulewise.
    """
    options = {"stderr": subprocess.PIPE, "env": environment(), **options}
    process = subprocess.Popen(
        [*before, *JOULEWISE, "--store", str(store), "run", *arguments, *python(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )
    recorder_pid = 0
    try:
        line = first_line(process.stdout)
        assert line, process.stderr.read()
        command_pid, *others = map(int, line.split())
        folder = Path(store) / environ_of(command_pid)["JOULEWISE_RUN"]
        recorder_pid = json.loads((folder / "run.json").read_text())["recorder"]["pid"]
        yield Running(process, command_pid, recorder_pid, folder, others)
    finally:
        process.kill()
        process.stdin.close()
        if not process.stdout.closed:
            process.stdout.read()
        process.wait(DEADLINE_S)
        if recorder_pid:
            eventually(lambda: gone(recorder_pid))
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()


def environ_of(pid):
    block = Path(f"/proc/{pid}/environ").read_text(errors="replace")
    return dict(entry.split("=", 1) for entry in block.split("\0") if "=" in entry)
