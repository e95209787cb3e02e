"""``joulewise view``: shows the store in a browser, or follows a run on the terminal."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from joulewise.cli.options import number_option
from joulewise.cli.output import console, joulewise_command, pass_store, say
from joulewise.errors import UsageError
from joulewise.store.files import is_folder

EPILOG = """\b
Examples:
  joulewise view --open
  joulewise view --terminal last
  ssh -t -L 8765:127.0.0.1:8765 node joulewise view   # from another machine
"""

_NICE = 10
"""Priority of this process, chosen so that trainings go first while a report is made."""


@click.command(epilog=EPILOG)
@click.argument("run", required=False, metavar="[RUN]")
@click.option(
    "--terminal", is_flag=True, help="Follow RUN, or the newest run in progress, on the terminal."
)
@number_option(
    "--port",
    click.IntRange(0, 65535),
    help="Listen on this port; 0 is any free one. [default: 8765, or any free one]",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Listen on this local address: 127.0.0.1 or ::1.",
)
@click.option("--open", "opens_browser", is_flag=True, help="Open the page in a browser.")
@pass_store
def command(store: Path, run: str | None, *, terminal: bool, **given: Any) -> None:
    """Show the store in a browser: runs, reports, comparisons and runs in progress.

    The pages are read-only, and visible to everybody who has the printed address, which contains a
    secret. With RUN, that run or its report is opened. With --terminal, RUN is followed on the
    terminal until it ends; Ctrl-C stops following, and the run goes on.
    """
    with suppress(OSError):
        os.nice(_NICE)
    if terminal:
        _follow_in_terminal(store, run)
    else:
        _serve_pages(store, run, **given)


def _follow_in_terminal(store: Path, run: str | None) -> None:
    from joulewise.report.resolve import resolve_one_run
    from joulewise.report.terminal.live import watch
    from joulewise.store.runs import LAST, newest_recording

    followed = (None if run else newest_recording(store)) or resolve_one_run(
        store, run or LAST
    ).newest
    with suppress(KeyboardInterrupt), _exit_on_signal():
        watch(followed, console(), joulewise_command(store))


def _serve_pages(
    store: Path, run: str | None, *, port: int | None, host: str, opens_browser: bool
) -> None:
    from joulewise.report.html.render import require_extra
    from joulewise.serve.server import listening, open_in_browser
    from joulewise.serve.site import Site
    from joulewise.store.runs import ELSEWHERE

    require_extra()
    if not is_folder(store):
        raise UsageError(
            f"there is no store {store}", f"to make one: joulewise run -- CMD…; or {ELSEWHERE}"
        )
    site = Site(store, joulewise_command(store))
    inside = site.address(run) if run else ""
    with listening(host, port, site.answer) as server, suppress(KeyboardInterrupt):
        url = f"{server.url}{inside}"
        say(f"showing {store} until Ctrl-C, to everybody who has this address:")
        click.echo(url)
        with _exit_on_signal(), open_in_browser(url, is_wanted=opens_browser):
            server.serve_forever()


@contextmanager
def _exit_on_signal() -> Iterator[None]:
    """Exit cleanly on SIGTERM or SIGHUP, with the signal's exit status."""

    def end(number: int, _: Any) -> None:
        raise click.exceptions.Exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
