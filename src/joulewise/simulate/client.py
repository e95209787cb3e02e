"""How a training program loads a simulated GPU: standard library only, quick to import."""

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
_LONGEST_NAME = 64
_MANY = 10**12


def available() -> bool:
    """Whether this process runs under a ``joulewise sim`` that still lives."""
    return os.path.exists(os.environ.get("JOULEWISE_SIM", ""))  # noqa: PTH110  # pathlib is slow


def gpu(index: int = 0) -> Gpu:
    """The simulated GPU that CUDA would call ``index``, by ``CUDA_VISIBLE_DEVICES``."""
    from joulewise.devices.cuda_visible import GpuIdentity, visible

    identities = [GpuIdentity(**entry) for entry in _identities(_address())]
    shown = visible(os.environ, identities)
    if not 0 <= index < len(shown.indices):
        raise SimulationError(
            f"no GPU {index}: {len(shown.indices)} of {len(identities)} simulated are visible",
            shown.reason or "simulate more of them, as in: joulewise sim --gpu v100x2 -- ...",
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
        if workload.split() != [workload] or len(workload) > _LONGEST_NAME:
            raise UsageError(f"no such workload: {workload!r}", "it is one word, such as resnet50")
        if not 1 <= steps < _MANY or (batch_size is not None and not 1 <= batch_size < _MANY):
            raise UsageError(
                f"{steps} steps of batch size {batch_size}", "both are whole numbers from 1 on"
            )
        answer = _attached(self.index).ask(f"step {workload} {batch_size or 0:d} {steps:d}")
        start_ns, end_ns = answer.split()
        return StepTimes(int(start_ns), int(end_ns))


class _Connection:
    """A connection to the simulation, for one question at a time."""

    def __init__(self, address: str) -> None:
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(address)
        except OSError:
            self.close()
            raise _gone() from None

    @property
    def closed(self) -> bool:
        return self._socket.fileno() < 0

    def ask(self, question: str) -> str:
        """The answer without its first word."""
        with self._lock:
            try:
                self._socket.sendall(f"{question}\n".encode())
                word, _, rest = self._receive().partition(" ")
            except BaseException as error:
                self.close()  # half a dialogue cannot be resumed; this takes the load off the GPU
                if isinstance(error, OSError):
                    raise _gone() from None
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


_lines: dict[int, _Connection] = {}
_opening = threading.Lock()


def _attached(index: int) -> _Connection:
    """This process's line to a GPU: while it is open, the process is listed as using it."""
    with _opening:
        line = _lines.get(index)
        if line is None or line.closed:
            line = _Connection(_address())
            line.ask(f"attach {index}")
            _lines[index] = line
        return line


def _forget_parent() -> None:
    """A forked child is a client of its own, and must not hold its parent's lines open."""
    global _opening  # noqa: PLW0603  # another thread may have held it at the fork
    _opening = threading.Lock()
    for line in _lines.values():
        line.close()
    _lines.clear()


os.register_at_fork(after_in_child=_forget_parent)


def _address() -> str:
    if not available():
        raise SimulationError("there is no simulated GPU here", _HINT)
    folder, _, _ = os.environ["JOULEWISE_SIM"].rpartition("/")
    return "\0" + folder.rpartition("/")[2]


@lru_cache(maxsize=1)
def _identities(address: str) -> list[dict[str, Any]]:
    line = _Connection(address)
    try:
        answer: list[dict[str, Any]] = json.loads(line.ask("gpus"))
    finally:
        line.close()
    return answer


def _gone() -> SimulationError:
    return SimulationError("the simulated GPUs are gone", _HINT)
