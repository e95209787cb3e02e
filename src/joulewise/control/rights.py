"""Which command gives the right to turn a knob. We only name it: joulewise never calls sudo."""

from __future__ import annotations

import grp
import os
from pathlib import Path

from joulewise.control.words import user
from joulewise.devices.ranges import by_root_or_the_service
from joulewise.errors import PermissionDeniedError


def what_gives_it(fix: str, *, is_simulated: bool = False) -> str:
    """``fix`` is what the device says of it.

    That is all that is left for root to do, and in a simulation there are ways of its own.
    """
    if os.geteuid() == 0 or is_simulated:
        return fix
    return by_root_or_the_service()


def not_a_member(path: str) -> PermissionDeniedError:
    """There is a service, whose socket is another group's."""
    try:
        group = _group(Path(path).stat().st_gid)
    except OSError:
        group = "GROUP"
    return PermissionDeniedError(
        f"the service at {path} turns knobs for group {group}, in which you are not",
        f"run `sudo usermod -aG {group} {user(os.geteuid())}`, then log in again",
    )


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return "GROUP"
