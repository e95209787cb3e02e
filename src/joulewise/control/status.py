"""What is turned now, by whom, and what is left of those who are gone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from joulewise.control import journal
from joulewise.control.holds import Change, LeaseHolder
from joulewise.process.linux import is_gone, pid_namespace

_LOOK_S: Final = 0.05


class Keeper(str, Enum):
    """Who sees to it that a knob goes back."""

    HOLDER = "held"
    GUARDIAN = "going back"
    NOBODY = "left"
    REBOOT = "undone by a reboot"


@dataclass(frozen=True)
class Standing:
    """A knob that was turned and is not known to be back."""

    change: Change
    holder: LeaseHolder
    keeper: Keeper


def standing(state: Path) -> list[Standing]:
    """Every knob that a journal tells of."""
    return [
        Standing(change, hold.holder, _keeper(kept, hold.holder))
        for kept in journal.kept(state)
        for hold in kept.holds
        for change in hold.changes
    ]


def settled(
    state: Path,
    patience_s: float,
    *,
    sleep: Callable[[float], None] = time.sleep,
    now_s: Callable[[], float] = time.monotonic,
) -> bool:
    """Wait for guardians whose holder is dead; whether they are done."""
    deadline_s = now_s() + patience_s
    while any(each.keeper is Keeper.GUARDIAN for each in standing(state)):
        if now_s() >= deadline_s:
            return False
        sleep(_LOOK_S)
    return True


def has_ended(kept: journal.Kept, holder: LeaseHolder) -> bool:
    """As far as can be told from here: in another container, its number means nothing."""
    is_told = holder.ticks and kept.namespace == pid_namespace()
    return bool(is_told) and is_gone(holder.pid, holder.ticks)


def _keeper(kept: journal.Kept, holder: LeaseHolder) -> Keeper:
    if kept.is_live:
        return Keeper.GUARDIAN if has_ended(kept, holder) else Keeper.HOLDER
    return Keeper.NOBODY if kept.is_of_this_boot else Keeper.REBOOT
