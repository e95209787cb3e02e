"""Energy and time of a run's epochs, and of the steps in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from joulewise.data import Energy, RunResult, SpanResult, total
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
    """The spans of a name that were finished and have an energy, in the order of their starts.

    The energy of some may be a lower bound: :func:`whole_stages` leaves these out.
    """
    return list(_numbered(result, name, lambda span: span.total))


def whole_stages(result: RunResult, name: str = "epoch") -> list[Stage]:
    """Those whose energy is known: a lower bound would pass for a span that took less."""
    return [stage for stage in stages(result, name) if not stage.energy.at_least]


def gpu_stages(result: RunResult, name: str = "epoch") -> list[Stage]:
    """The same with the energy of the GPUs alone, where all of it is known.

    A span in which a GPU that counts was not read throughout would pass for one that took less.
    """
    gpus = [key for key in result.counted if key.rpartition("/")[2].startswith("gpu")]
    return list(_numbered(result, name, partial(_sum, gpus)))


def _sum(keys: Sequence[str], span: SpanResult) -> Energy | None:
    energies = [span.devices[key].energy for key in keys]
    known = [energy for energy in energies if energy is not None and not energy.at_least]
    return total(known) if len(known) == len(energies) else None


def _numbered(
    result: RunResult, name: str, energy_of: Callable[[SpanResult], Energy | None]
) -> Iterator[Stage]:
    origin_ns = result.run.span.start_ns
    mine = [one for one in result.spans if one.span.name == name and one.span.closed]
    for number, one in enumerate(sorted(mine, key=lambda each: each.span.start_ns), start=1):
        start_s, end_s = (
            (t_ns - origin_ns) / NS_PER_S for t_ns in (one.span.start_ns, one.span.end_ns)
        )
        energy = energy_of(one)
        if energy is not None:
            yield Stage(number, start_s, end_s, energy)
