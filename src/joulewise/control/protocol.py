"""The messages between holders and guardians: JSON, one message a line.

::

    {"kind": "lease", "wanted": [{"device": "gpu0", "settings": {"power_limit_w": 150}}],
     "force": false}
        {"kind": "leased", "hold": "1", "before": {"gpu0": {"power_limit_w": 300.0}},
         "enforced": {"gpu0": {"power_limit_w": 150.0}}, "notes": []}
    {"kind": "release", "hold": "1"}
        {"kind": "released", "outcomes": [{"key": "gpu0", "knob": "power_limit_w", …}], "notes": []}
    a request that is refused
        {"kind": "refused", "error": "OutOfRangeError", "message": "…", "hint": "…"}
    when the service ends, without a request
        {"kind": "ended", "outcomes": [{"key": "gpu0", "knob": "power_limit_w", …}]}

A message does not say who sent it: the kernel does (``json_lines.peer_credentials``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from joulewise import errors
from joulewise.control.guardian import GrantedLease
from joulewise.control.holds import Change, DeviceRequest, RestoreOutcome
from joulewise.data import ControlKind
from joulewise.errors import JoulewiseError, UsageError
from joulewise.process.json_lines import encode_message as line

ENDED: Final = "ended"
# Chosen, so that no user can exhaust the service: more devices than a node has, names longer than
# any UUID. A request of that many devices fits into the message size. Doubled, each connection may
# take twice the memory.
MAX_MESSAGE_B: Final = 1 << 14
_MAX_DEVICES: Final = 64
_MAX_NAME_CHARS: Final = 128
_HINT: Final = "restart the guard service after an update: it may be of another version"


@dataclass(frozen=True)
class LeaseRequest:
    """Set these values until the lease ends; ``force`` also while others use the devices."""

    wanted: tuple[DeviceRequest, ...]
    force: bool = False


@dataclass(frozen=True)
class Release:
    """End the lease with this id."""

    hold: str


def parse(request: bytes) -> LeaseRequest | Release:
    """A holder's request; UsageError for anything else, so that no input can crash a guardian."""
    try:
        message = json.loads(request)
    except (ValueError, RecursionError):
        raise _malformed("it is not JSON") from None
    if not isinstance(message, dict):
        raise _malformed("it is not a JSON object")
    if message.get("kind") == "lease":
        return LeaseRequest(_parse_wanted(message.get("wanted")), message.get("force") is True)
    if message.get("kind") == "release":
        return Release(_parse_name(message.get("hold")))
    raise _malformed("it is neither a lease nor a release")


def lease_line(wanted: Iterable[DeviceRequest], *, force: bool) -> bytes:
    devices = [
        {
            "device": one.device,
            "settings": {control.value: v for control, v in one.settings.items()},
        }
        for one in wanted
    ]
    return line("lease", wanted=devices, force=force)


def release_line(hold: str) -> bytes:
    return line("release", hold=hold)


def leased_line(granted: GrantedLease) -> bytes:
    return line(
        "leased",
        hold=granted.hold.id,
        before=_values_before(granted.hold.changes),
        enforced={key: dict(values) for key, values in granted.enforced.items()},
        notes=granted.notes,
    )


def released_line(outcomes: Iterable[RestoreOutcome], notes: list[str]) -> bytes:
    return line("released", outcomes=[one.as_json() for one in outcomes], notes=notes)


def ended_line(outcomes: Iterable[RestoreOutcome]) -> bytes:
    """All leases have ended with the service; the only message that answers no request."""
    return line(ENDED, outcomes=[one.as_json() for one in outcomes])


def refused_line(error: JoulewiseError) -> bytes:
    name = type(error).__name__
    return line("refused", error=name, message=error.message, hint=error.hint)


def refusal(message: Mapping[str, Any]) -> JoulewiseError:
    """The error that a guardian raised, on the holder's side."""
    error_class = getattr(errors, str(message.get("error")), JoulewiseError)
    if not (isinstance(error_class, type) and issubclass(error_class, JoulewiseError)):
        error_class = JoulewiseError
    return error_class(str(message.get("message")), str(message.get("hint")))


def _values_before(changes: Iterable[Change]) -> dict[str, dict[str, float | None]]:
    before: dict[str, dict[str, float | None]] = {}
    for change in changes:
        before.setdefault(change.key, {})[change.knob.value] = change.before
    return before


def _parse_wanted(wanted: Any) -> tuple[DeviceRequest, ...]:
    if not isinstance(wanted, list) or not 0 < len(wanted) <= _MAX_DEVICES:
        raise _malformed(f"a lease is for 1 to {_MAX_DEVICES} devices")
    return tuple(_parse_device(device) for device in wanted)


def _parse_device(device: Any) -> DeviceRequest:
    settings = device.get("settings") if isinstance(device, dict) else None
    if not isinstance(settings, dict) or not settings:
        raise _malformed("each device needs its settings")
    values = {_parse_control(name): _parse_number(value) for name, value in settings.items()}
    return DeviceRequest(_parse_name(device.get("device")), values)


def _parse_control(name: str) -> ControlKind:
    try:
        return ControlKind(name)
    except ValueError:
        raise _malformed(f"there is no setting {name[:_MAX_NAME_CHARS]!r}") from None


def _parse_number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _malformed("the value of a setting must be a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _malformed("the value of a setting must be finite")
    return number


def _parse_name(name: Any) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME_CHARS:
        raise _malformed(f"a name must have 1 to {_MAX_NAME_CHARS} characters")
    return name


def _malformed(reason: str) -> UsageError:
    return UsageError(f"the guardian cannot read the request: {reason}", _HINT)
