"""What an earlier joulewise left set is put back before a verb runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from joulewise.cli.output import say
from joulewise.process.state_dir import has_leftover, may_put_back, state_folders


def put_back_leftovers() -> None:
    """Never in the way of the verb: what goes wrong here is for ``restore`` to say."""
    with suppress(Exception):
        for folder in state_folders(os.environ):
            if has_leftover(folder):
                for line in _put_back(folder):
                    say(line)


def _put_back(state: Path) -> Iterator[str]:
    from joulewise.control.deadline_device import every_device
    from joulewise.control.messages import open_log
    from joulewise.control.restore import recover
    from joulewise.control.status import Keeper, standing
    from joulewise.report.views.leases import left, restore_command, sentence

    if not may_put_back(state):
        for each in standing(state):
            if each.keeper is Keeper.NOBODY:
                yield f"{left(each)}; run: {restore_command(state)}"
        return
    done = recover(state, lambda: every_device(os.environ), open_log(state, "next command"))
    yield from filter(None, (sentence(each, state) for each in done.undone))
