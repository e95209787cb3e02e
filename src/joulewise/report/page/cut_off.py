"""Traces that end before their run did: they read as if there had been no more."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from joulewise.record.layout import PACKED, STREAM, TRACE
from joulewise.record.streams import is_whole
from joulewise.report.charts.run_tables import listed
from joulewise.report.figures import plain
from joulewise.report.meant import MeantRuns
from joulewise.report.page.page import Notice

_HINT: Final = "put it back from a copy if there is one; what is missing is not zero"


def cut_off(found: MeantRuns) -> tuple[Notice, ...]:
    """Not of a run in progress, whose last batch may be half written."""
    ended = (
        run
        for run, member in zip(found.runs, found.members, strict=True)
        if member.manifest.state != "recording"
    )
    return tuple(
        Notice(f"{run.name}: {listed(lanes)} cannot be read to the end, and figures lack it", _HINT)
        for run in ended
        if (lanes := _damaged(run))
    )


def _damaged(run: Path) -> list[str]:
    streams = sorted((run / TRACE).glob(f"*{STREAM}"))
    return [
        plain(path.name)
        for path in streams
        if not path.with_suffix(PACKED).exists() and not is_whole(path)
    ]
