"""Restores settings to their values from before, also those that a dead guardian left.

A setting is restored only where it still has the value that joulewise set: what somebody else has
set since is left alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Final

from joulewise.control import journal
from joulewise.control.claims import Claims, lock_folder
from joulewise.control.holds import (
    Change,
    Hold,
    LeaseHolder,
    RestoreOutcome,
    RestoreResult,
    is_same,
)
from joulewise.control.messages import describe, format_value
from joulewise.data import ControlInfo, Unavailable
from joulewise.devices import Device
from joulewise.errors import JoulewiseError
from joulewise.process.failpoints import failpoint
from joulewise.process.linux import is_alive, pid_namespace
from joulewise.process.state_dir import has_leftovers

# Chosen: between two tries the pause doubles, from the time of a busy driver call to one that does
# not load a machine on which a device stays away.
_MIN_PAUSE_S: Final = 0.1
_MAX_PAUSE_S: Final = 2.0


def restore_settings(
    changes: Sequence[Change],
    devices: Mapping[str, Device],
    patience_s: float,
    *,
    sleep: Callable[[float], None] = time.sleep,
    now_s: Callable[[], float] = time.monotonic,
) -> list[RestoreOutcome]:
    """Undo changes, the last one first. What fails is tried again for up to ``patience_s``.

    Several changes of one setting are undone in one step, to the value from before the first.
    """
    waiting = _group_by_setting(changes)
    outcomes: dict[int, RestoreOutcome] = {}
    deadline_s, pause_s = now_s() + patience_s, _MIN_PAUSE_S
    while True:
        for index, stack in enumerate(waiting):
            if index not in outcomes or outcomes[index].end is RestoreResult.FAILED:
                outcomes[index] = _restore_stack_safely(stack, devices.get(stack[0].device))
        can_retry = any(
            outcomes[index].end is RestoreResult.FAILED and stack[0].device in devices
            for index, stack in enumerate(waiting)
        )
        if not can_retry or now_s() + pause_s > deadline_s:
            return [outcomes[index] for index in range(len(waiting))]
        sleep(pause_s)
        pause_s = min(2 * pause_s, _MAX_PAUSE_S)


def _group_by_setting(changes: Iterable[Change]) -> list[list[Change]]:
    """The changes of each setting, oldest first; the setting changed last comes first."""
    stacks: dict[tuple[str, object], list[Change]] = {}
    for change in changes:
        stack = stacks.pop(change.setting, [])
        stacks[change.setting] = [*stack, change]
    return list(reversed(stacks.values()))


def _restore_stack_safely(stack: Sequence[Change], device: Device | None) -> RestoreOutcome:
    try:
        return _restore_stack(stack, device)
    except Exception as error:  # noqa: BLE001  # the other settings must still be restored
        reason = f"{type(error).__name__}: {error}"
        return RestoreOutcome(
            stack[0].key, stack[0].knob, RestoreResult.FAILED, stack[0].before, None, reason
        )


def _restore_stack(stack: Sequence[Change], device: Device | None) -> RestoreOutcome:
    first = stack[0]
    ended = partial(RestoreOutcome, first.key, first.knob)
    if device is None:
        return ended(RestoreResult.FAILED, first.before, None, "the device is not there")
    if first.before is None or _is_unreadable(device, first):
        reason = _set_back(device, first, first.before)
        return ended(
            RestoreResult.FAILED if reason else RestoreResult.RESTORED, first.before, None, reason
        )
    current = device.get(first.knob)
    if isinstance(current, Unavailable):
        return ended(RestoreResult.FAILED, first.before, None, current.reason)
    target = _value_below(stack, current)
    if target is None or target == current:
        end = RestoreResult.ALREADY if is_same(current, first.before) else RestoreResult.FOREIGN
        return ended(end, first.before, current)
    reason = _set_back(device, first, target) or _check_restored(device, first, target)
    return ended(
        RestoreResult.FAILED if reason else RestoreResult.RESTORED, target, current, reason
    )


def _value_below(stack: Sequence[Change], current: float) -> float | None:
    """The value below our changes: from before them, or set by others between them.

    ``current`` itself where none of our changes is in force.
    """
    value: float | None = current
    for change in reversed(stack):
        if is_same(value, change.value):
            value = change.before
    return value


def _set_back(device: Device, change: Change, value: float | None) -> str:
    """Set or reset a setting; the error's message, empty on success."""
    failpoint("in-restore")
    try:
        if value is None:
            device.reset(change.knob)
        else:
            device.put_back(change.knob, value)
    except JoulewiseError as error:
        return error.message
    return ""


def _check_restored(device: Device, change: Change, value: float) -> str:
    current = device.get(change.knob)
    if isinstance(current, Unavailable):
        return current.reason
    return "" if is_same(current, value) else f"it stays at {format_value(change.knob, current)}"


def _is_unreadable(device: Device, change: Change) -> bool:
    """Whether the device never reports this setting, as for locked clocks."""
    info = device.controls.get(change.knob)
    return isinstance(info, ControlInfo) and not info.readable


# Chosen: a command waits this long for a device that refuses; a guardian looks this often for what
# others left. Doubled, either takes twice as long.
_RECOVERY_S: Final = 1.0
_CHECK_PERIOD_S: Final = 5.0


@dataclass(frozen=True)
class RestoredSetting:
    """A restored setting, and who had set it to which value; ``lives``: that process runs on."""

    outcome: RestoreOutcome
    holder: LeaseHolder
    changed_to: float
    lives: bool = False


@dataclass(frozen=True)
class RecoveryReport:
    """The result of a recovery; ``rebooted`` counts journals that a reboot had undone.

    ``unread`` are journals that could not be read in full: their settings may still be changed.
    ``unclaimed`` are those that another process keeps locked; their settings are still changed.
    ``unremoved`` are messages on journals that were restored and could not be deleted.
    """

    undone: tuple[RestoredSetting, ...] = ()
    rebooted: int = 0
    unread: tuple[Path, ...] = ()
    unclaimed: tuple[Path, ...] = ()
    unremoved: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[RestoredSetting, ...]:
        return tuple(one for one in self.undone if one.outcome.end is RestoreResult.FAILED)


def recover(
    state: Path,
    devices: Callable[[], Mapping[str, Device]],
    log: Callable[[str], None],
    *,
    patience_s: float = _RECOVERY_S,
) -> RecoveryReport:
    """Restore every leftover in ``state``; ``devices`` is called only where there is one.

    That takes nothing but the right to change settings: no file has to be written.
    """
    report = RecoveryReport()
    open_devices = cache(devices)
    journal.remove_stale_locks(state)
    for leftover in journal.read_journals(state):
        if leftover.is_live or leftover.is_of_another_machine:
            continue
        with journal.claim_journal(leftover) as ours:
            if ours:
                report = _recover_journal(ours, open_devices, log, patience_s, report)
            elif leftover.holds and leftover.path.exists():
                report = replace(report, unclaimed=(*report.unclaimed, leftover.path))
    return report


class Leftovers:
    """What other guardians left, restored by a living one and logged once."""

    def __init__(self, state: Path, log: Callable[[str], None], now_s: Callable[[], float]) -> None:
        self._state = state
        self._log = log
        self._now_s = now_s
        self._next_s = now_s() + _CHECK_PERIOD_S
        self._logged: list[str] = []

    def are_due(self) -> bool:
        """Whether there are any, checked every few seconds."""
        if self._now_s() < self._next_s:
            return False
        self._next_s = self._now_s() + _CHECK_PERIOD_S
        return has_leftovers(self._state)

    def undo(self, devices: Mapping[str, Device]) -> None:
        """Restore without waiting: what fails is tried again at the next call."""
        lines: list[str] = []
        recover(self._state, lambda: devices, lines.append, patience_s=0)
        for line in lines:
            if line not in self._logged:
                self._log(line)
        self._logged = lines


def _recover_journal(
    claimed: journal.ClaimedJournal,
    devices: Callable[[], Mapping[str, Device]],
    log: Callable[[str], None],
    patience_s: float,
    report: RecoveryReport,
) -> RecoveryReport:
    stored = claimed.content
    left: list[Hold] = []
    if stored.is_damaged or stored.is_of_another_version:
        report = replace(report, unread=(*report.unread, stored.path))
    if stored.is_of_another_version:
        log(f"{stored.path.name} was written by another version of joulewise and is left to it")
        return report
    if stored.is_damaged:
        log(f"{stored.path.name} is damaged: its settings may still be changed")
    if stored.holds and not stored.is_of_this_boot:
        report = replace(report, rebooted=report.rebooted + 1)
        log(f"a reboot has undone the settings in {stored.path.name}")
    elif stored.holds:
        changes = [change for hold in stored.holds for change in hold.changes]
        outcomes = _restore_unclaimed(changes, devices(), patience_s)
        undone = [_with_last_holder(stored, outcome) for outcome in outcomes]
        for became in undone:
            log(f"left by pid {became.holder.pid}: {describe(became.outcome)}")
        left = [rest for hold in stored.holds if (rest := hold.after(outcomes)).changes]
        report = replace(report, undone=(*report.undone, *undone))
    try:
        claimed.end(left)
    except OSError as error:
        warning = f"restored, but the journal cannot be removed: {stored.path}: {error.strerror}"
        log(warning)
        report = replace(report, unremoved=(*report.unremoved, warning))
    return report


def _restore_unclaimed(
    changes: Sequence[Change], devices: Mapping[str, Device], patience_s: float
) -> list[RestoreOutcome]:
    """Restore all settings but those that another guardian has claimed since.

    Only root's claims and our own are trusted: any user can claim anything.
    """
    trusted = {0, os.geteuid()}
    claims = Claims(lock_folder())
    try:
        owners = {change: claims.take(change.setting, trusted) for change in changes}
    except OSError:  # better to restore what may be held than not to restore at all
        owners = {}
    held = {
        change.setting: RestoreOutcome(
            change.key,
            change.knob,
            RestoreResult.FAILED,
            change.before,
            None,
            f"pid {owner[0]} holds it",
        )
        for change, owner in reversed(owners.items())  # the first change of each setting remains
        if owner and owner[1] in trusted
    }
    try:
        free = [change for change in changes if change.setting not in held]
        return [*restore_settings(free, devices, patience_s), *held.values()]
    finally:
        claims.keep(())


def _with_last_holder(stored: journal.StoredJournal, outcome: RestoreOutcome) -> RestoredSetting:
    """The outcome with the process that changed the setting last."""
    holder, value = next(
        (hold.holder, change.value)
        for hold in reversed(stored.holds)
        for change in hold.changes
        if (change.key, change.knob) == (outcome.key, outcome.knob)
    )
    lives = stored.namespace == pid_namespace() and is_alive(holder.pid, holder.ticks)
    return RestoredSetting(outcome, holder, value, lives)
