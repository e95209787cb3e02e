"""Programs run as a user would, with the environment that `joulewise run` gives them."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from joulewise.data import Span
from joulewise.hooks.install import environment
from joulewise.store.spans import read_spans
from tests.helpers.paths import ROOT

SCRIPTS = ROOT / "tests/hooks/scripts"
QUIET = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "KERAS_BACKEND": "torch"}


@dataclass(frozen=True)
class Outcome:
    stdout: str
    stderr: str
    exit_code: int
    run: Path
    spans: tuple[Span, ...]

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def indices(self, name: str) -> list[int | None]:
        return [span.index for span in self.named(name)]

    def said(self, word: str) -> list[tuple[int, ...]]:
        """The numbers on the lines that begin with a word."""
        lines = [line.split() for line in self.stdout.splitlines()]
        return [tuple(map(int, rest)) for first, *rest in filter(None, lines) if first == word]


def run_program(folder, *command, hooks=True, environ=None):
    """Runs a command (or, given a script's name, Python on it) under the hooks."""
    if str(command[0]).endswith(".py"):
        command = (sys.executable, SCRIPTS / command[0], *command[1:])
    run = folder / f"run{len(list(folder.iterdir()))}"
    (run / "marks").mkdir(parents=True)
    # torchrun and TensorFlow leave folders in the place for temporary files, and multiprocessing
    # has sockets there, whose addresses have 108 bytes at most: tmp_path is too long.
    with TemporaryDirectory(prefix="jw-") as temporary:
        base = {**os.environ, **QUIET, "TMPDIR": temporary, **(environ or {})}
        done = subprocess.run(
            command,
            env=environment(base, run / "marks", "a-run", hooks=hooks),
            cwd=folder, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
    return Outcome(done.stdout, done.stderr, done.returncode, run, tuple(read_spans(run)))


def assert_between(spans, said):
    """Begun between the loop's announcement and its first batch, ended likewise."""
    assert len(spans) == len(said) > 0
    for span, (announced_ns, first_ns, last_ns, over_ns) in zip(spans, said, strict=True):
        assert announced_ns <= span.start_ns <= first_ns <= last_ns <= span.end_ns <= over_ns


def assert_around(spans, said):
    """Each holds what a callback saw of it, and nothing of the one before or after."""
    assert len(spans) == len(said) > 0
    before_ns = 0
    for span, (begin_ns, end_ns) in zip(spans, said, strict=True):
        assert before_ns <= span.start_ns <= begin_ns < end_ns <= span.end_ns
        before_ns = span.end_ns


def untimed(text):
    """What a program printed, but for its clock readings and its speed."""
    return re.sub(r"\b\d{10,}\b|_(runtime|second)': '[^']*'", "…", text)
