"""How a training program puts load on a simulated GPU: standard library only, quick to import."""

from __future__ import annotations

import json
import os
import socket
import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from joulewise.errors import SimulationError, UsageError

_HINT = "run it under: joulewise sim --gpu v100 -- ..."
# Chosen, so that a request stays far below the server's longest line (256 bytes). No workload has a
# name of half that length, and no training as many steps.
_MAX_NAME_LENGTH = 64
_MAX_COUNT = 10**12


def available() -> bool:
    """Whether this process runs under a ``joulewise sim`` that is still running."""
    return os.path.exists(os.environ.get("JOULEWISE_SIM", ""))  # noqa: PTH110  # pathlib is slow


def gpu(index: int = 0) -> Gpu:
    """The simulated GPU that CUDA would call ``index``, by ``CUDA_VISIBLE_DEVICES``."""
    from joulewise.devices.cuda_visible import GpuIdentity, cuda_visible_gpus

    identities = [GpuIdentity(**entry) for entry in _identities(_address())]
    shown = cuda_visible_gpus(os.environ, identities)
    if not 0 <= index < len(shown.indices):
        raise SimulationError(
            f"no GPU {index}: {len(shown.indices)} of {len(identities)} simulated are visible",
            shown.reason or "simulate more GPUs, as in: joulewise sim --gpu v100x2 -- ...",
        )
    return Gpu(shown.indices[index])


@dataclass(frozen=True)
class StepTimes:
    """When the steps ran (CLOCK_MONOTONIC)."""

    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Gpu:
    """A simulated GPU, by its NVML index."""

    index: int

    def step(self, workload: str, batch_size: int | None = None, steps: int = 1) -> StepTimes:
        """Train ``steps`` steps: take as long as they would, and load the GPU meanwhile.

        The first call attaches this process to the GPU for as long as it lives. Threads and
        other processes on the same GPU share its time.
        """
        if workload.split() != [workload] or len(workload) > _MAX_NAME_LENGTH:
            raise UsageError(
                f"no such workload: {workload!r}", "a workload is one word, such as resnet50"
            )
        if not 1 <= steps < _MAX_COUNT or (
            batch_size is not None and not 1 <= batch_size < _MAX_COUNT
        ):
            raise UsageError(
                f"cannot train {steps} steps of batch size {batch_size}",
                "pass whole numbers of at least 1",
            )
        answer = _attach(self.index).request(f"step {workload} {batch_size or 0:d} {steps:d}")
        start_ns, end_ns = answer.split()
        return StepTimes(int(start_ns), int(end_ns))


class _Connection:
    """A connection to the simulation's engine, for one request at a time."""

    def __init__(self, address: str) -> None:
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(address)
        except OSError:
            self.close()
            raise _simulation_ended() from None

    @property
    def closed(self) -> bool:
        return self._socket.fileno() < 0

    def request(self, line: str) -> str:
        """Send a line; the answer without its first word. Raises what the engine refuses."""
        with self._lock:
            try:
                self._socket.sendall(f"{line}\n".encode())
                word, _, rest = self._receive().partition(" ")
            except BaseException as error:
                # A late answer must not pass for that of the next request. The engine takes the
                # load off the GPU.
                self.close()
                if isinstance(error, OSError):
                    raise _simulation_ended() from None
                raise
        if word == "error":
            raise UsageError(*rest.split("\t"))
        return rest

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> str:
        answer = b""
        while not answer.endswith(b"\n"):
            chunk = self._socket.recv(65536)
            if not chunk:
                raise ConnectionResetError
            answer += chunk
        return answer.decode().rstrip("\n")


_connections: dict[int, _Connection] = {}
_connections_lock = threading.Lock()


def _attach(index: int) -> _Connection:
    """This process's connection to a GPU, which lists the process while it is open."""
    with _connections_lock:
        connection = _connections.get(index)
        if connection is None or connection.closed:
            connection = _Connection(_address())
            connection.request(f"attach {index}")
            _connections[index] = connection
        return connection


def _close_inherited() -> None:
    """Close the parent's connections in a forked child, which is a client of its own."""
    global _connections_lock  # noqa: PLW0603  # another thread may have held it at the fork
    _connections_lock = threading.Lock()
    for connection in _connections.values():
        connection.close()
    _connections.clear()


os.register_at_fork(after_in_child=_close_inherited)


def _address() -> str:
    if not available():
        raise SimulationError("there is no simulated GPU here", _HINT)
    folder, _, _ = os.environ["JOULEWISE_SIM"].rpartition("/")
    return "\0" + folder.rpartition("/")[2]


@lru_cache(maxsize=1)
def _identities(address: str) -> list[dict[str, Any]]:
    connection = _Connection(address)
    try:
        identities: list[dict[str, Any]] = json.loads(connection.request("gpus"))
    finally:
        connection.close()
    return identities


def _simulation_ended() -> SimulationError:
    return SimulationError("the simulation has ended, and its GPUs with it", _HINT)
