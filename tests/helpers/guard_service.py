"""A real ``joulewise guard`` on simulated GPUs, and clients of several users."""

import grp
import json
import pwd
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.processes import DEADLINE_S, JOULEWISE, eventually, first_line

MEMBER, STRANGER = pwd.getpwnam("nobody"), pwd.getpwnam("daemon")
GROUP = grp.getgrgid(MEMBER.pw_gid).gr_name
TELL = "import json, os, sys; print(json.dumps(dict(os.environ)), flush=True); sys.stdin.read()"
BECOME = """
import os, sys, time
from joulewise import control
from joulewise.errors import JoulewiseError
# Only now: where this Python is installed may be closed to others.
os.setgroups([]); os.setgid({gid}); os.setuid({uid})
def refused(**settings):
    try:
        control.lease("gpu0", **settings)
    except JoulewiseError as error:
        return type(error).__name__ + ": " + str(error)
"""


@contextmanager
def simulated_gpus(*options, limits_w=(290, 280)):
    """The environment in which there are two, with limits of their own."""
    sim = [*JOULEWISE, "sim", "--gpu", "v100x2", *options, "--", sys.executable, "-c", TELL]
    with subprocess.Popen(sim, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        environ = json.loads(first_line(process.stdout))
        environ["JOULEWISE_GUARD"] = environ["JOULEWISE_STATE"] + "/guard.sock"
        # No scheduler of the machine that the tests are on.
        for name in ("SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST"):
            environ.pop(name, None)
        for gpu, limit_w in enumerate(limits_w):
            smi(environ, "-i", str(gpu), "-pl", str(limit_w))
        try:
            yield environ
        finally:
            process.communicate(timeout=DEADLINE_S)


def smi(environ, *arguments):
    done = subprocess.run(
        ["nvidia-smi", *arguments], env=environ, check=True, capture_output=True, text=True
    )
    return done.stdout


def limits_w(environ):
    result = smi(environ, "--query-gpu=power.limit", "--format=csv,noheader,nounits")
    return [float(line) for line in result.split()]


@dataclass(frozen=True)
class Guard:
    process: subprocess.Popen
    environ: dict

    @property
    def log(self):
        return Path(self.environ["JOULEWISE_STATE"], "control.log").read_text()

    @property
    def refusals(self):
        return Path(self.environ["JOULEWISE_STATE"], "refused.log").read_text()

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)


@contextmanager
def guard(environ, folder, *options, through=()):
    """Once it has told systemd that it is ready."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        path = folder / "notify"
        path.unlink(missing_ok=True)
        notices.bind(str(path))
        notices.settimeout(DEADLINE_S)
        process = subprocess.Popen(
            [*through, *JOULEWISE, "guard", *options], env={**environ, "NOTIFY_SOCKET": str(path)}
        )
        try:
            assert notices.recv(64) == b"READY=1"
            yield Guard(process, environ)
        finally:
            process.kill()
            process.wait()


@contextmanager
def client(environ, code, user=MEMBER):
    """A process of that user, which is gone after the block."""
    become = BECOME.format(uid=user.pw_uid, gid=user.pw_gid)
    process = subprocess.Popen(
        [sys.executable, "-c", become + code], env=environ, stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def run_as(environ, code, user=MEMBER):
    with client(environ, code, user) as process:
        return process.communicate(timeout=DEADLINE_S)[0].strip()


@contextmanager
def held(environ, power_limit_w=200):
    """A member holds gpu0 at that limit."""
    code = f"l = control.lease('gpu0', power_limit_w={power_limit_w}); print('held', flush=True)"
    with client(environ, f"{code}; time.sleep(600)") as process:
        assert first_line(process.stdout) == "held\n"
        eventually(lambda: limits_w(environ)[0] == power_limit_w)
        yield process
