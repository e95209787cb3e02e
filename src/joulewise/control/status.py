"""Which settings are changed now, by whom, and what dead processes left."""

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

_POLL_S: Final = 0.05


class Restorer(str, Enum):
    """What restores a changed setting: its holder, the guardian, nothing yet, or a reboot did."""

    HOLDER = "held"
    GUARDIAN = "going back"
    NOBODY = "left"
    REBOOT = "undone by a reboot"


@dataclass(frozen=True)
class HeldSetting:
    """A changed setting that is not known to be restored."""

    change: Change
    holder: LeaseHolder
    keeper: Restorer


def list_held_settings(state: Path) -> list[HeldSetting]:
    """Every changed setting in the journals of a state folder."""
    return [
        HeldSetting(change, hold.holder, _find_keeper(stored, hold.holder))
        for stored in journal.read_journals(state)
        for hold in stored.holds
        for change in hold.changes
    ]


def await_restored(
    state: Path,
    patience_s: float,
    *,
    sleep: Callable[[float], None] = time.sleep,
    now_s: Callable[[], float] = time.monotonic,
) -> bool:
    """Wait until guardians have restored the settings of dead holders; False on timeout."""
    deadline_s = now_s() + patience_s
    while any(each.keeper is Restorer.GUARDIAN for each in list_held_settings(state)):
        if now_s() >= deadline_s:
            return False
        sleep(_POLL_S)
    return True


def is_holder_gone(stored: journal.StoredJournal, holder: LeaseHolder) -> bool:
    """Whether a holder has ended; False where it cannot be known, as in another container."""
    is_known = holder.ticks and stored.namespace == pid_namespace()
    return bool(is_known) and is_gone(holder.pid, holder.ticks)


def _find_keeper(stored: journal.StoredJournal, holder: LeaseHolder) -> Restorer:
    if stored.is_live:
        return Restorer.GUARDIAN if is_holder_gone(stored, holder) else Restorer.HOLDER
    return Restorer.NOBODY if stored.is_of_this_boot else Restorer.REBOOT
