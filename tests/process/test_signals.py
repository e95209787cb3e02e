"""Signals that wait to be looked at, with signalfd and without."""

import os
import signal
import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys, time
from joulewise.process.signals import take_signals

signal.signal(signal.SIGHUP, signal.SIG_IGN)
taken = take_signals()

def come(number):
    while True:
        for each in taken:
            if each.number == number:
                return each
        time.sleep(0.001)

os.kill(os.getpid(), signal.SIGHUP)
os.kill(os.getpid(), signal.SIGUSR1)
print("to itself", come(signal.SIGUSR1).shared, flush=True)
child = os.fork()
if child == 0:
    os.kill(os.getppid(), signal.SIGUSR2)
    time.sleep(600)
print("from a child", come(signal.SIGUSR2).shared, flush=True)
os.kill(child, signal.SIGKILL)
come(signal.SIGCHLD)
os.waitpid(child, 0)
print("ignored ones", [each.number for each in taken], flush=True)
taken.close()
os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.parametrize(
    ("environ", "from_a_child"),
    [({}, True), ({"JOULEWISE_PLAIN": "1"}, False)],
    ids=["signalfd", "handlers"],
)
def test_each_signal_waits_and_shows_whether_the_command_has_it_too(environ, from_a_child):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.stdout.splitlines() == [
        "to itself False",
        f"from a child {from_a_child}",
        "ignored ones []",
    ]
    assert done.returncode == -signal.SIGTERM, done.stderr
