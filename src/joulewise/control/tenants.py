"""Other people on a device, who would be slowed by what we set."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from joulewise.command.alive import FIRST_NAMESPACE, pid_namespace
from joulewise.control.holds import Holder
from joulewise.control.words import user
from joulewise.data import Knob, Unavailable
from joulewise.devices import Device
from joulewise.errors import HeldError

_PROC: Final = Path("/proc")
_CUDA: Final = "/dev/nvidia-uvm"  # open in whatever computes, and not in what only looks on


def no_strangers(
    holder: Holder, device: Device, knob: Knob, _value: float, proc: Path = _PROC
) -> None:
    """Refuses while somebody else uses the device, or may, by what the holder itself tells."""
    _refuse_strangers(holder, device, knob, _environ(holder.pid, proc), proc)


def no_other_owners(
    holder: Holder, device: Device, knob: Knob, _value: float, proc: Path = _PROC
) -> None:
    """The same where the holder's word is not enough: by the kernel's and the driver's alone."""
    _refuse_strangers(holder, device, knob, {}, proc)


def _refuse_strangers(
    holder: Holder, device: Device, knob: Knob, environ: Mapping[str, str], proc: Path
) -> None:
    ours = _ours(holder, environ)
    who = _strange_slices(device, environ) or _strangers(device, ours, proc)
    if who:
        raise HeldError(
            f"{device.info.key} {who}, whom another {knob.label} would concern as well",
            "wait until it is yours alone, or insist with --force (force=True)",
        )


def _strangers(device: Device, ours: set[int], proc: Path) -> str:
    told = device.processes()
    if isinstance(told, Unavailable) or not told:
        return ""
    if pid_namespace(proc) not in {"", FIRST_NAMESPACE}:
        # The driver counts processes as the host does, so that their numbers say nothing here.
        more = len(told) - _computing(ours, proc)
        return f"is used by {more} more than are seen in this container" if more > 0 else ""
    for process in told:
        uid = _owner(process.pid, proc)
        if uid is None and _lives(process.pid):  # whose it is, is hidden from us (hidepid)
            return f"is used by pid {process.pid} of somebody else"
        if uid is not None and uid not in ours:
            return f"is used by pid {process.pid} of {user(uid)}"
    return ""


def _strange_slices(device: Device, environ: Mapping[str, str]) -> str:
    """CUDA takes the first instance where none is named."""
    slices = device.info.slices
    mine = set(environ.get("CUDA_VISIBLE_DEVICES", "").split(",")) & set(slices)
    others = len(slices) - max(len(mine), 1)
    return f"has {others} other MIG instances" if others > 0 else ""


def _ours(holder: Holder, environ: Mapping[str, str]) -> set[int]:
    """Root through sudo is the user who called it, too; only root is taken at its word."""
    caller = environ.get("SUDO_UID", "") if holder.uid == 0 else ""
    return {holder.uid, int(caller)} if caller.isdecimal() else {holder.uid}


def _computing(ours: set[int], proc: Path) -> int:
    pids = (int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())
    return sum(_owner(pid, proc) in ours and _has_open(pid, _CUDA, proc) for pid in pids)


def _has_open(pid: int, path: str, proc: Path) -> bool:
    try:
        return any(str(entry.readlink()) == path for entry in (proc / f"{pid}/fd").iterdir())
    except OSError:
        return False


def _environ(pid: int, proc: Path) -> dict[str, str]:
    try:
        told = (proc / f"{pid}/environ").read_text(errors="replace")
    except OSError:
        return {}
    pairs = (entry.partition("=") for entry in told.split("\0"))
    return {name: value for name, _, value in pairs}


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is not ours
        pass
    return True


def _owner(pid: int, proc: Path) -> int | None:
    """By its status: the folder of a process that has changed its user is root's."""
    try:
        told = (proc / f"{pid}/status").read_text(errors="replace")
    except OSError:
        return None
    uids = (line.split()[1] for line in told.splitlines() if line.startswith("Uid:"))
    return next(map(int, uids), None)
