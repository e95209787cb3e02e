"""What every verb that shows a result has in common: ``--json``, and where things are printed.

Lines to stderr: wrapped in a terminal, whole for whatever else reads them.

A command that is measured keeps its exit status whatever becomes of stderr. Its reader may leave
(``2>&1 | head -1``), the disk behind it may be full, or nobody may read it at all.

A name that several runs have.

The bar that is shown while the index of a large store is made.
"""

from __future__ import annotations

import io
import json
import os
import re
import select
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from joulewise.store.index.progress import Advance

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
        from joulewise.report.export import unwritten

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
    from joulewise.store.runs import default_store

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
    from joulewise.report.terminal.layout import Screen

    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
    return Screen(stream)


if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_WHO: Final = "joulewise: "
_WIDTH: Final = 80  # of a terminal that does not tell
# How long a full pipe is waited for at the end. Chosen: a reader on a loaded machine reads within a
# second; twice as long delays our end by as much where nobody reads.
_PATIENCE_S: Final = 5.0
# A pipe that is ready takes this much without blocking (POSIX).
_CHUNK_B: Final = getattr(select, "PIPE_BUF", 512)


# How repr writes a byte that is no UTF-8, in names that messages quote.
_SURROGATE: Final = re.compile(r"\\u(dc[89a-f][0-9a-f])")


class LenientStderr(io.RawIOBase):
    """Writes to a descriptor as far as it can, and raises nothing.

    What a full pipe does not take yet is kept and written later, so that no command waits for its
    reader. What a lost reader or a full disk does not take is dropped.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = bytearray()
        self._poller = select.poll()
        self._poller.register(descriptor, select.POLLOUT)

    def write(self, data: ReadableBuffer) -> int:
        """Write what can be written at once; always the length of ``data``."""
        length = memoryview(data).nbytes
        self._rest += data
        while self._rest and self._poller.poll(0) and self._write_chunk():
            pass
        return length

    def finish(self, patience_s: float = _PATIENCE_S) -> None:
        """Write the rest, and give it up when the reader has taken nothing for ``patience_s``.

        A terminal is waited for without limit: whoever stopped it with Ctrl-S reads on later.
        """
        limit_ms = None if self._rest and self.isatty() else patience_s * 1e3
        while self._rest and self._poller.poll(limit_ms) and self._write_chunk():
            pass
        self._rest.clear()

    def _write_chunk(self) -> bool:
        """Whether some of the rest is gone: written, or dropped as nobody will ever take it."""
        try:
            del self._rest[: os.write(self._descriptor, self._rest[:_CHUNK_B])]
        except BlockingIOError:
            return False
        except OSError:
            self._rest.clear()
        return True

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor


@contextmanager
def lenient_stderr() -> Iterator[None]:
    """Within it, no write to ``sys.stderr`` raises, and none waits for ever."""
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # closed, or no file of the system
        descriptor = None
    if descriptor is None or not hasattr(select, "poll"):  # Windows, where nothing is run
        yield
        return
    raw = LenientStderr(descriptor)
    stream = io.TextIOWrapper(
        io.BufferedWriter(raw), sys.stderr.encoding, sys.stderr.errors, line_buffering=True
    )
    with redirect_stderr(stream):
        try:
            yield
        finally:
            stream.flush()
            raw.finish()


def say(line: str, hint: str = "") -> None:
    """If nobody is there any more, whoever says it goes on all the same."""
    if sys.stderr is None:
        return
    from joulewise.formatting import fitting, hanging, shell_bytes

    line, hint = (shell_bytes(_SURROGATE.sub(_decode, text)) for text in (line, hint))
    with suppress(OSError, ValueError):
        columns = _columns() if sys.stderr.isatty() else None
        said = hanging(fitting(line, sys.stderr.encoding), _WHO, columns)
        if hint:
            said += hanging(fitting(hint, sys.stderr.encoding), "  ", columns)
        sys.stderr.write(said)
        sys.stderr.flush()


def _decode(escaped: re.Match[str]) -> str:
    return chr(int(escaped[1], 16))


def _columns() -> int:
    return os.get_terminal_size(sys.stderr.fileno()).columns or _WIDTH


def say_if_newest(which: str, alike: int) -> None:
    """Where ``which`` named so many runs, and the newest was taken."""
    from joulewise.formatting import plain

    if alike > 1:
        say(f"{alike} runs are named {plain(which)}: this is the newest")


@contextmanager
def show_index_progress(total: int) -> Iterator[Advance]:
    """On stderr, at a terminal only, and gone when it is done."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _count: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("indexing the store"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda count: progress.advance(task, count)
