"""Where runs happen: here, in virtual time, or on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from joulewise.data.sweeps import Planned, Trial

# Told (time so far in s, joules so far by boundary); True where the run may be ended.
Hopeless = Callable[[float, dict[str, float]], bool]


class Runner(Protocol):
    """Makes runs, one at a time in each lane; called from a thread of each lane."""

    @property
    def lanes(self) -> int: ...

    def run(self, planned: Planned, hopeless: Hopeless | None = None) -> Trial:
        """One run to its end, whatever end; a fault of the run is a failed trial, no exception."""
        ...

    def adopt(self, planned: Planned) -> Trial | None:
        """A run that an earlier process had made to its end for this plan, and never told of.

        None where there is none, or where to make it again takes no longer than to look for it.
        """
        ...

    def stop(self) -> None:
        """End what is under way, knobs put back, and start no more.

        What ``run`` returns then is not kept.
        """
        ...

    def close(self) -> None: ...
