"""The guardian: turns knobs for their holders, and turns them back when these are gone.

It is the only one that turns anything, so that what was there before is known to one process,
which has nothing else to do and outlives the holder. What it is about to change is in its
journal before, for whoever has to clean up after it.

What power limits do to the devices that are held, seen by whoever guards them.
"""

from __future__ import annotations

import errno
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Final

from joulewise.control import claims, journal
from joulewise.control.claims import Claims
from joulewise.control.holds import (
    Change,
    End,
    Hold,
    LeaseHolder,
    RestoreOutcome,
    Stacks,
    Wanted,
    is_same,
    snapped,
)
from joulewise.control.messages import DeviceNotes, Ration, named, said, user, valued, who
from joulewise.control.permissions import what_gives_it
from joulewise.control.restore import Leftovers, put_back
from joulewise.data import Knob, KnobInfo, Quantity, Reading, Unavailable
from joulewise.devices import Device
from joulewise.devices.device import check_in_range
from joulewise.devices.nvidia.throttling import Binding, binding
from joulewise.errors import (
    DeviceError,
    DriverHangsError,
    JoulewiseError,
    NotSupportedError,
    PermissionDeniedError,
    UsageError,
)
from joulewise.process.failpoints import point
from joulewise.process.linux import started_ticks

_PERIOD_S: Final = 1.0


class Residency:
    """Looks once a second at most; what was seen of a hold is kept for as long as it is there."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._next_s = -math.inf
        self._seen: dict[tuple[str, str], _Seen] = {}  # by hold and device

    def look(self, stacks: Stacks, devices: Mapping[str, Device]) -> None:
        """At every limit that is in force: those under another lease are not."""
        if self._now_s() < self._next_s:
            return
        self._next_s = self._now_s() + _PERIOD_S
        there = {hold.id for hold in stacks}
        self._seen = {key: seen for key, seen in self._seen.items() if key[0] in there}
        for uid, device in devices.items():
            top = stacks.top(uid, Knob.POWER_LIMIT)
            if top and device.info.vendor == "nvidia":  # whose reasons for lower clocks we know
                self._seen.setdefault((top[0].id, uid), _Seen()).look(device)

    def said(self, hold: Hold) -> list[str]:
        """What there is to say of the limits of a hold."""
        limits = [change for change in hold.changes if change.knob is Knob.POWER_LIMIT]
        seen = ((self._seen.get((hold.id, change.device)), change) for change in limits)
        return [told for each, change in seen if each and (told := each.said(change))]


class _Seen:
    def __init__(self) -> None:
        self._reasons: Counter[int] = Counter()
        self._sum_w = 0.0

    def look(self, device: Device) -> None:
        reasons, power = device.read(Quantity.THROTTLE), device.read(Quantity.POWER)
        if isinstance(reasons, Reading) and isinstance(power, Reading):
            self._reasons[int(reasons.value)] += 1
            self._sum_w += power.value

    def said(self, change: Change) -> str:
        looks = sum(self._reasons.values())
        mean_w = self._sum_w / looks if looks else None
        found = binding(change.value, self._reasons.elements(), mean_w)
        if found is None:
            return ""
        limit = valued(change.knob, change.value)
        if found is Binding.NEVER:
            return f"{change.key} never needed more than its limit of {limit}: {found.value}"
        return f"{change.key} drew {mean_w:.0f} W under a limit of {limit}: {found.value}"


# Others wait meanwhile: what takes longer than this is tried again later.
_PATIENCE_S: Final = 0.5
_LOOK_S: Final = 0.5
_MOST_LINES: Final = 200  # in the log, of one user in a minute
_CURES: Final = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there",
    errno.ENOLCK: "have its file system mounted with locks",
    errno.EROFS: "have its file system mounted for writing",
}

# Whether a holder may turn a knob to this; raises the error that says why not.
Rule = Callable[[LeaseHolder, Device, Knob, float], None]


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
        find: Callable[[], Mapping[str, Device]] = dict,
        patience_s: float = _PATIENCE_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """``rules`` always hold; ``courtesies`` towards others can be overridden by force.

        ``find`` looks again where a device is unknown.
        """
        self.state = state
        self._devices = {device.info.uid: device for device in devices}
        self._log = log
        self._rules = rules
        self._courtesies = courtesies
        self._find = find
        self._patience_s = patience_s
        self._ration = Ration(log, _MOST_LINES)
        self._leftovers = Leftovers(state, log, now_s)
        self._stacks = Stacks()
        self._residency = Residency()
        self._claims = Claims(claims.lock_folder())
        self._owners: dict[str, object] = {}  # whose hold has none is gone; it is yet to be undone
        self._numbers = count(1)
        self._journal: journal.Journal | None = None

    def holds(self, owner: object) -> list[Hold]:
        return [hold for hold in self._stacks if self._owners.get(hold.id, self) is owner]

    def lease(
        self, owner: object, holder: LeaseHolder, wanted: Sequence[Wanted], *, force: bool = False
    ) -> Granted:
        """Turn knobs: all of them, or none and an error."""
        for each in wanted:  # who lacks the right may lack the journal, too, which is no news then
            for knob in each.settings:
                _turnable(self._device(each.device), knob)
        notes = DeviceNotes()
        self.mend()
        self._leftovers.undo(self._devices)
        holder = replace(holder, ticks=holder.ticks or started_ticks(holder.pid))
        try:
            changes = [
                change
                for each in wanted
                for change in self._plan(owner, holder, each, notes, force=force)
            ]
            _check_once(changes)
            hold = Hold(str(next(self._numbers)), holder, tuple(changes))
            self._begin(hold)
        except BaseException:
            self._let_go()
            raise
        self._stacks.add(hold)
        self._owners[hold.id] = owner
        self._turn(hold)
        hold = self._read_back(hold, notes)
        self._tell(holder, said(hold.changes))
        return Granted(hold, self._enforced(hold.changes, notes), notes.said())

    def release(self, owner: object, hold_id: str) -> list[RestoreOutcome]:
        """Put back what this hold has turned; what cannot be put back yet is kept in mind."""
        hold = next((hold for hold in self.holds(owner) if hold.id == hold_id), None)
        if hold is None:
            raise UsageError(f"there is no lease {hold_id!r} of yours", "it may have ended already")
        del self._owners[hold.id]
        return self._put_back(hold, self._patience_s)

    def drop(self, owner: object) -> list[RestoreOutcome]:
        """The owner is gone: put back everything of theirs, what was turned last first."""
        held = self.holds(owner)[::-1]
        for hold in held:  # at once: whatever becomes of one, none is left with an owner
            del self._owners[hold.id]
        deadline_s = time.monotonic() + self._patience_s
        return [
            outcome
            for hold in held
            for outcome in self._put_back(hold, max(0.0, deadline_s - time.monotonic()))
        ]

    def _put_back(self, hold: Hold, patience_s: float) -> list[RestoreOutcome]:
        outcomes = self._undo(hold, patience_s)
        for outcome in outcomes:
            self._tell_outcome(hold.holder, outcome)
        return outcomes

    def said_of_limits(self, owner: object, hold_id: str) -> list[str]:
        """What held limits have done so far: they may never bind, or be below the floor."""
        holds = [hold for hold in self.holds(owner) if hold.id == hold_id]
        return [told for hold in holds for told in self._residency.said(hold)]

    def mend(self) -> bool:
        """Try again what could not be put back; whether nothing is left of that."""
        self._residency.look(self._stacks, self._devices)
        self._ration.sum_up()
        self._claims.tidy()
        if self._leftovers.are_due():
            self._devices = {**self._find(), **self._devices}  # which may be of a new one
            self._leftovers.undo(self._devices)
        if self._journal:
            self._journal.catch_up()
        for hold in reversed(self._orphans()):
            for outcome in self._undo(hold, patience_s=0):
                if outcome.end is not End.FAILED:  # which was told once
                    self._tell_outcome(hold.holder, outcome)
        return not self._orphans()

    def close(self, patience_s: float = 0.0) -> bool:
        """Mend for as long as that; whether nothing is left.

        What could not be put back stays in the journal, for whoever comes next.
        """
        deadline_s = time.monotonic() + patience_s
        while not (is_well := self.mend()) and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)
        self._claims.keep(())  # before the journal: who finds it left may have all of it
        if self._journal:
            self._journal.close(leave=any(self._stacks))
            self._journal = None
        self._ration.sum_up(everything=True)
        return is_well

    def _tell(self, holder: LeaseHolder, what: str) -> None:
        self._ration.tell(f"user {user(holder.uid)}", f"{who(holder)}: {what}")

    def _tell_outcome(self, holder: LeaseHolder, outcome: RestoreOutcome) -> None:
        if outcome.is_well:
            self._tell(holder, said(outcome))
        else:
            self._log(f"{who(holder)}: {said(outcome)}")

    def _begin(self, hold: Hold) -> None:
        try:
            self._journal = self._journal or journal.Journal(self.state)
            self._journal.begin(hold)
        except OSError as error:
            cure = _CURES.get(error.errno or 0, "see to it that you can write there")
            raise JoulewiseError(
                f"the journal in {self.state} cannot be written: {error.strerror}",
                f"nothing was turned; {cure}, or set JOULEWISE_STATE",
            ) from None

    def _let_go(self) -> None:
        self._claims.keep({change.where for hold in self._stacks for change in hold.changes})

    def _orphans(self) -> list[Hold]:
        return [hold for hold in self._stacks if hold.id not in self._owners]

    def _turn(self, hold: Hold) -> None:
        for index, change in enumerate(hold.changes):
            point("before-set")
            try:
                self._devices[change.device].set(change.knob, change.value)
            except JoulewiseError as error:
                # To reset a clock whose lock was refused could undo somebody else's.
                is_ours = change.before is not None or isinstance(error, DriverHangsError)
                tried = hold.changes[: index + is_ours]
                self._roll_back(replace(hold, changes=tried), error)
                raise

    def _roll_back(self, hold: Hold, error: JoulewiseError) -> None:
        self._log(f"{who(hold.holder)}: {error.message}; what was turned goes back")
        self._rewrite(hold)
        outcomes = self.release(self._owners[hold.id], hold.id)
        failed = [outcome for outcome in outcomes if outcome.end is End.FAILED]
        if failed:
            raise DeviceError(f"{error.message}; {'; '.join(map(said, failed))}", claims.RESTORE)

    def _read_back(self, hold: Hold, notes: DeviceNotes) -> Hold:
        """Where a device has rounded a value, what it made of it is what is ours."""
        found = [self._devices[each.device].get(each.knob) for each in hold.changes]
        changes = tuple(
            change if isinstance(value, Unavailable) else replace(change, value=value)
            for change, value in zip(hold.changes, found, strict=True)
        )
        others = [
            (asked, made)
            for asked, made in zip(hold.changes, changes, strict=True)
            if not is_same(asked.value, made.value)
        ]
        for asked, made in others:
            what = f"went to {valued(asked.knob, made.value)}, which the device made of"
            notes.add(asked.key, asked.knob, f"{what} {asked.value:g}")
        if others:
            hold = replace(hold, changes=changes)
            self._rewrite(hold)
        return hold

    def _undo(self, hold: Hold, patience_s: float) -> list[RestoreOutcome]:
        undone, lowered = self._stacks.without(hold)
        for other in lowered:
            self._rewrite(other)
        outcomes = put_back(undone, self._devices, patience_s)
        left = replace(hold, changes=tuple(undone)).after(outcomes)
        if left.changes:
            self._stacks.add(left)
        else:
            self._stacks.remove(hold)
        self._let_go()  # before the journal: who finds there that a knob is free may have it
        if self._journal and not left.changes:
            self._journal.end(hold.id)
        elif self._journal and left != hold:
            self._journal.again(left)
        return outcomes

    def _rewrite(self, hold: Hold) -> None:
        self._stacks.add(hold)
        if self._journal:
            self._journal.again(hold)

    def _plan(
        self, owner: object, holder: LeaseHolder, wanted: Wanted, notes: DeviceNotes, *, force: bool
    ) -> Iterator[Change]:
        device = self._device(wanted.device)
        for knob, asked in wanted.settings.items():
            info = _turnable(device, knob)
            value = snapped(info, asked)
            if value != asked:
                what = f"goes to {valued(knob, value)}, the nearest to {asked:g} there is"
                notes.add(device.info.key, knob, what)
            check_in_range(device.info.key, info, value)
            self._check_free(owner, device, knob)  # first: who uses a device may hold its knob, too
            for rule in self._rules if force else (*self._rules, *self._courtesies):
                rule(holder, device, knob, value)
            before = self._standing(device, info)
            yield Change(device.info.uid, device.info.key, knob, before, value)

    def _device(self, name: str) -> Device:
        for find in (dict, self._find):
            self._devices = {**find(), **self._devices}
            for device in self._devices.values():
                if name in {device.info.uid, device.info.key}:
                    return device
        known = ", ".join(device.info.key for device in self._devices.values())
        raise UsageError(f"there is no device {name!r}", f"there are {known or 'none'}")

    def _check_free(self, owner: object, device: Device, knob: Knob) -> None:
        top = self._stacks.top(device.info.uid, knob)
        if top and top[0].id not in self._owners:
            raise claims.not_back(device, knob)
        if top and self._owners[top[0].id] is not owner:
            raise claims.held(top[0], device, knob)
        own = self._journal.path if self._journal else None
        claims.claim(self.state, own, self._claims, device, knob)

    def _standing(self, device: Device, info: KnobInfo) -> float | None:
        found = device.get(info.knob)
        if not isinstance(found, Unavailable):
            return found
        if info.readable:
            raise DeviceError(
                f"{named(device.info.key, info.knob)} cannot be read: {found.reason}",
                found.fix or "what is not known cannot be put back: try again later",
            )
        top = self._stacks.top(device.info.uid, info.knob)
        return top[1].value if top else None

    def _enforced(
        self, changes: Iterable[Change], notes: DeviceNotes
    ) -> dict[str, dict[Knob, float]]:
        enforced: dict[str, dict[Knob, float]] = {}
        for change in changes:
            value = change.value
            if change.knob is Knob.POWER_LIMIT:
                reading = self._devices[change.device].read(Quantity.ENFORCED_LIMIT)
                value = reading.value if isinstance(reading, Reading) else value
                if not is_same(value, change.value):
                    held, asked = valued(change.knob, value), valued(change.knob, change.value)
                    what = f"holds at {held} and not at {asked}: there is another limit"
                    notes.add(change.key, change.knob, what)
            enforced.setdefault(change.key, {})[change.knob] = value
        return enforced


def _check_once(changes: Sequence[Change]) -> None:
    """A device has two names, its key and its uid."""
    if len({change.where for change in changes}) != len(changes):
        raise UsageError("a device is named twice", "name each of them once")


def _turnable(device: Device, knob: Knob) -> KnobInfo:
    info = device.knobs.get(knob, Unavailable(f"{device.info.key} has none"))
    if isinstance(info, Unavailable):
        what = f"{named(device.info.key, knob)} cannot be turned: {info.reason}"
        raise NotSupportedError(what, info.fix or "joulewise doctor lists what can be turned")
    if isinstance(info.writable, Unavailable):
        what = f"{named(device.info.key, knob)} cannot be turned: {info.writable.reason}"
        fix = what_gives_it(info.writable.fix, is_simulated=device.info.is_simulated)
        raise PermissionDeniedError(what, fix)
    return info
