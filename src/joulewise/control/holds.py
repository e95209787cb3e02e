"""What is turned, by whom, and what was there before."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any, Final

from joulewise.data import Knob, KnobInfo

# Drivers round to their own steps: an eighth of a watt, a milliwatt.
_SAME: Final = 0.5


@dataclass(frozen=True)
class LeaseHolder:
    """Whose lease it is: a process, its user, its program; ``since_s`` is unix time."""

    pid: int
    uid: int
    program: str
    since_s: float
    ticks: int = 0  # when the process began: its number may be somebody else's by now


@dataclass(frozen=True)
class Change:
    """One knob of one device. ``before`` is None where it was at what the device does by itself.

    That is how a clock stands that nobody has locked: the driver does not tell of locks.
    """

    device: str
    key: str
    knob: Knob
    before: float | None
    value: float

    @property
    def where(self) -> tuple[str, Knob]:
        return self.device, self.knob


@dataclass(frozen=True)
class Hold:
    """A lease that was given: all of its changes are made, or none."""

    id: str
    holder: LeaseHolder
    changes: tuple[Change, ...]

    def after(self, outcomes: Iterable[RestoreOutcome]) -> Hold:
        """What is left of it to undo."""
        failed = {(each.key, each.knob) for each in outcomes if each.end is End.FAILED}
        left = tuple(each for each in self.changes if (each.key, each.knob) in failed)
        return replace(self, changes=left)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, told: Any) -> Hold:
        """A ValueError, KeyError or TypeError where it is none: files may hold anything."""
        by = told["holder"]
        who = int(by["pid"]), int(by["uid"]), str(by["program"])
        holder = LeaseHolder(*who, _finite(by["since_s"]), int(by["ticks"]))
        changes = tuple(
            Change(
                str(each["device"]),
                str(each["key"]),
                Knob(each["knob"]),
                None if each["before"] is None else _finite(each["before"]),
                _finite(each["value"]),
            )
            for each in told["changes"]
        )
        return cls(str(told["id"]), holder, changes)


class Stacks:
    """Holds in the order in which they were given: who has turned which knob, one on the other."""

    def __init__(self) -> None:
        self._holds: dict[str, Hold] = {}

    def __iter__(self) -> Iterator[Hold]:
        return iter(self._holds.values())

    def add(self, hold: Hold) -> None:
        """Put it on top; one that is there already stays in its place."""
        self._holds[hold.id] = hold

    def top(self, device: str, knob: Knob) -> tuple[Hold, Change] | None:
        """Who has turned this knob last."""
        standing = self._of(device, knob)
        return standing[-1] if standing else None

    def without(self, gone: Hold) -> tuple[list[Change], list[Hold]]:
        """What is to be undone once this hold is gone, and which holds are others then.

        Where another lies on top of it, the knob stays, and that one goes back further; but not
        beyond what somebody else has set between the two.
        """
        undone: list[Change] = []
        others: dict[str, Hold] = {}
        for change in gone.changes:
            standing = self._of(*change.where)
            index = standing.index((gone, change))
            if index + 1 == len(standing):
                undone.append(change)
                continue
            hold, above = standing[index + 1]
            if not is_same(above.before, change.value):
                continue
            hold = others.get(hold.id, hold)
            lowered = replace(above, before=change.before)
            changes = tuple(lowered if each is above else each for each in hold.changes)
            others[hold.id] = replace(hold, changes=changes)
        return undone, list(others.values())

    def remove(self, hold: Hold) -> None:
        self._holds.pop(hold.id, None)

    def _of(self, device: str, knob: Knob) -> list[tuple[Hold, Change]]:
        return [
            (hold, change)
            for hold in self._holds.values()
            for change in hold.changes
            if change.where == (device, knob)
        ]


class End(str, Enum):
    """How putting a knob back ended."""

    RESTORED = "restored"
    ALREADY = "already there"
    FOREIGN = "changed since"
    FAILED = "not restored"


@dataclass(frozen=True)
class RestoreOutcome:
    """What became of a knob that was put back; ``found`` is what it was at, None where untold."""

    key: str
    knob: Knob
    end: End
    value: float | None
    found: float | None
    reason: str = ""

    @property
    def is_well(self) -> bool:
        return self.end in {End.RESTORED, End.ALREADY}

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> RestoreOutcome:
        return cls(**{**told, "knob": Knob(told["knob"]), "end": End(told["end"])})


@dataclass(frozen=True)
class Wanted:
    """What a holder asks of one device, which is named by its uid or its key (``gpu0``)."""

    device: str
    settings: Mapping[Knob, float]


def snapped(info: KnobInfo, value: float) -> float:
    """The value that the knob takes and that is nearest; of two as near, the lower."""
    if info.choices is None or not info.minimum <= value <= info.maximum:
        return value  # whether it is in range is for the knob to say
    return min(info.choices, key=lambda choice: (abs(choice - value), choice))


def is_same(one: float | None, other: float | None) -> bool:
    """Whether it is the same setting, as far as a device can tell."""
    return one == other if one is None or other is None else abs(one - other) <= _SAME


def _finite(told: Any) -> float:
    value = float(told)
    if not math.isfinite(value):
        raise ValueError(told)
    return value
