"""Energy and time of a run's epochs, and of the steps in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from joulewise.data import Energy, RunResult
from joulewise.units import NS_PER_S


@dataclass(frozen=True)
class Stage:
    """One span of a run, in seconds from its start; ``number`` counts those of its name from 1."""

    number: int
    start_s: float
    end_s: float
    energy: Energy

    @property
    def time_s(self) -> float:
        return self.end_s - self.start_s


def stages(result: RunResult, name: str = "epoch") -> list[Stage]:
    """The spans of a name that were finished and have an energy, in the order of their starts."""
    return list(_numbered(result, name))


def _numbered(result: RunResult, name: str) -> Iterator[Stage]:
    origin_ns = result.run.span.start_ns
    mine = [one for one in result.spans if one.span.name == name and one.span.closed]
    for number, one in enumerate(sorted(mine, key=lambda each: each.span.start_ns), start=1):
        start_s, end_s = (
            (t_ns - origin_ns) / NS_PER_S for t_ns in (one.span.start_ns, one.span.end_ns)
        )
        if one.total is not None:
            yield Stage(number, start_s, end_s, one.total)
