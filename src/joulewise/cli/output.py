"""What every verb that shows a result has in common: ``--json``, and where things are printed."""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

STDOUT = "-"
SIM_COMMAND = "JOULEWISE_SIM_COMMAND"
"""In the environment of a command of ``joulewise sim``: how that was started, up to the command."""
_Command = TypeVar("_Command", bound=Callable[..., Any])


def json_option(command: _Command) -> _Command:
    """``--json PATH``, as ``json_path``."""
    return click.option(
        "--json",
        "json_path",
        metavar="PATH",
        help="Also write the result here as JSON; - is stdout, and then nothing else is shown.",
    )(command)


def form_option(of: str) -> Callable[[_Command], _Command]:
    """``--format``, as ``form``: text, or one of :data:`joulewise.report.tables.FORMS`."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(["text", "csv", "json", "markdown", "latex"]),
        default="text",
        show_default=True,
        help=of,
    )


def write_json(result: dict[str, Any], path: str) -> None:
    text = json.dumps(result, indent=2, allow_nan=False) + "\n"
    if path == STDOUT:
        click.echo(text, nl=False)
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        from joulewise.report.unwritten import unwritten

        raise unwritten(Path(path), error, "give --json a path that can be written") from None


def pass_store(command: Callable[..., Any]) -> Callable[..., Any]:
    """The store as the first argument; ``--store`` may stand after the verb, too."""

    def given(ctx: click.Context, _param: click.Parameter, value: Path | None) -> None:
        if value is not None:
            ctx.obj = value

    option = click.option(
        "--store",
        type=click.Path(path_type=Path),
        metavar="DIR",
        expose_value=False,
        callback=given,
        help="The folder with the runs.",
    )
    return option(click.pass_obj(command))


def program(store: Path) -> str:
    """How the next command finds the same store."""
    from joulewise.record.store import default_store

    known = store == default_store()
    return "joulewise" if known else f"joulewise --store {shlex.quote(str(store))}"


def in_simulation(command_line: str) -> str:
    """The command line with the simulation that this process runs in, without which it has no GPU.

    The same text where there is no simulation.
    """
    sim = os.environ.get(SIM_COMMAND) if "JOULEWISE_SIM" in os.environ else None
    return f"{sim} {command_line}" if sim else command_line


def console(*, stderr: bool = False) -> Console:
    """For a verb's own result; what does not fit a terminal's encoding is replaced.

    It goes to ``stderr`` where stdout is a command's.
    """
    from joulewise.report.screen import Screen

    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
    return Screen(stream)
