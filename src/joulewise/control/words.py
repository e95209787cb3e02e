"""What happened to knobs, in words: for the log, for errors and for people."""

from __future__ import annotations

import pwd
import time
from collections.abc import Sequence

from joulewise.control.holds import Change, End, Holder, Outcome, is_same
from joulewise.data import Knob, listed_keys


def who(holder: Holder) -> str:
    """As in "pid 4711 (python, user anna) since 2026-03-01 14:03:00"."""
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder.since_s))
    return f"{caller(holder)} since {since}"


def caller(holder: Holder) -> str:
    return f"pid {holder.pid} ({holder.program}, user {user(holder.uid)})"


def user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def named(key: str, knob: Knob) -> str:
    """As in "gpu0's power limit"."""
    return f"{key}'s {knob.label}"


def valued(knob: Knob, value: float) -> str:
    """As in "250 W": to a milliwatt, which is as fine as drivers are."""
    return f"{round(value, 3):.10g} {knob.unit}"


def set_for_a_run(knob: Knob, before: float | None, value: float) -> str:
    """As in "power limit 300 -> 150 W"."""
    if before is None:
        return f"{knob.label} locked at {valued(knob, value)}"
    if is_same(before, value):
        return f"{knob.label} stays at {valued(knob, value)}"
    return f"{knob.label} {round(before, 3):.10g} -> {valued(knob, value)}"


def said(what: Outcome | Sequence[Change]) -> str:
    if isinstance(what, Outcome):
        return _of_outcome(what)
    return ", ".join(
        f"{named(each.key, each.knob)} from {_before(each)} to {valued(each.knob, each.value)}"
        for each in what
    )


class Notes:
    """What there is to know of devices, once for all of which it is the same."""

    def __init__(self) -> None:
        self._keys: dict[str, list[str]] = {}

    def add(self, key: str, knob: Knob, what: str) -> None:
        self._keys.setdefault(f"{knob.label} {what}", []).append(key)

    def said(self) -> tuple[str, ...]:
        return tuple(f"{listed_keys(keys)}: {what}" for what, keys in self._keys.items())


def _of_outcome(what: Outcome) -> str:
    name = named(what.key, what.knob)
    back = "unlocked" if what.value is None else f"back to {valued(what.knob, what.value)}"
    if what.end is End.RESTORED:
        return f"{name} {back}"
    if what.end is End.FAILED:
        return f"{name} could not be {'' if what.value is None else 'put '}{back}: {what.reason}"
    at = "" if what.found is None else valued(what.knob, what.found)
    if what.end is End.ALREADY:
        return f"{name} is at {at} already, as it was before"
    return f"{name} is at {at}, which joulewise did not set, and is left so"


def _before(change: Change) -> str:
    return "unlocked" if change.before is None else valued(change.knob, change.before)
