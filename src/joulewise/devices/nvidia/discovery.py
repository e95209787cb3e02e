"""Finding NVIDIA GPUs: what NVML shows, less what CUDA is told not to use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pynvml

from joulewise.data import DeviceInfo, Kind, Unavailable
from joulewise.devices.nvidia.device import NvidiaGpu
from joulewise.devices.nvidia.faults import Fault, fault
from joulewise.devices.nvidia.silent import SilentGpu
from joulewise.devices.nvidia.sleep import FIX, Sleeper, sleepers
from joulewise.devices.options import Options
from joulewise.devices.protocol import Device
from joulewise.devices.visible import GpuIdentity, Slice, visible
from joulewise.errors import DeviceError


def discover_gpus(options: Options, root: Path = Path("/")) -> list[Device] | Unavailable:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return fault(error.value).unavailable()
    try:
        return _discover(options, root)
    except pynvml.NVMLError as error:
        return fault(error.value).unavailable()
    finally:
        pynvml.nvmlShutdown()  # each device has its own count on NVML


def count_gpus() -> int:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0
    try:
        return int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return 0
    finally:
        pynvml.nvmlShutdown()


@dataclass(frozen=True)
class _Candidate:
    identity: GpuIdentity
    handle: Any = None
    fault: Fault | None = None
    asleep: bool = False


def _discover(options: Options, root: Path) -> list[Device] | Unavailable:
    count = pynvml.nvmlDeviceGetCount()
    if count == 0:
        return Unavailable(
            "the NVIDIA driver is loaded, but shows no GPU",
            "check `lspci | grep -i nvidia` and `dmesg | grep -i nvrm`; in a container use --gpus",
        )
    asleep = _asleep(options, root, count)
    candidates = {
        index: _sleeping(index, asleep[index]) if index in asleep else _candidate(index)
        for index in range(count)
    }
    seen = visible(options.environ, [candidate.identity for candidate in candidates.values()])
    if not seen.indices:
        return Unavailable(seen.reason, "unset CUDA_VISIBLE_DEVICES")
    driver = _driver()
    notes = {
        index: "; ".join(filter(None, (seen.notes.get(index), seen.reason)))
        for index in sorted(seen.indices)
    }
    return [
        _open(candidates[index], driver, note, partial(_reopen, index, note, options, root))
        for index, note in notes.items()
    ]


def _reopen(index: int, note: str, options: Options, root: Path) -> Device | None:
    """A GPU that did not answer before, as it is now; None where not even NVML answers."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        asleep = _asleep(options, root, pynvml.nvmlDeviceGetCount())
        candidate = _sleeping(index, asleep[index]) if index in asleep else _candidate(index)
        return _open(candidate, _driver(), note, lambda: None)
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


def _asleep(options: Options, root: Path, count: int) -> dict[int, Sleeper]:
    # What `joulewise sim` shows is on no bus: this machine's own GPUs must not speak for it.
    return {} if "JOULEWISE_SIM" in options.environ else sleepers(root, count)


def _sleeping(index: int, sleeper: Sleeper) -> _Candidate:
    bus_id = f"0000{sleeper.bus_id}"  # NVML writes the domain with eight digits
    identity = GpuIdentity(index, sleeper.uuid, sleeper.name, bus_id)
    reason = "the GPU is asleep (runtime suspended), and reading it would wake it"
    return _Candidate(identity, fault=Fault(DeviceError, reason, FIX), asleep=True)


def _candidate(index: int) -> _Candidate:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        identity = GpuIdentity(
            index,
            pynvml.nvmlDeviceGetUUID(handle),
            pynvml.nvmlDeviceGetName(handle),
            pynvml.nvmlDeviceGetPciInfo(handle).busId,
        )
    except pynvml.NVMLError as error:
        return _Candidate(GpuIdentity(index, ""), fault=fault(error.value, index))
    return _Candidate(replace(identity, speed=_speed(handle), slices=_slices(handle)), handle)


def _open(
    candidate: _Candidate, driver: str, note: str, look: Callable[[], Device | None]
) -> Device:
    identity = candidate.identity
    info = DeviceInfo(
        f"gpu{identity.index}",
        Kind.GPU,
        identity.model or "NVIDIA GPU",
        identity.uuid or identity.bus_id or f"NVML index {identity.index}",
        "nvidia",
        driver,
        note=note,
        slices=tuple(part.uuid for part in identity.slices),
    )
    if candidate.fault is not None:
        return SilentGpu(info, candidate.fault, look, asleep=candidate.asleep)
    try:
        architecture = pynvml.nvmlDeviceGetArchitecture(candidate.handle)
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(candidate.handle)
        return NvidiaGpu(info, candidate.handle, identity.index, architecture, (major, minor))
    except pynvml.NVMLError as error:
        return SilentGpu(info, fault(error.value, identity.index), look)


def _driver() -> str:
    cuda = pynvml.nvmlSystemGetCudaDriverVersion()
    return (
        f"{pynvml.nvmlSystemGetDriverVersion()} (NVML {pynvml.nvmlSystemGetNVMLVersion()}, "
        f"CUDA {cuda // 1000}.{cuda % 1000 // 10})"
    )


def _speed(handle: Any) -> float:
    try:
        cores = pynvml.nvmlDeviceGetNumGpuCores(handle)
        return float(cores * pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM))
    except pynvml.NVMLError:
        return 0.0


def _slices(handle: Any) -> tuple[Slice, ...]:
    try:
        current, _pending = pynvml.nvmlDeviceGetMigMode(handle)
        places = pynvml.nvmlDeviceGetMaxMigDeviceCount(handle) if current else 0
    except pynvml.NVMLError:
        return ()
    found = (_slice(handle, place) for place in range(places))
    return tuple(part for part in found if part is not None)


def _slice(handle: Any, place: int) -> Slice | None:
    try:
        part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
        return Slice(
            pynvml.nvmlDeviceGetUUID(part),
            pynvml.nvmlDeviceGetGpuInstanceId(part),
            pynvml.nvmlDeviceGetComputeInstanceId(part),
        )
    except pynvml.NVMLError:
        return None
