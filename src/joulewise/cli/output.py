"""What verbs print and write: results, JSON, and messages on stderr.

Messages are wrapped on a terminal, and whole lines otherwise. A measured command keeps its exit
status whatever happens to stderr: its reader may leave (``2>&1 | head -1``), the disk behind it may
be full, or nobody may read it.
"""

from __future__ import annotations

import io
import json
import os
import re
import select
import shlex
import string
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from joulewise.store.index.progress import Advance

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from rich.console import Console

    from joulewise.data.sweeps import Sweep
    from joulewise.data.tuning import Tuning
    from joulewise.metrics.boundary import View
    from joulewise.metrics.result import SweepResult

STDOUT = "-"
SIM_COMMAND = "JOULEWISE_SIM_COMMAND"
"""Variable in the environment of commands of ``joulewise sim``: the simulation's command line."""
_Command = TypeVar("_Command", bound=Callable[..., Any])


def json_option(command: _Command) -> _Command:
    """``--json PATH``, as ``json_path``."""
    return click.option(
        "--json",
        "json_path",
        metavar="PATH",
        help="Also write the result as JSON to PATH; - writes it to stdout and shows nothing else.",
    )(command)


def form_option(of: str) -> Callable[[_Command], _Command]:
    """``--format``, as ``form``: text, or one of :data:`joulewise.report.tables.FORMS`.

    ``of`` is the help text.
    """
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
        from joulewise.report.export import write_error

        raise write_error(Path(path), error, "give --json a path that can be written") from None


def pass_store(command: Callable[..., Any]) -> Callable[..., Any]:
    """Pass the store as the first argument; ``--store`` may also follow the verb."""

    def set_store(ctx: click.Context, _param: click.Parameter, value: Path | None) -> None:
        if value is not None:
            ctx.obj = value

    option = click.option(
        "--store",
        type=click.Path(path_type=Path),
        metavar="DIR",
        expose_value=False,
        callback=set_store,
        help="Folder of the runs.",
    )
    return option(click.pass_obj(command))


def joulewise_command(store: Path) -> str:
    """``joulewise``, with ``--store`` where the next command needs it to find the same store."""
    from joulewise.store.runs import default_store

    known = store == default_store()
    return "joulewise" if known else f"joulewise --store {_quoted(store)}"


_PLAIN_BYTES: Final = frozenset(b"/._-" + string.ascii_letters.encode() + string.digits.encode())


def _quoted(path: Path) -> str:
    """A path for a shell: in the quotes of bash with escaped bytes where it cannot be printed."""
    if str(path).isprintable():
        return shlex.quote(str(path))
    escaped = "".join(
        chr(byte) if byte in _PLAIN_BYTES else f"\\x{byte:02x}" for byte in os.fsencode(path)
    )
    return f"$'{escaped}'"


def in_simulation(command_line: str) -> str:
    """The command line within the simulation that this process runs in, if there is one."""
    sim = os.environ.get(SIM_COMMAND) if "JOULEWISE_SIM" in os.environ else None
    return f"{sim} {command_line}" if sim else command_line


def console(*, stderr: bool = False) -> Console:
    """A console for a verb's result; characters that its encoding lacks are replaced.

    On ``stderr`` where stdout belongs to the command.
    """
    from joulewise.report.terminal.layout import Screen

    stream = sys.stderr if stderr else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
    return Screen(stream)


_PREFIX: Final = "joulewise: "
_DEFAULT_COLUMNS: Final = 80  # of a terminal that does not report its width
# How long to wait for a full pipe at the end. Chosen: a reader on a loaded machine reads within a
# second; doubled, joulewise ends 5 s later where nobody reads.
_FLUSH_S: Final = 5.0
# A pipe that is ready takes this much without blocking (POSIX).
_CHUNK_B: Final = getattr(select, "PIPE_BUF", 512)


# How repr() writes a byte that is not UTF-8, in names that messages quote.
_SURROGATE: Final = re.compile(r"\\u(dc[89a-f][0-9a-f])")


class LenientStderr(io.RawIOBase):
    """Writes to a descriptor without blocking, and raises nothing.

    What a full pipe does not accept yet is written later, so that no command waits for its reader.
    What a lost reader or a full disk does not accept is dropped.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = bytearray()
        self._poller = select.poll()
        self._poller.register(descriptor, select.POLLOUT)

    def write(self, data: ReadableBuffer) -> int:
        """Write what can be written at once; returns the length of ``data`` in any case."""
        length = memoryview(data).nbytes
        self._rest += data
        while self._rest and self._poller.poll(0) and self._write_chunk():
            pass
        return length

    def finish(self, patience_s: float = _FLUSH_S) -> None:
        """Write the rest; give up when the reader has read nothing for ``patience_s``.

        A terminal has no limit: whoever stopped it with Ctrl-S reads on later.
        """
        limit_ms = None if self._rest and self.isatty() else patience_s * 1e3
        while self._rest and self._poller.poll(limit_ms) and self._write_chunk():
            pass
        self._rest.clear()

    def _write_chunk(self) -> bool:
        """Write a chunk; whether any was written, or dropped because nobody will ever read it."""
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
    """Within it, no write to ``sys.stderr`` raises or blocks for ever."""
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
    """Write a message and an optional hint to stderr; errors of writing are ignored."""
    if sys.stderr is None:
        return
    from joulewise.formatting import fitting, hanging, shell_bytes

    line, hint = (shell_bytes(_SURROGATE.sub(_decode_surrogate, text)) for text in (line, hint))
    with suppress(OSError, ValueError):
        columns = _terminal_columns() if sys.stderr.isatty() else None
        text = hanging(fitting(line, sys.stderr.encoding), _PREFIX, columns)
        if hint:
            text += hanging(fitting(hint, sys.stderr.encoding), "  ", columns)
        sys.stderr.write(text)
        sys.stderr.flush()


def _decode_surrogate(escaped: re.Match[str]) -> str:
    return chr(int(escaped[1], 16))


def _terminal_columns() -> int:
    return os.get_terminal_size(sys.stderr.fileno()).columns or _DEFAULT_COLUMNS


def say_if_newest(which: str, alike: int) -> None:
    """Say that ``which`` is the name of several runs, of which the newest was taken."""
    from joulewise.formatting import plain

    if alike > 1:
        say(f"{alike} runs have the name {plain(which)!r}; the newest is used")


def load_tuning_or_say(run: Path) -> Tuning | None:
    """The tuning of a run; None where there was none, or where a line says what is wrong."""
    from joulewise.formatting import plain
    from joulewise.store.tuning_file import UnreadableTuningError, load_tuning

    try:
        return load_tuning(run)
    except UnreadableTuningError as error:
        say(f"warning: {plain(error.message)}", error.hint)
        return None


@contextmanager
def show_index_progress(total: int) -> Iterator[Advance]:
    """Show a progress bar while a store is indexed; on a terminal only, and removed at the end."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _count: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("indexing the store"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda count: progress.advance(task, count)


def restore_leftovers() -> None:
    """Put back settings that a killed joulewise left changed, before a verb runs.

    It never keeps the verb from running: what fails here is for ``joulewise restore`` to report.
    """
    from joulewise.process.state_dir import has_leftovers, state_folders

    with suppress(Exception):
        for folder in state_folders(os.environ):
            if has_leftovers(folder):
                for line in _restore_leftovers_in(folder):
                    say(line)


def _restore_leftovers_in(state: Path) -> Iterator[str]:
    from joulewise.control.deadline_device import open_all_devices
    from joulewise.control.messages import open_log
    from joulewise.control.restore import recover
    from joulewise.control.status import Restorer, list_held_settings
    from joulewise.process.state_dir import may_restore
    from joulewise.report.views.leases import left, restore_command, sentence

    if not may_restore(state):
        for setting in list_held_settings(state):
            if setting.keeper is Restorer.NOBODY:
                yield f"{left(setting)}; run: {restore_command(state)}"
        return
    report = recover(state, lambda: open_all_devices(os.environ), open_log(state, "next command"))
    yield from filter(None, (sentence(restored, state) for restored in report.undone))


def evaluate_sweep(sweep: Sweep, by: Sequence[str], view: View) -> tuple[SweepResult, View]:
    """The result by these metrics, and its view: the node's where no GPU was in use."""
    from dataclasses import replace

    from joulewise.metrics.boundary import resolve_boundary
    from joulewise.metrics.evaluate import evaluate
    from joulewise.metrics.metric import parse

    boundary = resolve_boundary(view.boundary, sweep)
    if boundary != view.boundary:
        say("no GPU was in use: the energy is that of the node, as far as CPU and memory were read")
        view = replace(view, boundary=boundary)
    return evaluate(sweep, [parse(text) for text in by], view), view
