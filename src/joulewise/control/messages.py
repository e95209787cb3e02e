"""What happened to knobs, in words: for the log, for errors and for people.

The log of everything that was turned, by whom, and how it went back.
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from joulewise.control.holds import Change, End, LeaseHolder, RestoreOutcome, is_same
from joulewise.data import Knob, listed_keys
from joulewise.process.state_dir import made


def who(holder: LeaseHolder) -> str:
    """As in "pid 4711 (python, user anna) since 2026-03-01 14:03:00"."""
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder.since_s))
    return f"{caller(holder)} since {since}"


def caller(holder: LeaseHolder) -> str:
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


def said(what: RestoreOutcome | Sequence[Change]) -> str:
    if isinstance(what, RestoreOutcome):
        return _of_outcome(what)
    return ", ".join(
        f"{named(each.key, each.knob)} from {_before(each)} to {valued(each.knob, each.value)}"
        for each in what
    )


class DeviceNotes:
    """What there is to know of devices, once for all of which it is the same."""

    def __init__(self) -> None:
        self._keys: dict[str, list[str]] = {}

    def add(self, key: str, knob: Knob, what: str) -> None:
        self._keys.setdefault(f"{knob.label} {what}", []).append(key)

    def said(self) -> tuple[str, ...]:
        return tuple(f"{listed_keys(keys)}: {what}" for what, keys in self._keys.items())


def _of_outcome(what: RestoreOutcome) -> str:
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


LOG: Final = "control.log"
REFUSED: Final = "refused.log"  # apart, so that whoever is refused a lot does not push out the rest
_MOST_B: Final = 1 << 20
_KEPT: Final = 8  # full ones
_WINDOW_S: Final = 60.0
_MOST_CALLERS: Final = 256
_REST: Final = "others"


def open_log(state: Path, name: str, file: str = LOG) -> Callable[[str], None]:
    """Adds a line with its time. A disk that is full costs the line, not the guardian."""
    path = state / file
    with suppress(OSError):
        made(state)  # once: who removes it later (a simulation that ends) does not want it back

    def log(what: str) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        line = f"{stamp} {name}[{os.getpid()}] {what}".replace("\n", " ") + "\n"
        with suppress(OSError):
            if path.exists() and path.stat().st_size > _MOST_B:
                _move_on(path)
            with open(path, "a", encoding="utf-8", opener=_open) as opened:
                opened.write(line)

    return log


class Ration:
    """Tells some lines of each caller in a while, and counts the rest of them.

    So nobody can drown what others did.
    """

    def __init__(
        self,
        log: Callable[[str], None],
        most: int,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """``most`` is how many lines a caller has in a minute."""
        self._log = log
        self._most = most
        self._now_s = now_s
        self._windows: dict[str, _Window] = {}

    def tell(self, caller: str, line: str) -> None:
        self.sum_up()
        if len(self._windows) >= _MOST_CALLERS and caller not in self._windows:
            caller = _REST
        window = self._windows.setdefault(caller, _Window(self._now_s()))
        window.lines += 1
        if window.lines <= self._most:
            self._log(line)

    def sum_up(self, *, everything: bool = False) -> None:
        """Say how much was left out, once a window is over."""
        now_s = self._now_s()
        for caller, window in list(self._windows.items()):
            if everything or now_s - window.began_s >= _WINDOW_S:
                del self._windows[caller]
                if window.lines > self._most:
                    self._log(f"and {window.lines - self._most:,} more of {caller}")


@dataclass
class _Window:
    began_s: float
    lines: int = 0


def _move_on(path: Path) -> None:
    names = [path, *(path.with_suffix(f".log.{number}") for number in range(1, _KEPT + 1))]
    for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
        with suppress(FileNotFoundError):
            newer.replace(older)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)
