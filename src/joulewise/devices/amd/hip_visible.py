"""Which AMD GPUs a HIP program would see, by ROCm's rules and without ROCm's runtime.

- ``ROCR_VISIBLE_DEVICES`` lists indices or ``GPU-`` UUIDs; set and empty it hides all.
- ``HIP_VISIBLE_DEVICES``, else ``CUDA_VISIBLE_DEVICES``, lists indices among what that leaves;
  empty counts as unset.
- Either list ends before the first entry that names nothing or repeats another.

A partition of a GPU is a device of its own to HIP but has no sensors of its own: it is measured
as its whole GPU. Source: ROCm documentation, "GPU isolation techniques" and "HIP environment
variables".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from joulewise.data import Unavailable
from joulewise.devices.amd.amdsmi_library import Library, number
from joulewise.devices.device import error_as_unavailable
from joulewise.errors import DeviceError, NotSupportedError

_RUNTIME = "ROCR_VISIBLE_DEVICES"
_PROGRAM = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


@dataclass(frozen=True)
class AmdProcessor:
    """One of amdsmi's processors, by its index there; ``whole`` is the index of its GPU."""

    index: int
    whole: int
    handle: Any
    uuid: str = ""
    hip: int | None = None


@dataclass(frozen=True)
class VisibleAmdGpus:
    """The GPUs to measure, a note on them, and why there are none."""

    gpus: tuple[AmdProcessor, ...] = ()
    note: str = ""
    reason: str = ""
    fix: str = ""


def identify(smi: Library) -> list[AmdProcessor] | Unavailable:
    """The processors, in the order of amdsmi."""
    try:
        handles = smi.call("amdsmi_get_processor_handles")
    except DeviceError as error:
        return error_as_unavailable(error)
    if not handles:
        return Unavailable("amdsmi finds no AMD GPU here")
    gpus: list[AmdProcessor] = []
    for index, handle in enumerate(handles):
        part = _query(smi, "amdsmi_get_gpu_kfd_info", handle).get("current_partition_id")
        whole = gpus[-1].whole if gpus and isinstance(part, int) and part > 0 else index
        names = _query(smi, "amdsmi_get_gpu_enumeration_info", handle)
        gpus.append(AmdProcessor(index, whole, handle, str(names.get("hip_uuid", "")), _hip(names)))
    return gpus


def hip_visible_gpus(environ: Mapping[str, str], gpus: Sequence[AmdProcessor]) -> VisibleAmdGpus:
    """The whole GPUs that ``environ`` leaves to HIP, each once."""
    left = list(gpus)
    if all(gpu.hip is not None for gpu in gpus):
        left.sort(key=lambda gpu: gpu.hip or 0)
    if _RUNTIME in environ:
        left = _pick(environ[_RUNTIME], left)
        if not left:
            return _hidden(_RUNTIME, environ)
    program = next((name for name in _PROGRAM if environ.get(name, "").strip()), None)
    if program:
        left = _pick(environ[program], left)
        if not left:
            return _hidden(program, environ)
    wanted = {gpu.whole for gpu in left}
    partitioned = any(gpu.whole != gpu.index for gpu in gpus)
    note = "partitioned: any partition is measured as its whole GPU" if partitioned else ""
    return VisibleAmdGpus(tuple(gpu for gpu in gpus if gpu.index in wanted), note)


def _pick(listed: str, gpus: Sequence[AmdProcessor]) -> list[AmdProcessor]:
    picked: list[AmdProcessor] = []
    for entry in (entry.strip() for entry in listed.split(",")):
        if entry.isdecimal():
            matches = list(gpus[int(entry) : int(entry) + 1])
        else:
            matches = [gpu for gpu in gpus if gpu.uuid and gpu.uuid.lower() == entry.lower()]
        if len(matches) != 1 or matches[0] in picked:
            break
        picked += matches
    return picked


def _hidden(name: str, environ: Mapping[str, str]) -> VisibleAmdGpus:
    reason = f"{name}={environ[name]} hides every AMD GPU"
    return VisibleAmdGpus(reason=reason, fix=f"unset {name}")


def _query(smi: Library, function: str, handle: Any) -> dict[str, Any]:
    """The answer of amdsmi; empty where it fails."""
    try:
        return dict(smi.call(function, handle))
    except DeviceError:
        return {}


def _hip(names: Mapping[str, Any]) -> int | None:
    try:
        return int(number(names.get("hip_id")))
    except NotSupportedError:
        return None
