"""Whether another guardian has a knob: one that lives, or one that has left it turned."""

from __future__ import annotations

from pathlib import Path

from joulewise.control import journal
from joulewise.control.claims import Claims
from joulewise.control.holds import Hold
from joulewise.control.standing import has_ended
from joulewise.control.words import named, user, valued, who
from joulewise.data import Knob
from joulewise.devices import Device
from joulewise.errors import DeviceError, HeldError, JoulewiseError

RESTORE = "see what `joulewise doctor` says of the device, then run `joulewise restore`"


def claim(state: Path, own: Path | None, claims: Claims, device: Device, knob: Knob) -> None:
    """Have it, or raise who has; ``own`` is our journal."""
    where = device.info.uid, knob
    try:
        # Before the journals are looked into: what comes into them from now on is not of it.
        taken_by = claims.take(where)
    except OSError as error:
        raise JoulewiseError(
            f"{named(device.info.key, knob)} cannot be claimed: {error.strerror}",
            "nothing was turned; see to it that Unix sockets can be opened here",
        ) from None
    for other in journal.kept(state):
        if other.path == own or not other.is_of_this_boot:
            continue
        for hold in other.holds:
            if any(change.where == where for change in hold.changes):
                raise _theirs(other, hold, device, knob)
    if taken_by:
        pid, uid = taken_by
        raise HeldError(
            f"{named(device.info.key, knob)} is held by pid {pid} of user {user(uid)}",
            "its leases are in another state folder; it is free when that process ends",
        )


def held(hold: Hold, device: Device, knob: Knob) -> HeldError:
    where = device.info.uid, knob
    (value,) = (change.value for change in hold.changes if change.where == where)
    return HeldError(
        f"{named(device.info.key, knob)} is held at {valued(knob, value)} by {who(hold.holder)}",
        "it is free when that process ends; `joulewise doctor` shows all that is held",
    )


def not_back(device: Device, knob: Knob) -> DeviceError:
    what = f"{named(device.info.key, knob)} could not be put back after its last lease"
    return DeviceError(what, RESTORE)


def _theirs(other: journal.Kept, hold: Hold, device: Device, knob: Knob) -> DeviceError:
    if not other.is_live:
        return not_back(device, knob)
    if not has_ended(other, hold.holder):
        return held(hold, device, knob)
    return HeldError(
        f"{named(device.info.key, knob)} is being put back after {who(hold.holder)}",
        "try again in a moment; `joulewise doctor` says how it stands",
    )
