"""Draws what ``restore`` did, and what is left for others to do."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from joulewise.control.holds import End
from joulewise.control.recovery import Recovered
from joulewise.control.standing import Standing
from joulewise.report import words
from joulewise.report.held import held_table
from joulewise.report.leases import at, left, turned_to

_STYLES = {
    End.RESTORED: "green",
    End.ALREADY: "green",
    End.FOREIGN: "yellow",
    End.FAILED: "red",
}


def draw(
    recovered: Recovered,
    held: Sequence[Standing],
    not_ours: Sequence[Standing],
    console: Console,
) -> None:
    """``not_ours`` is what others have left, which we cannot undo."""
    if recovered.undone:
        console.print(_table(recovered))
    if recovered.rebooted:
        times = "a reboot" if recovered.rebooted == 1 else "reboots"
        console.print(Text(f"What was left set before was undone by {times} already."))
    for path in recovered.unread:
        what = f"{path} cannot be read whole: what else it told of may still be set."
        console.print(Text(what, style="red"))
    for path in recovered.unclaimed:
        console.print(Text(f"{path} is kept by another process, and not undone.", style="red"))
    for warning in recovered.unremoved:
        console.print(Text(warning, style="yellow"))
    for each in not_ours:
        console.print(Text(f"{left(each)}.", style="red"))
    if recovered == Recovered() and not not_ours:
        nothing = "Nothing was left behind. In use now:" if held else "Nothing is left set."
        console.print(Text(nothing))
    if held:
        console.print(held_table(held, console))
        console.print(Text("What is held goes back by itself when its holder ends."))


def _table(recovered: Recovered) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for header in ("device", "setting", "from", "to", "outcome"):
        table.add_column(header, overflow="fold")
    for each in recovered.undone:
        outcome = each.outcome
        table.add_row(
            outcome.key,
            words.KNOBS[outcome.knob],
            at(outcome.knob, turned_to(each)),
            "-" if outcome.end is End.FOREIGN else at(outcome.knob, outcome.value),
            Text(outcome.end.value, style=_STYLES[outcome.end]),
        )
    return table
