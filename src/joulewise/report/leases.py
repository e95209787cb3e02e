"""Knobs that were turned and how they went back, in words and in JSON."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Final

from joulewise.command.installed import program
from joulewise.command.leftovers import may_put_back
from joulewise.command.state import OF_ROOT
from joulewise.control.holds import End, Holder, Outcome
from joulewise.control.recovery import Undone
from joulewise.control.standing import Standing
from joulewise.control.words import named, said, user, valued
from joulewise.data import Knob
from joulewise.report import words

_VERB: Final = "joulewise restore"


def restore_command(state: Path) -> str:
    """What to paste: with the right that it takes, and where that right knows of the journal."""
    if may_put_back(state):
        return _VERB
    where = "" if state == OF_ROOT else f"env JOULEWISE_STATE={shlex.quote(str(state))} "
    return f"sudo {where}{program()} restore"


def sentence(undone: Undone, state: Path) -> str:
    """One line on a knob that was left turned; empty where there was nothing to do."""
    outcome, pid = undone.outcome, undone.holder.pid
    if outcome.end is End.ALREADY:
        return ""
    if outcome.end is End.FOREIGN:
        return said(outcome)
    if outcome.end is End.FAILED:
        return f"{said(outcome)}; run: {restore_command(state)}"
    if undone.lives:
        return f"{said(outcome)}: pid {pid} lives on, its guardian was killed"
    return f"{said(outcome)}: pid {pid} had left it at {valued(outcome.knob, turned_to(undone))}"


def turned_to(undone: Undone) -> float:
    """What it was at; where the device does not tell, what the journal knows."""
    found = undone.outcome.found
    return undone.turned_to if found is None else found


def left(standing: Standing) -> str:
    """On a leftover that is for somebody else to undo."""
    change = standing.change
    return (
        f"{named(change.key, change.knob)} was left at "
        f"{valued(change.knob, change.value)} by pid {standing.holder.pid} "
        f"of {user(standing.holder.uid)}"
    )


def at(knob: Knob, value: float | None) -> str:
    """A clock has no value while nobody has locked it."""
    return "default" if value is None else words.setting(knob, value)


def undone_json(undone: Undone) -> dict[str, Any]:
    outcome: Outcome = undone.outcome
    return {
        "device": outcome.key,
        "setting": outcome.knob.value,
        "from": turned_to(undone),
        "to": outcome.value,
        "outcome": outcome.end.value,
        "reason": outcome.reason,
        "left_by": _holder_json(undone.holder),
    }


def standing_json(standing: Standing) -> dict[str, Any]:
    change = standing.change
    return {
        "device": change.key,
        "setting": change.knob.value,
        "value": change.value,
        "before": change.before,
        "state": standing.keeper.value,
        "by": _holder_json(standing.holder),
    }


def _holder_json(holder: Holder) -> dict[str, Any]:
    return {
        "pid": holder.pid,
        "program": holder.program,
        "user": user(holder.uid),
        "since_s": holder.since_s,
    }
