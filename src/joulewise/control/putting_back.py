"""Putting knobs back to what they were, if they are still as we have set them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from joulewise.command.points import point
from joulewise.control.holds import Change, End, Outcome, is_same
from joulewise.control.words import valued
from joulewise.data import KnobInfo, Unavailable
from joulewise.devices import Device
from joulewise.errors import JoulewiseError

_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0


def put_back(
    changes: Sequence[Change],
    devices: Mapping[str, Device],
    patience_s: float,
    *,
    sleep: Callable[[float], None] = time.sleep,
    now_s: Callable[[], float] = time.monotonic,
) -> list[Outcome]:
    """Undo changes, the last one first. What fails is tried again, until patience is at its end.

    Several changes of one knob are undone in one step, to what was there before the first.
    """
    waiting = _by_knob(changes)
    outcomes: dict[int, Outcome] = {}
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


def _undone(stack: Sequence[Change], device: Device | None) -> Outcome:
    try:
        return _undo(stack, device)
    except Exception as error:  # noqa: BLE001  # a driver's fault must not keep other knobs
        reason = f"{type(error).__name__}: {error}"
        return Outcome(stack[0].key, stack[0].knob, End.FAILED, stack[0].before, None, reason)


def _undo(stack: Sequence[Change], device: Device | None) -> Outcome:
    first = stack[0]
    ended = partial(Outcome, first.key, first.knob)
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
