"""A name that several runs have."""

from __future__ import annotations

from joulewise.cli.stderr import say


def say_if_newest(which: str, alike: int) -> None:
    """Where ``which`` named so many runs, and the newest was taken."""
    from joulewise.report.figures import plain

    if alike > 1:
        say(f"{alike} runs are named {plain(which)}: this is the newest")
