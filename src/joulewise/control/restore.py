"""Putting knobs back to what they were, if they are still as we have set them.

Undoing what guardians have left that were killed, or lost their power.
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
from joulewise.control.holds import Change, End, Hold, LeaseHolder, RestoreOutcome, is_same
from joulewise.control.messages import said, valued
from joulewise.data import KnobInfo, Unavailable
from joulewise.devices import Device
from joulewise.errors import JoulewiseError
from joulewise.process.failpoints import point
from joulewise.process.linux import is_alive, pid_namespace
from joulewise.process.state_dir import has_leftover

_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0


def put_back(
    changes: Sequence[Change],
    devices: Mapping[str, Device],
    patience_s: float,
    *,
    sleep: Callable[[float], None] = time.sleep,
    now_s: Callable[[], float] = time.monotonic,
) -> list[RestoreOutcome]:
    """Undo changes, the last one first. What fails is tried again, until patience is at its end.

    Several changes of one knob are undone in one step, to what was there before the first.
    """
    waiting = _by_knob(changes)
    outcomes: dict[int, RestoreOutcome] = {}
    deadline_s, pause_s = now_s() + patience_s, _PAUSE_S
    while True:
        for index, stack in enumerate(waiting):
            if index not in outcomes or outcomes[index].end is End.FAILED:
                outcomes[index] = _undone(stack, devices.get(stack[0].device))
        may_pass = any(
            outcomes[index].end is End.FAILED and stack[0].device in devices
            for index, stack in enumerate(waiting)
        )
        if not may_pass or now_s() + pause_s > deadline_s:
            return [outcomes[index] for index in range(len(waiting))]
        sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _by_knob(changes: Iterable[Change]) -> list[list[Change]]:
    """The changes of each knob, oldest first; the knob that was turned last comes first."""
    stacks: dict[tuple[str, object], list[Change]] = {}
    for change in changes:
        stack = stacks.pop(change.where, [])
        stacks[change.where] = [*stack, change]
    return list(reversed(stacks.values()))


def _undone(stack: Sequence[Change], device: Device | None) -> RestoreOutcome:
    try:
        return _undo(stack, device)
    except Exception as error:  # noqa: BLE001  # a driver's fault must not keep other knobs
        reason = f"{type(error).__name__}: {error}"
        return RestoreOutcome(
            stack[0].key, stack[0].knob, End.FAILED, stack[0].before, None, reason
        )


def _undo(stack: Sequence[Change], device: Device | None) -> RestoreOutcome:
    first = stack[0]
    ended = partial(RestoreOutcome, first.key, first.knob)
    if device is None:
        return ended(End.FAILED, first.before, None, "the device is not there")
    if first.before is None or _is_untold(device, first):
        reason = _turn(device, first, first.before)
        return ended(End.FAILED if reason else End.RESTORED, first.before, None, reason)
    found = device.get(first.knob)
    if isinstance(found, Unavailable):
        return ended(End.FAILED, first.before, None, found.reason)
    target = _under(stack, found)
    if target is None or target == found:
        end = End.ALREADY if is_same(found, first.before) else End.FOREIGN
        return ended(end, first.before, found)
    reason = _turn(device, first, target) or _still_wrong(device, first, target)
    return ended(End.FAILED if reason else End.RESTORED, target, found, reason)


def _under(stack: Sequence[Change], found: float) -> float | None:
    """What is under our changes: what was there before us, or was set between them by others.

    ``found`` itself where none of them is what is found.
    """
    value: float | None = found
    for change in reversed(stack):
        if is_same(value, change.value):
            value = change.before
    return value


def _turn(device: Device, change: Change, value: float | None) -> str:
    """Why it does not turn; empty where it did."""
    point("in-restore")
    try:
        if value is None:
            device.reset(change.knob)
        else:
            device.put_back(change.knob, value)
    except JoulewiseError as error:
        return error.message
    return ""


def _still_wrong(device: Device, change: Change, value: float) -> str:
    found = device.get(change.knob)
    if isinstance(found, Unavailable):
        return found.reason
    return "" if is_same(found, value) else f"it stays at {valued(change.knob, found)}"


def _is_untold(device: Device, change: Change) -> bool:
    """Whether the device never tells how this knob stands (as of locked clocks)."""
    info = device.knobs.get(change.knob)
    return isinstance(info, KnobInfo) and not info.readable


_PATIENCE_S: Final = 1.0
_PERIOD_S: Final = 5.0


@dataclass(frozen=True)
class Undone:
    """What became of a knob, and who had turned it to what; ``lives`` where that one goes on."""

    outcome: RestoreOutcome
    holder: LeaseHolder
    turned_to: float
    lives: bool = False


@dataclass(frozen=True)
class Recovered:
    """What became of leftovers; ``rebooted`` counts those that a reboot had undone.

    ``unread`` are files of which not all could be read: what they told of may still be set.
    ``unclaimed`` are those that somebody else keeps to himself; what they tell of is still set.
    ``unremoved`` say what is put back and will be tried again all the same.
    """

    undone: tuple[Undone, ...] = ()
    rebooted: int = 0
    unread: tuple[Path, ...] = ()
    unclaimed: tuple[Path, ...] = ()
    unremoved: tuple[str, ...] = ()

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

    That takes nothing but the right to turn knobs: what can be read is put back.
    """
    told = Recovered()
    opened = cache(devices)
    journal.sweep(state)
    for leftover in journal.kept(state):
        if leftover.is_live or leftover.is_of_another_machine:
            continue
        with journal.claimed(leftover) as ours:
            if ours:
                told = _recovery_undo(ours, opened, log, patience_s, told)
            elif leftover.holds and leftover.path.exists():
                told = replace(told, unclaimed=(*told.unclaimed, leftover.path))
    return told


class Leftovers:
    """Of other guardians, which one that lives undoes as well, and tells of once."""

    def __init__(self, state: Path, log: Callable[[str], None], now_s: Callable[[], float]) -> None:
        self._state = state
        self._log = log
        self._now_s = now_s
        self._next_s = now_s() + _PERIOD_S
        self._told: list[str] = []

    def are_due(self) -> bool:
        """Whether there are any, looked for now and then."""
        if self._now_s() < self._next_s:
            return False
        self._next_s = self._now_s() + _PERIOD_S
        return has_leftover(self._state)

    def undo(self, devices: Mapping[str, Device]) -> None:
        """Without waiting: what cannot be undone now is tried again."""
        lines: list[str] = []
        recover(self._state, lambda: devices, lines.append, patience_s=0)
        for line in lines:
            if line not in self._told:
                self._log(line)
        self._told = lines


def _recovery_undo(
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
        outcomes = _put_back(changes, devices(), patience_s)
        undone = [_recovery_undone(found, outcome) for outcome in outcomes]
        for became in undone:
            log(f"left by pid {became.holder.pid}: {said(became.outcome)}")
        left = [rest for hold in found.holds if (rest := hold.after(outcomes)).changes]
        told = replace(told, undone=(*told.undone, *undone))
    try:
        ours.end(left)
    except OSError as error:
        what = f"put back; the note of it could not be removed: {found.path}: {error.strerror}"
        log(what)
        told = replace(told, unremoved=(*told.unremoved, what))
    return told


def _put_back(
    changes: Sequence[Change], devices: Mapping[str, Device], patience_s: float
) -> list[RestoreOutcome]:
    """All but what somebody has turned since then, whose journal is in another folder.

    Only root and ourselves are believed: anybody can claim anything.
    """
    believed = {0, os.geteuid()}
    claims = Claims(lock_folder())
    try:
        taken = {change: claims.take(change.where, believed) for change in changes}
    except OSError:  # better to put back what may be held than not to put back
        taken = {}
    held = {
        change.where: RestoreOutcome(
            change.key, change.knob, End.FAILED, change.before, None, f"pid {by[0]} holds it"
        )
        for change, by in reversed(taken.items())  # it goes back to what was before the first
        if by and by[1] in believed
    }
    try:
        free = [change for change in changes if change.where not in held]
        return [*put_back(free, devices, patience_s), *held.values()]
    finally:
        claims.keep(())


def _recovery_undone(left: journal.Kept, outcome: RestoreOutcome) -> Undone:
    """With who has turned the knob last."""
    holder, value = next(
        (hold.holder, change.value)
        for hold in reversed(left.holds)
        for change in hold.changes
        if (change.key, change.knob) == (outcome.key, outcome.knob)
    )
    lives = left.namespace == pid_namespace() and is_alive(holder.pid, holder.ticks)
    return Undone(outcome, holder, value, lives)
