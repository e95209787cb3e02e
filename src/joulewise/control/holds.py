"""What is turned, by whom, and what was there before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from joulewise.data import Knob


@dataclass(frozen=True)
class Holder:
    """Whose lease it is: a process, its user, its program; ``since_s`` is unix time."""

    pid: int
    uid: int
    program: str
    since_s: float


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
    holder: Holder
    changes: tuple[Change, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Hold:
        changes = (Change(**{**each, "knob": Knob(each["knob"])}) for each in told["changes"])
        return cls(told["id"], Holder(**told["holder"]), tuple(changes))


class End(str, Enum):
    """How putting a knob back ended."""

    RESTORED = "restored"
    ALREADY = "already there"
    FOREIGN = "changed by someone else"
    FAILED = "not restored"


@dataclass(frozen=True)
class Outcome:
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
    def from_json(cls, told: Mapping[str, Any]) -> Outcome:
        return cls(**{**told, "knob": Knob(told["knob"]), "end": End(told["end"])})
