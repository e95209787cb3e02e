"""How results are laid out in a terminal, a file or a pipe: lines, tables, warnings, commands."""

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

from joulewise.data import QualityWarning
from joulewise.formatting import fitting, plain, wrap_text
from joulewise.report.tables import Style, Table, drawn
from joulewise.report.views.run import warned as warning_text

_NO_WIDTH: Final = 10_000  # columns of a pipe or a file: nothing is wrapped in it
_INDENT: Final = 2  # columns (chosen); doubled, wide tables lose two more to the margin
_WARNING: Final = "warning: "


class Screen(Console):
    """A console that wraps and pads lines only if it is a terminal."""

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
    """A stream that drops the blanks at the end of lines."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(re.sub(r" +$", "", text, flags=re.MULTILINE))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Sheet:
    """What a verb shows, from top to bottom: lines, tables, warnings, and commands to paste."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def line(self, text: str, style: str = "", indent: int = _INDENT) -> None:
        """A paragraph, wrapped to the width of the terminal."""
        fitted = fitting(text, self.console.encoding)
        lines = wrap_text(fitted, self.console.width - indent)
        whole = Text("\n".join(lines), style=style)
        self.console.print(Padding(whole, (0, 0, 0, indent), expand=False))

    def paste(self, command: str, what: str) -> None:
        """A command with its purpose; never wrapped, so that it can be copied."""
        text = f"{' ' * _INDENT}{fitting(command, self.console.encoding)}"
        whole = f"{text}  # {fitting(what, self.console.encoding)}"
        text = whole if cell_len(whole) <= self.console.width else text
        self.console.print(Text(text, style="dim"), soft_wrap=True)

    def warnings(self, warnings: Iterable[QualityWarning]) -> None:
        """Each warning, with what to do about it in the next line."""
        for warning in warnings:
            self._hang(_WARNING, warning_text(warning), "yellow")
            if warning.hint:
                self._hang(" " * len(_WARNING), plain(warning.hint), "dim")

    def _hang(self, begin: str, text: str, style: str) -> None:
        """A paragraph whose lines all start below the text that follows ``begin``."""
        fitted = fitting(text, self.console.encoding)
        lines = wrap_text(fitted, self.console.width - _INDENT - len(begin))
        whole = begin + f"\n{' ' * len(begin)}".join(lines)
        indent(Text(whole, style=style), self.console)

    def table(self, table: Table) -> None:
        """A table with its caption and its note, below an empty line."""
        self.console.print()
        self.line(table.caption, "dim")
        self.blocks(table)
        if table.note:
            self.line(table.note, "dim")

    def blocks(self, table: Table, style: Style | None = None, header_style: str = "bold") -> None:
        """The cells of a table; blocks of one that is too wide are drawn one below the other."""
        width = self.console.width - _INDENT
        drawn_blocks = drawn(table, self.console.encoding, width, style, header_style)
        for number, block in enumerate(drawn_blocks):
            if number:
                self.console.print()
            indent(block, self.console)


def indent(what: RichTable | Text, console: Console) -> None:
    """Print a text or a table with the margin that all of a result has."""
    console.print(Padding(what, (0, 0, 0, _INDENT), expand=False))


def print_command(command: str, what: str, console: Console) -> None:
    """Print a command with its purpose; not wrapped, to be pasted."""
    console.print(Text.assemble("  ", (command, "cyan"), f"  # {what}"), soft_wrap=True)


def print_fix(fix: str, console: Console) -> None:
    """Print a command that mends what the line above says; not wrapped, to be pasted."""
    console.print(Text.assemble("    fix: ", (fix, "cyan")), soft_wrap=True)
