"""The sweeps of a store, a line each, the newest next to the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from rich.console import Console

from joulewise.report.figures import one_line
from joulewise.report.sweep_words import AXES
from joulewise.report.tables import Column, Table, drawn
from joulewise.sweep.entry import SweepEntry
from joulewise.units import NS_PER_S

_LONGEST = 32


def as_json(sweep: SweepEntry) -> dict[str, Any]:
    return {
        "id": sweep.id,
        "name": sweep.name,
        "state": sweep.state,
        "start_wall_ns": sweep.start_wall_ns,
        "gpu_name": sweep.gpu_name,
        "axes": list(sweep.axes),
        "settings": sweep.settings,
        "simulated": sweep.is_simulated,
        "runs": asdict(sweep.runs),
    }


def draw(sweeps: Sequence[SweepEntry], console: Console) -> None:
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


def _cells(sweep: SweepEntry, *, named: bool) -> tuple[str, ...]:
    started = datetime.fromtimestamp(sweep.start_wall_ns / NS_PER_S).astimezone()
    return (
        sweep.id,
        *((one_line(sweep.name, _LONGEST),) if named else ()),
        started.strftime("%Y-%m-%d %H:%M"),
        one_line(sweep.state),
        str(sweep.runs.whole),
        one_line(f"{sweep.settings}: {', '.join(map(label, sweep.axes))}", _LONGEST),
        one_line(sweep.workload, _LONGEST),
    )


def label(axis: str) -> str:
    return AXES.get(axis, (axis, ""))[0]
