"""The guardian: changes settings for their holders, and restores them when these are gone.

Only guardians change settings, so that the values from before are known to one process, which has
nothing else to do and outlives the holder. Each change is in its journal before it is made, so that
another process can restore it if the guardian is killed.
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
    DeviceRequest,
    Hold,
    HoldStack,
    LeaseHolder,
    RestoreOutcome,
    RestoreResult,
    is_same,
    round_to_choice,
)
from joulewise.control.messages import (
    DeviceNotes,
    LogLimiter,
    describe,
    describe_holder,
    format_value,
    setting_name,
    user_name,
)
from joulewise.control.permissions import permission_fix
from joulewise.control.restore import Leftovers, restore_settings
from joulewise.data import ControlInfo, ControlKind, Quantity, Reading, Unavailable
from joulewise.devices import Device
from joulewise.devices.device import check_in_range
from joulewise.devices.nvidia.throttling import Binding, judge_limit
from joulewise.errors import (
    DeviceError,
    DriverHangsError,
    JoulewiseError,
    NotSupportedError,
    PermissionDeniedError,
    UsageError,
)
from joulewise.process.failpoints import failpoint
from joulewise.process.linux import started_ticks

# Chosen: often enough for a mean over a training, rarely enough to cost nothing. Doubled, a run has
# half the samples.
_SAMPLE_PERIOD_S: Final = 1.0


class LimitEffect:
    """Whether held power limits take effect, by samples at most once a second."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._next_s = -math.inf
        self._readings: dict[tuple[str, str], _LimitReadings] = {}  # by hold and device

    def sample(self, stacks: HoldStack, devices: Mapping[str, Device]) -> None:
        """Sample every device whose limit is in force, which one below another lease is not."""
        if self._now_s() < self._next_s:
            return
        self._next_s = self._now_s() + _SAMPLE_PERIOD_S
        held_ids = {hold.id for hold in stacks}
        self._readings = {
            key: readings for key, readings in self._readings.items() if key[0] in held_ids
        }
        for uid, device in devices.items():
            top = stacks.top(uid, ControlKind.POWER_LIMIT)
            if top and device.info.vendor == "nvidia":  # the only vendor with throttle reasons
                self._readings.setdefault((top[0].id, uid), _LimitReadings()).sample(device)

    def describe(self, hold: Hold) -> list[str]:
        """A note on each power limit of a hold that never took effect or cannot be reached."""
        limits = [change for change in hold.changes if change.knob is ControlKind.POWER_LIMIT]
        pairs = ((self._readings.get((hold.id, change.device)), change) for change in limits)
        return [
            note for readings, change in pairs if readings and (note := readings.describe(change))
        ]


class _LimitReadings:
    """Throttle reasons and power of one device under one limit."""

    def __init__(self) -> None:
        self._reasons: Counter[int] = Counter()
        self._sum_w = 0.0

    def sample(self, device: Device) -> None:
        reasons, power = device.read(Quantity.THROTTLE), device.read(Quantity.POWER)
        if isinstance(reasons, Reading) and isinstance(power, Reading):
            self._reasons[int(reasons.value)] += 1
            self._sum_w += power.value

    def describe(self, change: Change) -> str:
        samples = sum(self._reasons.values())
        mean_w = self._sum_w / samples if samples else None
        effect = judge_limit(change.value, self._reasons.elements(), mean_w)
        if effect is None:
            return ""
        limit = format_value(change.knob, change.value)
        if effect is Binding.NEVER:
            return f"{change.key} never needed more than its limit of {limit}: {effect.value}"
        return f"{change.key} drew {mean_w:.0f} W under a limit of {limit}: {effect.value}"


# Chosen: other holders wait meanwhile, so what takes longer is tried again later, this often.
# Doubled, they wait up to 1 s for a device that does not answer.
_RESTORE_S: Final = 0.5
_RETRY_S: Final = 0.5
_MAX_LOG_LINES: Final = 200  # for one user in a minute
_DISK_HINTS: Final = {
    errno.ENOSPC: "free some disk space",
    errno.EDQUOT: "free some disk space",
    errno.ENOLCK: "mount its file system with locks",
    errno.EROFS: "mount its file system for writing",
}

# Raises where a holder may not set a control of a device to this value.
Rule = Callable[[LeaseHolder, Device, ControlKind, float], None]


@dataclass(frozen=True)
class GrantedLease:
    """A lease that was granted, and the values that the devices report, by their keys."""

    hold: Hold
    enforced: Mapping[str, Mapping[ControlKind, float]]
    notes: tuple[str, ...]


class Guardian:
    """All holds of one guardian; an ``owner`` is the connection that took the lease."""

    def __init__(
        self,
        state: Path,
        devices: Iterable[Device],
        log: Callable[[str], None],
        *,
        rules: Sequence[Rule] = (),
        overridable_rules: Sequence[Rule] = (),
        find: Callable[[], Mapping[str, Device]] = dict,
        patience_s: float = _RESTORE_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """``rules`` always apply, ``overridable_rules`` unless the holder uses force.

        ``find`` discovers devices again where one is unknown.
        """
        self.state = state
        self._devices = {device.info.uid: device for device in devices}
        self._log = log
        self._rules = rules
        self._overridable_rules = overridable_rules
        self._find = find
        self._patience_s = patience_s
        self._log_limiter = LogLimiter(log, _MAX_LOG_LINES)
        self._leftovers = Leftovers(state, log, now_s)
        self._stacks = HoldStack()
        self._limit_effect = LimitEffect()
        self._claims = Claims(claims.lock_folder())
        self._owners: dict[str, object] = {}  # by hold; one without an owner is yet to be restored
        self._numbers = count(1)
        self._journal: journal.Journal | None = None

    def holds(self, owner: object) -> list[Hold]:
        return [hold for hold in self._stacks if self._owners.get(hold.id, self) is owner]

    def lease(
        self,
        owner: object,
        holder: LeaseHolder,
        requests: Sequence[DeviceRequest],
        *,
        force: bool = False,
    ) -> GrantedLease:
        """Change all requested settings, or none and raise an error."""
        for request in requests:  # first: without this right, an unwritable journal is no news
            for control in request.settings:
                _settable(self._device(request.device), control)
        notes = DeviceNotes()
        self.retry()
        self._leftovers.undo(self._devices)
        holder = replace(holder, ticks=holder.ticks or started_ticks(holder.pid))
        try:
            changes = [
                change
                for request in requests
                for change in self._plan(owner, holder, request, notes, force=force)
            ]
            _check_no_duplicates(changes)
            hold = Hold(str(next(self._numbers)), holder, tuple(changes))
            self._write_journal(hold)
        except BaseException:
            self._release_claims()
            raise
        self._stacks.add(hold)
        self._owners[hold.id] = owner
        self._set_all(hold)
        hold = self._read_back(hold, notes)
        self._log_for_user(holder, describe(hold.changes))
        return GrantedLease(hold, self._enforced(hold.changes, notes), notes.lines())

    def release(self, owner: object, hold_id: str) -> list[RestoreOutcome]:
        """Restore the settings of a hold; what fails now is tried again by ``retry``."""
        hold = next((hold for hold in self.holds(owner) if hold.id == hold_id), None)
        if hold is None:
            raise UsageError(f"you have no lease {hold_id!r}", "it may have ended already")
        del self._owners[hold.id]
        return self._restore_and_log(hold, self._patience_s)

    def drop(self, owner: object) -> list[RestoreOutcome]:
        """The owner is gone: restore all of its settings, the last change first."""
        holds = self.holds(owner)[::-1]
        for hold in holds:  # before restoring: an error with one must leave no other with an owner
            del self._owners[hold.id]
        deadline_s = time.monotonic() + self._patience_s
        return [
            outcome
            for hold in holds
            for outcome in self._restore_and_log(hold, max(0.0, deadline_s - time.monotonic()))
        ]

    def _restore_and_log(self, hold: Hold, patience_s: float) -> list[RestoreOutcome]:
        outcomes = self._restore_hold(hold, patience_s)
        for outcome in outcomes:
            self._log_outcome(hold.holder, outcome)
        return outcomes

    def describe_limits(self, owner: object, hold_id: str) -> list[str]:
        """Notes on the power limits of a hold: whether one never took effect or was too low."""
        holds = [hold for hold in self.holds(owner) if hold.id == hold_id]
        return [note for hold in holds for note in self._limit_effect.describe(hold)]

    def retry(self) -> bool:
        """Try again what could not be restored; True where nothing is left."""
        self._limit_effect.sample(self._stacks, self._devices)
        self._log_limiter.report_dropped()
        self._claims.drain_queue()
        if self._leftovers.are_due():
            self._devices = {**self._find(), **self._devices}  # it may be about a new device
            self._leftovers.undo(self._devices)
        if self._journal:
            self._journal.catch_up()
        for hold in reversed(self._ownerless_holds()):
            for outcome in self._restore_hold(hold, patience_s=0):
                if outcome.end is not RestoreResult.FAILED:  # logged at the first try
                    self._log_outcome(hold.holder, outcome)
        return not self._ownerless_holds()

    def close(self, patience_s: float = 0.0) -> bool:
        """Retry for up to ``patience_s`` and close; True where nothing is left.

        What could not be restored stays in the journal, for the next joulewise.
        """
        deadline_s = time.monotonic() + patience_s
        while not (is_restored := self.retry()) and time.monotonic() < deadline_s:
            time.sleep(_RETRY_S)
        self._claims.keep(())  # before the journal: whoever finds it may claim all of it
        if self._journal:
            self._journal.close(leave=any(self._stacks))
            self._journal = None
        self._log_limiter.report_dropped(everything=True)
        return is_restored

    def _log_for_user(self, holder: LeaseHolder, what: str) -> None:
        self._log_limiter.log(f"user {user_name(holder.uid)}", f"{describe_holder(holder)}: {what}")

    def _log_outcome(self, holder: LeaseHolder, outcome: RestoreOutcome) -> None:
        if outcome.is_well:
            self._log_for_user(holder, describe(outcome))
        else:
            self._log(f"{describe_holder(holder)}: {describe(outcome)}")

    def _write_journal(self, hold: Hold) -> None:
        try:
            self._journal = self._journal or journal.Journal(self.state)
            self._journal.begin(hold)
        except OSError as error:
            disk_hint = _DISK_HINTS.get(error.errno or 0, "make that folder writable")
            raise JoulewiseError(
                f"the journal in {self.state} cannot be written: {error.strerror}",
                f"nothing was changed; {disk_hint}, or set JOULEWISE_STATE to another folder",
            ) from None

    def _release_claims(self) -> None:
        self._claims.keep({change.setting for hold in self._stacks for change in hold.changes})

    def _ownerless_holds(self) -> list[Hold]:
        return [hold for hold in self._stacks if hold.id not in self._owners]

    def _set_all(self, hold: Hold) -> None:
        for index, change in enumerate(hold.changes):
            failpoint("before-set")
            try:
                self._devices[change.device].set(change.knob, change.value)
            except JoulewiseError as error:
                # Resetting a clock whose lock was refused could undo somebody else's lock.
                is_ours = change.before is not None or isinstance(error, DriverHangsError)
                tried = hold.changes[: index + is_ours]
                self._roll_back(replace(hold, changes=tried), error)
                raise

    def _roll_back(self, hold: Hold, error: JoulewiseError) -> None:
        self._log(f"{describe_holder(hold.holder)}: {error.message}; the other changes are undone")
        self._rewrite(hold)
        outcomes = self.release(self._owners[hold.id], hold.id)
        failed = [outcome for outcome in outcomes if outcome.end is RestoreResult.FAILED]
        if failed:
            raise DeviceError(
                f"{error.message}; {'; '.join(map(describe, failed))}", claims.RESTORE_HINT
            )

    def _read_back(self, hold: Hold, notes: DeviceNotes) -> Hold:
        """The hold with the values that the devices report, where they rounded them."""
        values = [self._devices[each.device].get(each.knob) for each in hold.changes]
        changes = tuple(
            change if isinstance(value, Unavailable) else replace(change, value=value)
            for change, value in zip(hold.changes, values, strict=True)
        )
        rounded = [
            (requested, actual)
            for requested, actual in zip(hold.changes, changes, strict=True)
            if not is_same(requested.value, actual.value)
        ]
        for requested, actual in rounded:
            value = format_value(requested.knob, actual.value)
            note = f"set to {value}, rounded from {requested.value:g}"
            notes.add(requested.key, requested.knob, note)
        if rounded:
            hold = replace(hold, changes=changes)
            self._rewrite(hold)
        return hold

    def _restore_hold(self, hold: Hold, patience_s: float) -> list[RestoreOutcome]:
        undone, lowered = self._stacks.without(hold)
        for other in lowered:
            self._rewrite(other)
        outcomes = restore_settings(undone, self._devices, patience_s)
        left = replace(hold, changes=tuple(undone)).after(outcomes)
        if left.changes:
            self._stacks.add(left)
        else:
            self._stacks.remove(hold)
        self._release_claims()  # before the journal, by which others see that it is free
        if self._journal and not left.changes:
            self._journal.end(hold.id)
        elif self._journal and left != hold:
            self._journal.update(left)
        return outcomes

    def _rewrite(self, hold: Hold) -> None:
        self._stacks.add(hold)
        if self._journal:
            self._journal.update(hold)

    def _plan(
        self,
        owner: object,
        holder: LeaseHolder,
        request: DeviceRequest,
        notes: DeviceNotes,
        *,
        force: bool,
    ) -> Iterator[Change]:
        device = self._device(request.device)
        for control, requested in request.settings.items():
            info = _settable(device, control)
            value = round_to_choice(info, requested)
            if value != requested:
                nearest = (
                    f"set to {format_value(control, value)}, the nearest supported to {requested:g}"
                )
                notes.add(device.info.key, control, nearest)
            check_in_range(device.info.key, info, value)
            self._check_free(
                owner, device, control
            )  # first: whoever uses a device may also hold it
            for rule in self._rules if force else (*self._rules, *self._overridable_rules):
                rule(holder, device, control, value)
            before = self._current_value(device, info)
            yield Change(device.info.uid, device.info.key, control, before, value)

    def _device(self, name: str) -> Device:
        for find in (dict, self._find):
            self._devices = {**find(), **self._devices}
            for device in self._devices.values():
                if name in {device.info.uid, device.info.key}:
                    return device
        known = ", ".join(device.info.key for device in self._devices.values())
        raise UsageError(f"there is no device {name!r}", f"this machine has {known or 'none'}")

    def _check_free(self, owner: object, device: Device, control: ControlKind) -> None:
        top = self._stacks.top(device.info.uid, control)
        if top and top[0].id not in self._owners:
            raise claims.not_restored_error(device, control)
        if top and self._owners[top[0].id] is not owner:
            raise claims.held_error(top[0], device, control)
        own = self._journal.path if self._journal else None
        claims.claim(self.state, own, self._claims, device, control)

    def _current_value(self, device: Device, info: ControlInfo) -> float | None:
        current = device.get(info.control)
        if not isinstance(current, Unavailable):
            return current
        if info.readable:
            raise DeviceError(
                f"{setting_name(device.info.key, info.control)} cannot be read: {current.reason}",
                current.fix or "try again later: an unknown value could not be restored",
            )
        top = self._stacks.top(device.info.uid, info.control)
        return top[1].value if top else None

    def _enforced(
        self, changes: Iterable[Change], notes: DeviceNotes
    ) -> dict[str, dict[ControlKind, float]]:
        enforced: dict[str, dict[ControlKind, float]] = {}
        for change in changes:
            value = change.value
            if change.knob is ControlKind.POWER_LIMIT:
                reading = self._devices[change.device].read(Quantity.ENFORCED_LIMIT)
                value = reading.value if isinstance(reading, Reading) else value
                if not is_same(value, change.value):
                    actual, wanted = (
                        format_value(change.knob, value),
                        format_value(change.knob, change.value),
                    )
                    note = f"is {actual}, not {wanted}: another limit is lower"
                    notes.add(change.key, change.knob, note)
            enforced.setdefault(change.key, {})[change.knob] = value
        return enforced


def _check_no_duplicates(changes: Sequence[Change]) -> None:
    """Raise where a device is named twice: it has two names, its key and its uid."""
    if len({change.setting for change in changes}) != len(changes):
        raise UsageError("a device is named twice", "name each of them once")


def _settable(device: Device, control: ControlKind) -> ControlInfo:
    """The control's range; raises where it does not exist or may not be changed."""
    info = device.controls.get(control, Unavailable(f"{device.info.key} has none"))
    if isinstance(info, Unavailable):
        raise NotSupportedError(
            f"{setting_name(device.info.key, control)} cannot be changed: {info.reason}",
            info.fix or "run `joulewise doctor` to see what can be changed",
        )
    if isinstance(info.writable, Unavailable):
        raise PermissionDeniedError(
            f"{setting_name(device.info.key, control)} cannot be changed: {info.writable.reason}",
            permission_fix(info.writable.fix, is_simulated=device.info.is_simulated),
        )
    return info
