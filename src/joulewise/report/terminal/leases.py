"""What ``doctor`` and ``restore`` show of leases: what is set, by whom, and how it goes back."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from joulewise import formatting
from joulewise.control.holds import End
from joulewise.control.messages import user, who
from joulewise.control.restore import Recovered
from joulewise.control.status import Keeper, Standing
from joulewise.data import Unavailable
from joulewise.report.views.leases import (
    Leases,
    at,
    left,
    restore_command,
    turned_to,
)

_NARROW = 70
_STYLES = {
    End.RESTORED: "green",
    End.ALREADY: "green",
    End.FOREIGN: "yellow",
    End.FAILED: "red",
}


def draw(found: Leases, console: Console, *, may_turn: bool = False) -> None:
    """``may_turn``: whether a driver lets this process turn a knob, whoever it is of."""
    console.print(Text("leases", style="bold"))
    if found.held:
        _indent(_held_table(found.held, console), console)
    for each, state in found.left:
        _indent(Text.assemble(("left behind", "red"), f": {_left(each)}"), console)
        # Not wrapped: it is there to be pasted.
        fix = (restore_command(state), "cyan")
        console.print(Text.assemble("    fix: ", fix), soft_wrap=True)
    if isinstance(found.service, Unavailable):
        _indent(Text.assemble(("guard service", "yellow"), f": {found.service.reason}"), console)
        console.print(Text.assemble("    fix: ", (found.service.fix, "cyan")), soft_wrap=True)
    for line in _lines(found, may_turn=may_turn):
        _indent(Text(line), console)


def draw_restored(
    recovered: Recovered,
    held: Sequence[Standing],
    not_ours: Sequence[Standing],
    console: Console,
) -> None:
    """``not_ours`` is what others have left, which we cannot undo."""
    if recovered.undone:
        console.print(_undone_table(recovered))
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
        console.print(_held_table(held, console))
        console.print(Text("What is held goes back by itself when its holder ends."))


def _lines(found: Leases, *, may_turn: bool) -> Iterator[str]:
    if not (found.held or found.left):
        yield "nothing is set by joulewise now"
    serves = isinstance(found.service, str)
    if serves:
        yield f"the guard service answers at {found.service}"
    elif found.service is None:
        yield f"no guard service here: {_without_service(may_turn=may_turn)}"
    if found.scheduler and not (serves or found.epilog):
        yield (
            f"under {found.scheduler}, which ends our guardian with the job: knobs are turned only "
            "through the guard service, or once `joulewise restore --epilog` is in the epilog"
        )
    elif found.scheduler:
        by = "the guard service" if serves else "the epilog"
        yield f"under {found.scheduler}: {by} puts back what a job leaves"


def _without_service(*, may_turn: bool) -> str:
    if os.geteuid() == 0:
        return "root turns knobs without it"
    return "you may turn knobs without it" if may_turn else "only root can turn knobs"


def _left(each: Standing) -> str:
    change = each.change
    return (
        f"{change.key}'s {formatting.KNOBS[change.knob]} at {at(change.knob, change.value)}, "
        f"before {at(change.knob, change.before)}, by {who(each.holder)}"
    )


def _held_table(held: Sequence[Standing], console: Console) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for header in ("device", "setting", "held at", "back to", "by", "since"):
        table.add_column(header, overflow="fold", no_wrap=header != "by")
    for each in held:
        change, holder = each.change, each.holder
        gone = ", which has ended" if each.keeper is Keeper.GUARDIAN else ""
        table.add_row(
            change.key,
            formatting.KNOBS[change.knob],
            at(change.knob, change.value),
            at(change.knob, change.before),
            f"pid {holder.pid} ({holder.program}, {user(holder.uid)}){gone}",
            _since(holder.since_s),
        )
    if console.width < _NARROW:
        del table.columns[-1]
    return table


def _undone_table(recovered: Recovered) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for header in ("device", "setting", "from", "to", "outcome"):
        table.add_column(header, overflow="fold")
    for each in recovered.undone:
        outcome = each.outcome
        table.add_row(
            outcome.key,
            formatting.KNOBS[outcome.knob],
            at(outcome.knob, turned_to(each)),
            "-" if outcome.end is End.FOREIGN else at(outcome.knob, outcome.value),
            Text(outcome.end.value, style=_STYLES[outcome.end]),
        )
    return table


def _since(since_s: float) -> str:
    then = datetime.fromtimestamp(since_s).astimezone()
    today = datetime.now(then.tzinfo).date() == then.date()
    return f"{then:%H:%M:%S}" if today else f"{then:%Y-%m-%d %H:%M}"


def _indent(what: Table | Text, console: Console) -> None:
    console.print(Padding(what, (0, 0, 0, 2), expand=False))
