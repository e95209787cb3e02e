"""Where tables are drawn: on a terminal, or into a file or a pipe, which have no width.

How a result is laid out in a terminal, whatever it is of.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import IO, Any, Final, cast

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from joulewise.formatting import fitting, wrap_text
from joulewise.report.tables import Table, drawn

_NO_WIDTH: Final = 10_000


class Screen(Console):
    """Wraps and pads for a terminal only."""

    def __init__(self, stream: IO[str]) -> None:
        piped = not stream.isatty()
        super().__init__(
            file=cast("IO[str]", _Unpadded(stream)) if piped else stream,
            width=_NO_WIDTH if piped and "COLUMNS" not in os.environ else None,
            highlight=False,
            markup=False,
            emoji=False,
        )


class _Unpadded:
    """A stream whose lines end where their last word does."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(re.sub(r" +$", "", text, flags=re.MULTILINE))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


_INDENT = 2


class Sheet:
    """What a verb shows, from top to bottom: lines, tables, and commands to paste."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def line(self, text: str, style: str = "", indent: int = _INDENT) -> None:
        fitted = fitting(text, self.console.encoding)
        lines = wrap_text(fitted, self.console.width - indent)
        whole = Text("\n".join(lines), style=style)
        self.console.print(Padding(whole, (0, 0, 0, indent), expand=False))

    def paste(self, command: str, what: str) -> None:
        """In one piece, however narrow the terminal: it is there to be copied."""
        text = f"{' ' * _INDENT}{fitting(command, self.console.encoding)}"
        whole = f"{text}  # {fitting(what, self.console.encoding)}"
        text = whole if cell_len(whole) <= self.console.width else text
        self.console.print(Text(text, style="dim"), soft_wrap=True)

    def table(self, what: Table) -> None:
        self.console.print()
        self.line(what.caption, "dim")
        self.grids(drawn(what, self.console.encoding, self.console.width - _INDENT))
        if what.note:
            self.line(what.note, "dim")

    def grids(self, blocks: Iterable[RichTable]) -> None:
        """The blocks of one table, one below the other."""
        for number, block in enumerate(blocks):
            if number:
                self.console.print()
            self.console.print(Padding(block, (0, 0, 0, _INDENT), expand=False))
