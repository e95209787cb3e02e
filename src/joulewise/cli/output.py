"""What every verb that shows a result has in common: ``--json``, and where things are printed."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from joulewise.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

STDOUT = "-"
_WIDTH = 100
_Command = TypeVar("_Command", bound=Callable[..., Any])


def json_option(command: _Command) -> _Command:
    """``--json PATH``, as ``json_path``."""
    return click.option(
        "--json",
        "json_path",
        metavar="PATH",
        help="Also write the result here as JSON; - is stdout, and then nothing else is shown.",
    )(command)


def write_json(result: dict[str, Any], path: str) -> None:
    text = json.dumps(result, indent=2, allow_nan=False) + "\n"
    if path == STDOUT:
        click.echo(text, nl=False)
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}", "give --json a path that can be written"
        ) from None


def console(*, stderr: bool = False) -> Console:
    """For a verb's own result; what does not fit a terminal's encoding is replaced.

    It goes to ``stderr`` where stdout is a command's.
    """
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
    # A file or a pipe has no width, and must not take that of the terminal it was started from.
    width = None if stream.isatty() or "COLUMNS" in os.environ else _WIDTH
    return Console(highlight=False, markup=False, emoji=False, width=width, stderr=stderr)
