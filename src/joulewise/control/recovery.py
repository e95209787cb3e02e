"""Undoing what guardians have left that were killed, or lost their power."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from joulewise.control import journal
from joulewise.control.holds import End, Holder, Outcome
from joulewise.control.putting_back import put_back
from joulewise.control.words import said
from joulewise.devices import Device

_PATIENCE_S: Final = 1.0


@dataclass(frozen=True)
class Undone:
    """What became of a knob, and who had left it as it was."""

    outcome: Outcome
    holder: Holder


@dataclass(frozen=True)
class Recovered:
    """What became of leftovers; ``rebooted`` counts those that a reboot had undone."""

    undone: tuple[Undone, ...] = ()
    rebooted: int = 0

    @property
    def failed(self) -> tuple[Undone, ...]:
        return tuple(each for each in self.undone if each.outcome.end is End.FAILED)


def recover(
    state: Path, devices: Callable[[], Mapping[str, Device]], log: Callable[[str], None]
) -> Recovered:
    """Undo every leftover in ``state``. Devices are opened only where there is one to undo."""
    if not journal.has_any(state):
        return Recovered()
    undone: list[Undone] = []
    rebooted = 0
    with journal.one_at_a_time(state):
        for leftover in journal.kept(state):
            if leftover.is_live:
                continue
            with journal.claimed(leftover) as left:
                if left is None:
                    continue
                if left.holds and not left.is_of_this_boot:
                    rebooted += 1
                    log(f"a reboot has undone what {left.path.name} tells of")
                elif left.holds:
                    changes = [change for hold in left.holds for change in hold.changes]
                    outcomes = put_back(changes, devices(), _PATIENCE_S)
                    became = [Undone(outcome, _left_by(left, outcome)) for outcome in outcomes]
                    for each in became:
                        log(f"left by pid {each.holder.pid}: {said(each.outcome)}")
                    undone += became
                    if any(each.outcome.end is End.FAILED for each in became):
                        continue  # for the next to try
                left.path.unlink(missing_ok=True)
    return Recovered(tuple(undone), rebooted)


def _left_by(left: journal.Kept, outcome: Outcome) -> Holder:
    """Who has turned the knob last."""
    return next(
        hold.holder
        for hold in reversed(left.holds)
        for change in hold.changes
        if (change.key, change.knob) == (outcome.key, outcome.knob)
    )
