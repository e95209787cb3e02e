"""Putting knobs back to what they were, if they are still as we have set them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from joulewise.command.points import point
from joulewise.control.holds import Change, End, Outcome
from joulewise.data import Unavailable
from joulewise.devices import Device
from joulewise.errors import JoulewiseError

# Drivers round to their own steps: an eighth of a watt, a milliwatt.
SAME: Final = 0.5
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
                outcomes[index] = _undo(stack, devices.get(stack[0].device))
        failed = any(outcome.end is End.FAILED for outcome in outcomes.values())
        if not failed or now_s() + pause_s > deadline_s:
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


def _undo(stack: Sequence[Change], device: Device | None) -> Outcome:
    first = stack[0]
    before, ours = first.before, [change.value for change in stack]

    def ended(end: End, found: float | None = None, reason: str = "") -> Outcome:
        return Outcome(first.key, first.knob, end, before, found, reason)

    if device is None:
        return ended(End.FAILED, reason="the device is not there")
    found = device.get(first.knob)
    if before is None:
        return _reset(device, first, ended)
    if isinstance(found, Unavailable):
        if first.knob in device.knobs and _is_untold(device, first):
            return _set(device, first, before, None, ended)
        return ended(End.FAILED, reason=found.reason)
    if abs(found - before) <= SAME:
        return ended(End.ALREADY, found)
    if not any(abs(found - value) <= SAME for value in ours):
        return ended(End.FOREIGN, found)
    return _set(device, first, before, found, ended)


def _set(
    device: Device,
    change: Change,
    before: float,
    found: float | None,
    ended: Callable[..., Outcome],
) -> Outcome:
    point("in-restore")
    try:
        device.set(change.knob, before)
    except JoulewiseError as error:
        return ended(End.FAILED, found, error.message)
    return ended(End.RESTORED, found)


def _reset(device: Device, change: Change, ended: Callable[..., Outcome]) -> Outcome:
    point("in-restore")
    try:
        device.reset(change.knob)
    except JoulewiseError as error:
        return ended(End.FAILED, reason=error.message)
    return ended(End.RESTORED)


def _is_untold(device: Device, change: Change) -> bool:
    """Whether the device never tells how this knob stands (as of locked clocks)."""
    info = device.knobs[change.knob]
    return not isinstance(info, Unavailable) and not info.readable
