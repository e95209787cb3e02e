"""Draws what came of a sweep."""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from joulewise.metrics.result import SweepResult
from joulewise.report.figures import fitting, plain
from joulewise.report.sweep_view import SweepView, view
from joulewise.report.sweep_went import Went
from joulewise.report.tables import Table, drawn

_INDENT = 2


def draw(
    result: SweepResult,
    console: Console,
    *,
    how: Went | None = None,
    points: bool = False,
    fits: bool = False,
    also: tuple[Table, ...] = (),
    ahead: Iterable[str] = (),
    commands: Iterable[tuple[str, str]] = (),
) -> None:
    """The choices; with ``points`` every setting, too, and ``also`` what somebody has beside them.

    ``ahead`` is what they mean from here on, and it ends with ``commands`` to try next.
    """
    shown = view(result)
    page = _Page(console)
    page.line(shown.title, "bold", 0)
    for fact in shown.facts:
        page.line(fact, "dim")
    if result.best:
        points_too = (shown.points,) if points else ()
        for table in (*points_too, shown.choices, *also, shown.boundaries):
            if table.rows:
                page.table(table)
    console.print()
    _draw_remarks(shown, how, page, fits=fits)
    for finding in shown.findings:
        page.line(finding, "bold", 0)
    for sentence in how.search if how else ():
        page.line(sentence)
    for sentence in ahead:
        page.line(sentence)
    for command, what in commands:
        page.paste(command, what)


def _draw_remarks(shown: SweepView, how: Went | None, page: _Page, *, fits: bool) -> None:
    said = [*(how.notes if how else ()), *(shown.fits if fits else ()), *shown.notes]
    for note in said:
        page.line(note)
    for caution in shown.cautions:
        page.line(f"warning: {plain(caution.message)}", "yellow")
        page.line(plain(caution.hint), "dim", 11)
    for problem, under in how.problems if how else ():
        page.line(problem, "red")
        for text in under:
            page.line(text, "dim", 4)
    if said or shown.cautions or (how and how.problems):
        page.console.print()


class _Page:
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
        self.line(what.title, "dim")
        console.print(Padding(grid, (0, 0, 0, _INDENT), expand=False))
        if left_out:
            self.line(f"no room for: {', '.join(dict.fromkeys(left_out))}", "dim")
