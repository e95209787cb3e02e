"""What to try next, apart from which result is best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from joulewise.data.sweeps import Planned, Trial


class Strategy(Protocol):
    """Asked for runs and told of results, in any order; all that it knows is what it was told.

    A sweep that was cut off makes a new one, tells it of every trial on disk, and goes on.
    """

    def ask(self, busy: Sequence[Planned]) -> Planned | None:
        """The next run, while those of ``busy`` are under way; None while there is none.

        None with nothing under way is the end.
        """
        ...

    def tell(self, trial: Trial) -> None: ...

    @property
    def left(self) -> int:
        """How many more runs there will be, at most or by the best guess."""
        ...

    @property
    def sure(self) -> Mapping[str, Any]:
        """What is found, to which tolerance and how surely, as JSON; empty where it only tries."""
        ...
