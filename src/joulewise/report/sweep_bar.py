"""The bar of a sweep, in one line: how far it is, what runs, what is best so far, how long yet."""

from __future__ import annotations

import time
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task
from rich.table import Column
from rich.text import Text

from joulewise.report.figures import one_line, seconds

NOTHING: Final[dict[str, Any]] = {"settings": "", "runs": "", "best": "", "end_s": None}
"""What a task has to tell, before there is anything: ``runs`` is longer than ``settings``."""

_NARROW: Final = 100
_LEAST: Final = 12
_MINUTE_S: Final = 60


def bar(console: Console) -> Progress:
    width = 10 if console.width < _NARROW else 30
    return Progress(
        BarColumn(width),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        _Told(console, width),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


class _Told(ProgressColumn):
    """Two lines would make the bar jump: what has no room is said shorter, or not."""

    def __init__(self, console: Console, bar_width: int) -> None:
        super().__init__(Column(no_wrap=True))
        self._console = console
        self._beside = bar_width + 2

    def render(self, task: Task) -> Text:
        counts = len(f"{task.completed:.0f}/{task.total or 0:.0f}")
        room = self._console.width - self._beside - counts - 1
        told = task.fields
        return line(told["settings"], told["runs"], told["best"], _left(told["end_s"]), room)


def line(settings: str, runs: str, best: str, left: str, room: int) -> Text:
    """The time left always, the best where there is room beside what runs, or its beginning."""
    others = [part for part in (best, left) if part]
    for now, rest in ((runs, others), (settings, others), (settings, [left] if left else [])):
        fitted = _fitted(now, rest, room)
        if fitted is not None:
            break
    else:
        fitted, rest = "", [left] if left else []
    parts = [Text(fitted)] if fitted else []
    parts += [Text(part, "green" if part is best else "dim") for part in rest]
    return Text(" ").join(parts)


def _fitted(now: str, others: list[str], room: int) -> str | None:
    """As much of it as there is room for, None where that is next to nothing."""
    most = room - sum(cell_len(part) + 1 for part in others)
    if cell_len(now) <= most:
        return now
    return one_line(now, most) if most >= _LEAST else None


def _left(end_s: float | None) -> str:
    """It counts down between the ends of runs."""
    left_s = 0 if end_s is None else max(0, round(end_s - time.monotonic()))
    if not left_s:
        return ""
    return f"{left_s} s left" if left_s < _MINUTE_S else f"{seconds(left_s)} left"
