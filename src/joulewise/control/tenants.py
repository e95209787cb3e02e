"""Other people on a device, who would be slowed by what we set."""

from __future__ import annotations

from pathlib import Path

from joulewise.control.holds import Holder
from joulewise.control.words import user
from joulewise.data import Knob, Unavailable
from joulewise.devices import Device
from joulewise.errors import HeldError


def no_strangers(holder: Holder, device: Device, knob: Knob, _value: float) -> None:
    """Refuses while somebody else uses the device."""
    told = device.processes()
    if isinstance(told, Unavailable):
        return
    for process in told:
        uid = _owner(process.pid)
        if uid not in {holder.uid, None}:
            raise HeldError(
                f"{device.info.key} is used by pid {process.pid} of {user(uid)}, "
                f"whom another {knob.value} would concern as well",
                "wait until it has ended, or insist with --force (force=True)",
            )


def _owner(pid: int) -> int | None:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None
