"""The guardian: turns knobs for their holders, and turns them back when these are gone.

It is the only one that turns anything, so that what was there before is known to one process,
which has nothing else to do and outlives the holder. What it is about to change is in its
journal before, for whoever has to clean up after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Final

from joulewise.command.points import point
from joulewise.control import journal
from joulewise.control.holds import Change, End, Hold, Holder, Outcome
from joulewise.control.putting_back import SAME, put_back
from joulewise.control.stacks import Stacks
from joulewise.control.wanted import Wanted, snapped
from joulewise.control.words import said, who
from joulewise.data import Knob, KnobInfo, Quantity, Reading, Unavailable
from joulewise.devices import Device
from joulewise.devices.ranges import check_in_range
from joulewise.errors import (
    DeviceError,
    HeldError,
    JoulewiseError,
    NotSupportedError,
    PermissionDeniedError,
    UsageError,
)

# Others wait meanwhile: what takes longer than this is tried again later.
_PATIENCE_S: Final = 0.5


# Whether a holder may turn a knob to this; raises the error that says why not.
Rule = Callable[[Holder, Device, Knob, float], None]


@dataclass(frozen=True)
class Granted:
    """A lease that was given, and what the devices make of it, by their keys."""

    hold: Hold
    enforced: Mapping[str, Mapping[Knob, float]]
    notes: tuple[str, ...]


class Guardian:
    """All holds of one process; an ``owner`` is whoever is at the other end of a connection."""

    def __init__(
        self,
        state: Path,
        devices: Iterable[Device],
        log: Callable[[str], None],
        *,
        rules: Sequence[Rule] = (),
        courtesies: Sequence[Rule] = (),
    ) -> None:
        """``rules`` always hold; ``courtesies`` towards others can be overridden by force."""
        self._state = state
        self._devices = {device.info.uid: device for device in devices}
        self._log = log
        self._rules = rules
        self._courtesies = courtesies
        self._stacks = Stacks()
        self._owners: dict[str, object] = {}
        self._numbers = count(1)
        self._journal: journal.Journal | None = None
        self._unmended: dict[str, Hold] = {}  # without their owners

    def holds(self, owner: object) -> list[Hold]:
        return [hold for hold in self._stacks if self._owners[hold.id] is owner]

    def lease(
        self, owner: object, holder: Holder, wanted: Sequence[Wanted], *, force: bool = False
    ) -> Granted:
        """Turn knobs: all of them, or none and an error."""
        notes: list[str] = []
        with journal.one_at_a_time(self._state):
            changes = tuple(
                change
                for each in wanted
                for change in self._plan(owner, holder, each, notes, force=force)
            )
            hold = Hold(str(next(self._numbers)), holder, changes)
            self._write_down(hold)
        self._stacks.add(hold)
        self._owners[hold.id] = owner
        try:
            for change in changes:
                point("before-set")
                self._devices[change.device].set(change.knob, change.value)
        except JoulewiseError as error:
            self._log(f"{who(holder)}: {error.message}; what was turned goes back")
            self.release(owner, hold.id)
            raise
        self._log(f"{who(holder)}: {said(changes)}")
        return Granted(hold, self._enforced(changes, notes), tuple(notes))

    def release(self, owner: object, hold_id: str) -> list[Outcome]:
        """Put back what this hold has turned; what cannot be put back yet is kept in mind."""
        hold = next((hold for hold in self.holds(owner) if hold.id == hold_id), None)
        if hold is None:
            raise UsageError(f"there is no lease {hold_id!r} of yours", "it may have ended already")
        undone, others = self._stacks.without(hold)
        for other in others:
            self._write_down(other)
            self._stacks.add(other)
        self._stacks.remove(hold)
        del self._owners[hold.id]
        return self._undo(replace(hold, changes=tuple(undone)), _PATIENCE_S)

    def drop(self, owner: object) -> list[Outcome]:
        """The owner is gone: put back everything of theirs, what was turned last first."""
        held = reversed(self.holds(owner))
        return [outcome for hold in held for outcome in self.release(owner, hold.id)]

    def mend(self) -> bool:
        """Try again what could not be put back; whether nothing is left of that."""
        for hold in list(self._unmended.values()):
            self._undo(hold, patience_s=0)
        return not self._unmended

    def close(self) -> None:
        """What could not be put back stays in the journal, for whoever comes next."""
        if self._journal:
            self._journal.close(leave=bool(self._unmended))
            self._journal = None

    def _undo(self, hold: Hold, patience_s: float) -> list[Outcome]:
        outcomes = put_back(hold.changes, self._devices, patience_s)
        is_known = self._unmended.pop(hold.id, None) is not None
        if any(outcome.end is End.FAILED for outcome in outcomes):
            self._unmended[hold.id] = hold
        elif self._journal:
            with suppress(OSError):  # then it is found as it was by whoever looks after it
                self._journal.end(hold.id)
        for outcome in outcomes:
            if not is_known or outcome.end is not End.FAILED:  # which is told once
                self._log(f"{who(hold.holder)}: {said(outcome)}")
        return outcomes

    def _plan(
        self, owner: object, holder: Holder, wanted: Wanted, notes: list[str], *, force: bool
    ) -> Iterator[Change]:
        device = self._device(wanted.device)
        for knob, asked in wanted.settings.items():
            info = _turnable(device, knob)
            value = snapped(info, asked)
            if value != asked:
                notes.append(f"{device.info.key} takes {knob.value}={value:g}, not {asked:g}")
            check_in_range(device.info.key, info, value)
            for rule in self._rules if force else (*self._rules, *self._courtesies):
                rule(holder, device, knob, value)
            self._check_free(owner, device, knob)
            before = self._standing(device, info)
            yield Change(device.info.uid, device.info.key, knob, before, value)

    def _device(self, name: str) -> Device:
        for device in self._devices.values():
            if name in {device.info.uid, device.info.key}:
                return device
        known = ", ".join(device.info.key for device in self._devices.values())
        raise UsageError(f"there is no device {name!r}", f"there are {known or 'none'}")

    def _check_free(self, owner: object, device: Device, knob: Knob) -> None:
        if not self.mend() and any(
            change.where == (device.info.uid, knob)
            for hold in self._unmended.values()
            for change in hold.changes
        ):
            raise DeviceError(
                f"{device.info.key}'s {knob.value} could not be put back after its last lease",
                "see what `joulewise doctor` says of the device, then run `joulewise restore`",
            )
        top = self._stacks.top(device.info.uid, knob)
        if top and self._owners[top[0].id] is not owner:
            raise _held(top[0], device, knob)
        for other in journal.kept(self._state):
            ours = self._journal is not None and other.path == self._journal.path
            for hold in other.holds if other.is_live and not ours else ():
                if any(change.where == (device.info.uid, knob) for change in hold.changes):
                    raise _held(hold, device, knob)

    def _standing(self, device: Device, info: KnobInfo) -> float | None:
        found = device.get(info.knob)
        if not isinstance(found, Unavailable):
            return found
        if info.readable:
            raise DeviceError(
                f"{device.info.key}'s {info.knob.value} cannot be read: {found.reason}",
                found.fix or "what is not known cannot be put back: try again later",
            )
        top = self._stacks.top(device.info.uid, info.knob)
        return top[1].value if top else None

    def _write_down(self, hold: Hold) -> None:
        try:
            if self._journal is None:
                self._journal = journal.Journal(self._state)
            self._journal.begin(hold)
        except OSError as error:
            raise JoulewiseError(
                f"the journal in {self._state} cannot be written: {error.strerror}",
                "nothing was turned; make room there, or set JOULEWISE_STATE",
            ) from None

    def _enforced(
        self, changes: Iterable[Change], notes: list[str]
    ) -> dict[str, dict[Knob, float]]:
        enforced: dict[str, dict[Knob, float]] = {}
        for change in changes:
            value = change.value
            if change.knob is Knob.POWER_LIMIT:
                reading = self._devices[change.device].read(Quantity.ENFORCED_LIMIT)
                value = reading.value if isinstance(reading, Reading) else value
                if abs(value - change.value) > SAME:
                    notes.append(
                        f"{change.key} holds {value:g} W and not {change.value:g} W: "
                        "something else limits it, too"
                    )
            enforced.setdefault(change.key, {})[change.knob] = value
        return enforced


def _turnable(device: Device, knob: Knob) -> KnobInfo:
    info = device.knobs.get(knob, Unavailable(f"{device.info.key} has none"))
    if isinstance(info, Unavailable):
        what = f"{device.info.key}'s {knob.value} cannot be turned: {info.reason}"
        raise NotSupportedError(what, info.fix or "joulewise doctor lists what can be turned")
    if isinstance(info.writable, Unavailable):
        what = f"{device.info.key}'s {knob.value} cannot be turned: {info.writable.reason}"
        raise PermissionDeniedError(what, info.writable.fix)
    return info


def _held(hold: Hold, device: Device, knob: Knob) -> HeldError:
    return HeldError(
        f"{device.info.key}'s {knob.value} is held by {who(hold.holder)}",
        "it is free when that process ends",
    )
