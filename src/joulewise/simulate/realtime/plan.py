"""A command among simulated GPUs, from what was asked for to its exit status."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

from joulewise.command.child import Child, find_program
from joulewise.command.signals import take_signals
from joulewise.errors import UsageError
from joulewise.simulate.boards import BOARDS, load_board, make_unit
from joulewise.simulate.model import Unit, Workload
from joulewise.simulate.nvml.faults import LIBRARY_ABSENT, Fault, parse
from joulewise.simulate.nvml.latency import NO_LATENCY, Latency
from joulewise.simulate.nvml.layout import CONSTANTS
from joulewise.simulate.nvml.shared import Shared, library
from joulewise.simulate.realtime import fleet
from joulewise.simulate.realtime.engine import Engine
from joulewise.simulate.realtime.janitor import Janitor
from joulewise.simulate.realtime.launch import ABSENT, environment, search_path
from joulewise.simulate.realtime.truth import Truth
from joulewise.simulate.workloads import load_workload

SEEDS_PER_FLEET = 64


@dataclass(frozen=True)
class Plan:
    """What to simulate, checked; ``busy`` is each GPU's own load, if it has one."""

    units: tuple[Unit, ...]
    busy: tuple[Workload | None, ...]
    faults: tuple[Fault, ...]
    latency: Latency
    as_root: bool
    accounting: bool
    truth: Path | None
    library: Path
    command: Sequence[str]
    environ: Mapping[str, str]


def prepare(
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
) -> Plan:
    """Everything that can be wrong with the request is found here, before anything starts."""
    if truth == Path("-"):
        raise UsageError("stdout belongs to the command", "give --truth a file")
    if batch_size is not None and workload is None:
        raise UsageError("--batch-size is that of a workload", "add --workload resnet50")
    boards = [load_board(key) for key in fleet.parse(gpus, BOARDS)]
    if persistence is not None:
        boards = [replace(board, persistence=persistence) for board in boards]
    parsed = tuple(fault for text in faults for fault in parse(text))
    for fault in parsed:
        if fault.gpu is not None and fault.gpu >= len(boards):
            raise UsageError(
                f"a fault on gpu{fault.gpu}, and {len(boards)} GPUs to simulate",
                "they are counted from gpu0; gpu* is all of them",
            )
    if len(parsed) > CONSTANTS["FAULTS"]:
        raise UsageError(
            f"{len(parsed)} faults are too many", f"ask for {CONSTANTS['FAULTS']} at most"
        )
    if not command:
        raise UsageError("no command to run", "put it after --, as in: -- nvidia-smi")
    find_program(command[0], search_path(environ))
    absent = any(fault.kind == LIBRARY_ABSENT for fault in parsed)
    return Plan(
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
        library=ABSENT if absent else library().parent,
        command=command,
        environ=environ,
    )


def run(plan: Plan) -> int:
    """Run the command to its end; its exit status."""
    with ExitStack() as stack:
        truth = stack.enter_context(closing(Truth(plan.truth))) if plan.truth else None
        signals = stack.enter_context(closing(take_signals()))
        janitor = stack.enter_context(closing(Janitor()))
        state = janitor.folder / "state"
        state.mkdir()
        start_ns = time.monotonic_ns()
        shared = stack.enter_context(
            closing(
                Shared.create(
                    plan.units,
                    latency=plan.latency,
                    faults=plan.faults,
                    as_root=plan.as_root,
                    accounting=plan.accounting,
                    start_ns=start_ns,
                    socket_name=janitor.folder.name,
                    folder=janitor.folder,
                )
            )
        )
        engine = stack.enter_context(
            closing(
                Engine(
                    plan.units,
                    plan.busy,
                    shared,
                    truth,
                    start_ns=start_ns,
                    name=janitor.folder.name,
                )
            )
        )
        modules = [unit.board.module for unit in plan.units if unit.board.module]
        environ = environment(
            plan.environ,
            library=plan.library,
            shared=Path(shared.path),
            state=state,
            cpu_w=modules[0].host_full_w if modules else None,
        )
        child = stack.enter_context(closing(Child(plan.command, environ, signals)))
        engine.run(child)
        return child.exit_status
