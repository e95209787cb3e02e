"""The bar that is shown while the index of a large store is made."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from joulewise.record.index.progress import Advance


@contextmanager
def show_index_progress(total: int) -> Iterator[Advance]:
    """On stderr, at a terminal only, and gone when it is done."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _count: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from joulewise.cli.output import console

    columns = (TextColumn("indexing the store"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda count: progress.advance(task, count)
