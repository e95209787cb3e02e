"""A Ray cluster of separate nodes on this machine, each on a simulated GPU of its own."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from tests.helpers.processes import JOULEWISE, eventually

RAY = [sys.executable, "-c", "from ray.scripts.scripts import main; main()"]
UNRULED = {"SLURM_JOB_ID": "", "KUBERNETES_SERVICE_HOST": ""}  # as in an ordinary login
ENVIRON = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_IMPORT_WARNING": "1", **UNRULED}
# A cluster learns sooner than by default that a node does not answer any more.
QUICK = json.dumps(
    {
        "health_check_period_ms": 500,
        "health_check_failure_threshold": 4,
        "health_check_timeout_ms": 1000,
    }
)


class Node:
    def __init__(self, folder, seed, *options):
        self._log = (folder / f"node{seed}.log").open("wb")
        self.process = subprocess.Popen(
            [
                *(*JOULEWISE, "sim", "--gpu", "v100", "--as-root", "--seed", str(seed), "--"),
                *(*RAY, "start", "--num-gpus", "1", "--num-cpus", "2", "--block"),
                *("--disable-usage-stats", "--object-store-memory", "80000000", *options),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **ENVIRON, "TEST_NODE": str(seed)},
        )

    def kill(self):
        """As when its power goes: all at once."""
        try:
            main = psutil.Process(self.process.pid)
            processes = [*main.children(recursive=True), main]
        except psutil.Error:
            processes = []
        for process in processes:
            with suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
        psutil.wait_procs(processes, 30)
        self.process.wait()
        self._log.close()


@contextmanager
def cluster(nodes=2):
    """Its address, and its nodes: the first is the head."""
    folder = Path(tempfile.mkdtemp(prefix="jwray"))  # Ray's sockets need a short path
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        address = f"127.0.0.1:{_free_port()}"
        head = ("--head", "--port", address.rpartition(":")[2], "--temp-dir", str(folder / "t"))
        settings = ("--include-dashboard", "false", "--system-config", QUICK)
        made = [Node(folder, 1, *head, *settings)]
        stack.callback(made[0].kill)
        eventually(lambda: _answers(address))
        for seed in range(2, nodes + 1):
            made.append(Node(folder, seed, "--address", address))
            stack.callback(made[-1].kill)
        eventually(lambda: _gpus(address) == nodes)
        yield address, made


def _answers(address):
    host, _, port = address.rpartition(":")
    with socket.socket() as line:
        return line.connect_ex((host, int(port))) == 0


def _gpus(address):
    """In a process of its own: who has asked once is a client of that cluster."""
    script = (
        "import logging, ray; "
        f"ray.init({address!r}, logging_level=logging.ERROR, log_to_driver=False); "
        "print(int(ray.cluster_resources().get('GPU', 0)))"
    )
    asked = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env={**os.environ, **ENVIRON},
        capture_output=True,
        text=True,
        check=False,
    )
    return int(asked.stdout.split()[-1]) if asked.returncode == 0 else 0


def _free_port():
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return line.getsockname()[1]
