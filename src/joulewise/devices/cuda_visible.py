"""Which GPUs a CUDA program would see, by CUDA's own rules and without CUDA.

- ``CUDA_VISIBLE_DEVICES`` unset shows all; empty shows none.
- Its entries are indices in CUDA's order, ``GPU-`` UUIDs or ``MIG-`` UUIDs, the latter two as
  short as is unambiguous, or ``MIG-GPU-<uuid>/<gpu instance>/<compute instance>``. The first
  entry sets the kind for all. Of an index only the leading number counts, as in C's ``strtol``.
- The list ends before the first entry that names nothing, such as ``-1``.
- An entry that repeats an earlier one hides every GPU.
- ``CUDA_DEVICE_ORDER`` is ``PCI_BUS_ID`` or, by default, ``FASTEST_FIRST``, whose heuristic NVIDIA
  keeps to itself. Where all boards are alike both orders are the same; where they differ the
  order here is by cores times clock, and is called a guess.

Sources: CUDA Programming Guide, "CUDA Environment Variables"; MIG User Guide, "CUDA Device
Enumeration"; what PyTorch found by trial on drivers (its tests of visible device parsing).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_LIST = "CUDA_VISIBLE_DEVICES"
_ORDER = "CUDA_DEVICE_ORDER"
IN_MIG_MODE = "in MIG mode: any slice is measured as its whole GPU"


@dataclass(frozen=True)
class MigDevice:
    """A MIG device: its UUID, and the two instances by which older drivers name it."""

    uuid: str
    gpu_instance: int
    compute_instance: int


@dataclass(frozen=True)
class GpuIdentity:
    """What distinguishes a GPU from others. ``speed`` is any figure that grows with performance."""

    index: int
    uuid: str
    model: str = ""
    bus_id: str = ""
    speed: float = 0.0
    slices: tuple[MigDevice, ...] = ()


@dataclass(frozen=True)
class VisibleGpus:
    """NVML indices in CUDA's order, notes on some of them, and why others are hidden.

    A GPU appears once, however many of its MIG slices do. All slices that are named count, though a
    single process can open only one: a launcher passes them on to its ranks.
    """

    indices: tuple[int, ...]
    notes: Mapping[int, str] = field(default_factory=dict)
    reason: str = ""


_Pick = tuple[GpuIdentity, "MigDevice | None"]


def cuda_visible_gpus(environ: Mapping[str, str], gpus: Sequence[GpuIdentity]) -> VisibleGpus:
    """The GPUs that ``environ`` leaves visible to CUDA."""
    ordered, guessed = _cuda_order(environ.get(_ORDER, ""), gpus)
    listed = environ.get(_LIST)
    if listed is None:
        return _result([(gpu, None) for gpu in ordered], guessed, "")
    if not listed.strip():
        return VisibleGpus((), reason=f"{_LIST} is empty, which hides every GPU")

    entries = [entry.strip() for entry in listed.split(",")]
    kind = entries[0][:4]
    picks: list[_Pick] = []
    for entry in entries:
        pick = _match(entry, kind, ordered)
        if pick is None:
            rest = "what follows is ignored" if picks else "every GPU is hidden"
            reason = f"{_LIST}={listed}: {entry!r} names no GPU here, and {rest}"
            return _result(picks, guessed and kind not in _PREFIXES, reason)
        if pick in picks:
            return VisibleGpus(
                (), reason=f"{_LIST}={listed} names a GPU twice, which hides every GPU"
            )
        picks.append(pick)
    return _result(picks, guessed and kind not in _PREFIXES, "")


_PREFIXES = ("GPU-", "MIG-")


def _cuda_order(order: str, gpus: Sequence[GpuIdentity]) -> tuple[list[GpuIdentity], bool]:
    # A lost GPU reports neither its bus id nor its model.
    located = all(gpu.bus_id for gpu in gpus)
    by_bus = sorted(gpus, key=lambda gpu: (gpu.bus_id.upper() if located else "", gpu.index))
    if order == "PCI_BUS_ID" or len({gpu.model for gpu in gpus if gpu.model}) < 2:
        return by_bus, False
    return sorted(by_bus, key=lambda gpu: -gpu.speed), True


def _match(entry: str, kind: str, ordered: Sequence[GpuIdentity]) -> _Pick | None:
    if kind == "GPU-":
        matches: list[_Pick] = [(gpu, None) for gpu in ordered if gpu.uuid.startswith(entry)]
        return matches[0] if entry.startswith(kind) and len(matches) == 1 else None
    if kind == "MIG-":
        matches = [(gpu, mig) for gpu in ordered for mig in gpu.slices if _names(entry, gpu, mig)]
        return matches[0] if entry.startswith(kind) and len(matches) == 1 else None
    number = re.match(r"[+-]?\d{1,18}", entry, re.ASCII)
    if number and 0 <= int(number[0]) < len(ordered):
        return ordered[int(number[0])], None
    return None


def _names(entry: str, gpu: GpuIdentity, mig: MigDevice) -> bool:
    """Whether an entry of the list names this MIG device, by its UUID or by its instances."""
    parent, *instances = entry.split("/")
    if instances:
        own_instances = [str(mig.gpu_instance), str(mig.compute_instance)]
        return f"MIG-{gpu.uuid}".startswith(parent) and instances == own_instances
    return mig.uuid.startswith(entry)


def _result(picks: Sequence[_Pick], guessed: bool, reason: str) -> VisibleGpus:
    notes: dict[int, list[str]] = {gpu.index: [] for gpu, _ in picks}
    for gpu, mig in picks:
        if mig is not None:
            notes[gpu.index].append(f"MIG slice {mig.uuid} is measured as its whole GPU")
        elif gpu.slices:
            notes[gpu.index].append(IN_MIG_MODE)
    if guessed:
        for note in notes.values():
            note.append(f"boards differ and CUDA's numbering is a guess: set {_ORDER}=PCI_BUS_ID")
    lines = {index: "; ".join(note) for index, note in notes.items() if note}
    return VisibleGpus(tuple(notes), lines, reason)
