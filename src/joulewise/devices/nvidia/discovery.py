"""Finding NVIDIA GPUs: what NVML shows, less what CUDA is told not to use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pynvml

from joulewise.data import DeviceInfo, Kind, Source, Unavailable
from joulewise.devices.nvidia import session
from joulewise.devices.nvidia.device import NvidiaGpu
from joulewise.devices.nvidia.faults import Fault, fault
from joulewise.devices.nvidia.identity import mig_slices, speed
from joulewise.devices.nvidia.opening import Candidate, Deadline, OnAnswer, Opening, late_gpu
from joulewise.devices.nvidia.origin import reading_source
from joulewise.devices.nvidia.silent import SilentGpu
from joulewise.devices.nvidia.sleep import FIX, Sleeper, sleepers
from joulewise.devices.options import Options
from joulewise.devices.protocol import Device
from joulewise.devices.visible import GpuIdentity, visible
from joulewise.errors import DeviceError

# Of the time for discovery: GPUs that have not said by then who they are, or are not open, are
# late. Chosen: what is left is for the driver's own calls before and the devices after them.
_IDENTIFIED: Final = 0.6
_OPENED: Final = 0.9
_NAMES: Final = ("GPU-", "MIG-")


def discover_gpus(options: Options, root: Path = Path("/")) -> list[Device] | Unavailable:
    return discover_and_count(options, root)[0]


def discover_and_count(
    options: Options, root: Path = Path("/")
) -> tuple[list[Device] | Unavailable, int]:
    """The GPUs, or why there is none, and how many NVML shows, hidden from CUDA or not."""
    deadline = Deadline(options.deadline_s)
    try:
        session.acquire()
    except pynvml.NVMLError as error:
        return fault(error.value).unavailable(), 0
    count = 0
    try:
        count = int(pynvml.nvmlDeviceGetCount())
        return _discover(options, root, count, deadline), count
    except pynvml.NVMLError as error:
        return fault(error.value).unavailable(), count
    finally:
        session.release()  # each device has its own count on NVML


def _discover(
    options: Options, root: Path, count: int, deadline: Deadline
) -> list[Device] | Unavailable:
    if count == 0:
        return Unavailable(
            "the NVIDIA driver is loaded, but shows no GPU",
            "check `lspci | grep -i nvidia` and `dmesg | grep -i nvrm`; in a container use --gpus",
        )
    asleep = _asleep(options, root, count)
    identify = partial(_candidate, details=_needed_details(options.environ))
    openings = {i: Opening(i, identify).start() for i in range(count) if i not in asleep}
    try:
        return _open_visible(options, root, asleep, openings, deadline)
    finally:
        for opening in openings.values():  # else its thread would wait for ever
            opening.dismiss(deadline.end_s(_OPENED))


def _open_visible(
    options: Options,
    root: Path,
    asleep: Mapping[int, Sleeper],
    openings: Mapping[int, Opening],
    deadline: Deadline,
) -> list[Device] | Unavailable:
    driver = _driver()
    candidates = {
        index: _sleeping(index, asleep[index])
        if index in asleep
        else openings[index].candidate(deadline.end_s(_IDENTIFIED))
        for index in sorted({*asleep, *openings})
    }
    seen = visible(options.environ, [candidate.identity for candidate in candidates.values()])
    nameless = _nameless(options.environ, openings)
    wanted = sorted(candidates if options.hidden_too else {*seen.indices, *nameless})
    if not wanted:
        return Unavailable(seen.reason, "unset CUDA_VISIBLE_DEVICES")
    notes = {
        index: "; ".join(filter(None, (seen.notes.get(index), seen.reason)))
        if index in seen.indices or index in nameless
        else ""
        for index in wanted
    }
    opens = {
        index: partial(
            _open,
            driver=driver,
            note=note,
            look=partial(_reopen, index, note, options, root),
            options=options,
        )
        for index, note in notes.items()
    }
    for index in opens.keys() & openings.keys():
        openings[index].open(opens[index])
    devices: list[Device] = []
    for index, open_gpu in opens.items():
        if index in asleep:
            devices.append(open_gpu(candidates[index], _ignore_answer))
            continue
        device = openings[index].device(deadline.end_s(_OPENED))
        if device is None:
            info = _info(candidates[index].identity, driver, notes[index])
            device = late_gpu(
                info, openings[index], partial(_reopen, index, notes[index], options, root)
            )
        devices.append(device)
    return devices


def visible_keys(options: Options, root: Path = Path("/")) -> tuple[set[str], int]:
    """The keys of the GPUs that CUDA would see, and how many NVML shows; none is opened."""
    details = _needed_details(options.environ)
    try:
        session.acquire()
    except pynvml.NVMLError:
        return set(), 0
    try:
        count = int(pynvml.nvmlDeviceGetCount())
        asleep = _asleep(options, root, count)
        candidates = [
            _sleeping(index, asleep[index])
            if index in asleep
            else _candidate(index, _ignore_answer, details)
            for index in range(count)
        ]
    except pynvml.NVMLError:
        return set(), 0
    finally:
        session.release()
    seen = visible(options.environ, [candidate.identity for candidate in candidates])
    return {f"gpu{index}" for index in seen.indices}, count


class _Details(NamedTuple):
    """What is asked of a GPU, besides its UUID and name, to know whether CUDA sees it."""

    order: bool
    slices: bool


def _needed_details(environ: Mapping[str, str]) -> _Details:
    """Each call of a slow driver takes its time, and for most lists of CUDA's names are enough."""
    listed = environ.get("CUDA_VISIBLE_DEVICES", "").strip()
    is_named = listed.startswith(_NAMES)
    return _Details(order=bool(listed) and not is_named, slices=listed.startswith("MIG-"))


def _nameless(environ: Mapping[str, str], openings: Mapping[int, Opening]) -> list[int]:
    """GPUs that are late, where CUDA's list has names: any of them may be on it."""
    listed = environ.get("CUDA_VISIBLE_DEVICES", "").strip()
    is_named = listed.startswith(_NAMES)
    return [index for index, opening in openings.items() if is_named and opening.is_late]


def _reopen(index: int, note: str, options: Options, root: Path) -> Device | None:
    """A GPU that did not answer before, as it is now; None where not even NVML answers."""
    try:
        session.acquire()
    except pynvml.NVMLError:
        return None
    try:
        asleep = _asleep(options, root, pynvml.nvmlDeviceGetCount())
        candidate = (
            _sleeping(index, asleep[index])
            if index in asleep
            else _candidate(index, _ignore_answer, _needed_details(options.environ))
        )
        return _open(
            candidate,
            _ignore_answer,
            driver=_driver(),
            note=note,
            look=lambda: None,
            options=options,
        )
    except pynvml.NVMLError:
        return None
    finally:
        session.release()


def _ignore_answer() -> None:
    """Of a GPU for which nobody waits."""


def _asleep(options: Options, root: Path, count: int) -> dict[int, Sleeper]:
    # What `joulewise sim` shows is on no bus: this machine's own GPUs must not speak for it.
    return {} if "JOULEWISE_SIM" in options.environ else sleepers(root, count)


def _sleeping(index: int, sleeper: Sleeper) -> Candidate:
    bus_id = f"0000{sleeper.bus_id}"  # NVML writes the domain with eight digits
    identity = GpuIdentity(index, sleeper.uuid, sleeper.name, bus_id)
    reason = "the GPU is asleep (runtime suspended), and reading it would wake it"
    return Candidate(identity, fault=Fault(DeviceError, reason, FIX), asleep=True)


def _candidate(index: int, on_answer: OnAnswer, details: _Details) -> Candidate:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        on_answer()
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        on_answer()
        identity = GpuIdentity(index, uuid, pynvml.nvmlDeviceGetName(handle))
        on_answer()
        if details.order:
            bus_id = pynvml.nvmlDeviceGetPciInfo(handle).busId
            on_answer()
            identity = replace(identity, bus_id=bus_id, speed=speed(handle))
    except pynvml.NVMLError as error:
        return Candidate(GpuIdentity(index, ""), fault=fault(error.value, index))
    if details.slices:
        identity = replace(identity, slices=mig_slices(handle))
    return Candidate(identity, handle)


def _open(
    candidate: Candidate,
    on_answer: OnAnswer,
    *,
    driver: str,
    note: str,
    look: Callable[[], Device | None],
    options: Options,
) -> Device:
    index, info = candidate.identity.index, _info(candidate.identity, driver, note)
    if candidate.fault is not None:
        return SilentGpu(info, candidate.fault, look, asleep=candidate.asleep)
    try:
        gpu = NvidiaGpu(info, candidate.handle, index, on_answer, options)
    except pynvml.NVMLError as error:
        return SilentGpu(info, fault(error.value, index), look)
    if not options.energy_first:
        gpu.complete(on_answer)
        gpu.check_scope(on_answer)
    return gpu


def _info(identity: GpuIdentity, driver: str, note: str) -> DeviceInfo:
    return DeviceInfo(
        f"gpu{identity.index}",
        Kind.GPU,
        identity.model or "NVIDIA GPU",
        identity.uuid or identity.bus_id or f"NVML index {identity.index}",
        "nvidia",
        driver,
        note=note,
        slices=tuple(part.uuid for part in identity.slices),
        is_simulated=reading_source() is Source.SIMULATED,
    )


def _driver() -> str:
    cuda = pynvml.nvmlSystemGetCudaDriverVersion()
    return (
        f"{pynvml.nvmlSystemGetDriverVersion()} (NVML {pynvml.nvmlSystemGetNVMLVersion()}, "
        f"CUDA {cuda // 1000}.{cuda % 1000 // 10})"
    )
