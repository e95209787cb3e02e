"""A name that several runs have."""

from __future__ import annotations

from pathlib import Path

from joulewise.cli.stderr import say


def say_if_newest(store: Path, which: str, run: Path) -> None:
    """Where ``which`` named several runs and ``run`` is what was taken."""
    from joulewise.record.store import named
    from joulewise.report.figures import plain

    same = [] if run.name.startswith(which) else named(store, which)
    if len(same) > 1 and run in same:
        say(f"{len(same)} runs are named {plain(which)}: this is the newest")
