"""What holders and guardians say to each other: JSON, a line a message.

::

    {"kind": "lease", "wanted": [{"device": "gpu0", "settings": {"power_limit_w": 150}}],
     "force": false}
        {"kind": "leased", "hold": "1", "before": {"gpu0": {"power_limit_w": 300.0}},
         "enforced": {"gpu0": {"power_limit_w": 150.0}}, "notes": []}
    {"kind": "release", "hold": "1"}
        {"kind": "released", "outcomes": [{"key": "gpu0", "knob": "power_limit_w", …}], "notes": []}
    anything that cannot be done
        {"kind": "refused", "error": "OutOfRangeError", "message": "…", "hint": "…"}
    when the service ends, without having been asked
        {"kind": "ended", "outcomes": [{"key": "gpu0", "knob": "power_limit_w", …}]}

Who asks is not in a message: the kernel tells it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from joulewise import errors
from joulewise.control.guardian import Granted
from joulewise.control.holds import Change, RestoreOutcome, Wanted
from joulewise.data import Knob
from joulewise.errors import JoulewiseError, UsageError

MOST_B: Final = 1 << 14
ENDED: Final = "ended"
_MOST_DEVICES: Final = 64
_LONGEST_NAME: Final = 128
_HINT: Final = "restart the guard service after an update: it may be of another version"


@dataclass(frozen=True)
class LeaseRequest:
    wanted: tuple[Wanted, ...]
    force: bool = False


@dataclass(frozen=True)
class Release:
    hold: str


def parse(line: bytes) -> LeaseRequest | Release:
    """A request, or a UsageError: a guardian must not fall over whatever it is told."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        raise _unknown("no JSON") from None
    if not isinstance(told, dict):
        raise _unknown("no JSON object")
    if told.get("kind") == "lease":
        return LeaseRequest(_wanted(told.get("wanted")), told.get("force") is True)
    if told.get("kind") == "release":
        return Release(_name(told.get("hold")))
    raise _unknown("neither a lease nor a release")


def lease_line(wanted: Iterable[Wanted], *, force: bool) -> bytes:
    told = [
        {"device": each.device, "settings": {k.value: v for k, v in each.settings.items()}}
        for each in wanted
    ]
    return line(kind="lease", wanted=told, force=force)


def release_line(hold: str) -> bytes:
    return line(kind="release", hold=hold)


def leased_line(granted: Granted) -> bytes:
    return line(
        kind="leased",
        hold=granted.hold.id,
        before=_before(granted.hold.changes),
        enforced={key: dict(values) for key, values in granted.enforced.items()},
        notes=granted.notes,
    )


def released_line(outcomes: list[RestoreOutcome], notes: list[str]) -> bytes:
    told = [outcome.as_json() for outcome in outcomes]
    return line(kind="released", outcomes=told, notes=notes)


def ended_line(outcomes: list[RestoreOutcome]) -> bytes:
    """The only one that is not asked for: all leases have ended with the service."""
    return line(kind=ENDED, outcomes=[outcome.as_json() for outcome in outcomes])


def refused_line(error: JoulewiseError) -> bytes:
    name = type(error).__name__
    return line(kind="refused", error=name, message=error.message, hint=error.hint)


def refusal(told: Mapping[str, Any]) -> JoulewiseError:
    """The error that a guardian has raised, on the holder's side."""
    known = getattr(errors, str(told.get("error")), JoulewiseError)
    if not (isinstance(known, type) and issubclass(known, JoulewiseError)):
        known = JoulewiseError
    return known(str(told.get("message")), str(told.get("hint")))


def line(**content: Any) -> bytes:
    return json.dumps(content).encode() + b"\n"


def _before(changes: Iterable[Change]) -> dict[str, dict[str, float | None]]:
    before: dict[str, dict[str, float | None]] = {}
    for change in changes:
        before.setdefault(change.key, {})[change.knob.value] = change.before
    return before


def _wanted(told: Any) -> tuple[Wanted, ...]:
    if not isinstance(told, list) or not 0 < len(told) <= _MOST_DEVICES:
        raise _unknown(f"a lease is of 1 to {_MOST_DEVICES} devices")
    return tuple(_one_wanted(each) for each in told)


def _one_wanted(told: Any) -> Wanted:
    settings = told.get("settings") if isinstance(told, dict) else None
    if not isinstance(settings, dict) or not settings:
        raise _unknown("each device needs its settings")
    return Wanted(_name(told.get("device")), {_knob(k): _number(v) for k, v in settings.items()})


def _knob(told: str) -> Knob:
    try:
        return Knob(told)
    except ValueError:
        raise _unknown(f"there is no knob {told[:_LONGEST_NAME]!r}") from None


def _number(told: Any) -> float:
    if isinstance(told, bool) or not isinstance(told, int | float):
        raise _unknown("a setting is a number")
    try:
        value = float(told)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise _unknown("a setting is a finite number")
    return value


def _name(told: Any) -> str:
    if not isinstance(told, str) or not 0 < len(told) <= _LONGEST_NAME:
        raise _unknown("names are words")
    return told


def _unknown(why: str) -> UsageError:
    return UsageError(f"the guardian does not understand this: {why}", _HINT)
