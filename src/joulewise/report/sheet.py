"""How a result is laid out in a terminal, whatever it is of."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from joulewise.report.figures import fitting
from joulewise.report.tables import Table, drawn

_INDENT = 2


class Sheet:
    """What a verb shows, from top to bottom: lines, tables, and commands to paste."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def line(self, text: str, style: str = "", indent: int = _INDENT) -> None:
        fitted = Text(fitting(text, self.console.encoding), style=style)
        self.console.print(Padding(fitted, (0, 0, 0, indent), expand=False))

    def paste(self, command: str, what: str) -> None:
        """In one piece, however narrow the terminal: it is there to be copied."""
        text = f"{' ' * _INDENT}{fitting(command, self.console.encoding)}"
        whole = f"{text}  # {fitting(what, self.console.encoding)}"
        text = whole if cell_len(whole) <= self.console.width else text
        self.console.print(Text(text, style="dim"), soft_wrap=True)

    def table(self, what: Table) -> None:
        console = self.console
        grid, left_out = drawn(what, console.encoding, console.width - _INDENT)
        console.print()
        self.line(what.caption, "dim")
        console.print(Padding(grid, (0, 0, 0, _INDENT), expand=False))
        if left_out:
            self.line(f"no room for: {', '.join(dict.fromkeys(left_out))}", "dim")
