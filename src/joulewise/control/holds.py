"""What is held: changes of settings, their holders, and leases on top of each other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any, Final

from joulewise.data import ControlInfo, ControlKind

# In the control's unit (W or MHz). Chosen: drivers round to steps of up to an eighth of a watt, and
# the steps of clocks are above 1 MHz. Doubled, a change of 1 W by somebody else goes unnoticed.
_TOLERANCE: Final = 0.5


@dataclass(frozen=True)
class LeaseHolder:
    """The process that holds a lease, its user and program; ``since_s`` is Unix time."""

    pid: int
    uid: int
    program: str
    since_s: float
    ticks: int = 0  # when the process started: its id may be reused


@dataclass(frozen=True)
class Change:
    """One changed setting of one device: its uid, key and control, and the values.

    ``before`` is None where the device chose the value itself, as for a clock that nobody has
    locked: the driver does not report locks.
    """

    device: str
    key: str
    knob: ControlKind
    before: float | None
    value: float

    @property
    def setting(self) -> tuple[str, ControlKind]:
        return self.device, self.knob


@dataclass(frozen=True)
class Hold:
    """A lease that was granted, on the guardian's side: all of its changes are made, or none."""

    id: str
    holder: LeaseHolder
    changes: tuple[Change, ...]

    def after(self, outcomes: Iterable[RestoreOutcome]) -> Hold:
        """This hold with only the changes that could not be undone."""
        failed = {(each.key, each.knob) for each in outcomes if each.end is RestoreResult.FAILED}
        left = tuple(each for each in self.changes if (each.key, each.knob) in failed)
        return replace(self, changes=left)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, payload: Any) -> Hold:
        """From a journal; ValueError, KeyError or TypeError where the payload is no hold."""
        fields = payload["holder"]
        identity = int(fields["pid"]), int(fields["uid"]), str(fields["program"])
        holder = LeaseHolder(*identity, _parse_finite(fields["since_s"]), int(fields["ticks"]))
        changes = tuple(
            Change(
                str(each["device"]),
                str(each["key"]),
                ControlKind(each["knob"]),
                None if each["before"] is None else _parse_finite(each["before"]),
                _parse_finite(each["value"]),
            )
            for each in payload["changes"]
        )
        return cls(str(payload["id"]), holder, changes)


class HoldStack:
    """Holds in the order in which they were granted; several may change the same setting."""

    def __init__(self) -> None:
        self._holds: dict[str, Hold] = {}

    def __iter__(self) -> Iterator[Hold]:
        return iter(self._holds.values())

    def add(self, hold: Hold) -> None:
        """Add a hold on top; one with the same id is replaced where it is."""
        self._holds[hold.id] = hold

    def top(self, device: str, control: ControlKind) -> tuple[Hold, Change] | None:
        """The hold that changed this setting last, and its change; None where there is none."""
        stack = self._changes_of(device, control)
        return stack[-1] if stack else None

    def without(self, gone: Hold) -> tuple[list[Change], list[Hold]]:
        """The changes to undo once this hold is gone, and the other holds that change by that.

        Where another hold is on top, the setting stays, and that hold will restore the value from
        before this one; but not where somebody else has set it between the two.
        """
        undone: list[Change] = []
        lowered_holds: dict[str, Hold] = {}
        for change in gone.changes:
            stack = self._changes_of(*change.setting)
            index = stack.index((gone, change))
            if index + 1 == len(stack):
                undone.append(change)
                continue
            hold, above = stack[index + 1]
            if not is_same(above.before, change.value):
                continue
            hold = lowered_holds.get(hold.id, hold)
            new_change = replace(above, before=change.before)
            changes = tuple(new_change if each is above else each for each in hold.changes)
            lowered_holds[hold.id] = replace(hold, changes=changes)
        return undone, list(lowered_holds.values())

    def remove(self, hold: Hold) -> None:
        self._holds.pop(hold.id, None)

    def _changes_of(self, device: str, control: ControlKind) -> list[tuple[Hold, Change]]:
        return [
            (hold, change)
            for hold in self._holds.values()
            for change in hold.changes
            if change.setting == (device, control)
        ]


class RestoreResult(str, Enum):
    """How restoring a setting ended."""

    RESTORED = "restored"
    ALREADY = "already there"
    FOREIGN = "changed since"
    FAILED = "not restored"


@dataclass(frozen=True)
class RestoreOutcome:
    """The result of restoring a setting; ``found`` was its value then, None where unknown.

    ``value`` is what it was to be restored to, None for a clock that is to be unlocked.
    """

    key: str
    knob: ControlKind
    end: RestoreResult
    value: float | None
    found: float | None
    reason: str = ""

    @property
    def is_well(self) -> bool:
        return self.end in {RestoreResult.RESTORED, RestoreResult.ALREADY}

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, payload: Mapping[str, Any]) -> RestoreOutcome:
        return cls(
            **{
                **payload,
                "knob": ControlKind(payload["knob"]),
                "end": RestoreResult(payload["end"]),
            }
        )


@dataclass(frozen=True)
class DeviceRequest:
    """The settings that a holder requests for one device, named by its uid or key (``gpu0``)."""

    device: str
    settings: Mapping[ControlKind, float]


def round_to_choice(info: ControlInfo, value: float) -> float:
    """The nearest value that the control accepts; of two as near, the lower."""
    if info.choices is None or not info.minimum <= value <= info.maximum:
        return value  # the range is checked by the device
    return min(info.choices, key=lambda choice: (abs(choice - value), choice))


def is_same(one: float | None, other: float | None) -> bool:
    """Whether two values are the same to a device; None is that of an unlocked clock."""
    return one == other if one is None or other is None else abs(one - other) <= _TOLERANCE


def _parse_finite(number: Any) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(number)
    return value
