"""Who has turned which knob, one lease on top of the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from joulewise.control.holds import Change, Hold, is_same
from joulewise.data import Knob


class Stacks:
    """Holds in the order in which they were given."""

    def __init__(self) -> None:
        self._holds: dict[str, Hold] = {}

    def __iter__(self) -> Iterator[Hold]:
        return iter(self._holds.values())

    def add(self, hold: Hold) -> None:
        """Put it on top; one that is there already stays in its place."""
        self._holds[hold.id] = hold

    def top(self, device: str, knob: Knob) -> tuple[Hold, Change] | None:
        """Who has turned this knob last."""
        standing = self._of(device, knob)
        return standing[-1] if standing else None

    def without(self, gone: Hold) -> tuple[list[Change], list[Hold]]:
        """What is to be undone once this hold is gone, and which holds are others then.

        Where another lies on top of it, the knob stays, and that one goes back further; but not
        beyond what somebody else has set between the two.
        """
        undone: list[Change] = []
        others: dict[str, Hold] = {}
        for change in gone.changes:
            standing = self._of(*change.where)
            index = standing.index((gone, change))
            if index + 1 == len(standing):
                undone.append(change)
                continue
            hold, above = standing[index + 1]
            if not is_same(above.before, change.value):
                continue
            hold = others.get(hold.id, hold)
            lowered = replace(above, before=change.before)
            changes = tuple(lowered if each is above else each for each in hold.changes)
            others[hold.id] = replace(hold, changes=changes)
        return undone, list(others.values())

    def remove(self, hold: Hold) -> None:
        self._holds.pop(hold.id, None)

    def _of(self, device: str, knob: Knob) -> list[tuple[Hold, Change]]:
        return [
            (hold, change)
            for hold in self._holds.values()
            for change in hold.changes
            if change.where == (device, knob)
        ]
