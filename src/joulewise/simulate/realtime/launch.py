"""Runs a command with simulated GPUs: checks the request, starts everything, cleans up.

:func:`prepare` finds everything that can be wrong before anything starts, :func:`run` runs the
command to its end. A :class:`Janitor` process removes the temporary folder even if this process is
killed with SIGKILL.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from joulewise.errors import SimulationError, UsageError, did_you_mean
from joulewise.process.child import Child, find_program
from joulewise.process.signals import take_signals
from joulewise.simulate.boards import BOARDS, load_board, make_unit
from joulewise.simulate.model import BoardUnit, Workload
from joulewise.simulate.nvml.faults import (
    LIBRARY_ABSENT,
    NO_LATENCY,
    InjectedFault,
    Latency,
    parse_faults,
)
from joulewise.simulate.nvml.shared_memory import CONSTANTS, SharedGpuMemory, shim_path
from joulewise.simulate.realtime.engine import Engine
from joulewise.simulate.realtime.truth import Truth
from joulewise.simulate.workloads import load_workload

_NVML = Path(__file__).parents[1] / "nvml"
ABSENT = _NVML / "absent"


def environment(
    base: Mapping[str, str],
    *,
    library_folder: Path,
    shared: Path,
    state: Path,
    cpu_w: float | None = None,
) -> dict[str, str]:
    """The command's environment: our library and ``nvidia-smi`` before any other.

    ``JOULEWISE_SIM_PID`` is this process, which drivers list on each GPU that ``--workload`` keeps
    busy: by it a program recognises the simulation's own load. ``JOULEWISE_GUARD`` leads to no
    guard service unless the caller names one: the machine's own serves the real GPUs. ``cpu_w`` is
    the most that the CPU of a simulated superchip draws, for a model of it
    (``JOULEWISE_CPU_TDP``); None without a superchip.
    """
    cpu = {} if cpu_w is None else {"JOULEWISE_CPU_TDP": f"{cpu_w:g}"}
    return {
        "JOULEWISE_GUARD": str(state / "guard.sock"),
        **cpu,
        **base,
        "LD_LIBRARY_PATH": _prepend(base.get("LD_LIBRARY_PATH"), library_folder),
        "PATH": search_path(base),
        "JOULEWISE_SIM": str(shared),
        "JOULEWISE_SIM_PID": str(os.getpid()),
        "JOULEWISE_STATE": str(state),
        "JOULEWISE_PYTHON": sys.executable,
    }


def search_path(base: Mapping[str, str]) -> str:
    return _prepend(base.get("PATH", os.defpath), _NVML / "bin")


def _prepend(paths: str | None, first: Path) -> str:
    return f"{first}{os.pathsep}{paths}" if paths else str(first)


MAX_GPUS = CONSTANTS["MAX_GPUS"]


def parse_fleet(text: str, boards: tuple[str, ...]) -> tuple[str, ...]:
    """The board of each GPU in a text such as ``v100x2,a100``, in order."""
    counts = [_parse_count(part.strip(), boards) for part in text.split(",")]
    total = sum(count for _, count in counts)
    if total > MAX_GPUS:
        raise UsageError(
            f"{total} GPUs are too many to simulate", f"at most {MAX_GPUS} are possible"
        )
    return tuple(key for key, count in counts for _ in range(count))


def _parse_count(part: str, boards: tuple[str, ...]) -> tuple[str, int]:
    if part in boards:
        return part, 1
    key, _, count = part.rpartition("x")
    if key in boards and count.isascii() and count.isdigit() and int(count) > 0:
        return key, int(count)
    near = did_you_mean(part, boards) or did_you_mean(key, boards)
    raise UsageError(
        f"no such GPU to simulate: {part!r}",
        f"{near}choose one of {', '.join(boards)}; "
        f"write {boards[0]}x2 for two of one kind, {boards[0]},{boards[-1]} for a mix",
    )


_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # the folder below it has a random name


class Janitor:
    """A process that creates a folder and removes it once this process closes it or dies.

    It creates the folder itself, so that at no moment there is one that nobody would remove.
    """

    def __init__(self) -> None:
        self._connection, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            _watch(theirs)
        theirs.close()
        name = self._connection.recv(4096)
        if not name:
            os.waitpid(self._pid, 0)
            raise SimulationError(
                "cannot create a temporary folder", "free some space in /dev/shm or in $TMPDIR"
            )
        self.folder = Path(os.fsdecode(name))

    def close(self) -> None:
        """Have the folder removed, and wait until it is."""
        self._connection.close()
        os.waitpid(self._pid, 0)
        # There is something left to do only where the janitor was killed before.
        shutil.rmtree(self.folder, ignore_errors=True)


def _watch(connection: socket.socket) -> NoReturn:
    try:
        # A session of its own and no signal but SIGKILL: neither Ctrl-C nor a closed terminal
        # may end it before its owner.
        os.setsid()
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        _close_all_but(connection.fileno())
        home = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None
        folder = tempfile.mkdtemp(prefix="joulewise-sim-", dir=home)
        try:
            Path(folder).chmod(0o755)  # the command may change its user, and still have its GPUs
            connection.sendall(os.fsencode(folder))
            while connection.recv(4096):
                pass
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os._exit(0)


def _close_all_but(descriptor: int) -> None:
    """Close all other descriptors: a reader of the command's output must not wait for us."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    for other in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if other > 2 and other != descriptor:
            with suppress(OSError):  # the one that listed the folder
                os.close(other)


SEEDS_PER_FLEET = MAX_GPUS  # so that no two seeds of a simulation share a unit


@dataclass(frozen=True)
class SimulationPlan:
    """What to simulate, checked; ``busy`` is the load that keeps each GPU busy, if any."""

    units: tuple[BoardUnit, ...]
    busy: tuple[Workload | None, ...]
    faults: tuple[InjectedFault, ...]
    latency: Latency
    as_root: bool
    accounting: bool
    truth: Path | None
    library_folder: Path
    command: Sequence[str]
    environ: Mapping[str, str]


def prepare_simulation(
    *,
    gpus: str,
    workload: str | None,
    batch_size: int | None,
    truth: Path | None,
    faults: Sequence[str],
    latency: bool,
    seed: int,
    persistence: bool | None,
    as_root: bool,
    accounting: bool,
    command: Sequence[str],
    environ: Mapping[str, str],
) -> SimulationPlan:
    """Check a request before anything starts; UsageError says what is wrong with it.

    ``gpus`` is a text such as ``v100x2,a100``, ``workload`` the load that keeps every GPU busy,
    ``persistence`` None for each board's own mode, ``as_root`` lets any user set controls.
    """
    if truth == Path("-"):
        raise UsageError("stdout belongs to the command", "give --truth a file")
    if batch_size is not None and workload is None:
        raise UsageError("--batch-size needs a workload", "add --workload resnet50")
    boards = [load_board(key) for key in parse_fleet(gpus, BOARDS)]
    if persistence is not None:
        boards = [replace(board, persistence=persistence) for board in boards]
    parsed = tuple(fault for text in faults for fault in parse_faults(text))
    for fault in parsed:
        if fault.gpu is not None and fault.gpu >= len(boards):
            raise UsageError(
                f"a fault on gpu{fault.gpu}, but only {len(boards)} GPUs are simulated",
                "GPUs are counted from gpu0; gpu* means all of them",
            )
    if len(parsed) > CONSTANTS["FAULTS"]:
        raise UsageError(
            f"{len(parsed)} faults are too many", f"at most {CONSTANTS['FAULTS']} are possible"
        )
    if not command:
        raise UsageError("no command to run", "put it after --, as in: -- nvidia-smi")
    find_program(command[0], search_path(environ))
    absent = any(fault.kind == LIBRARY_ABSENT for fault in parsed)
    return SimulationPlan(
        units=tuple(
            make_unit(board, seed * SEEDS_PER_FLEET + index) for index, board in enumerate(boards)
        ),
        busy=tuple(
            None if workload is None else load_workload(workload, board, batch_size)
            for board in boards
        ),
        faults=parsed,
        latency=Latency() if latency else NO_LATENCY,
        as_root=as_root,
        accounting=accounting,
        truth=truth,
        library_folder=ABSENT if absent else shim_path().parent,
        command=command,
        environ=environ,
    )


def run_simulation(plan: SimulationPlan) -> int:
    """Run the command to its end; its exit status."""
    with ExitStack() as stack:
        truth = stack.enter_context(closing(Truth(plan.truth))) if plan.truth else None
        signals = stack.enter_context(closing(take_signals()))
        janitor = stack.enter_context(closing(Janitor()))
        name = janitor.folder.name
        state = janitor.folder / "state"
        state.mkdir()
        start_ns = time.monotonic_ns()
        shared = SharedGpuMemory.create(
            plan.units,
            latency=plan.latency,
            faults=plan.faults,
            as_root=plan.as_root,
            accounting=plan.accounting,
            start_ns=start_ns,
            socket_name=name,
            folder=janitor.folder,
        )
        stack.enter_context(closing(shared))
        engine = Engine(plan.units, plan.busy, shared, truth, start_ns=start_ns, name=name)
        stack.enter_context(closing(engine))
        modules = [unit.board.module for unit in plan.units if unit.board.module]
        environ = environment(
            plan.environ,
            library_folder=plan.library_folder,
            shared=Path(shared.path),
            state=state,
            cpu_w=modules[0].host_full_w if modules else None,
        )
        child = stack.enter_context(closing(Child(plan.command, environ, signals)))
        engine.run(child)
        return child.exit_status
