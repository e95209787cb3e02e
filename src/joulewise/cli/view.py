"""``joulewise view``: the store as pages in a browser, or a run in progress on a terminal."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from joulewise.cli.output import console, pass_store, program, say
from joulewise.errors import UsageError
from joulewise.store.files import is_folder

EPILOG = """\b
Examples:
  joulewise view --open
  joulewise view --terminal last
  ssh -t -L 8765:127.0.0.1:8765 node joulewise view   # from another machine
"""

_NICE = 10
"""Who trains goes first, also where a report takes seconds to make."""


@click.command(epilog=EPILOG)
@click.argument("run", required=False, metavar="[RUN]")
@click.option(
    "--terminal", is_flag=True, help="Follow RUN, or the newest in progress, on this terminal."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Where to listen; 0 is any that is free. [default: 8765, or any that is free]",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="127.0.0.1 or ::1; no other is ever listened on.",
)
@click.option("--open", "is_opened", is_flag=True, help="Open it in the browser.")
@pass_store
def command(store: Path, run: str | None, *, terminal: bool, **given: Any) -> None:
    """Show the store as pages on this machine: runs, reports, comparisons, runs in progress.

    Pages are read-only, and shown to whoever has the whole address that is printed, which has a
    secret in it. With RUN that run is opened, as it goes on or its report. With --terminal RUN is
    followed here until it ends; Ctrl-C leaves it alone.
    """
    with suppress(OSError):
        os.nice(_NICE)
    if terminal:
        _watch(store, run)
    else:
        _serve(store, run, **given)


def _watch(store: Path, run: str | None) -> None:
    from joulewise.report.resolve import resolve_one_run
    from joulewise.report.terminal.live import watch
    from joulewise.store.runs import LAST, in_progress

    meant = (None if run else in_progress(store)) or resolve_one_run(store, run or LAST).newest
    with suppress(KeyboardInterrupt), _ended_by_signal():
        watch(meant, console(), program(store))


def _serve(store: Path, run: str | None, *, port: int | None, host: str, is_opened: bool) -> None:
    from joulewise.report.html.render import require_extra
    from joulewise.serve.server import in_browser, listening
    from joulewise.serve.site import Site
    from joulewise.store.runs import ELSEWHERE

    require_extra()
    if not is_folder(store):
        raise UsageError(
            f"there is no store {store}", f"joulewise run -- CMD… makes one; or {ELSEWHERE}"
        )
    site = Site(store, program(store))
    inside = site.address(run) if run else ""
    with listening(host, port, site.answer) as server, suppress(KeyboardInterrupt):
        url = f"{server.url}{inside}"
        say(f"{store} is shown until Ctrl-C, to whoever has this address:")
        click.echo(url)
        with _ended_by_signal(), in_browser(url, is_wanted=is_opened):
            server.serve_forever()


@contextmanager
def _ended_by_signal() -> Iterator[None]:
    """As by Ctrl-C, but with its own status: the screen and what was opened are put away."""

    def end(number: int, _: Any) -> None:
        raise click.exceptions.Exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
