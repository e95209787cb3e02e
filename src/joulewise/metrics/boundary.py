"""The line around what is counted: the GPUs, the node that they are in, or all up to the wall."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from joulewise.data.devices import Source
from joulewise.data.energy import Energy, total
from joulewise.data.sweeps import Sweep, Trial
from joulewise.metrics.amounts import Amount, times
from joulewise.metrics.view import ASSUMED_PUE, ASSUMED_REST_W, GPU, NODE, WALL, View

REST: Final = "rest"
"""The part of a trial's energy that is CPU and memory."""


@dataclass(frozen=True)
class Line:
    """How the energies within each boundary come about, the same for every run of a sweep.

    ``simulated`` are the parts (``gpu``, ``rest``) of which some run has simulated joules.
    ``is_module``: the GPUs' energy is that of their modules, so that nothing is assumed of a CPU
    and its memory, which are inside.
    """

    has_gpu: bool
    overhead_w: float | None
    pue: float
    sources: Mapping[str, str]
    assumed: tuple[str, ...]
    simulated: tuple[str, ...] = ()
    is_module: bool = False

    @classmethod
    def around(cls, counted: Sequence[tuple[Trial, Amount]], view: View) -> Line:
        overhead_w, assumed_node = view.overhead_w, False
        found = [it for _, it in counted]
        has_gpu = any(trial.gpu or GPU in it.energy for trial, it in counted)
        is_module = bool(counted) and all(trial.is_module for trial, _ in counted)
        what = "GPU module (CPU and memory included)" if is_module else "GPU"
        is_read = any(GPU in trial.energy for trial, _ in counted)
        unknown = f"read, but not of every {view.per}" if is_read else "not read"
        gpus = f"{what} {_kinds(found, GPU) or unknown}" if has_gpu else "no GPU in use"
        if view.overhead_w is not None:
            rest = f"{view.overhead_w:g} W besides, as given"
        elif found and all(REST in it.energy for it in found):
            rest = f"CPU and memory {_kinds(found, REST)}, nothing else"
            assumed_node = any(it.energy[REST].source is Source.ASSUMED for it in found)
        elif is_module and not any(REST in it.energy for it in found):
            rest = "nothing else"
        else:
            overhead_w, assumed_node = ASSUMED_REST_W, True
            rest = f"{ASSUMED_REST_W:g} W besides, assumed"
        pue = ASSUMED_PUE if view.pue is None else view.pue
        how = "assumed" if view.pue is None else "as given"
        sources = {
            GPU: gpus,
            NODE: f"{gpus}, {rest}",
            WALL: f"{gpus}, {rest}, times a PUE of {pue:g}, {how}",
        }
        assumed = (*[NODE] * assumed_node, *[WALL] * (assumed_node or view.pue is None))
        return cls(has_gpu, overhead_w, pue, sources, assumed, _simulated(counted), is_module)

    def energies(self, found: Amount) -> Iterator[tuple[str, Energy]]:
        gpu, rest = found.energy.get(GPU), found.energy.get(REST)
        if self.overhead_w is not None:
            rest = Energy(self.overhead_w * found.time_s, 0.0, 0.0, Source.ASSUMED)
        if gpu is not None:
            yield GPU, gpu
        node = total([part for part in (gpu, rest) if part is not None])
        is_whole = rest is not None or self.is_module
        if node is not None and is_whole and (gpu is not None or not self.has_gpu):
            yield NODE, node
            yield WALL, times(node, self.pue)


def boundary_read(asked: str, *sweeps: Sweep) -> str:
    """The one asked for; where no GPU was in use, the node is what was read of one."""
    runs = [trial for sweep in sweeps for trial in sweep.trials if trial.energy]
    is_without = bool(runs) and not any(it.gpu or GPU in it.energy for it in runs)
    return NODE if asked == GPU and is_without else asked


def _simulated(counted: Sequence[tuple[Trial, Amount]]) -> tuple[str, ...]:
    """By the energies of whole runs: a simulated run's times are simulated, too, and remain."""
    energies = [it for trial, found in counted for it in (trial.energy, found.energy)]
    return tuple(
        part
        for part in (GPU, REST)
        if any(part in it and it[part].source is Source.SIMULATED for it in energies)
    )


def _kinds(found: Sequence[Amount], part: str) -> str:
    """Where the energies come from; empty where there are none."""
    kinds = {it.energy[part].source for it in found if part in it.energy}
    if not kinds:
        return ""
    return (
        kinds.pop().value if len(kinds) == 1 and Source.MIXED not in kinds else "from mixed sources"
    )
