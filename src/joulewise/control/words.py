"""What happened to knobs, in words: for the log, for errors and for people."""

from __future__ import annotations

import pwd
import time
from collections.abc import Sequence

from joulewise.control.holds import Change, End, Holder, Outcome


def who(holder: Holder) -> str:
    """As in "pid 4711 (python, user anna) since 14:03"."""
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder.since_s))
    return f"pid {holder.pid} ({holder.program}, user {user(holder.uid)}) since {since}"


def user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def said(what: Outcome | Sequence[Change]) -> str:
    if not isinstance(what, Outcome):
        return ", ".join(
            f"{change.key} {change.knob.value} {_value(change.before)} -> {change.value:g}"
            for change in what
        )
    knob = f"{what.key} {what.knob.value}"
    if what.end is End.RESTORED:
        return f"{knob} put back to {_value(what.value)}"
    if what.end is End.ALREADY:
        return f"{knob} is at {_value(what.value)}, as it was before"
    if what.end is End.FOREIGN:
        return f"{knob} is at {_value(what.found)}, set by someone else, and left so"
    return f"{knob} could not be put back to {_value(what.value)}: {what.reason}"


def _value(value: float | None) -> str:
    return "its default" if value is None else f"{value:g}"
