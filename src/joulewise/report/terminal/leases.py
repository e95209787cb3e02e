"""Draws the leases for ``doctor`` and ``restore``: what is set, by whom, and what goes back."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from joulewise import formatting
from joulewise.control.holds import RestoreResult
from joulewise.control.messages import describe_holder, user_name
from joulewise.control.restore import RecoveryReport
from joulewise.control.status import HeldSetting, Restorer
from joulewise.data import Unavailable
from joulewise.report.tables import new_rich_table
from joulewise.report.terminal.layout import indent, print_fix
from joulewise.report.views.leases import (
    Leases,
    at,
    left,
    restore_command,
    value_left,
)

_NARROW = 70  # columns below which the start of a lease is left out (chosen: the table's width)
_STYLES = {
    RestoreResult.RESTORED: "green",
    RestoreResult.ALREADY: "green",
    RestoreResult.FOREIGN: "yellow",
    RestoreResult.FAILED: "red",
}


def draw(leases: Leases, console: Console, *, may_set: bool = False) -> None:
    """Draw the leases; ``may_set``: whether a driver lets this process change a setting."""
    console.print(Text("changed settings (leases)", style="bold"))
    if leases.held:
        indent(_held_table(leases.held, console), console)
    for lease, state in leases.left:
        indent(Text.assemble(("left behind", "red"), f": {_left(lease)}"), console)
        print_fix(restore_command(state), console)
    if isinstance(leases.service, Unavailable):
        indent(Text.assemble(("guard service", "yellow"), f": {leases.service.reason}"), console)
        print_fix(leases.service.fix, console)
    for line in _lines(leases, may_set=may_set):
        indent(Text(line), console)


def draw_restored(
    recovered: RecoveryReport,
    held: Sequence[HeldSetting],
    not_ours: Sequence[HeldSetting],
    console: Console,
) -> None:
    """Draw what ``restore`` did; ``not_ours`` is what others left, which we may not undo."""
    if recovered.undone:
        console.print(_undone_table(recovered))
    if recovered.rebooted:
        times = "a reboot" if recovered.rebooted == 1 else "reboots"
        console.print(Text(f"Settings that were left changed have been undone by {times}."))
    for path in recovered.unread:
        what = f"{path} is damaged: settings that it lists may still be changed."
        console.print(Text(what, style="red"))
    for path in recovered.unclaimed:
        console.print(Text(f"{path} is held by another process, and was not undone.", style="red"))
    for warning in recovered.unremoved:
        console.print(Text(warning, style="yellow"))
    for lease in not_ours:
        console.print(Text(f"{left(lease)}.", style="red"))
    if recovered == RecoveryReport() and not not_ours:
        nothing = "Nothing to restore. In use now:" if held else "Nothing to restore."
        console.print(Text(nothing))
    if held:
        console.print(_held_table(held, console))
        console.print(
            Text("A setting in use goes back by itself when the process that holds it ends.")
        )


def _lines(leases: Leases, *, may_set: bool) -> Iterator[str]:
    if not (leases.held or leases.left):
        yield "no setting is changed by joulewise now"
    serves = isinstance(leases.service, str)
    if serves:
        yield f"the guard service answers at {leases.service}"
    elif leases.service is None:
        yield f"no guard service here: {_without_service(may_set=may_set)}"
    if leases.scheduler and not (serves or leases.epilog):
        yield (
            f"under {leases.scheduler}, which ends the guardian with the job: settings can only be "
            "changed by the guard service, or once `joulewise restore --epilog` is in the epilog"
        )
    elif leases.scheduler:
        by = "the guard service" if serves else "the epilog"
        yield f"under {leases.scheduler}: {by} restores the settings that a job leaves"


def _without_service(*, may_set: bool) -> str:
    if os.geteuid() == 0:
        return "root can change settings without it"
    return "you can change settings without it" if may_set else "only root can change settings"


def _left(lease: HeldSetting) -> str:
    change = lease.change
    return (
        f"{change.key}'s {formatting.CONTROLS[change.knob]} at {at(change.knob, change.value)}, "
        f"before {at(change.knob, change.before)}, by {describe_holder(lease.holder)}"
    )


def _held_table(held: Sequence[HeldSetting], console: Console) -> Table:
    table = new_rich_table()
    for header in ("device", "setting", "held at", "back to", "by", "since"):
        table.add_column(header, overflow="fold", no_wrap=header != "by")
    for lease in held:
        change, holder = lease.change, lease.holder
        gone = ", which has ended" if lease.keeper is Restorer.GUARDIAN else ""
        table.add_row(
            change.key,
            formatting.CONTROLS[change.knob],
            at(change.knob, change.value),
            at(change.knob, change.before),
            f"pid {holder.pid} ({holder.program}, {user_name(holder.uid)}){gone}",
            _since(holder.since_s),
        )
    if console.width < _NARROW:
        del table.columns[-1]
    return table


def _undone_table(recovered: RecoveryReport) -> Table:
    table = new_rich_table()
    for header in ("device", "setting", "from", "to", "outcome"):
        table.add_column(header, overflow="fold")
    for undone in recovered.undone:
        outcome = undone.outcome
        table.add_row(
            outcome.key,
            formatting.CONTROLS[outcome.knob],
            at(outcome.knob, value_left(undone)),
            "-" if outcome.end is RestoreResult.FOREIGN else at(outcome.knob, outcome.value),
            Text(outcome.end.value, style=_STYLES[outcome.end]),
        )
    return table


def _since(since_s: float) -> str:
    then = datetime.fromtimestamp(since_s).astimezone()
    today = datetime.now(then.tzinfo).date() == then.date()
    return f"{then:%H:%M:%S}" if today else f"{then:%Y-%m-%d %H:%M}"
