"""Undoing what guardians have left that were killed, or lost their power."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

from joulewise.control import journal
from joulewise.control.holds import End, Hold, Holder, Outcome
from joulewise.control.putting_back import put_back
from joulewise.control.words import said
from joulewise.devices import Device

_PATIENCE_S: Final = 1.0


@dataclass(frozen=True)
class Undone:
    """What became of a knob, and who had left it as it was."""

    outcome: Outcome
    holder: Holder


@dataclass(frozen=True)
class Recovered:
    """What became of leftovers; ``rebooted`` counts those that a reboot had undone.

    ``unread`` are files of which not all could be read: what they told of may still be set.
    """

    undone: tuple[Undone, ...] = ()
    rebooted: int = 0
    unread: tuple[Path, ...] = ()

    @property
    def failed(self) -> tuple[Undone, ...]:
        return tuple(each for each in self.undone if each.outcome.end is End.FAILED)


def recover(
    state: Path,
    devices: Callable[[], Mapping[str, Device]],
    log: Callable[[str], None],
    *,
    patience_s: float = _PATIENCE_S,
) -> Recovered:
    """Undo every leftover in ``state``. Devices are opened only where there is one to undo.

    A PermissionError where the folder is somebody else's.
    """
    if not journal.has_any(state):
        return Recovered()
    told = Recovered()
    opened = cache(devices)
    with journal.one_at_a_time(state):
        for leftover in journal.kept(state):
            if leftover.is_live or leftover.is_of_another_machine:
                continue
            with journal.claimed(leftover) as ours:
                if ours:
                    told = _undo(ours, opened, log, patience_s, told)
    return told


def _undo(
    ours: journal.Claimed,
    devices: Callable[[], Mapping[str, Device]],
    log: Callable[[str], None],
    patience_s: float,
    told: Recovered,
) -> Recovered:
    found = ours.found
    left: list[Hold] = []
    if found.is_damaged or found.is_of_another_version:
        told = replace(told, unread=(*told.unread, found.path))
    if found.is_of_another_version:
        log(f"{found.path.name} is of another version of joulewise, for which it is left")
        return told
    if found.is_damaged:
        log(f"{found.path.name} cannot be read whole: what it told of may still be set")
    if found.holds and not found.is_of_this_boot:
        told = replace(told, rebooted=told.rebooted + 1)
        log(f"a reboot has undone what {found.path.name} tells of")
    elif found.holds:
        changes = [change for hold in found.holds for change in hold.changes]
        outcomes = put_back(changes, devices(), patience_s)
        undone = [Undone(outcome, _left_by(found, outcome)) for outcome in outcomes]
        for became in undone:
            log(f"left by pid {became.holder.pid}: {said(became.outcome)}")
        left = [rest for hold in found.holds if (rest := hold.after(outcomes)).changes]
        told = replace(told, undone=(*told.undone, *undone))
    ours.end(left)
    return told


def _left_by(left: journal.Kept, outcome: Outcome) -> Holder:
    """Who has turned the knob last."""
    return next(
        hold.holder
        for hold in reversed(left.holds)
        for change in hold.changes
        if (change.key, change.knob) == (outcome.key, outcome.knob)
    )
