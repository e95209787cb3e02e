"""Changes of settings as text, for errors and people, and the log of all of them."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from joulewise.control.holds import Change, LeaseHolder, RestoreOutcome, RestoreResult, is_same
from joulewise.data import ControlKind, listed_keys
from joulewise.process.state_dir import make_state_folder


def describe_holder(holder: LeaseHolder) -> str:
    """As in "pid 4711 (python, user anna) since 2026-03-01 14:03:00"."""
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder.since_s))
    return f"{describe_process(holder)} since {since}"


def describe_process(holder: LeaseHolder) -> str:
    return f"pid {holder.pid} ({holder.program}, user {user_name(holder.uid)})"


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def setting_name(key: str, control: ControlKind) -> str:
    """As in "gpu0's power limit"."""
    return f"{key}'s {control.label}"


def format_value(control: ControlKind, value: float) -> str:
    """As in "250 W": to a milliwatt, which is as fine as drivers are."""
    return f"{round(value, 3):.10g} {control.unit}"


def describe_for_run(control: ControlKind, before: float | None, value: float) -> str:
    """As in "power limit 300 -> 150 W"."""
    if before is None:
        return f"{control.label} locked at {format_value(control, value)}"
    if is_same(before, value):
        return f"{control.label} stays at {format_value(control, value)}"
    return f"{control.label} {round(before, 3):.10g} -> {format_value(control, value)}"


def describe(what: RestoreOutcome | Sequence[Change]) -> str:
    """As in "gpu0's power limit back to 300 W", or for changes "… from 300 W to 150 W"."""
    if isinstance(what, RestoreOutcome):
        return _describe_outcome(what)
    return ", ".join(
        f"{setting_name(one.key, one.knob)} from {_value_before(one)}"
        f" to {format_value(one.knob, one.value)}"
        for one in what
    )


class DeviceNotes:
    """Notes on devices, each written once for all devices that it applies to."""

    def __init__(self) -> None:
        self._keys_by_note: dict[str, list[str]] = {}

    def add(self, key: str, control: ControlKind, note: str) -> None:
        self._keys_by_note.setdefault(f"{control.label} {note}", []).append(key)

    def lines(self) -> tuple[str, ...]:
        return tuple(f"{listed_keys(keys)}: {note}" for note, keys in self._keys_by_note.items())


def _describe_outcome(outcome: RestoreOutcome) -> str:
    name = setting_name(outcome.key, outcome.knob)
    back = (
        "unlocked"
        if outcome.value is None
        else f"back to {format_value(outcome.knob, outcome.value)}"
    )
    if outcome.end is RestoreResult.RESTORED:
        return f"{name} {back}"
    if outcome.end is RestoreResult.FAILED:
        return (
            f"{name} could not be {'' if outcome.value is None else 'put '}{back}: {outcome.reason}"
        )
    at = "" if outcome.found is None else format_value(outcome.knob, outcome.found)
    if outcome.end is RestoreResult.ALREADY:
        return f"{name} is at {at} already, as it was before"
    return f"{name} is at {at}, which joulewise did not set, and is left as it is"


def _value_before(change: Change) -> str:
    return "unlocked" if change.before is None else format_value(change.knob, change.before)


LOG: Final = "control.log"
REFUSED: Final = "refused.log"  # a file of its own: many refusals must not push out the rest
# Chosen: 9 MiB of logs in all, and memory for at most 256 callers. Doubled, twice as much.
_MAX_LOG_B: Final = 1 << 20
_MAX_FULL_LOGS: Final = 8
_MAX_CALLERS: Final = 256
_LIMIT_PERIOD_S: Final = 60.0
_OTHERS: Final = "others"


def open_log(state: Path, name: str, file: str = LOG) -> Callable[[str], None]:
    """A function that appends a line with its time; on a full disk the line is lost."""
    path = state / file
    with suppress(OSError):
        make_state_folder(state)  # once: a simulation that ends removes it for good

    def log(text: str) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        line = f"{stamp} {name}[{os.getpid()}] {text}".replace("\n", " ") + "\n"
        with suppress(OSError):
            if path.exists() and path.stat().st_size > _MAX_LOG_B:
                _rotate(path)
            with open(path, "a", encoding="utf-8", opener=_open) as opened:
                opened.write(line)

    return log


class LogLimiter:
    """Logs a limited number of lines a minute for each caller, and counts the rest.

    So nobody can flood the log and push out what others did.
    """

    def __init__(
        self,
        log: Callable[[str], None],
        max_lines: int,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """``max_lines`` is how many lines a caller may log in a minute."""
        self._log = log
        self._max_lines = max_lines
        self._now_s = now_s
        self._callers: dict[str, _CallerLines] = {}

    def log(self, caller: str, line: str) -> None:
        self.report_dropped()
        if len(self._callers) >= _MAX_CALLERS and caller not in self._callers:
            caller = _OTHERS
        counted = self._callers.setdefault(caller, _CallerLines(self._now_s()))
        counted.lines += 1
        if counted.lines <= self._max_lines:
            self._log(line)

    def report_dropped(self, *, everything: bool = False) -> None:
        """Log how many lines were dropped, for each caller whose minute is over."""
        now_s = self._now_s()
        for caller, counted in list(self._callers.items()):
            if everything or now_s - counted.began_s >= _LIMIT_PERIOD_S:
                del self._callers[caller]
                if counted.lines > self._max_lines:
                    self._log(f"and {counted.lines - self._max_lines:,} more of {caller}")


@dataclass
class _CallerLines:
    began_s: float
    lines: int = 0


def _rotate(path: Path) -> None:
    names = [path, *(path.with_suffix(f".log.{number}") for number in range(1, _MAX_FULL_LOGS + 1))]
    for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
        with suppress(FileNotFoundError):
            newer.replace(older)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)
