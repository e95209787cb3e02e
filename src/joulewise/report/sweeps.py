"""The sweeps of a store, a line each, the newest next to the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from rich.console import Console

from joulewise.data import Source
from joulewise.data.sweeps import RunCounts, Sweep
from joulewise.report.figures import one_line
from joulewise.report.sweep_words import AXES
from joulewise.report.tables import Column, Table, drawn
from joulewise.units import NS_PER_S

_LONGEST = 32


def as_json(sweep: Sweep) -> dict[str, Any]:
    return {
        "id": sweep.id,
        "name": sweep.name,
        "state": sweep.state,
        "start_wall_ns": sweep.start_wall_ns,
        "gpu_name": sweep.gpu_name,
        "axes": list(sweep.axes),
        "settings": len(sweep.settings),
        "simulated": is_simulated(sweep),
        "runs": asdict(RunCounts.of(sweep.trials)),
    }


def draw(sweeps: Sequence[Sweep], console: Console) -> None:
    named = any(sweep.name for sweep in sweeps)
    columns = (
        Column("sweep", right=False),
        *((Column("name", right=False, spare=3),) if named else ()),
        Column("started", right=False, spare=1),
        Column("state", right=False),
        Column("runs"),
        Column("settings", right=False),
        Column("of", right=False, spare=4),
    )
    table = Table("", columns, tuple(_cells(sweep, named=named) for sweep in sweeps))
    for number, block in enumerate(drawn(table, console.encoding, console.width)):
        if number:
            console.print()
        console.print(block)


def _cells(sweep: Sweep, *, named: bool) -> tuple[str, ...]:
    started = datetime.fromtimestamp(sweep.start_wall_ns / NS_PER_S).astimezone()
    return (
        sweep.id,
        *((one_line(sweep.name, _LONGEST),) if named else ()),
        started.strftime("%Y-%m-%d %H:%M"),
        one_line(sweep.state),
        str(RunCounts.of(sweep.trials).whole),
        one_line(f"{len(sweep.settings)}: {', '.join(map(label, sweep.axes))}", _LONGEST),
        one_line(what(sweep), _LONGEST),
    )


def label(axis: str) -> str:
    return AXES.get(axis, (axis, ""))[0]


def what(sweep: Sweep) -> str:
    simulated = sweep.asked.get("simulated")
    if simulated:
        trains = simulated.get("workload") or f"like {simulated.get('like')}"
        return f"{trains}, simulated {simulated.get('gpu')}"
    command = " ".join(sweep.asked.get("command", ()))
    return f"simulated GPU, {command}" if is_simulated(sweep) else command


def is_simulated(sweep: Sweep) -> bool:
    """Whether its runs were in virtual time, or on simulated GPUs or CPUs."""
    energies = (energy for trial in sweep.trials for energy in trial.energy.values())
    return bool(sweep.asked.get("simulated")) or any(
        energy.source is Source.SIMULATED for energy in energies
    )
