"""Finds and opens NVIDIA GPUs: those that NVML shows, without those hidden from CUDA.

A laptop's GPU sleeps at a few milliwatts. ``nvmlInit`` leaves it so: NVML initialises a GPU when
its handle is requested (NVML API Reference, nvmlInit_v2), and that wakes it. So the kernel's sysfs
says which GPUs are suspended, before any handle is taken.

Each GPU is opened in a thread of its own, so that a slow one does not delay the others: the first
call initialises it, which takes a second or more without persistence mode, and much longer on a
board that fails.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

import pynvml

from joulewise.data import DeviceInfo, Kind, Source, Unavailable
from joulewise.devices import DISCOVERY_THREAD
from joulewise.devices.cuda_visible import GpuIdentity, cuda_visible_gpus
from joulewise.devices.device import Device, Options, join_notes
from joulewise.devices.nvidia import nvml_library
from joulewise.devices.nvidia.gpu import NvidiaGpu, UnresponsiveGpu
from joulewise.devices.nvidia.nvml_library import (
    NvmlFailure,
    fault,
    mig_slices,
    reading_source,
    speed,
)
from joulewise.errors import DeviceError

_WAKE = "wake it by using it, e.g. `nvidia-smi`, then try again"


@dataclass(frozen=True)
class SuspendedGpu:
    """A GPU that the kernel has suspended; name and UUID are empty where they are unknown."""

    bus_id: str
    name: str
    uuid: str


def find_suspended(root: Path, count: int) -> dict[int, SuspendedGpu]:
    """The suspended GPUs by NVML index, among ``count`` that NVML shows.

    NVML counts in the order of the bus. Where the kernel knows another number of GPUs than NVML
    shows, as in a container, the two cannot be matched, and none counts as suspended.
    """
    folder = root / "sys/bus/pci/drivers/nvidia"
    try:
        gpus = sorted(path for path in folder.iterdir() if path.name.count(":") == 2)
    except OSError:
        return {}
    if len(gpus) != count:
        return {}
    return {
        index: _read_suspended(root, path.name)
        for index, path in enumerate(gpus)
        if _text(path / "power/runtime_status").strip() == "suspended"
    }


def _read_suspended(root: Path, bus_id: str) -> SuspendedGpu:
    information = dict(
        line.split(":", 1)
        for line in _text(root / f"proc/driver/nvidia/gpus/{bus_id}/information").splitlines()
        if ":" in line
    )
    uuid = information.get("GPU UUID", "").strip()
    # The driver masks the UUID of a GPU that it has not initialised since it was loaded.
    return SuspendedGpu(bus_id, information.get("Model", "").strip(), "" if "?" in uuid else uuid)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


# A GPU that has answered once is initialised, and a call takes 0.1 to 2 ms then. Chosen: a driver
# that takes 500 times as long counts as hanging. With twice as much, a command that waits for
# discovery is delayed by as much where a driver hangs.
_STALLED_S: Final = 1.0
_LATE: Final = NvmlFailure(
    DeviceError,
    "its driver had not answered when the recording began",
    "keep drivers loaded with `sudo nvidia-smi -pm 1`; if it stays slow, see `dmesg | grep -i xid`",
)

OnAnswer = Callable[[], None]
"""Called whenever the driver has answered, with an error or not."""


class Deadline:
    """The time that discovery may take (None: any), from now on."""

    def __init__(self, time_s: float | None) -> None:
        self._time_s = time_s
        self._start_s = monotonic()

    def end_s(self, share: float) -> float | None:
        """When that share of the time is over, on the monotonic clock."""
        return None if self._time_s is None else self._start_s + share * self._time_s


@dataclass(frozen=True)
class Candidate:
    """A GPU that may be opened; ``fault`` is why not, ``asleep`` whether it is suspended."""

    identity: GpuIdentity
    handle: Any = None
    fault: NvmlFailure | None = None
    asleep: bool = False


OpenGpu = Callable[[Candidate, OnAnswer], Device]


class GpuOpener:
    """Opens one GPU: identifies it first, then opens it once it is known to be visible.

    ``identify`` and ``open_gpu`` are called in a thread of its own, which holds NVML meanwhile.
    What they raise is a fault of this GPU alone. After ``start``, call ``open`` or ``dismiss``: the
    thread waits for one of them.
    """

    def __init__(self, index: int, identify: Callable[[int, OnAnswer], Candidate]) -> None:
        self._index = index
        self._identify = identify
        self._open: OpenGpu | None = None
        self._candidate: Candidate | None = None
        self._device: Device | None = None
        self._is_identified = threading.Event()
        self._is_wanted = threading.Event()
        self._is_opened = threading.Event()
        self._answered_s: float | None = None
        self._thread = threading.Thread(target=self._run, name=DISCOVERY_THREAD, daemon=True)

    def start(self) -> GpuOpener:
        nvml_library.acquire()  # before the caller, who holds NVML, releases it
        self._thread.start()
        return self

    def candidate(self, end_s: float | None) -> Candidate:
        """What is known of it by ``end_s``: a GPU that has not answered has its index alone."""
        self._wait_for(self._is_identified, end_s)
        return self._candidate or Candidate(GpuIdentity(self._index, ""), fault=_LATE)

    @property
    def is_late(self) -> bool:
        """Whether it has not been identified yet."""
        return self._candidate is None

    def open(self, open_gpu: OpenGpu) -> None:
        self._open = open_gpu
        if not self.is_late:  # it was not called since it was identified
            self._answered()
        self._is_wanted.set()

    def dismiss(self, end_s: float | None) -> None:
        """End its thread where the GPU is not to be opened, and wait for that until ``end_s``."""
        if self._open is None:
            self._is_wanted.set()
            if not self.is_late:
                self._wait_for(self._is_opened, end_s)

    def device(self, end_s: float | None) -> Device | None:
        """The GPU as of ``end_s``; None where it is not open yet."""
        self._wait_for(self._is_opened, end_s)
        return self._device

    def _wait_for(self, event: threading.Event, end_s: float | None) -> None:
        """Wait for the event, but not beyond ``end_s``, nor for a driver that hangs."""
        while not event.is_set():
            if end_s is None:
                event.wait()
                return
            # Before the first answer the GPU is being initialised, which may take long.
            now_s = monotonic()
            since_s = now_s if self._answered_s is None else self._answered_s
            left_s = min(end_s, since_s + _STALLED_S) - now_s
            if left_s <= 0:
                return
            event.wait(left_s)

    def _answered(self) -> None:
        self._answered_s = monotonic()

    def _run(self) -> None:
        try:
            self._candidate = self._identified()
            self._is_identified.set()
            self._is_wanted.wait()
            if self._open:
                self._device = self._opened(self._open, self._candidate)
        finally:
            self._is_identified.set()
            self._is_opened.set()
            nvml_library.release()

    def _identified(self) -> Candidate:
        try:
            return self._identify(self._index, self._answered)
        except Exception as error:  # noqa: BLE001  # a bug must not cost the other GPUs
            return Candidate(GpuIdentity(self._index, ""), fault=_unexpected(error))

    def _opened(self, open_gpu: OpenGpu, candidate: Candidate) -> Device:
        try:
            return open_gpu(candidate, self._answered)
        except Exception as error:  # noqa: BLE001  # likewise
            faulty = replace(candidate, handle=None, fault=_unexpected(error))
            return open_gpu(faulty, self._answered)


def _unexpected(error: Exception) -> NvmlFailure:
    what = f"unexpected {type(error).__name__}: {error}"
    return NvmlFailure(DeviceError, what, "please report this as a bug")


class LateGpu(UnresponsiveGpu):
    """A GPU whose driver has not answered in time; it can be reopened as soon as it has."""

    is_late = True


def late_gpu(info: DeviceInfo, opener: GpuOpener, reopen: Callable[[], Device | None]) -> LateGpu:
    """A late GPU; ``reopen`` opens it again where it answers later, but with a fault."""

    def answer() -> Device | None:
        device = opener.device(end_s=0)
        return reopen() if isinstance(device, UnresponsiveGpu) else device

    return LateGpu(info, _LATE, answer)


# Shares of the time for discovery by which GPUs must be identified and open, or count as late.
# Chosen: the rest is for the driver's calls before them and for the devices after them.
_IDENTIFIED: Final = 0.6
_OPENED: Final = 0.9
_NAMES: Final = ("GPU-", "MIG-")


def discover_and_count(
    options: Options, root: Path = Path("/")
) -> tuple[list[Device] | Unavailable, int]:
    """The GPUs, or why there is none, and the number that NVML shows, hidden from CUDA or not."""
    deadline = Deadline(options.deadline_s)
    count = 0
    try:
        with nvml_library.opened():  # each device that is opened holds NVML, too
            count = int(pynvml.nvmlDeviceGetCount())
            return _discover(options, root, count, deadline), count
    except pynvml.NVMLError as error:
        return fault(error.value).unavailable(), count


def _discover(
    options: Options, root: Path, count: int, deadline: Deadline
) -> list[Device] | Unavailable:
    if count == 0:
        return Unavailable(
            "the NVIDIA driver is loaded, but shows no GPU",
            "check `lspci | grep -i nvidia` and `dmesg | grep -i nvrm`; in a container use --gpus",
        )
    asleep = _find_asleep(options, root, count)
    identify = partial(_identify, details=_needed_details(options.environ))
    openers = {i: GpuOpener(i, identify).start() for i in range(count) if i not in asleep}
    try:
        return _open_visible(options, root, asleep, openers, deadline)
    finally:
        for opener in openers.values():  # or its thread would wait for ever
            opener.dismiss(deadline.end_s(_OPENED))


def _open_visible(
    options: Options,
    root: Path,
    asleep: Mapping[int, SuspendedGpu],
    openers: Mapping[int, GpuOpener],
    deadline: Deadline,
) -> list[Device] | Unavailable:
    driver = _driver()
    candidates = {
        index: _sleeping(index, asleep[index])
        if index in asleep
        else openers[index].candidate(deadline.end_s(_IDENTIFIED))
        for index in sorted({*asleep, *openers})
    }
    identities = [candidate.identity for candidate in candidates.values()]
    shown = cuda_visible_gpus(options.environ, identities)
    nameless = _find_nameless(options.environ, openers)
    maybe_shown = {*shown.indices, *nameless}
    wanted = sorted(candidates if options.hidden_too else maybe_shown)
    if not wanted:
        return Unavailable(shown.reason, "unset CUDA_VISIBLE_DEVICES")
    notes = {
        index: join_notes(shown.notes.get(index), shown.reason) if index in maybe_shown else ""
        for index in wanted
    }
    reopens = {index: partial(_reopen, index, note, options, root) for index, note in notes.items()}
    opens = {
        index: partial(_open, driver=driver, note=note, reopen=reopens[index], options=options)
        for index, note in notes.items()
    }
    for index in opens.keys() & openers.keys():
        openers[index].open(opens[index])
    devices: list[Device] = []
    for index, open_gpu in opens.items():
        if index in asleep:
            devices.append(open_gpu(candidates[index], _ignore_answer))
            continue
        device = openers[index].device(deadline.end_s(_OPENED))
        if device is None:
            info = _info(candidates[index].identity, driver, notes[index])
            device = late_gpu(info, openers[index], reopens[index])
        devices.append(device)
    return devices


def visible_keys(options: Options, root: Path = Path("/")) -> tuple[set[str], int]:
    """The keys of the GPUs that CUDA would see, and the number that NVML shows; none is opened."""
    try:
        with nvml_library.opened():
            count = int(pynvml.nvmlDeviceGetCount())
            asleep = _find_asleep(options, root, count)
            candidates = [_find_candidate(index, asleep, options) for index in range(count)]
    except pynvml.NVMLError:
        return set(), 0
    identities = [candidate.identity for candidate in candidates]
    return {
        f"gpu{index}" for index in cuda_visible_gpus(options.environ, identities).indices
    }, count


def _find_candidate(index: int, asleep: Mapping[int, SuspendedGpu], options: Options) -> Candidate:
    """What is known of a GPU now, without waking it."""
    if index in asleep:
        return _sleeping(index, asleep[index])
    return _identify(index, _ignore_answer, _needed_details(options.environ))


class _Details(NamedTuple):
    """What to read of a GPU, besides its UUID and name, to know whether CUDA sees it."""

    order: bool
    slices: bool


def _needed_details(environ: Mapping[str, str]) -> _Details:
    """As few as possible, since a driver may be slow: for most lists of CUDA's, names do."""
    listed = environ.get("CUDA_VISIBLE_DEVICES", "").strip()
    is_named = listed.startswith(_NAMES)
    return _Details(order=bool(listed) and not is_named, slices=listed.startswith("MIG-"))


def _find_nameless(environ: Mapping[str, str], openers: Mapping[int, GpuOpener]) -> list[int]:
    """The late GPUs, where CUDA's list has names: any of them may be on it."""
    listed = environ.get("CUDA_VISIBLE_DEVICES", "").strip()
    is_named = listed.startswith(_NAMES)
    return [index for index, opener in openers.items() if is_named and opener.is_late]


def _reopen(index: int, note: str, options: Options, root: Path) -> Device | None:
    """A GPU that did not answer before, as it is now; None where NVML does not answer."""
    try:
        with nvml_library.opened():
            asleep = _find_asleep(options, root, pynvml.nvmlDeviceGetCount())
            return _open(
                _find_candidate(index, asleep, options),
                _ignore_answer,
                driver=_driver(),
                note=note,
                reopen=lambda: None,
                options=options,
            )
    except pynvml.NVMLError:
        return None


def _ignore_answer() -> None:
    """For a GPU that nobody waits for."""


def _find_asleep(options: Options, root: Path, count: int) -> dict[int, SuspendedGpu]:
    # Simulated GPUs are on no bus: the state of this machine's own GPUs does not concern them.
    return {} if "JOULEWISE_SIM" in options.environ else find_suspended(root, count)


def _sleeping(index: int, gpu: SuspendedGpu) -> Candidate:
    bus_id = f"0000{gpu.bus_id}"  # NVML writes the domain with eight digits
    identity = GpuIdentity(index, gpu.uuid, gpu.name, bus_id)
    reason = "the GPU is asleep (runtime suspended), and reading it would wake it"
    return Candidate(identity, fault=NvmlFailure(DeviceError, reason, _WAKE), asleep=True)


def _identify(index: int, on_answer: OnAnswer, details: _Details) -> Candidate:
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
    reopen: Callable[[], Device | None],
    options: Options,
) -> Device:
    index, info = candidate.identity.index, _info(candidate.identity, driver, note)
    if candidate.fault is not None:
        return UnresponsiveGpu(info, candidate.fault, reopen, asleep=candidate.asleep)
    try:
        gpu = NvidiaGpu(info, candidate.handle, index, on_answer, options)
    except pynvml.NVMLError as error:
        return UnresponsiveGpu(info, fault(error.value, index), reopen)
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
